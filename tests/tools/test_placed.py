"""Python tools and programs that nodes run answer and fail as they do here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.placement import placement_for
from ratchet.runtime import Runtime, open_ledger, open_runtime
from ratchet.tools.definition import read_tool
from ratchet.tools.definition_file import ToolError
from ratchet.tools.placed import is_placed
from tests.runtime.worker_process import load
from tests.tools.bench import Bench, program, python_tool
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

WHERE = "def run(**given):\n    return {'given': given}"
READ = "import json, sys\nprint(json.dumps([open(sys.argv[1]).read(), open(sys.argv[2]).read()]))"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A runtime that places on two nodes."""
    home = tmp_path_factory.mktemp("placed")
    flags = {
        "tools.variables": "WEATHER_KEY",
        "placement.kind": "processes",
        "placement.cache": str(home / "cache"),
    }
    loaded = load(home, f"sqlite:///{home}/ledger.db", **flags)
    with open_ledger(loaded) as ledger:
        runtime = open_runtime(loaded, ledger)
        yield runtime
        placement_for(runtime.settings).close()  # type: ignore[attr-defined]


@pytest.fixture
def placed(cluster: Runtime, tmp_path: Path) -> Bench:
    return Bench(cluster, tmp_path)


def test_a_python_tool_answers_the_same_and_its_stderr_is_heard(bench: Bench, placed: Bench) -> None:
    source = "import sys\ndef run(a):\n    print('at work', file=sys.stderr)\n    return [a, a * 2]"
    for each in (bench, placed):
        called = each.call(python_tool(source), {"a": 21})
        assert (called.value, called.said) == ([21, 42], "at work\n")
        assert called.use.cpu_ms is not None
        assert each.said() == "at work\n"


def test_what_fails_there_fails_with_the_same_words(bench: Bench, placed: Bench) -> None:
    tool = python_tool("def run():\n    raise ValueError('no luck')")
    here, there = bench.fails(tool), placed.fails(tool)
    assert (str(there), there.final, there.hint) == (str(here), here.final, here.hint)
    assert there.said == here.said
    assert there.use.exit_code == 1


def test_lines_are_passed_on_as_they_come(placed: Bench) -> None:
    given: list[Any] = []
    tool = program("python", "-c", "for n in range(5): print(n, flush=True)")
    placed.call(tool, give_line=given.append)
    assert given == ["0", "1", "2", "3", "4"]


def test_a_program_finds_its_folder_and_the_files_that_inputs_name(placed: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "definition"
    (folder / "more").mkdir(parents=True)
    (folder / "read.py").write_text(READ)
    (folder / "more" / "own.txt").write_text("own")
    (placed.folder / "given.txt").write_text("given")
    tool = program("python", "{tool_dir}/read.py", "{tool_dir}/more/own.txt", "{text_file}", folder=folder)
    for named in ("given.txt", str(placed.folder / "given.txt")):
        assert placed.call(tool, {"text_file": named}).value["stdout"] == '["own", "given"]\n'
    (placed.folder / "given.txt").write_text("changed")
    assert placed.call(tool, {"text_file": "given.txt"}).value["stdout"] == '["own", "changed"]\n'
    (folder / "more" / "own.txt").write_text("other")
    assert "more/own.txt is not the one that this version was made of" in str(placed.fails(tool))


def test_nodes_without_the_program_are_refused_by_name(placed: Bench) -> None:
    failed = placed.fails(program("no-such-program"))
    assert failed.final
    assert "no node of the cluster can do tool program: " in str(failed)
    assert "the command 'no-such-program' is not there" in str(failed)


def test_a_tool_may_stay_here_and_one_with_secrets_does(
    placed: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import os\ndef run():\n    return len(os.environ['WEATHER_KEY'])"
    monkeypatch.setenv("WEATHER_KEY", "sunny")
    assert placed.call(python_tool(source, secrets=["WEATHER_KEY"])).value == 5
    kept = python_tool(WHERE, placement={"kind": "local"})
    assert kept.data["placement"] == {"kind": "local"}
    settings = placed.runtime.settings
    assert (is_placed(python_tool(WHERE), settings), is_placed(kept, settings)) == (True, False)
    assert placed.call(kept).value == {"given": {}}


@pytest.mark.parametrize(
    ("placement", "wrong"),
    [
        ({"kind": "moon"}, "placement.kind: 'moon' is none of local, ray, processes"),
        ({"gpus": -1}, "placement.gpus: -1 must be above -1"),
        ({"gpus": 0.5}, "placement.gpus: 0.5 is not a whole number"),
        ({"address": "10.0.0.5:6379"}, "placement.address: not a key that is used"),
        ({"labels": "eu"}, "placement.labels: 'eu' is not a table"),
        ({"wall_seconds": 0}, "placement.wall_seconds: 0 must be above 0"),
    ],
)
def test_what_is_wrong_with_a_placement_is_named(placement: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ToolError) as refused:
        python_tool(WHERE, placement=placement)
    assert wrong in str(refused.value)


def test_only_what_runs_in_the_sandbox_is_placed() -> None:
    with pytest.raises(ToolError, match="only a python tool or a program can be placed"):
        read_tool({"type": "llm", "llm": {}, "placement": {"cpus": 2}}, folder=None, id="asked")
    with pytest.raises(ToolError, match="a tool with secrets stays with its worker"):
        python_tool(WHERE, secrets=["KEY"], placement={"kind": "ray"})
