"""An Architect that is killed anywhere continues where it was, on either database."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.architect import AgentRequest, create_agent, send_feedback
from ratchet.agents.contract import place_of
from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.agents import get_agent, list_versions
from ratchet.ledger.runs import get_run
from ratchet.ledger.usage import list_sessions, total
from ratchet.runtime import Runtime, list_jobs
from tests.agents.authors import PLACES
from tests.agents.settled import settle, tree
from tests.runtime.deaths import die_at, places_passed
from tests.runtime.fleet import Fleet
from tests.waiting import eventually

NAME = "greeter"
# A session is paid for again only if its process died before it was recorded.
_PAID_AGAIN = {"after the session", "session ended"}


def settled(ledger: Ledger, run_id: int) -> bool:
    with ledger.read() as tx:
        return get_run(tx, run_id).status.final


def processes(home: Path) -> list[str]:
    """The command lines of whatever still runs in a version of this home."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if str(home / "agents") in str((each / "cwd").readlink()):
                found.append((each / "cmdline").read_text())
        except OSError:
            continue
    return found


# One stage shows it in the gate.
@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=() if place == "checked" else pytest.mark.soak) for place in PLACES]
)
def test_an_architect_killed_at_any_stage_makes_the_agent_all_the_same(
    place: str, runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    die_at(runtime.home, place)
    fleet.add()
    run_id = create_agent(runtime, AgentRequest(name=NAME, description="create hello"), actor="test")
    eventually(lambda: place in places_passed(runtime.home))
    fleet.add()
    eventually(lambda: settled(ledger, run_id))
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        assert run.status is RunStatus.COMPLETED, run.reason
        agent = get_agent(tx, NAME)
        assert [each.commit for each in list_versions(tx, agent.id)] == [run.result["commit"]]
        assert len(list_sessions(tx, run_id=run_id)) == 1
        assert total(tx, "run", run_id).input_tokens == 10
    root = place_of(runtime.home, NAME).root
    assert tree(root) == {"repo.git", "states", run.result["commit"]}
    assert places_passed(runtime.home).count("after the session") == (2 if place in _PAID_AGAIN else 1)
    assert fsck(root) == ""
    # The worker closes its git commands behind the end of the run.
    eventually(lambda: processes(runtime.home) == [])


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
def test_an_architect_killed_at_any_stage_of_a_change_leaves_the_live_version_and_finishes_the_new_one(
    place: str, runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    first = settle(runtime)
    root = place_of(runtime.home, NAME).root
    with StateStore(root / first).edit() as state:
        state["greeted"] = 5
    run_id = killed(runtime, fleet, place, "say ahoy")
    # Whatever lies around, what serves is whole.
    assert git(root / first, "status", "--porcelain") == ""
    assert StateStore(root / first).read()["greeted"] == 5
    assert tree(root) - {"repo.git", "states", first} <= {f"{first}-staging", *versions(root)}

    fleet.add()
    eventually(lambda: settled(ledger, run_id))
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        assert run.status is RunStatus.COMPLETED, run.reason
        agent = get_agent(tx, NAME)
        second = run.result["commit"]
        assert [each.commit for each in list_versions(tx, agent.id)] == [second, first]
        assert agent.current == second
        assert len(list_sessions(tx, run_id=run_id)) == 1
    assert tree(root) == {"repo.git", "states", first, second}
    assert StateStore(root / second).read()["greeted"] == 5
    assert git(root / second, "log", "--format=%H").split() == [second, first]
    assert places_passed(runtime.home).count("after the session") == (2 if place in _PAID_AGAIN else 1)
    assert fsck(root) == ""
    # The worker closes its git commands behind the end of the run.
    eventually(lambda: processes(runtime.home) == [])


@pytest.mark.soak
@pytest.mark.parametrize("place", ["session ended", "state changed", "recorded"])
def test_a_lesson_is_learned_once_however_often_the_architect_is_killed(
    place: str, runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    first = settle(runtime)
    root = place_of(runtime.home, NAME).root
    run_id = killed(runtime, fleet, place, "remember politeness")
    # More than is read of a history at once.
    for number in range(210):
        with StateStore(root / first).edit() as state:
            state["greeted"] = number
    with StateStore(root / first).edit() as state:
        state["lessons"].append("patience")
    fleet.add()
    eventually(lambda: settled(ledger, run_id))
    assert sorted(StateStore(root / first).read()["lessons"]) == ["patience", "politeness"]
    assert tree(root) == {"repo.git", first}


@pytest.mark.soak
def test_two_architects_on_one_directory_do_not_work_at_the_same_time(
    runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    """The second has a ledger of its own, so only the directory itself can tell it to wait."""
    first = settle(runtime)
    place = place_of(runtime.home, NAME)
    with place.held():
        fleet.add()
        run_id = send_feedback(runtime, NAME, "remember politeness", actor="test")
        eventually(lambda: waits(ledger, run_id))
        assert tree(place.root) == {"repo.git", first}
    eventually(lambda: settled(ledger, run_id))
    assert StateStore(place.version(first)).read()["lessons"] == ["politeness"]


def killed(runtime: Runtime, fleet: Fleet, place: str, message: str) -> int:
    """Give feedback to a worker that dies at `place`; the number of the run, and the worker is dead."""
    die_at(runtime.home, place)
    pid = fleet.add()
    run_id = send_feedback(runtime, NAME, message, actor="test")
    eventually(lambda: not (runtime.home / "death").exists())
    eventually(lambda: not alive(pid))
    return run_id


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def waits(ledger: Ledger, run_id: int) -> bool:
    with ledger.read() as tx:
        return any("another Architect" in (job.error or "") for job in list_jobs(tx, run_id=run_id))


def versions(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if len(path.name) == 40}


def fsck(root: Path) -> str:
    return git(root / "repo.git", "fsck", "--strict", "--no-dangling")


def git(directory: Path, *words: str) -> str:
    command = ["git", "-C", str(directory), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
