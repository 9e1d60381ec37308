"""What a person may do with an agent without an engine: move its address, hold it, look at its state, delete or export
it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import ratchet
from ratchet.agentkit import AgentKitError, Change, NoSuchChange, StateStore
from ratchet.agents.contract import (
    README,
    SCHEMA,
    STATE,
    UNTRACKED,
    AgentDirectory,
    agents_directory,
    place_of,
)
from ratchet.agents.state import CannotCarry
from ratchet.agents.stores import AgentStates, Resumed
from ratchet.agents.versions import find_version
from ratchet.kernel import Conflict, Misuse, NotFound, decoded
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.agents import (
    AgentRow,
    AgentStatus,
    AgentVersion,
    VersionStatus,
    delete_agent,
    get_agent,
    get_version,
    last_good,
    move_current,
    release_version,
    set_pinned,
)
from ratchet.workspaces import WorkspaceError
from ratchet.workspaces.directories import remove_tree

State = dict[str, Any]

FOLLOWING = "latest"
"""To be pinned at it is not to be pinned."""
# How long a server may keep the lock of its state before we stop waiting for it.
_PATIENCE_SECONDS = 30.0
_TIDYING_SECONDS = 5.0
_STATE_HINT = "look at its history with `ratchet agent state {name} --history`, and restore another change"


class Place(Protocol):
    """Where agents are: a runtime, or the call of an operation."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def home(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class Moved:
    """Where the address of an agent leads now, and where it led before."""

    agent: AgentRow
    version: AgentVersion
    before: str | None
    resumed: Resumed | None = None
    """What became of the state, where it moved."""

    @property
    def moved(self) -> bool:
        """Whether it leads elsewhere than before."""
        return self.before != self.version.commit


def promote(
    where: Place,
    name: str,
    version: str,
    *,
    force: bool = False,
    actor: str,
    request_id: str | None = None,
) -> Moved:
    """Let the address lead to a version; a pin stays, on that one. `force` takes it out of quarantine.

    Raises `Conflict` for a quarantined version otherwise.
    """
    with where.ledger.write(actor=actor, request_id=request_id) as tx:
        agent = _ready(tx, name)
        wanted = find_version(tx, agent, version)
        if force:
            release_version(tx, agent, wanted.commit)
        else:
            _check_sound(agent, wanted)
        resumed = _resumed(where, agent, wanted)
        return replace(_move(tx, agent, wanted, why="promoted"), resumed=resumed)


def rollback(
    where: Place,
    name: str,
    version: str | None = None,
    *,
    carry_state: bool = False,
    leave_changes: bool = False,
    actor: str,
    request_id: str | None = None,
) -> Moved:
    """Go back to the version that was current before, or to the one named. It works on the state that there is.

    One that has it in another form resumes its own, or with `carry_state` takes the present one as it is; the history
    of its state keeps what it had. Raises `CannotCarry`, with nothing moved, if that does not fit its schema, and
    `Conflict` if changes of the state would stay behind, unless that is said with `leave_changes`.
    """
    with where.ledger.read() as tx:
        seen = _ready(tx, name)
        wanted = _before(tx, seen) if version is None else find_version(tx, seen, version)
    _check_sound(seen, wanted)
    resumed = _resumed(where, seen, wanted)
    if resumed is not None and resumed.later and not (carry_state or leave_changes):
        raise Conflict(
            f"version {wanted.version} ({wanted.commit[:12]}) of {name} can be gone back to, but {resumed.sentence}",
            hint="`--leave-changes` goes back all the same, `--carry-state` takes the present state along",
        )
    if carry_state and seen.current is not None and seen.current != wanted.commit:
        _carry_state(place_of(where.home, name), seen.current, wanted)
    with where.ledger.write(actor=actor, request_id=request_id) as tx:
        moved = _move(tx, seen, wanted, why="rolled_back")
    return replace(moved, resumed=Resumed(shared=True) if carry_state else resumed)


def _resumed(where: Place, agent: AgentRow, to: AgentVersion) -> Resumed | None:
    """What becomes of the state when the address moves; None where it stays, or no state can be read."""
    if agent.current in (None, to.commit):
        return None
    with contextlib.suppress(AgentKitError, OSError):
        return AgentStates(place_of(where.home, agent.name)).resumed(to.commit, agent.current)
    return None


def pin(
    where: Place, name: str, version: str = "current", *, actor: str, request_id: str | None = None
) -> Moved:
    """Let the address lead to a version and stay there, whatever is made from then on. `latest` takes the pin away."""
    with where.ledger.write(actor=actor, request_id=request_id) as tx:
        agent = _ready(tx, name)
        wanted = find_version(tx, agent, version)
        pinned = version.strip().lower() != FOLLOWING
        if pinned:
            _check_sound(agent, wanted)
        moved = _move(tx, agent, wanted, why="promoted", reason="pinned")
        if agent.pinned != pinned:
            set_pinned(tx, moved.agent, pinned)
        return Moved(get_agent(tx, name), moved.version, moved.before)


def unpin(where: Place, name: str, *, actor: str, request_id: str | None = None) -> AgentRow:
    """Let the address follow new versions again. It stays where it is until there is one."""
    return pin(where, name, FOLLOWING, actor=actor, request_id=request_id).agent


def delete(
    where: Place, name: str, *, purge: bool = False, actor: str, request_id: str | None = None
) -> Path | None:
    """Delete an agent and put its directory away; where it lies then. With `purge` it is removed for good.

    Raises `Conflict` while an Architect works on it, or if its directory cannot be moved; then it stays as it was.
    """
    with where.ledger.read() as tx:
        get_agent(tx, name)
    place = place_of(where.home, name)
    # A change that is on record as ended may still be tidying up.
    held = place.held(patience_seconds=_TIDYING_SECONDS)
    with held, where.ledger.write(actor=actor, request_id=request_id) as tx:
        agent = get_agent(tx, name)
        delete_agent(tx, agent)
        grave = agents_directory(where.home).absolute() / ".deleted" / f"{name}-{agent.id}"
        # Last, since it cannot be rolled back. Who dies before the commit finds it moved when it tries again.
        _put_away(place, grave)
    if not purge:
        return grave
    _purge(name, grave)
    return None


def read_state(where: Place, name: str, version: str | None = None) -> State:
    """The state of a version, or of the current one."""
    with _state_of(where, name, version) as (_, store):
        return store.read()


def state_history(
    where: Place, name: str, version: str | None = None, *, limit: int = 20, before: int | None = None
) -> list[Change]:
    """The newest changes of a version's state, the newest first; those below number `before`, if it is given."""
    with _state_of(where, name, version) as (_, store):
        return store.history(limit, before)


def state_at(where: Place, name: str, number: int, version: str | None = None) -> State:
    """The state of a version as it was after change `number`."""
    with _state_of(where, name, version, number) as (_, store):
        return store.at(number)


def restore_state(
    where: Place,
    name: str,
    number: int,
    version: str | None = None,
    *,
    actor: str,
    request_id: str | None = None,
) -> Change:
    """Make the state after change `number` the present one again, as a new change. Again, it changes nothing."""
    with _state_of(where, name, version, number) as (found, store):
        change = store.restore(number, by=actor)
    with where.ledger.write(actor=actor, request_id=request_id) as tx:
        data = {"agent": name, "commit": found.commit, "change": change.number, "restored": number}
        tx.event("agent.state", message=f"{name}: state {number} restored", data=data)
    return change


def _ready(tx: Transaction, name: str) -> AgentRow:
    agent = get_agent(tx, name)
    if agent.status is not AgentStatus.READY:
        raise Conflict(
            f"the agent {name} is {agent.status}: {agent.reason or 'it has no version yet'}",
            hint=f"see its progress with `ratchet agent show {name}`",
        )
    return agent


def _before(tx: Transaction, agent: AgentRow) -> AgentVersion:
    found = last_good(tx, agent.id, other_than=agent.current)
    if found is None:
        raise Conflict(
            f"there is no version of {agent.name} to go back to",
            hint=f"name one that `ratchet agent versions {agent.name}` lists",
        )
    return found


def _check_sound(agent: AgentRow, version: AgentVersion) -> None:
    if version.status is VersionStatus.QUARANTINED:
        raise Conflict(
            f"version {version.commit[:12]} of {agent.name} is quarantined: {version.reason}",
            hint=f"`ratchet agent promote {agent.name} {version.commit[:12]} --force` takes it out",
        )


def _move(
    tx: Transaction, agent: AgentRow, to: AgentVersion, *, why: str, reason: str | None = None
) -> Moved:
    """Move the address from where `agent` was seen to have it; nothing happens if it leads there already."""
    if agent.current != to.commit:
        move_current(tx, agent, to.commit, expected=agent.current, why=why, reason=reason)
    return Moved(get_agent(tx, agent.name), get_version(tx, agent.id, to.commit), agent.current)


def _carry_state(place: AgentDirectory, current: str, to: AgentVersion) -> None:
    """Give an older version the present state, under its lock and its schema."""
    states = AgentStates(place)
    try:
        for commit in (current, to.commit):
            states.adopt(commit, current)
        states.carry(to.commit, current)
    except AgentKitError as error:
        raise CannotCarry(
            f"the present state cannot go back to version {to.version} ({to.commit[:12]}): {error.message}",
            hint="roll back without the state: that version keeps its own",
        ) from error


@contextlib.contextmanager
def _state_of(
    where: Place, name: str, version: str | None, number: int | None = None
) -> Iterator[tuple[AgentVersion, StateStore]]:
    """A version and the store of its state. What is wrong with that is told in our words, not in an agent's."""
    with where.ledger.read() as tx:
        found = find_version(tx, get_agent(tx, name), version or "current")
    try:
        yield found, StateStore(place_of(where.home, name).version(found.commit), _PATIENCE_SECONDS)
    except NoSuchChange as error:
        missing = NotFound("change", f"{number} of the state of {name}")
        missing.hint = f"`ratchet agent state {name} --history` lists those that there are"
        raise missing from error
    except AgentKitError as error:
        raise Conflict(error.message, hint=_STATE_HINT.format(name=name)) from error


def _put_away(place: AgentDirectory, grave: Path) -> None:
    try:
        grave.parent.mkdir(parents=True, exist_ok=True)
        if grave.exists() and not place.repository.exists():
            # A delete that died between the move and its commit; all that lies here is the lock.
            remove_tree(place.root)
        else:
            place.root.rename(grave)
    except OSError as error:
        raise Conflict(
            f"the directory of {place.name} cannot be moved to {grave}: {error.strerror}",
            hint="see who owns it and whether the disk takes writes, then delete it again",
        ) from error


def _purge(name: str, grave: Path) -> None:
    try:
        remove_tree(grave)
    except WorkspaceError as error:
        raise Conflict(f"{name} is deleted, but {error}", hint="remove that directory by hand") from error


_PORT = 8000
_DOCKERFILE = """\
FROM python:3.12-slim
WORKDIR /agent
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
# Inside of a container, the person who runs it decides what reaches the port.
ENV RATCHET_AGENT_LISTEN=0.0.0.0
EXPOSE {port}
CMD ["python", "runner.py", "{port}"]
"""
_RUNNING = """
## Running it without Ratchet

This folder is version {version} of the agent {name}, with its state as it was when it was exported. It needs Python
3.11 or newer and nothing of Ratchet but the kit, which lies in `ratchet/`.

    python -m venv .venv && .venv/bin/pip install -r requirements.txt
    .venv/bin/python runner.py {port}

The tools answer as an MCP server at http://127.0.0.1:{port}/mcp, on this machine only. `python tuner.py 8001 8002`
starts the Tuner beside it. Or in a container:

    docker build -t {name} . && docker run --rm -p 127.0.0.1:{port}:{port} {name}

Without Ratchet there is no Architect: feedback changes the state and never the code, `ask` has no model, and other
agents are out of reach. Nothing restarts, confines or updates it. Secrets are not exported:
set the variables that it reads. Everything it learns is in `state.db`, in this folder.
"""


def export_agent(where: Place, name: str, directory: Path, version: str | None = None) -> Path:
    """Write a version of an agent, the current one if none is named, with its present state into a new directory.

    Raises `NotFound`, `Misuse` and `Conflict`.
    """
    # Loaded here: what finds packages is needed by no other action.
    from ratchet.agents.servers.environment import KIT, REQUIREMENTS, needed, read_requirements

    with where.ledger.read() as tx:
        found = find_version(tx, get_agent(tx, name), version or "current")
    source = place_of(where.home, name).version(found.commit)
    if not source.is_dir():
        raise Misuse(
            f"version {found.version} of {name} does not lie in {where.home}",
            hint="export it where it was made",
        )
    state = read_state(where, name, version)
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        if not directory.is_dir() or any(directory.iterdir()):
            raise Conflict(f"{directory} is there already", hint="name a new directory") from None
    leave_out = shutil.ignore_patterns(*UNTRACKED, ".gitignore")
    shutil.copytree(source, directory, symlinks=True, ignore=leave_out, dirs_exist_ok=True)
    package = Path(ratchet.__file__).parent
    kit = directory / package.name
    shutil.copytree(package / "agentkit", kit / "agentkit", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "__init__.py", kit)
    (directory / STATE).write_text(json.dumps(state, ensure_ascii=False, indent=2) + "\n")
    lines = [f"{each}=={one.version}" for each, one in sorted(needed(KIT).items())]
    (directory / REQUIREMENTS).write_text(
        "".join(f"{each}\n" for each in [*lines, *read_requirements(source)])
    )
    (directory / "Dockerfile").write_text(_DOCKERFILE.format(port=_PORT))
    (directory / ".dockerignore").write_text(".venv\nlogs\n__pycache__\n")
    readme = directory / README
    text = decoded(readme.read_bytes()).rstrip() if readme.is_file() else f"# {name}"
    readme.write_text(text + "\n" + _RUNNING.format(name=name, version=found.version, port=_PORT))
    assert (directory / SCHEMA).is_file()
    return directory
