"""An export as a folder: what it holds, read once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.execution import Executed, ExecutionJournal
from ratchet.flowkit.executor import execute
from ratchet.flowkit.reader import read_text
from ratchet.flowkit.spec import WorkflowSpec

from .caller import ExportRecording, Standalone, read_recording

# Most steps wait for a service; those that compute share the processors all the same.
_AT_ONCE = 8


@dataclass(frozen=True)
class Package:
    folder: Path
    target: str
    spec: WorkflowSpec
    models: Mapping[str, str]
    recording: ExportRecording | None

    def caller(self, *, recorded: bool = False, approved: Iterable[str] = ()) -> Standalone:
        """Who carries out the steps. Where there is no model, or `recorded` is asked for, the recording answers."""
        if recorded and self.recording is None:
            raise SpecError(["nothing is recorded here; export the workflow with a run"])
        replaying = recorded or self.target == "embedded"
        recording = (self.recording or _nothing()) if replaying else None
        return Standalone(self.folder / "files", self.models, recording, frozenset(approved))

    async def run(
        self, inputs: Mapping[str, Any], caller: Standalone, journal: ExecutionJournal | None = None
    ) -> Executed:
        return await execute(self.spec, inputs, caller, journal=journal, concurrency=_AT_ONCE)


def read_package(folder: Path) -> Package:
    """Raises `SpecError` for a workflow that cannot be read."""
    about = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    recorded = folder / "recorded.json"
    return Package(
        folder,
        about["target"],
        read_text((folder / "workflow.json").read_bytes()),
        about["models"],
        read_recording(json.loads(recorded.read_text(encoding="utf-8"))) if recorded.exists() else None,
    )


def _nothing() -> ExportRecording:
    return ExportRecording(0, False, {}, {})
