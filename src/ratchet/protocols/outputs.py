"""What belongs into a step's commit besides its author's work: a line of the log, and what the session said."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.engines import Failure, Session, SessionFailed
from ratchet.ledger.protocol_steps import ProtocolStep

LOG = "log.md"


def output_paths(step: ProtocolStep, root: str, exists: Callable[[str], bool]) -> dict[str, str]:
    """Where the session's text goes, by the name of the output: `protocol` and those of `aux`.

    A path belongs to the protocol's folder, unless only the repository has the directory that it names.
    """
    outputs = (step.spec or {}).get("outputs") or {}
    named: dict[str, str] = {}
    if outputs.get("protocol"):
        named["protocol"] = outputs["protocol"]
    named.update(outputs.get("aux") or {})
    return {name: _place(path, root, exists) for name, path in named.items()}


def write_outputs(workspace: Path, session: Session, step: ProtocolStep, root: str) -> None:
    """Write them into the author's workspace. Raises `SessionFailed` where something is in the way."""
    log = workspace / root / LOG
    if log.is_file() and not log.is_symlink():
        when = datetime.fromtimestamp(session.ended_at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        _append(log, f"- {when} - {step.name} executed\n")
    for path in output_paths(step, root, lambda path: (workspace / path).is_dir()).values():
        _write(workspace, path, session)


def _place(path: str, root: str, exists: Callable[[str], bool]) -> str:
    own = PurePosixPath(root, path)
    parent = str(PurePosixPath(path).parent)
    if parent != "." and not exists(str(own.parent)) and exists(parent):
        return path
    return str(own)


def _append(log: Path, line: str) -> None:
    with log.open("a+", encoding="utf-8", errors="replace") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(file.tell() - 1)
            line = line if file.read(1) == "\n" else "\n" + line
        file.write(line)


def _write(workspace: Path, path: str, session: Session) -> None:
    target = workspace / path
    parent = target.parent
    # The author may have put a link where the output goes; nothing is written through it.
    parent.mkdir(parents=True, exist_ok=True)
    if not parent.resolve().is_relative_to(workspace.resolve()) or target.is_symlink() or target.is_dir():
        raise SessionFailed(
            Failure.BAD_OUTPUT, f"something is in the way of the step's output {path}", session=session
        )
    target.write_text(session.text if session.text.endswith("\n") else session.text + "\n", encoding="utf-8")


def listed(paths: Mapping[str, str]) -> dict[str, Any]:
    """The outputs as events tell them."""
    aux = {name: path for name, path in paths.items() if name != "protocol"}
    return {"protocol": paths.get("protocol"), "aux": aux}
