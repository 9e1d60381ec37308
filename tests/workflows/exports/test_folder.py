"""The folder of an export: whole or not there, the same each time, and nothing of this machine in it."""

from __future__ import annotations

import ast
import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.flowkit.spec import ToolDefinition
from ratchet.kernel import Conflict
from ratchet.runtime import Runtime
from ratchet.workflows.exports import Exported, NotExportable, Target, export_workflow
from tests.tools.test_environments import make_wheel
from tests.workflows.exports.machine import Machine
from tests.workflows.exports.specs import article, one_step, python

MODELS = {"*": "openai/quick"}


def export(runtime: Runtime, folder: Path, spec: Any = None, **more: Any) -> Exported:
    more = {"models": MODELS if spec is None else None, **more}
    return asyncio.run(export_workflow(spec or article(), Target.CLOUD, folder, runtime=runtime, **more))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_export_has_the_same_bytes(runtime: Runtime, tmp_path: Path) -> None:
    exported = export(runtime, tmp_path / "one")
    export(runtime, tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert exported.files == tuple(sorted(content(tmp_path / "one")))


def test_it_holds_what_a_person_expects(runtime: Runtime, tmp_path: Path) -> None:
    export(runtime, tmp_path / "export")
    names = {path.name for path in (tmp_path / "export").iterdir()}
    assert names == {
        *("README.md", "export.json", "flowkit", "requirements.txt", "run_workflow.py", "runner"),
        *("test_workflow.py", "workflow.json"),
    }


def test_nothing_of_this_machine_is_in_it(runtime: Runtime, tmp_path: Path) -> None:
    export(runtime, tmp_path / "export")
    for name, text in content(tmp_path / "export").items():
        for unwanted in (str(tmp_path), str(runtime.home), sys.prefix):
            assert unwanted.encode() not in text, name


def test_a_key_does_not_leave_in_the_source_of_a_tool(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "very-secret-token")
    spec = one_step(python("KEY = 'very-secret-token'\ndef run():\n    return 1\n"))
    with pytest.raises(
        Conflict, match=r"workflow\.json would hold the value of the variable SERVICE_TOKEN"
    ) as raised:
        export(runtime, tmp_path / "export", spec)
    assert "very-secret" not in str(raised.value)
    assert not (tmp_path / "export").exists()


def test_it_needs_the_standard_library_and_itself(runtime: Runtime, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    export(runtime, folder)
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                first = name.partition(".")[0]
                assert first in sys.stdlib_module_names or first in ("flowkit", "runner"), (path, name)


def test_flowkit_is_carried_as_it_is(runtime: Runtime, tmp_path: Path) -> None:
    import ratchet.flowkit

    export(runtime, tmp_path / "export")
    own = Path(ratchet.flowkit.__file__).parent
    carried = tmp_path / "export" / "flowkit"
    assert {path.name for path in carried.iterdir()} == {path.name for path in own.glob("*.py")}
    assert all((own / path.name).read_bytes() == path.read_bytes() for path in carried.iterdir())


def test_a_folder_with_something_in_it_is_left_alone(runtime: Runtime, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    export(runtime, folder)
    with pytest.raises(Conflict, match="is not empty"):
        export(runtime, folder)

    (folder / "left.txt").write_text("of an older export")
    export(runtime, folder, force=True)
    assert not (folder / "left.txt").exists()

    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("mine")
    with pytest.raises(Conflict, match="holds no export"):
        export(runtime, tmp_path / "letters", force=True)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(Conflict, match="is not a folder"):
        export(runtime, tmp_path / "link", force=True)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_requirements_are_pinned_one_per_line(runtime: Runtime, tmp_path: Path) -> None:
    tool = python("def run():\n    return 1\n", requirements=("Rich==14.0.0", "attrs==25.1.0"))
    exported = export(runtime, tmp_path / "export", one_step(tool))
    assert exported.packages == ("attrs==25.1.0", "rich==14.0.0")
    text = (tmp_path / "export" / "requirements.txt").read_text()
    assert text == "attrs==25.1.0\nrich==14.0.0\n"
    assert "pip install -r requirements.txt" in (tmp_path / "export" / "README.md").read_text()

    export(runtime, tmp_path / "nothing", one_step(python("def run():\n    return 1\n")))
    lines = (tmp_path / "nothing" / "requirements.txt").read_text().splitlines()
    assert all(line.startswith("#") for line in lines)


@pytest.mark.soak
def test_a_loose_requirement_is_pinned_to_what_the_tool_runs_with(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    make_wheel(shelf, "tinything", "2.0", "VALUE = 2\n")
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    loose = python("def run():\n    return 1\n", requirements=("tinything>=1",))
    assert export(runtime, tmp_path / "export", one_step(loose)).packages == ("tinything==2.0",)

    old = ToolDefinition("old", tool_type="python", source_code="1", requirements=("tinything==1.0",))
    both = replace(one_step(loose, fallback_tool="old"), tool_definitions={"tool": loose, "old": old})
    with pytest.raises(NotExportable, match="one environment cannot have both"):
        export(runtime, tmp_path / "both", both)


def test_a_requirement_from_elsewhere_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    tool = python("def run():\n    return 1\n", requirements=("rich @ file:///tmp/rich.whl",))
    with pytest.raises(NotExportable, match="names where the package is to come from"):
        export(runtime, tmp_path / "export", one_step(tool))


@pytest.mark.soak
def test_the_command_line_says_what_is_wrong(runtime: Runtime, machine: Machine) -> None:
    export(runtime, machine.folder)
    missing = machine.run()
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert missing.stderr == "error: Missing required input: topic\n"
    unknown = machine.run("--input", "topci=a")
    assert unknown.exit_code == 2
    assert "Unknown input: topci" in unknown.stderr
    absent = machine.run("--input", "topic=@no-such-file")
    assert (absent.exit_code, "no-such-file cannot be read" in absent.stderr) == (2, True)
    keyless = machine.run("--input", "topic=a")
    assert keyless.exit_code == 1
    assert "OPENAI_API_KEY is not set" in keyless.stderr


def test_it_says_how_it_is_used(runtime: Runtime, tmp_path: Path) -> None:
    export(runtime, tmp_path / "export")
    text = (tmp_path / "export" / "README.md").read_text()
    assert "python run_workflow.py --input topic=…\n" in text
    assert '| `title` | string | `"untitled"` | what it is \\| called |' in text
    assert "| `llama3` | `openai/quick` |" in text
    assert "`OPENAI_API_KEY`" in text
    assert "anthropic" not in text
