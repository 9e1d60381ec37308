"""An agent as a folder that runs without Ratchet: its code and state, the kit, what both need, and how to start it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ratchet
from ratchet.agents import actions
from ratchet.agents.contract import README, SCHEMA, STATE, UNTRACKED, place_of
from ratchet.agents.servers.environment import KIT, REQUIREMENTS, needed, read_requirements
from ratchet.agents.versions import find_version
from ratchet.kernel import Conflict, Misuse, decoded
from ratchet.ledger.agents import get_agent
from ratchet.runtime.call import Call

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


def export_agent(call: Call, name: str, directory: Path, version: str | None = None) -> Path:
    """Write a version of an agent, the current one if none is named, with its present state into a new directory.

    Raises `NotFound`, `Misuse` and `Conflict`.
    """
    with call.read() as tx:
        found = find_version(tx, get_agent(tx, name), version or "current")
    source = place_of(call.home, name).version(found.commit)
    if not source.is_dir():
        raise Misuse(
            f"version {found.version} of {name} does not lie in {call.home}",
            hint="export it where it was made",
        )
    state = actions.read_state(call, name, version)
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
    told = decoded(readme.read_bytes()).rstrip() if readme.is_file() else f"# {name}"
    readme.write_text(told + "\n" + _RUNNING.format(name=name, version=found.version, port=_PORT))
    assert (directory / SCHEMA).is_file()
    return directory
