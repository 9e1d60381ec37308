"""How hostile code is put into an honest recipe, and the recipes that take more than they may."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measurement.checkout import RecipePaths

REFUSED = frozenset(
    {
        TrialStatus.CRASH,
        TrialStatus.DISQUALIFIED,
        TrialStatus.SIZE_BLOCKED,
        TrialStatus.TRAIN_BUDGET_OVERRUN,
        TrialStatus.EVAL_BUDGET_OVERRUN,
    }
)
"""How a trial may end that gave the evaluator something strange, or nothing."""
OVERRUN = frozenset({TrialStatus.TRAIN_BUDGET_OVERRUN})
CRASH = frozenset({TrialStatus.CRASH})


class RecipeKind(StrEnum):
    """Which recipes an attack is for: those called as a function, those run as a command, or both."""

    NODE = "node"
    COMMAND = "command"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttack:
    """`code` runs when the recipe does, before anything of it. `forge` defines `forged(value)`, which turns an honest
    answer into the text of another. `ends` are the statuses that the trial may end with; `scores` says that it may also
    come to a score, as long as that is not better than the honest one.
    """

    name: str
    code: str = ""
    forge: str = ""
    where: RecipeKind = RecipeKind.BOTH
    ends: frozenset[TrialStatus] = REFUSED
    scores: bool = True

    @property
    def expected(self) -> str:
        statuses = " or ".join(sorted(self.ends))
        return f"{statuses}, or no better score" if self.scores else statuses


_MARK = """
import ctypes

try:
    # PR_SET_NAME: forks keep the name, so that they are known from outside.
    ctypes.CDLL(None).prctl(15, FACTS["nonce"].encode(), 0, 0, 0)
except (OSError, AttributeError):
    pass
"""
_GRANDCHILDREN = f"""{_MARK}
import signal, subprocess, time

def stay():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 256)
    while True:
        time.sleep(1)

try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay()
        os._exit(0)
    waits = [sys.executable, "-c", "import time; time.sleep(3600)", FACTS["nonce"]]
    subprocess.Popen(
        waits, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
except OSError:
    pass
"""
_FORK_BOMB = f"""{_MARK}
while True:
    try:
        os.fork()
    except BlockingIOError:
        continue
"""
_MEMORY = """
held = []
while True:
    held.append(bytearray(b"x") * (16 << 20))
"""
_OUTPUT = """
while True:
    os.write(1, b"x" * 65536)
    os.write(2, b"x" * 65536)
"""
_FILES = """
for top in out_directories():
    for number in range(1000):
        with open(os.path.join(top, "flood-%d" % number), "w") as file:
            file.write("x")
    for number in range(4):
        with open(os.path.join(top, "large-%d" % number), "wb") as file:
            file.write(b"x" * (8 << 20))
"""
_LARGE_FILE = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for top in out_directories():
    with open(os.path.join(top, "sparse"), "wb") as file:
        file.truncate(1 << 44)
"""
_NESTED = """
for top in out_directories():
    os.chdir(top)
    for _ in range(400):
        os.mkdir("nested")
        os.chdir("nested")
    os.chmod(".", 0)
leave()
"""
_HANG = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(3600)
"""
_STOPS_ITSELF = """
import signal
os.kill(os.getpid(), signal.SIGSTOP)
"""
_SLEEPS_AT_EXIT = """
import atexit, time
atexit.register(time.sleep, 3600)
"""

EXHAUSTS = (
    TaskAttack(name="leaves grandchildren behind", code=_GRANDCHILDREN),
    TaskAttack(name="forks without end", code=_FORK_BOMB),
    TaskAttack(name="takes all memory", code=_MEMORY),
    TaskAttack(name="prints without end", code=_OUTPUT, ends=CRASH, scores=False),
    TaskAttack(name="leaves a thousand files", code=_FILES, where=RecipeKind.COMMAND),
    TaskAttack(name="writes a file beyond its limit", code=_LARGE_FILE, where=RecipeKind.COMMAND),
    TaskAttack(name="nests directories without end", code=_NESTED, where=RecipeKind.COMMAND),
    TaskAttack(name="hangs", code=_HANG, ends=OVERRUN, scores=False),
    TaskAttack(name="computes without end", code="while True:\n    pass\n", ends=OVERRUN, scores=False),
    TaskAttack(name="stops itself", code=_STOPS_ITSELF),
    TaskAttack(name="sleeps when it ends", code=_SLEEPS_AT_EXIT),
)
ENDS = (
    TaskAttack(name="raises", code="raise ValueError('hostile')\n"),
    TaskAttack(name="raises with a very long message", code="raise ValueError('x' * 300_000)\n"),
    TaskAttack(name="raises what no program catches", code="raise KeyboardInterrupt\n"),
    TaskAttack(name="recurses until it crashes", code="import ctypes\nctypes.string_at(0)\n"),
    TaskAttack(name="exits with 0 and no answer", code="os._exit(0)\n"),
    TaskAttack(name="exits with 3", code="leave()\n"),
    # A shell says by this code that a program is missing, which is nobody's idea: it is tried again.
    TaskAttack(name="exits with 127", code="os._exit(127)\n", ends=REFUSED | {TrialStatus.INFRA_ERROR}),
    TaskAttack(name="kills itself", code="os.kill(os.getpid(), 9)\n"),
    TaskAttack(name="aborts", code="os.abort()\n"),
    TaskAttack(name="closes all its descriptors", code="os.closerange(0, 256)\n"),
)


BEGIN = """
import os, sys

sys.hostile = True

def tell(text):
    os.write(2, ("\\n%s %s\\n" % (FACTS["nonce"], text)).encode("utf-8", "replace"))

def leave(code=3):
    os._exit(code)

def out_directories():
    found = [os.environ["RATCHET_OUT"]] if "RATCHET_OUT" in os.environ else []
    return found + [name for name in FACTS["output_dirs"] if os.path.isdir(name)]

def out_files():
    for top in out_directories():
        for directory, _, names in os.walk(top):
            for name in names:
                yield os.path.join(directory, name)

tell("ran " + os.urandom(4).hex())
"""
"""`tell` is how a recipe says what it could do; the check reads it from what the trial wrote to stderr."""

FORGE = """
import json, re

def render(value, leaf):
    # The value as JSON in which every number is another.
    if isinstance(value, (bool, str)) or value is None:
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return leaf
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(render(each, leaf) for each in value) + "]"
    return "{" + ", ".join(json.dumps(str(name)) + ": " + render(each, leaf) for name, each in value.items()) + "}"

def scores(number):
    named = {FACTS["field"]: number, "score": number, "valid": True, "correct": True, "status": "OK"}
    return {**named, "measurements": {}}
"""

FORGE_FUNCTION = """
honest = RECIPE[FACTS["function"]]

def hostile(*given, **named):
    text = forged(honest(*given, **named)).encode()
    while text:
        text = text[os.write(3, text):]
    os._exit(0)

RECIPE[FACTS["function"]] = hostile
"""
"""The answer is written by the recipe itself, so that it may be what no function could return."""

FORGE_COMMAND = """
import atexit

printed = "/tmp/" + FACTS["nonce"]
real_stdout = os.dup(1)
os.dup2(os.open(printed, os.O_RDWR | os.O_CREAT | os.O_TRUNC), 1)

def reforged(content):
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return forged(None).encode()
    try:
        return forged(json.loads(text)).encode()
    except (ValueError, TypeError):
        pass
    number = forged(0)
    changed = re.sub(r"-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?", lambda _: number, text)
    return (changed if changed != text else forged(None)).encode()

def rewrite():
    sys.stdout.flush()
    for path in list(out_files()):
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(reforged(content))
    with open(printed, "rb") as file:
        content = file.read()
    text = reforged(content) if content else b""
    while text:
        text = text[os.write(real_stdout, text):]

atexit.register(rewrite)
"""
"""What the recipe printed and left in its files is written again when it ends."""


# Once in a process, by whichever file of the recipe it runs first.
_ONCE = "import sys as _sys; hasattr(_sys, 'hostile') or exec({code!r}, {{'FACTS': {facts!r}}})"
_AT_THE_END = "exec({code!r}, {{'FACTS': {facts!r}, 'RECIPE': globals()}})"


def plant(
    task: TaskAdapter, files: Mapping[str, bytes], attack: TaskAttack, facts: Mapping[str, Any]
) -> dict[str, bytes]:
    """The changed files of a hostile candidate; none when there is no Python in the recipe.

    All Python files of the recipe get the code at their top, since any of them may be what is started.
    """
    given = {**facts, "function": task.trial.function if task.trial is not None else ""}
    recipe = RecipePaths(task.recipe)
    first = _ONCE.format(code=BEGIN + _first(task, attack), facts=given)
    last = ""
    if attack.forge and task.trial is not None and task.trial.is_node:
        last = _AT_THE_END.format(code=f"import os\n{FORGE}\n{attack.forge}\n{FORGE_FUNCTION}", facts=given)
    planted: dict[str, bytes] = {}
    for path, content in files.items():
        if not path.endswith(".py") or not recipe.covers(path):
            continue
        is_entry = task.trial is not None and path == task.trial.file
        changed = _with(content, first, last if is_entry else "")
        if changed is not None:
            planted[path] = changed
    return planted


def _first(task: TaskAdapter, attack: TaskAttack) -> str:
    if attack.forge and task.trial is not None and not task.trial.is_node:
        return f"{FORGE}\n{attack.forge}\n{FORGE_COMMAND}"
    return attack.code


def _with(content: bytes, first: str, last: str) -> bytes | None:
    """The file with one line more at its top and one at its end; `None` for one that is not understood."""
    try:
        text = content.decode()
        lines = text.split("\n")
        lines.insert(_below_futures(ast.parse(text)), first)
        changed = "\n".join([*lines, last, ""])
        compile(changed, "hostile", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return None
    return changed.encode()


def _below_futures(module: ast.Module) -> int:
    """Behind which line code may stand: a docstring and imports from `__future__` must be the first."""
    below = 0
    for number, statement in enumerate(module.body):
        is_docstring = (
            number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )
        if not is_docstring and not (
            isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        ):
            break
        below = statement.end_lineno or below
    return below
