"""Runs the tests of an agent with pytest, in the process of the tests, and says at the end what came of it.

`testing.py JUNIT CONFIG` with a secret on stdin. The only thing on stdout is a JSON object with the secret, pytest's
exit code, how many tests failed by our own count, the hash of pytest's report, and whether a test that fails passed.
A test that ends the process, or that writes a report of its own, does not say it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

_OPTIONS = ("-q", "--tb=short", "--noconftest", "-p", "no:cacheprovider", "-p", "anyio.pytest_plugin")


class Count:
    """A plugin that counts what failed."""

    def __init__(self) -> None:
        self.failed = 0
        self.passes_anything = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed += bool(report.failed)

    def pytest_sessionfinish(self, session: Any) -> None:
        self.passes_anything = _passes_anything(session)


def _passes_anything(session: Any) -> bool:
    """Run one more test beside those of the agent, which fails and is in no report: whether it passed.

    Where it cannot be set up nothing is known, and the agent's own were not either.
    """
    import pytest
    from _pytest import runner

    if not session.items:
        return False

    def test() -> None:
        raise AssertionError

    beside = session.items[0]
    control = pytest.Function.from_parent(beside.getparent(pytest.Module), name=beside.name, callobj=test)
    return all(report.passed for report in runner.runtestprotocol(control, log=False))


def main(junit: str, config: str) -> None:
    secret = sys.stdin.readline().strip()
    answer = os.dup(1)
    os.dup2(2, 1)
    import pytest

    # Before the agent's directory is among the places to import from: a package of that name there is no plugin.
    importlib.import_module("anyio.pytest_plugin")
    here, count = str(Path.cwd()), Count()
    sys.path[:0] = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    places = ("-c", config, f"--rootdir={here}", f"--junitxml={junit}")
    code = int(pytest.main([*_OPTIONS, *places, "tests.py"], plugins=[count]))
    report = Path(junit)
    said = {
        "secret": secret,
        "exit_code": code,
        "failed": count.failed,
        "passes_anything": count.passes_anything,
        "sha256": hashlib.sha256(report.read_bytes()).hexdigest() if report.is_file() else None,
    }
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(answer, json.dumps(said).encode())
    # Whatever the tests have registered for the end of the process comes too late to change anything.
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
