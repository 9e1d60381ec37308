"""The first check: which files there are, and whether each is what it should be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.agents.checks.canary_file import Call, read_calls
from ratchet.agents.checks.finding import NotPassed
from ratchet.agents.checks.reading import read_code, read_state
from ratchet.agents.checks.snapshot import Snapshot
from ratchet.agents.contract import CANARY, METADATA, MIGRATE, README, REQUIRED, SCHEMA, STATE, TESTS
from ratchet.agents.migrating import CannotCarry, migrate
from ratchet.config.agent_settings import Agents
from ratchet.judges.deadline import Deadline
from ratchet.judges.endings import described
from ratchet.judges.reports import BadReport, strict_json
from ratchet.judges.scratch import in_thread
from ratchet.kernel.semver import is_semver

CONFTEST = "conftest.py"


@dataclass(frozen=True, slots=True)
class Form:
    """What the files say. `tests` are the names of the tests in tests.py; `None` if there is no such file."""

    version: str
    tests: tuple[str, ...] | None
    calls: tuple[Call, ...]
    details: dict[str, Any]


async def check_form(snapshot: Snapshot, base: Path | None, settings: Agents, *, deadline: Deadline) -> Form:
    """Raises `NotPassed` at the first file that is not as it should be.

    A state that is still in the form of the version before is migrated in `snapshot`, as it will be later.
    """
    await in_thread(lambda: _check_present(snapshot, base))
    version = read_version(snapshot.read(METADATA))
    calls = await in_thread(lambda: read_calls(snapshot.read(CANARY)) if CANARY in snapshot.files else ())
    python = [name for name in snapshot.files if name.endswith(".py")]
    read = await read_code(snapshot.directory, python, schema=SCHEMA, state=STATE, deadline=deadline)
    if MIGRATE in read.functions and "migrate" not in read.functions[MIGRATE]:
        raise NotPassed(f"{MIGRATE} defines no function migrate(state); write it, or remove the file")
    if read.misfit is not None:
        await _migrate(snapshot, base, settings, read.misfit, deadline)
    tests = tuple(_tests(read.functions[TESTS])) if TESTS in read.functions else None
    details = {
        **described(read.finished),
        "files": len(snapshot.files),
        "bytes": snapshot.size,
        "version": version,
        "test_names": tests,
        "canary_calls": len(calls),
    }
    # What was printed is what was read, in full.
    del details["stdout"]
    return Form(version, tests, calls, details)


async def _migrate(
    snapshot: Snapshot, base: Path | None, settings: Agents, misfit: str, deadline: Deadline
) -> None:
    """Replace the state by what migrate.py makes of it. Raises `NotPassed` with `misfit` if it makes nothing new."""
    directory = snapshot.directory
    try:
        state = strict_json(snapshot.read(STATE), STATE)
        migrated = await migrate(directory, state, settings, parent=base)
    except BadReport:
        raise NotPassed(misfit) from None
    except CannotCarry as error:
        raise NotPassed(f"{misfit}; {error}; {error.hint}") from None
    if migrated is state:
        raise NotPassed(misfit)
    (directory / STATE).write_text(json.dumps(migrated))
    try:
        await read_state(directory / SCHEMA, directory / STATE, deadline)
    except NotPassed as finding:
        raise NotPassed(f"{misfit}; after {MIGRATE}, {finding}") from None


def read_version(metadata: bytes) -> str:
    """The version in metadata.json. Raises `NotPassed`."""
    try:
        found = strict_json(metadata, METADATA)
    except BadReport as error:
        raise NotPassed(str(error)) from None
    if not isinstance(found, dict) or found.keys() != {"version"}:
        raise NotPassed(f'{METADATA} must be an object with the one field "version"')
    version = found["version"]
    if not isinstance(version, str) or not is_semver(version):
        raise NotPassed(
            f"{METADATA} says version {str(version)[:80]!r}; write it as three numbers, such as 1.2.0"
        )
    return version


def _check_present(snapshot: Snapshot, base: Path | None) -> None:
    for name in (*REQUIRED, STATE):
        if name not in snapshot.files:
            raise NotPassed(f"{name} is missing; an agent has {', '.join((*REQUIRED, STATE))}")
    if not snapshot.read(README).strip():
        raise NotPassed(f"{README} is empty; say there what the agent is for and how to call it")
    if CONFTEST in snapshot.files:
        raise NotPassed(f"{CONFTEST} is not read; put what the tests need into {TESTS}, and remove it")
    if base is not None and (base / TESTS).is_file() and TESTS not in snapshot.files:
        raise NotPassed(f"{TESTS} is gone; a change may not delete the tests, put it back")


def _tests(functions: Sequence[str]) -> list[str]:
    """Those of the functions that pytest takes for tests."""
    found = []
    for name in functions:
        first, _, method = name.partition(".")
        if (first.startswith("Test") and method.startswith("test")) or (
            first.startswith("test") and not method
        ):
            found.append(name)
    return sorted(set(found))
