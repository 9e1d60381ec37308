"""The answer and the usage of a described agent are found where its description says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ratchet.engines import Request
from ratchet.engines.command.catalog import READY
from ratchet.engines.command.session import found
from ratchet.kernel import Misuse
from tests.engines.command_subject import Bench, agent
from tests.engines.conftest import Place
from tests.engines.contract import (
    SCHEMA,
    propose,
)


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Bench:
    return Bench(place, tmp_path / "bin")


@pytest.mark.parametrize(
    ("toml", "program"),
    [
        ("", "print('the answer')"),
        ('answer = "stdout"', "print('the answer')"),
        ('answer = "last_line"', "print('thinking'); print('the answer'); print()"),
        ('answer = "json:a.0"', "print('warning'); print('{\"a\": [\"the answer\"]}')"),
        (
            'answer = "jsonl:part.text"',
            'print(\'{"part": {"text": "no"}}\\nx\\n{"part": {"text": "the answer"}}\\n{"part": {}}\')',
        ),
        (
            'answer = "file:{home}/out.md"',
            "import os; open(os.environ['HOME'] + '/out.md', 'w').write('the answer\\n')",
        ),
    ],
)
def test_the_answer_is_found_where_it_is_said_to_be(
    bench: Bench, workspace: Path, toml: str, program: str
) -> None:
    assert propose(bench.open(program, toml), Request("x", workspace)).text == "the answer"


def test_what_kept_each_bound_is_recorded(bench: Bench, workspace: Path) -> None:
    session = propose(bench.open("print('x')", ""), Request("x", workspace))
    assert {"wall_seconds", "processes"} <= set(session.data["bounded_by"])


def test_an_agent_may_be_said_to_give_no_answer(bench: Bench, workspace: Path) -> None:
    engine = bench.open("open('made', 'w')", 'answer = "none"')
    assert propose(engine, Request("x", workspace)).text == ""
    assert not engine.capabilities.structured_output
    with pytest.raises(Misuse):
        propose(engine, Request("x", workspace, output_schema=SCHEMA))


@pytest.mark.parametrize(("counts", "expected"), [("last", (30, 3, 4, 20_000)), ("sum", (40, 4, 6, 30_000))])
def test_usage_is_read_from_lines_of_json(
    bench: Bench, workspace: Path, counts: str, expected: tuple[int, ...]
) -> None:
    usage = [
        {"u": {"in": 10, "c": 1, "out": 2}, "usd": 0.01},
        {"u": {"in": 30, "c": 3, "out": 4}, "usd": 0.02},
    ]
    program = f"print('{json.dumps(usage[0])}'); print('{json.dumps(usage[1])}'); print('{{\"t\": \"x\"}}')"
    toml = (
        f'usage_counts = "{counts}"\nanswer = "jsonl:t"\ninput_tokens_at = "u.in"\n'
        'cached_tokens_at = "u.c"\noutput_tokens_at = "u.out"\ncost_usd_at = "usd"'
    )
    used = propose(bench.open(program, toml), Request("x", workspace)).usage
    assert (used.input_tokens, used.cached_tokens, used.output_tokens, used.cost_microusd) == expected


def test_usage_is_read_from_plain_text(bench: Bench, workspace: Path) -> None:
    pattern = READY["aider"].usage_pattern
    told = [
        "Tokens: 2.4k sent, 120 received. Cost: $0.0021 message, $0.0021 session.",
        "Tokens: 1,200 sent, 300 cache write, 1.1k cache hit, 80 received. Cost: $0.01 message, $0.0121 session.",
    ]
    engine = bench.open(
        f"print({chr(10).join(told)!r})", f"usage_pattern = '{pattern}'\nusage_counts = 'sum'"
    )
    used = propose(engine, Request("x", workspace)).usage
    assert (used.input_tokens, used.cached_tokens, used.output_tokens) == (3600, 1100, 200)
    assert used.cost_microusd == 12_100


@pytest.mark.parametrize("value", ['"many"', "-5", "true", "1e400", "[]", "null"])
def test_a_usage_that_is_no_number_counts_as_none(bench: Bench, workspace: Path, value: str) -> None:
    engine = bench.open(
        f'print(\'{{"t": "x", "n": {value}}}\')',
        'answer = "json:t"\ninput_tokens_at = "n"\noutput_tokens_at = "n"\ncost_usd_at = "n"',
    )
    assert propose(engine, Request("x", workspace)).usage.tokens == 0


def test_a_ready_description_reads_the_output_of_its_agent(
    place: Place, tmp_path: Path, workspace: Path
) -> None:
    events = [
        {"type": "step_start", "part": {"type": "step-start"}},
        {"type": "tool_use", "part": {"type": "tool", "tool": "bash", "state": {"status": "completed"}}},
        {"type": "text", "part": {"type": "text", "text": "All done."}},
        {
            "type": "step_finish",
            "part": {
                "cost": 0.002,
                "tokens": {"input": 90, "output": 7, "reasoning": 3, "cache": {"read": 10, "write": 0}},
            },
        },
    ]
    program = "\n".join(f"print({json.dumps(json.dumps(each))})" for each in events)
    agent(tmp_path / "bin", program).rename(tmp_path / "bin" / "opencode")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    session = propose(place.open("opencode", environment={"PATH": path}), Request("x", workspace))
    assert session.text == "All done."
    used = session.usage
    assert (used.input_tokens, used.cached_tokens, used.output_tokens) == (100, 10, 10)
    assert used.cost_microusd == 2000


def test_a_path_leads_to_everything_it_names() -> None:
    document = {"m": {"a": {"n": 1}, "b": {"n": 2}}, "l": [{"x": 5}, {"x": None}], "t": "word"}
    assert found(document, "m.*.n") == [1, 2]
    assert found(document, "m.a.n+m.b.n") == [1, 2]
    assert found(document, "l.*.x") == [5]
    assert found(document, "l.0.x") == [5]
    assert found(document, "t.x") == found(document, "l.7") == found(document, "nope") == []
