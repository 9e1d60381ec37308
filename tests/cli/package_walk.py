"""Walking a real package from its registry to a first protocol, as a stranger would, with no file edited by hand.

    .venv/bin/python -m tests.cli.package_walk click attrs npm:qs

Each is downloaded as a source package, made into a git repository in a temporary directory, registered, set up, checked
as it is, and changed by one scripted step that its checks then judge.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.cli.program import Program
from tests.cli.protocol_world import wish
from tests.protocols.world import git, write_agents

_SECONDS = 1800.0


class Unreachable(Exception):
    """The registry does not have the package, or is not there."""


@dataclass
class Walk:
    """How far a package got. `stages` are those that worked, in order; `reason` is why the next one did not."""

    package: str
    stages: list[str] = field(default_factory=list)
    reason: str = ""
    red: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.time)
    """When the stage that it is at began."""

    def passed(self, stage: str, at: float | None = None) -> None:
        """Book a stage that worked, and that ended `at` a moment; now if it is not given."""
        at = time.time() if at is None else at
        self.stages.append(stage)
        self.seconds[stage] = round(at - self.began, 1)
        self.began = at

    @property
    def through(self) -> bool:
        return self.stages[-1:] == ["protocol"]


def walk(package: str, directory: Path) -> Walk:
    """Take a package as far as it goes. `npm:NAME` comes from npm, NAME from PyPI."""
    told = Walk(package)
    place = _repository(package, directory)
    told.passed("download")
    ratchet = Program(place)
    ratchet.env["RATCHET_HOME"] = str(directory / "home")
    (directory / "home").mkdir()
    write_agents(directory / "home")
    for stage, words in (("add", ("project", "add")), ("setup", ("project", "setup", "1"))):
        ended = ratchet(*words, seconds=_SECONDS)
        if ended.code:
            told.reason = f"{' '.join(words)}: {ended.err[-3000:]}"
            return told
        told.passed(stage)
    change = wish("Get ready.\nwrite SETUP.txt ready", "Say hello.\nwrite HELLO.txt hello")
    ended = ratchet("protocol", "new", change, "--run", "--json", seconds=_SECONDS)
    events = ratchet("events", "--run", "2", "--type", "baseline_checked", "--json").lines
    for event in events:
        if event["type"] == "baseline_checked":
            told.red = {name: names and len(names) for name, names in event["data"]["red"].items()}
            # The protocol has ended by now, but the baseline was checked before it began.
            told.passed("baseline", datetime.fromisoformat(event["at"]).timestamp())
    left = git(place, "status", "--porcelain")
    if ended.code or left:
        reason = json.loads(ended.out).get("reason") if ended.out.startswith("{") else ended.err
        told.reason = f"protocol new: {left} {str(reason)[-3000:]}"
        return told
    told.passed("protocol")
    return told


def _repository(package: str, directory: Path) -> Path:
    name = package.removeprefix("npm:")
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", name]
    if package.startswith("npm:"):
        argv = ["npm", "pack", "--silent", name]
    elif _lacks_pip():
        argv[0] = "python3"
    done = subprocess.run(argv, cwd=directory, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise Unreachable(f"{package} cannot be downloaded: {done.stderr[-500:]}")
    [archive] = [*directory.glob("*.tar.gz"), *directory.glob("*.tgz")]
    with tarfile.open(archive) as opened:
        opened.extractall(directory / "source", filter="data")
    [inside] = (directory / "source").iterdir()
    place = inside.rename(directory / "repository")
    git(place, "init", "-q")
    git(place, "add", "--force", ".")
    git(place, "commit", "-qm", "begin")
    return place


def _lacks_pip() -> bool:
    return (
        subprocess.run(
            [sys.executable, "-m", "pip", "--version"], capture_output=True, check=False
        ).returncode
        != 0
    )


def main() -> int:
    good = True
    for package in sys.argv[1:]:
        with tempfile.TemporaryDirectory(prefix="ratchet-walk-") as directory:
            told = walk(package, Path(directory))
        good = good and told.through
        print(
            f"{package}: {'through' if told.through else 'stopped'} {told.seconds} red={told.red}", flush=True
        )
        if told.reason:
            print(told.reason, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
