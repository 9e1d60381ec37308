"""The process that compiles recipes: whatever happens to it, each who asks gets the answer to their own question."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet.research.measurement.inspection import Compiler

FORKED = """
import os
from ratchet.research.measurement.inspection import Compiler
compiler = Compiler()
assert compiler.check("a.py", b"x = 1\\n") is None
parents = compiler._process
child = os.fork()
if child == 0:
    right = compiler.check("a.py", b"x = (\\n") is not None and compiler._process.pid != parents.pid
    compiler.close()
    os._exit(0 if right else 1)
assert os.waitpid(child, 0)[1] == 0
assert parents.poll() is None
assert compiler.check("a.py", b"x = 1\\n") is None and compiler._process is parents
compiler.close()
"""


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    made = Compiler()
    yield made
    made.close()


def test_one_that_was_killed_is_started_again(compiler: Compiler) -> None:
    assert compiler.check("a.py", b"x = 1\n") is None
    process = compiler._process
    assert process is not None
    process.kill()
    process.wait()
    assert compiler.check("a.py", b"x = 1\n") is None
    problem = compiler.check("a.py", b"x = 1\ny = (\n")
    assert problem is not None
    assert problem.line == 2


def test_each_thread_gets_its_own_answer(compiler: Compiler) -> None:
    def line(number: int) -> int:
        problem = compiler.check(f"{number}.py", b"x = 1\n" * (number - 1) + b"y = (\n")
        assert problem is not None
        return problem.line

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(line, range(1, 65))) == list(range(1, 65))


def test_a_fork_asks_a_process_of_its_own_and_leaves_its_parents_alone() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=240)
