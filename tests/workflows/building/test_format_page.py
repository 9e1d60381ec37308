"""The page about the format keeps its word."""

import re
from pathlib import Path

from ratchet.flowkit.graph import waves
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.schema import workflow_schema
from ratchet.flowkit.validation import check_inputs, check_spec
from ratchet.flowkit.writer import write_spec
from ratchet.workflows.files import read_file

PAGE = (Path(__file__).parents[3] / "docs" / "workflow-format.md").read_text()


def test_the_example_is_a_valid_workflow(tmp_path: Path) -> None:
    example, *parts = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.yaml").write_text(f"workflow_id: part\nsteps:\n{part}")
        inner = read_file(tmp_path / f"{number}.yaml")
        assert all("there is no step draft" in each for each in check_spec(inner))
    (tmp_path / "example.yaml").write_text(example)

    spec = read_file(tmp_path / "example.yaml")

    assert check_spec(spec, known_tools=["text_cleaner"]) == []
    assert waves(spec) == [["clean"], ["classify"], ["draft"], ["release"]]
    assert check_inputs(spec, {"messages": ["Help!"]})["tone"] == "friendly"
    assert read_spec(write_spec(spec)) == spec


def test_every_key_of_a_step_is_on_the_page() -> None:
    keys = workflow_schema()["$defs"]["step"]["properties"]

    assert [key for key in keys if f"`{key}`" not in PAGE] == []
