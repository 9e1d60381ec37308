from __future__ import annotations

import asyncio
import json
import os
from enum import Enum
from pathlib import Path

import numpy
import pytest

from ratchet.kernel import Misuse
from ratchet.sandbox import Bounds, Broken, Finished, Node, Policy, Stopped, run
from tests.sandbox.ways import attack

ECHO = "def run(value):\n    return value"


def node(source: str, given: object = None, *, policy: Policy | None = None, **more: object) -> Finished:
    work = Node(source, **more)  # type: ignore[arg-type]
    return asyncio.run(run(work, stdin=json.dumps(given).encode(), policy=policy))


@pytest.mark.parametrize("value", [None, True, 0, -1.5, "ü\0\n", [], {"a": [1, {"b": None}]}])
def test_a_node_gets_json_and_returns_json(value: object) -> None:
    assert node(ECHO, value).value == value


def test_a_node_may_take_the_input_as_arguments() -> None:
    assert node("def add(a, b=2):\n    return a + b", {"a": 1}, function="add", spread=True).value == 3


def test_without_input_a_node_is_given_nothing() -> None:
    assert asyncio.run(run(Node(ECHO))).value is None


def test_what_a_node_prints_is_kept_apart_from_its_answer() -> None:
    source = "import os, sys\ndef run(_):\n    print('said')\n    os.write(1, b'low')\n    return [1]"
    done = node(source)
    assert done.value == [1]
    assert set(done.stderr.split()) == {b"said", b"low"} or done.stderr in (b"lowsaid\n", b"said\nlow")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def run(_):\n    raise ValueError('no luck')", "ValueError: no luck"),
        ("def run(_):\n    return {1, 2}", "not JSON serializable"),
        ("def run(_):\n    return float('nan')", "Out of range float"),
        ("def run(_)\n    pass", "SyntaxError"),
        ("import absent_module", "ModuleNotFoundError"),
        ("x = 1", "has no function 'run'"),
        ("import sys\ndef run(_):\n    sys.exit('bye')", "SystemExit: bye"),
    ],
)
def test_a_node_that_fails_says_why(source: str, words: str) -> None:
    done = node(source)
    assert not done.ok
    assert words in (done.problem or "")
    assert done.exit_code == 1


@pytest.mark.parametrize(
    "source",
    [
        "import os\ndef run(_):\n    os._exit(0)",
        "import os\ndef run(_):\n    os.write(3, b'{\"score\": ')\n    os._exit(0)",
        "import os\ndef run(_):\n    os.write(3, b'NaN')\n    os._exit(0)",
        "import os\ndef run(_):\n    os.write(3, b'[' * 100000)\n    os._exit(0)",
        "import os\ndef run(_):\n    os.write(3, b'9' * 10000)\n    os._exit(0)",
        "import os\ndef run(_):\n    os.write(3, b'1')\n    return 2, 3",
    ],
)
def test_ending_well_without_a_proper_answer_is_no_success(source: str) -> None:
    done = node(source)
    assert not done.ok
    assert "without a JSON result" in (done.problem or "")


def test_a_node_that_crashes_is_told_by_its_signal() -> None:
    done = node("import ctypes\ndef run(_):\n    ctypes.string_at(0)")
    assert (done.exit_code, done.signal, done.ok) == (None, 11, False)
    assert done.problem == "killed by SIGSEGV"


def test_a_traceback_shows_the_lines_of_the_node() -> None:
    assert b"raise KeyError('deep')" in node("def run(_):\n    raise KeyError('deep')").stderr


def test_a_node_in_a_file_imports_what_lies_beside_it_where_that_is_readable(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("ANSWER = 42")
    (tmp_path / "main.py").write_text("def go(_):\n    import beside\n    return beside.ANSWER")
    work = Node(tmp_path / "main.py", "go")
    assert asyncio.run(run(work, policy=Policy(readable=(tmp_path,)))).value == 42
    assert not asyncio.run(run(work)).ok


@pytest.mark.parametrize("given", [b' {"a": 1}\n', '{"a": 1}'.encode("utf-16"), b'\xef\xbb\xbf{"a": 1}'])
def test_any_way_of_writing_json_is_read(given: bytes) -> None:
    assert asyncio.run(run(Node(ECHO), stdin=given)).value == {"a": 1}


@pytest.mark.parametrize(
    ("given", "words"), [(b"1 2", "Extra data"), (b"[1", "Expecting"), (b"\xff", "utf-8")]
)
def test_input_that_is_not_json_is_told(given: bytes, words: str) -> None:
    done = asyncio.run(run(Node(ECHO), stdin=given))
    assert (done.exit_code, done.stdout) == (1, b"")
    assert words in (done.problem or "")


def test_a_variable_may_be_any_kind_of_text() -> None:
    source = "import os\ndef run(_):\n    return dict(os.environ)"
    policy = Policy(environment={Stopped.WALL: Stopped.CPU})
    assert node(source, policy=policy).value == {"wall": "cpu"}


def test_a_node_finds_no_trace_of_what_was_done_before_it() -> None:
    source = """
import gc, linecache, os, sys
def run(_):
    return [dict(os.environ), list(linecache.cache), sys.modules["node"].run is run, sys.stdin.read(), gc.isenabled()]
"""
    for _ in range(3):
        assert node(source).value == [{}, ["<node>"], True, "", True]


def test_more_than_a_pipe_holds_comes_through_whole() -> None:
    source = "import sys\ndef run(n):\n    sys.stderr.write('e' * n)\n    return 'a' * n"
    done = node(source, 500_000)
    assert (done.value, done.stderr) == ("a" * 500_000, b"e" * 500_000)


def test_each_of_many_nodes_has_the_time_of_its_own() -> None:
    waits = Node("import time\ndef run(seconds):\n    time.sleep(seconds)\n    return seconds")

    async def waiting(seconds: float, wall_seconds: float) -> Finished:
        return await run(waits, stdin=json.dumps(seconds).encode(), bounds=Bounds(wall_seconds=wall_seconds))

    async def all_at_once() -> list[Finished]:
        pairs = ((60, 0.5), (1, 30), (60, 1), (0, 10), (1.5, 30))
        return await asyncio.gather(*(waiting(*pair) for _ in range(2) for pair in pairs))

    done = asyncio.run(all_at_once())
    assert [each.stopped for each in done] == ["wall", None, "wall", None, None] * 2
    assert all(each.ok or each.wall_ms < 20_000 for each in done)


class Named(str, Enum):  # noqa: UP042 - one whose words are not its value
    RUN = "run"
    VARIABLE = "VARIABLE"
    VALUE = "value"


def test_what_a_node_is_told_may_be_of_any_type_that_stands_for_a_word_or_a_number() -> None:
    source = "import os\ndef run(_):\n    return os.environ['VARIABLE']"
    policy = Policy(environment={Named.VARIABLE: Named.VALUE})
    bounds = Bounds(cpu_seconds=numpy.float64(20), memory_bytes=numpy.int64(2**30))  # type: ignore[arg-type]
    done = asyncio.run(run(Node(source, Named.RUN), policy=policy, bounds=bounds))
    assert (done.value, done.problem) == ("value", None)


LOADED = """
import sys
loaded = "numpy" in sys.modules
import numpy
def run(values):
    return [loaded, float(numpy.mean(values))]
"""


def test_modules_are_loaded_before_any_node_starts() -> None:
    assert node(LOADED, [1, 2, 6], modules=("numpy",)).value == [True, 3.0]
    assert node(LOADED, [1, 2, 6]).value == [False, 3.0]


def test_nodes_draw_different_random_numbers() -> None:
    source = "import random, numpy\ndef run(_):\n    return [random.random(), float(numpy.random.rand())]"
    drawn = [node(source, modules=("numpy", "random")).value for _ in range(5)]
    assert len({first for first, _ in drawn}) == len({second for _, second in drawn}) == 5


def test_a_module_that_cannot_be_loaded_is_told() -> None:
    with pytest.raises(Broken, match="No module named 'absent_module'"):
        node(ECHO, modules=("absent_module",))
    assert node(ECHO, 1).value == 1


def test_a_node_leaves_nothing_for_the_next_one() -> None:
    leaves = "import json, os\njson.left = 'here'\nos.environ['LEFT'] = 'here'\ndef run(_):\n    return 1"
    looks = (
        "import json, os\ndef run(_):\n    return [hasattr(json, 'left'), 'LEFT' in os.environ, os.getcwd()]"
    )
    for _ in range(3):
        assert node(leaves).ok
        assert node(looks).value == [False, False, "/tmp"]


@pytest.mark.parametrize("scratch", [False, True])
def test_a_node_leaves_no_mark_on_the_open_files_of_the_next_one(scratch: bool) -> None:
    for _ in range(2 * len(os.sched_getaffinity(0))):
        assert attack("node", "mark_descriptor", scratch=scratch).value is False


def test_a_node_that_writes_nowhere_takes_no_lock_that_others_could_see() -> None:
    assert not attack("node", "lock_stdin").ok


def test_a_large_scratch_file_is_bounded_by_memory() -> None:
    source = "def run(n):\n    with open('file', 'wb') as f:\n        return f.write(b'x' * n)"
    work = Node(source, scratch=True)
    for size, ok in ((1 << 20, True), (8 << 20, False)):
        done = asyncio.run(
            run(work, stdin=str(size).encode(), bounds=Bounds(memory_bytes=16 << 20, file_bytes=4 << 20))
        )
        assert done.ok is ok


@pytest.mark.parametrize(
    "policy", [Policy(network=True), Policy(writable=(Path("/tmp"),)), Policy(see_system=True)]
)
def test_rights_that_no_node_has_are_misuse(policy: Policy) -> None:
    with pytest.raises(Misuse, match="a node has no network"):
        node(ECHO, policy=policy)


@pytest.mark.parametrize("name", ["", "a b", "run()", "../x"])
def test_a_name_that_is_no_name_is_misuse(name: str) -> None:
    with pytest.raises(Misuse):
        Node(ECHO, name)


def test_a_file_that_is_not_there_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot be read"):
        asyncio.run(run(Node(tmp_path / "absent.py")))


def test_what_a_node_says_is_overheard_while_it_runs() -> None:
    source = "import sys, time\ndef run(_):\n    print('begun', flush=True)\n    time.sleep(60)"
    heard: list[bytes] = []

    async def until_heard() -> None:
        begun = asyncio.Event()

        def hear(piece: bytes) -> None:
            heard.append(piece)
            begun.set()

        running = asyncio.create_task(run(Node(source), overhear=hear))
        async with asyncio.timeout(30):
            await begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(until_heard())
    assert heard == [b"begun\n"]


def test_what_is_overheard_is_held_and_bounded_all_the_same() -> None:
    source = "import sys\ndef run(_):\n    while True: sys.stderr.write('x' * 1000)"
    heard = bytearray()
    done = asyncio.run(run(Node(source), bounds=Bounds(output_bytes=5000), overhear=heard.extend))
    assert done.stopped == "output"
    assert bytes(heard) == done.stderr == b"x" * 5000
