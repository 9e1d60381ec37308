"""The buffer as a tool."""

from __future__ import annotations

from ratchet.tools.functions import announced_functions, tool_of
from tests.tools.bench import Bench
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]


def test_the_third_write_gets_all_three(bench: Bench) -> None:
    [entry] = [each for each in announced_functions() if each.name == "buffer"]
    tool = tool_of(entry)
    assert "occasion" not in (tool.input_schema or {})["properties"]

    def write(value: str) -> object:
        return bench.call(tool, {"name": "lines", "value": value, "max_size": 3}).value

    assert [write("a"), write("b"), write("c")] == [
        {"count": 1},
        {"count": 2},
        {"count": 0, "flushed": ["a", "b", "c"]},
    ]
    assert bench.call(tool, {"name": "lines", "action": "status"}).value == {"count": 0}
    write("d")
    assert bench.call(tool, {"name": "lines", "action": "flush"}).value == {"count": 0, "flushed": ["d"]}
    assert "max_size" in str(bench.fails(tool, {"name": "lines", "max_size": 0}))
