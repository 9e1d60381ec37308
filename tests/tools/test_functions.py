"""Function tools: announced by a package, called in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.tools.definition import Tool, read_tool
from tests.tools.bench import Bench
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

Announce = Callable[..., Tool]
_numbers = itertools.count()


@pytest.fixture
def announce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Announce:
    """Installs a package with one function, and returns the tool that calls it."""

    def install(source: str, **body: Any) -> Tool:
        name = f"announced_{next(_numbers)}"
        site = tmp_path / name
        (site / f"{name}-1.0.dist-info").mkdir(parents=True)
        (site / f"{name}.py").write_text(source)
        (site / f"{name}-1.0.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (site / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(
            f"[ratchet.tools]\n{name} = {name}:do\n"
        )
        monkeypatch.syspath_prepend(site)
        return read_tool({"type": "function", "function": {"entry": name, **body}}, folder=None, id=name)

    return install


def test_a_function_is_called_with_the_inputs_by_name(bench: Bench, announce: Announce) -> None:
    tool = announce("def do(a, b=2):\n    return {'sum': a + b}")
    called = bench.call(tool, {"a": 1})
    assert called.value == {"sum": 3}
    assert called.use.cpu_ms is None


def test_a_coroutine_is_awaited_no_longer_than_it_may_take(bench: Bench, announce: Announce) -> None:
    tool = announce(
        "import asyncio\nasync def do(seconds):\n    await asyncio.sleep(seconds)\n    return 'slept'"
    )
    assert bench.call(tool, {"seconds": 0}).value == "slept"
    assert "within 0.05 s" in str(bench.fails(tool, {"seconds": 60}, seconds=0.05))


def test_a_slow_function_runs_beside_the_event_loop(bench: Bench, announce: Announce) -> None:
    source = "import threading\ndef do():\n    return threading.current_thread() is threading.main_thread()"
    assert bench.call(announce(source)).value is True
    assert bench.call(announce(source, slow=True)).value is False


def test_what_a_function_raises_is_a_failure_of_the_tool(bench: Bench, announce: Announce) -> None:
    failed = bench.fails(announce("def do():\n    raise KeyError('lost')"))
    assert "KeyError: 'lost'" in str(failed)


@pytest.mark.parametrize("returned", ["object()", "float('inf')", "{1}"])
def test_an_answer_that_is_not_json_is_a_failure(bench: Bench, announce: Announce, returned: str) -> None:
    assert "not JSON" in str(bench.fails(announce(f"def do():\n    return {returned}")))


def test_an_answer_that_is_too_long_is_a_failure(bench: Bench, announce: Announce) -> None:
    assert "at most 1048576" in str(bench.fails(announce("def do():\n    return 'x' * 2_000_000")))


def test_a_function_that_nobody_announces_cannot_be_called(bench: Bench) -> None:
    tool = read_tool({"type": "function", "function": {"entry": "os:system"}}, folder=None, id="evil")
    failed = bench.fails(tool)
    assert failed.final
    assert "'os:system'" in str(failed)


def test_a_package_that_cannot_be_imported_is_named(bench: Bench, announce: Announce) -> None:
    failed = bench.fails(announce("import no_such_module"))
    assert "no_such_module" in str(failed)
    assert failed.final
