"""Evaluators that break, lie, hang or reach out: a score that nobody can trust is never one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import TaskAdapter
from ratchet.research.checking import processes
from ratchet.research.checking.bench import Bench, Ended
from ratchet.research.checking.faults.scene import Scene, measured
from ratchet.research.checking.finding import Finding, Grade, Part, Stopwatch

_CRASH, _OVERRUN = TrialStatus.CRASH, TrialStatus.EVAL_BUDGET_OVERRUN
_PREPARE = "def prepare(given):\n    return {'points': [1.0]}\n\n\n"


@dataclass(frozen=True, slots=True)
class Fault:
    """`source` is the evaluator's; NONCE in it is replaced. A status of `None` stands for a score like any other."""

    name: str
    source: str
    status: TrialStatus | None
    command: bool = False


def _function(body: str) -> str:
    return f"{_PREPARE}def score(given):\n    {body}\n"


FAULTS = (
    Fault("answers NaN", _function("return {'error': float('nan')}"), _CRASH),
    Fault("answers infinity", _function("return {'error': float('inf')}"), _CRASH),
    Fault("answers text", _function("return {'error': '0.1'}"), _CRASH),
    Fault("answers another field", _function("return {'score': 0.1}"), _CRASH),
    Fault("answers null", _function("return None"), _CRASH),
    Fault("crashes", _function("raise ValueError('broken')"), _CRASH),
    Fault("hangs", _function("import time; time.sleep(3600)"), _OVERRUN),
    Fault("floods", _function("\n    while True: print('x' * 65536)"), _CRASH),
    Fault("takes all memory", _function("return [bytearray(2**24) for _ in iter(int, 1)]"), _CRASH),
    Fault("prints NaN", "print('{\"error\": NaN}')\n", _CRASH, command=True),
    Fault("prints nothing", "", _CRASH, command=True),
    Fault("prints two documents", "print('{\"error\": 1}')\nprint('{\"error\": 1}')\n", _CRASH, command=True),
    Fault("prints a score and fails", "print('{\"error\": 1}')\nraise SystemExit(1)\n", _CRASH, command=True),
    Fault(
        "prints a score and hangs",
        "import time\nprint('{\"error\": 1}', flush=True)\ntime.sleep(3600)\n",
        _OVERRUN,
        command=True,
    ),
    Fault("forks without end", "import os\nwhile True:\n    os.fork()\n", _CRASH, command=True),
    Fault(
        "leaves processes behind",
        "import subprocess, sys\n"
        "waits = [sys.executable, '-c', 'import time; time.sleep(3600)', 'NONCE']\n"
        "gone = subprocess.DEVNULL\n"
        "subprocess.Popen(waits, start_new_session=True, stdin=gone, stdout=gone, stderr=gone)\n"
        "print('{\"error\": 1}')\n",
        None,
        command=True,
    ),
    Fault(
        "writes outside",
        "import os, pathlib\n"
        "for place in (os.getcwd(), 'PLACE', '/usr', '/dev/shm'):\n"
        "    try:\n"
        "        pathlib.Path(place, 'NONCE').write_text('x')\n"
        "    except OSError:\n"
        "        pass\n"
        "print('{\"error\": 1}')\n",
        None,
        command=True,
    ),
    Fault(
        "changes itself", "open(__file__, 'a').write('#')\nprint('{\"error\": 1}')\n", _CRASH, command=True
    ),
)


async def try_evaluator(scene: Scene, fault: Fault) -> Finding:
    watch = Stopwatch()
    nonce = f"rck{secrets.token_hex(6)}"
    source = fault.source.replace("NONCE", nonce).replace("PLACE", str(scene.place))
    bench = scene.with_evaluator(source, command=fault.command)
    before = _content(bench)
    ended = await measured(bench)
    problems = [] if ended.status is fault.status else [f"it ended as {ended.told}"]
    if _content(bench) != before:
        problems.append("the evaluator's directory is not what it was")
    left = [place for place in (scene.place, Path("/usr"), Path("/dev/shm")) if (place / nonce).exists()]
    problems += [f"it wrote to {place}" for place in left]
    living = processes.marked(nonce)
    for pid in living:
        processes.kill(pid)
    problems += [f"{len(living)} of its processes live on"] if living else []
    return _finding(fault.name, str(fault.status or "a score"), ended, problems, watch)


async def try_meddling(scene: Scene) -> Finding:
    """Somebody edits the evaluator while it works, after it has answered and before anybody looked."""
    watch = Stopwatch()
    bench = scene.with_evaluator(_function("return {'error': 1.0}"), kind=_Meddling)
    ended = await measured(bench)
    problems = [] if ended.status is TrialStatus.INFRA_ERROR else [f"it ended as {ended.told}"]
    return _finding("is edited by somebody while it runs", "infra_error", ended, problems, watch)


class _Meddling(TaskAdapter):
    """A task that edits its own evaluator as soon as that has answered."""

    def classify(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        with Path(self.evaluator_dir, "score.py").open("a") as file:
            file.write("# edited\n")
        return answer


def _content(bench: Bench) -> dict[str, bytes]:
    directory = Path(bench.task.evaluator_dir)
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _finding(name: str, expected: str, ended: Ended, problems: list[str], watch: Stopwatch) -> Finding:
    return Finding(
        part=Part.EVALUATOR,
        what=name,
        grade=Grade.FAILED if problems else Grade.OK,
        detail="; ".join(problems) or ended.told,
        hint="this is a fault of Ratchet or of this machine: see `ratchet doctor`" if problems else "",
        expected=expected,
        seen=ended.told,
        seconds=watch.seconds,
    )
