"""Having what an engine wrote parsed and held against its schemas in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ratchet
from ratchet.agents.checks.finding import NotPassed
from ratchet.judges.confinement import run_confined
from ratchet.judges.deadline import Deadline
from ratchet.judges.endings import blame, described, told
from ratchet.judges.reports import BadReport, strict_json
from ratchet.kernel import Outcome, RatchetError
from ratchet.sandbox import Bounds, Finished, Policy

PACKAGE = Path(ratchet.__file__).resolve().parent
"""What must be readable for an agent to import `ratchet.agentkit`, and for the programs in `inside`."""
_PROGRAM = Path(__file__).resolve().parent / "inside" / "reading.py"
BOUNDS = Bounds(wall_seconds=60.0, output_bytes=16 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Read:
    """The functions that each of the Python files defines, `Class.method` included, and how they were read.

    `misfit` says why the state does not fit its schema.
    """

    functions: Mapping[str, Sequence[str]]
    misfit: str | None
    finished: Finished


async def read_code(
    directory: Path, files: Sequence[str], *, schema: str, state: str, deadline: Deadline
) -> Read:
    """Parse Python files, and hold a state against its schema. Raises `NotPassed` where the files do not parse."""
    wanted = {"python": sorted(files), "schema": schema, "state": state}
    return await _read(wanted, directory, (directory,), deadline)


async def read_state(schema: Path, state: Path, deadline: Deadline) -> None:
    """Hold a state against a schema. Raises `NotPassed`."""
    wanted = {"schema": str(schema), "state": state.name}
    read = await _read(wanted, state.parent, (schema.parent, state.parent), deadline)
    if read.misfit is not None:
        raise NotPassed(read.misfit)


async def read_schemas(schemas: Mapping[str, Any], directory: Path, deadline: Deadline) -> None:
    """Raise `NotPassed` unless each of `schemas`, by what it is called, is a JSON Schema."""
    await _read({"schemas": schemas}, directory, (directory,), deadline)


async def _read(wanted: Mapping[str, Any], cwd: Path, readable: tuple[Path, ...], deadline: Deadline) -> Read:
    finished = await run_confined(
        ("{python}", "-I", "-B", str(_PROGRAM)),
        cwd=cwd,
        bounds=BOUNDS,
        policy=Policy(),
        deadline=deadline,
        readable=(*readable, PACKAGE),
        stdin=json.dumps(wanted).encode(),
    )
    if not finished.ok:
        if blame(finished) is Outcome.ERROR:
            raise RatchetError(f"the files could not be read: {told(finished)}")
        raise NotPassed(
            f"the files cannot be read within bounds ({told(finished)}); make them simpler",
            described(finished),
        )
    try:
        found = strict_json(finished.stdout, "what was read")
    except BadReport as error:
        raise RatchetError(str(error)) from None
    if found["problems"]:
        raise NotPassed("; ".join(found["problems"]))
    return Read(found["functions"], found["state"], finished)
