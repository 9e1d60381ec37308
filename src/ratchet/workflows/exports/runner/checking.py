"""What the test of an export looks at."""

from __future__ import annotations

import asyncio
import unittest
from pathlib import Path

from ratchet.flowkit.validation import require_valid

from .package import read_package


class ExportTest(unittest.TestCase):
    """Whether an export is whole and gives the answer that was recorded. `folder` is where it lies."""

    folder = Path()

    def test_the_workflow_is_whole(self) -> None:
        package = read_package(self.folder)
        require_valid(package.spec)
        for tool in package.spec.tool_definitions.values():
            for name in tool.extra.get("executable", {}).get("files", ()):
                if not (self.folder / "files" / tool.tool_id / name).is_file():
                    self.fail(f"{name} of tool {tool.tool_id} is missing")

    def test_it_gives_the_recorded_answer(self) -> None:
        package = read_package(self.folder)
        if package.recording is None:
            self.skipTest("nothing is recorded; export the workflow with a run")
        ended = asyncio.run(package.run(package.recording.inputs, package.caller(recorded=True)))
        if ended.status != "completed":
            self.fail(f"it is {ended.status}: {ended.error}")
        found = dict(ended.outputs)
        if found != package.recording.outputs:
            self.fail(f"it gave {found!r}, and the recorded run {package.recording.outputs!r}")
