"""The repository that the protocol changes: a till with a test, and a bare repository as its remote."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ratchet.kernel import RatchetError
from ratchet.workspaces import find_git

_FILES = {
    "README.md": "# Till\n\nAdds up prices.\n",
    "prices.py": "def total(prices):\n    return sum(prices)\n",
    "tests/test_prices.py": """import unittest

import prices


class Total(unittest.TestCase):
    def test_prices_are_added_up(self):
        self.assertEqual(prices.total([2, 3]), 5)
""",
}
# Nobody's own settings are read: whoever tries the demo may have no identity, or hooks that want to be asked.
_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
_IDENTITY = ("-c", "user.name=Ratchet demo", "-c", "user.email=demo@localhost")


def make_till(directory: Path) -> tuple[Path, Path]:
    """The repository and its remote, in `directory`: whole, or made anew if an earlier process was cut off in it."""
    repository, remote = directory / "till", directory / "till.git"
    if not repository.exists():
        unfinished = directory / "till.unfinished"
        for each in (unfinished, remote):
            shutil.rmtree(each, ignore_errors=True)
        for name, content in _FILES.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        _git(unfinished, "init", "-q", "-b", "main")
        _git(unfinished, "add", ".")
        _git(unfinished, *_IDENTITY, "commit", "-qm", "A till")
        _git(directory, "clone", "-q", "--bare", str(unfinished), str(remote))
        _git(unfinished, "remote", "add", "origin", str(remote))
        unfinished.rename(repository)
    return repository, remote


def pushed_log(remote: Path, branch: str) -> list[str]:
    """What the remote has on a branch above main, newest first: a short commit and a subject in each line."""
    return _git(remote, "log", "--format=%h %s", f"main..{branch}").splitlines()


def _git(directory: Path, *words: str) -> str:
    program = find_git()
    done = subprocess.run(
        [program, *words],
        cwd=directory,
        env={**_outside(), **_SETTINGS},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RatchetError(f"git {words[0]} failed in {directory}: {done.stderr.strip()}")
    return done.stdout


def _outside() -> dict[str, str]:
    """The environment without what git itself would take from it, such as the repository of a hook."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
