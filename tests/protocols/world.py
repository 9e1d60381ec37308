"""A small world for protocols: a bare remote, a repository with a check, and agents that are small programs."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger.events import latest
from ratchet.ledger.projects import add_project, change_project
from ratchet.ledger.protocols import Protocol, ProtocolStep, get_protocol, list_protocol_steps
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.runtime import Runtime

# The author does what the step says: `write FILE TEXT`, `fix FILE TEXT` once it was told what was wrong, and
# `wait PORT` until somebody listens there.
AUTHOR = """\
import pathlib, re, socket, sys, time
prompt = sys.stdin.read()
step = prompt.split("# Your step:")[1]
told = "# What was wrong" in step
for word, file, text in re.findall(r"^(write|fix) (\\S+) (.*)$", step, re.M):
    if word == "write" or told:
        target = pathlib.Path(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("\\\\n", "\\n") + "\\n")
for port in re.findall(r"^wait (\\d+)$", step, re.M):
    while socket.socket().connect_ex(("127.0.0.1", int(port))):
        time.sleep(0.05)
if "explode" in step:
    sys.exit("the agent broke")
print("done with", step.split()[0])
"""
# The reviewer fails every change that adds the word `bad`.
REVIEWER = """\
import re, sys
prompt = sys.stdin.read()
bad = re.search(r"^\\+.*\\bbad\\b", prompt, re.M)
print("The change has the word bad in it." if bad else "Looks right.")
print("VERDICT: FAIL" if bad else "VERDICT: PASS")
"""
# The planner finds its plan in the description: it sees nothing of the test's directory.
PLANNER = """\
import base64, re, sys
print(base64.b64decode(re.search(r"PLAN=([A-Za-z0-9+/=]+)", sys.stdin.read())[1]).decode())
"""
_OF_A_FILE = ("title", "depends_on", "parallel_group", "step_type", "qa", "engine", "needs_decomposition")
LENIENT = "print('VERDICT: PASS')"
CHECK = "import pathlib, sys\nsys.exit('broken' in ''.join(p.read_text() for p in pathlib.Path('.').glob('*.txt')))\n"


@dataclass(frozen=True)
class World:
    """One project with a real bare remote."""

    home: Path
    remote: Path
    runtime: Runtime
    project_id: int
    planned: dict[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        return self.runtime.ledger

    def plan(self, *steps: str, **more: Any) -> None:
        """What the planner will answer: a file for each step, in their order."""
        files = [{"filename": "00-setup.md", "content": "Get ready.\nwrite setup.txt ready"}]
        files += [
            {"filename": f"{number:02d}-{chr(96 + number)}.md", "content": text}
            for number, text in enumerate(steps, 1)
        ]
        self.planned["next"] = encode_plan(files, **more)

    def start(self, name: str = "0001-change", **more: Any) -> int:
        with self.ledger.write(actor="test") as tx:
            told = f"A change.\nPLAN={self.planned['next']}"
            run_id = create_protocol(tx, self.runtime, self.project_id, name, description=told, **more)
            start_protocol(tx, self.runtime, run_id)
        return run_id

    def protocol(self, run_id: int) -> Protocol:
        with self.ledger.read() as tx:
            return get_protocol(tx, run_id)

    def steps(self, run_id: int) -> list[ProtocolStep]:
        with self.ledger.read() as tx:
            return list_protocol_steps(tx, run_id)

    def statuses(self, run_id: int) -> dict[str, StepStatus]:
        return {each.name: each.status for each in self.steps(run_id)}

    def events(self, run_id: int) -> list[str]:
        """Their types, oldest first."""
        with self.ledger.read() as tx:
            found = latest(tx.connection, where=EventFilter(run_id=run_id), limit=1000)
        return [each.type for each in reversed(found)]

    def git(self, *words: str) -> str:
        """What git says about the remote."""
        return git(self.remote, *words)

    def stands(self, run_id: int) -> bool:
        return self.protocol(run_id).status in (
            RunStatus.BLOCKED,
            RunStatus.COMPLETED,
            RunStatus.FAILED,
            RunStatus.CANCELLED,
        )


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *identity, *words], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def encode_plan(files: Sequence[Mapping[str, Any]], **more: Any) -> str:
    plan = {
        "plan_md": "# The plan\n",
        "context_md": "# Context\n",
        "log_md": "# Log\n",
        "step_files": [{**dict.fromkeys(_OF_A_FILE), **each} for each in files],
        "clarifications": None,
        **more,
    }
    return base64.b64encode(json.dumps(plan).encode()).decode()


def write_agents(home: Path, **others: str) -> None:
    """The settings with their programs, or with others in the place of some."""
    programs = {"author": AUTHOR, "reviewer": REVIEWER, "planner": PLANNER, "lenient": LENIENT, **others}
    lines = [
        "[protocols]",
        'planner = "planner"',
        'engine = "author"',
        'reviewer = "reviewer"',
        "decompose = false",
    ]
    for name, source in programs.items():
        edits = "true" if name == "author" else "false"
        # Braces are for placeholders.
        argv = json.dumps([sys.executable, "-c", source.replace("{", "{{").replace("}", "}}")])
        lines += [f"[engines.command.{name}]", f"argv = {argv}", f"edits_files = {edits}"]
    (home / "ratchet.toml").write_text("\n".join(lines) + "\n")


def make_remote(home: Path) -> Path:
    """A bare repository with one commit on main."""
    seed, remote = home / "seed", home / "remote.git"
    seed.mkdir()
    git(seed, "init", "-q")
    (seed / "check.py").write_text(CHECK)
    (seed / "README.md").write_text("# A project\n")
    git(seed, "add", ".")
    git(seed, "commit", "-qm", "begin")
    git(home, "clone", "-q", "--bare", str(seed), str(remote))
    return remote


def make_project(runtime: Runtime, remote: Path, **facts: Any) -> int:
    """A project that knows its check. It is cloned when it is needed first."""
    checks = [{"name": "check", "argv": [sys.executable, "check.py"], "kind": "test"}]
    with runtime.ledger.write(actor="test") as tx:
        number = add_project(tx, "demo", git_url=str(remote), base_branch="main")
        change_project(tx, number, facts={"checks": checks, **facts})
    return number
