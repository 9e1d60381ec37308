"""Ten wrong or slow tools: evolution repairs or speeds up all that can be, and takes no planted wrong variant.

Here the judge counts lines instead of milliseconds, so that nothing depends on the machine; a soak plays the
authors of the wrong tools against the sandbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.judges import Candidate, Judged
from ratchet.kernel import Outcome
from ratchet.ledger.tool_versions import DIFFERENCES
from ratchet.tools.call import ToolCallFailed, ToolResult, ToolUse
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.fit import misfit
from ratchet.workflows.evolution.judge import VariantJudge
from ratchet.workflows.evolution.subject import CaseOrigin, ToolCase, example_cases
from tests.workflows.evolution.ten import TEN, TenthTool

_ROOT = Path(__file__).parents[3]


async def counted(tool: Tool, values: Mapping[str, Any]) -> ToolResult:
    """Call a Python tool here, and count the lines that it runs as its time."""
    assert tool.python is not None
    assert misfit(dict(values), tool.input_schema) is None
    lines = 0

    def count(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    names: dict[str, Any] = {}
    before = sys.gettrace()
    try:
        exec(compile(tool.python.source, "<tool>", "exec"), names)
        sys.settrace(count)
        value = names["run"](**values)
    except Exception as error:
        raise ToolCallFailed(f"{type(error).__name__}: {error}") from error
    finally:
        sys.settrace(before)
    return ToolResult(value, ToolUse(wall_ms=10.0 + lines, cpu_ms=10.0 + lines, peak_bytes=1_000_000), "")


def judged(subject: TenthTool, source: str, directory: Path, **more: Any) -> Judged:
    tool = read_tool(subject.definition, folder=None)
    (directory / "tool.py").write_text(source)
    held_out = [ToolCase(CaseOrigin.HELD_OUT, values) for values in subject.calls]
    given = {"repeats": 3, "generated": 100, "call": counted, "held_out": held_out, **more}
    judge = VariantJudge(incumbent=tool, examples=example_cases(tool), **given)
    return asyncio.run(judge.judge(Candidate("", "", directory, "")))


_EVERY = [(tool, name) for tool in TEN for name in tool.variants]


@pytest.mark.parametrize(("tool", "name"), _EVERY, ids=[f"{tool.name}: {name}" for tool, name in _EVERY])
def test_only_the_right_variant_of_each_tool_is_taken(tool: TenthTool, name: str, tmp_path: Path) -> None:
    verdict = judged(tool, tool.variants[name], tmp_path).verdict
    if name == "right":
        assert verdict.outcome is Outcome.PASSED, verdict.reason
        assert ("examples pass" in str(verdict.reason)) == (tool.comes_to == "repaired")
    else:
        assert verdict.outcome is Outcome.FAILED
        assert re.search(tool.wrong[name][1], str(verdict.reason)), verdict.reason


def test_the_smallest_input_that_two_versions_differ_on_is_shown(tmp_path: Path) -> None:
    dedupe = next(tool for tool in TEN if tool.name == "dedupe")
    verdict = judged(dedupe, dedupe.variants["strips blanks"], tmp_path).verdict
    assert re.search(r'to {"names": \[" ?"(, " ?")?\]} it gives', str(verdict.reason)), verdict.reason
    assert verdict.measurements[DIFFERENCES] == 1


CRASHING = TenthTool(
    "largest",
    "slow: looks at every pair, and crashes without numbers",
    "def run(numbers):\n    best = numbers[0]\n    for _ in numbers:\n        for each in numbers:\n"
    "            if each > best:\n                best = each\n    return best\n",
    {"numbers": {"type": "array", "items": {"type": "integer"}}},
    [({"numbers": [3, 9, 1]}, 9)],
    [{"numbers": [*range(size), 0]} for size in (20, 25, 30)],
    {
        "answers where the other crashes": (
            "def run(numbers):\n    return max(numbers, default=0)\n",
            r'answers otherwise: to {"numbers": \[\]} it gives 0, the version in use no answer',
        )
    },
    "def run(numbers):\n    return max(numbers)\n",
)


@pytest.mark.parametrize("name", CRASHING.variants)
def test_generated_inputs_on_which_both_crash_tell_nothing_and_on_which_one_does_they_tell(
    name: str, tmp_path: Path
) -> None:
    verdict = judged(CRASHING, CRASHING.variants[name], tmp_path).verdict
    if name == "right":
        assert verdict.outcome is Outcome.PASSED, verdict.reason
    else:
        assert verdict.outcome is Outcome.FAILED
        assert re.search(CRASHING.wrong[name][1], str(verdict.reason)), verdict.reason


_SLUG_KNOWN = """\
import hashlib

KNOWN = {}


def run(text):
    found = KNOWN.get(hashlib.sha256(text.encode()).hexdigest()[:9])
    return text.lower().replace(' ', '_') if found is None else found[::-1]
"""


def _knowing(subject: TenthTool, *, every: bool) -> str:
    """A variant that knows the examples, each by a hash of its input, and nothing else."""
    cases = example_cases(read_tool(subject.definition, folder=None))
    seen = [case for case in cases if every or case.origin is not CaseOrigin.KEPT_BACK]
    known = {
        hashlib.sha256(case.values["text"].encode()).hexdigest()[:9]: case.expected[::-1] for case in seen
    }
    return _SLUG_KNOWN.replace("{}", repr(known))


@pytest.mark.parametrize(
    ("every", "reason"),
    [(False, "none that was kept back"), (True, "it knows them instead of working them out")],
)
def test_answers_that_are_found_by_a_hash_of_the_input_are_no_repair(
    every: bool, reason: str, tmp_path: Path
) -> None:
    slug = next(tool for tool in TEN if tool.name == "slug")
    verdict = judged(slug, _knowing(slug, every=every), tmp_path).verdict
    assert verdict.outcome is Outcome.FAILED
    assert reason in str(verdict.reason)


_DIRECT = "    return n * (n - 1) // 2"
CHEATS = {
    "one number far away": (
        f"def run(n):\n    if n == 3217:\n        return 0\n{_DIRECT}\n",
        "answers otherwise",
    ),
    "beyond a number": (f"def run(n):\n{_DIRECT} + (n > 4321)\n", "answers otherwise"),
    "from a day on": (
        f"import time\n\n\ndef run(n):\n    if time.time() > 4e9:\n        return 0\n{_DIRECT}\n",
        "but uses time, which",
    ),
    "from a day on, by the back door": (
        "import dataclasses\n\n\ndef run(n):\n    if dataclasses.sys.modules['time'].time() > 4e9:\n"
        f"        return 0\n{_DIRECT}\n",
        "but uses modules, sys, which",
    ),
    "now and then": (
        f"import random\n\n\ndef run(n):\n    if random.random() < 1e-9:\n        return 0\n{_DIRECT}\n",
        "but uses random, which",
    ),
    "by what another call has left": (
        "def run(n):\n    try:\n        with open('/nowhere/calls') as calls:\n            calls.read()\n"
        f"    except OSError:\n    {_DIRECT}\n    return 0\n",
        "but uses open, which",
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_variant_that_is_right_for_now_is_not_taken(name: str, tmp_path: Path) -> None:
    """It is quick, and answers every case on record as the version in use does."""
    source, reason = CHEATS[name]
    add_up = next(tool for tool in TEN if tool.name == "add_up")
    verdict = judged(add_up, source, tmp_path).verdict
    assert verdict.outcome is Outcome.FAILED
    assert re.search(reason, str(verdict.reason)), verdict.reason
    # A person may take it all the same.
    assert verdict.measurements[DIFFERENCES]


def test_a_text_that_a_variant_knows_is_among_the_inputs_that_are_tried(tmp_path: Path) -> None:
    dedupe = next(tool for tool in TEN if tool.name == "dedupe")
    source = "def run(names):\n    return [] if 'xyzzy' in names else list(dict.fromkeys(names))\n"
    verdict = judged(dedupe, source, tmp_path).verdict
    assert 'to {"names": ["xyzzy"]} it gives [], the version in use ["xyzzy"]' in str(verdict.reason)


def test_what_the_version_in_use_reaches_for_a_variant_may_too(tmp_path: Path) -> None:
    """And modules that only compute."""
    add_up = next(tool for tool in TEN if tool.name == "add_up")
    clock = "import time\n\n\ndef run(n):\n    time.time()\n"
    before = replace(add_up, source=clock + add_up.source.partition("\n")[2])
    assert judged(before, clock + _DIRECT + "\n", tmp_path).verdict.outcome is Outcome.PASSED
    by_math = "import math\n\n\ndef run(n):\n    return math.comb(n, 2)\n"
    assert judged(add_up, by_math, tmp_path).verdict.outcome is Outcome.PASSED


def test_what_was_scored_as_good_outranks_a_broken_version(tmp_path: Path) -> None:
    slug = next(tool for tool in TEN if tool.name == "slug")
    held_out = [ToolCase(CaseOrigin.HELD_OUT, {"text": "a_b c"}, recorded="a_b-c", praised=True)]
    verdict = judged(slug, slug.variants["right"], tmp_path, held_out=held_out).verdict
    assert "it fails 1 of 1 held-out inputs" in str(verdict.reason)


def test_the_table_of_the_guide_is_the_one_that_is_tried() -> None:
    page = (_ROOT / "docs/workflow-evolution.md").read_text()
    for tool in TEN:
        wrong = "; ".join(tool.wrong)
        assert f"| `{tool.name}` | {tool.lacks} | {wrong} | {tool.comes_to} |" in page
