"""Keys that are wrong, models that there are not, accounts without credit, prices that nobody knows: said at once."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.modelserver import ModelServer, Script, Turn, answer, call, call_mcp, fail, say
from tests.cli.conftest import Ratchet
from tests.modelserver.fixtures import model_server
from tests.research.hill import write_hill
from tests.workflows.overseer.plans import count_with

__all__ = ["model_server"]
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
Endpoint = Callable[..., Script]
_numbers = itertools.count(1)
KEY = "sk-right"
ASK = """
workflow_id: ask
steps:
  - {step_id: tide, type: llm_call, prompt_template: Tell about tides.}
"""


@pytest.fixture
def endpoint(
    ratchet: Ratchet, home: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Endpoint:
    """Settings of the home that lead every engine to a model behind this key; the key that is used may be another."""
    assert ratchet("init").code == 0

    def settle(*turns: Turn, key: str = KEY, model: str = "gpt-5", more: str = "", used: str = "") -> Script:
        name = f"refusals-{next(_numbers)}"
        monkeypatch.setenv("OPENAI_API_KEY", key)
        monkeypatch.setenv("ANTHROPIC_API_KEY", key)
        openai = model_server.openai_url(name)
        (home / "ratchet.toml").write_text(
            f'[engines]\ntries = 1\n[engines.codex]\nbase_url = "{openai}"\nretries = 0\n{used}\n'
            f'[engines.claude]\nbase_url = "{model_server.anthropic_url(name)}"\n'
            f'[llm]\ndefault = "local/{model}"\n'
            f'[llm.endpoints.local]\nbase_url = "{openai}"\nkey_variable = "OPENAI_API_KEY"\n{more}\n'
        )
        return model_server.script(name, list(turns), key=KEY, models=["gpt-5", "gpt-6.1-sol", "nameless"])

    return settle


@pytest.fixture
def hill(tmp_path: Path) -> Path:
    return write_hill(tmp_path / "hill")


def no_runs(ratchet: Ratchet) -> bool:
    return bool(ratchet("runs", "list", "--json").json == [])


def test_research_with_codex_and_a_budget_of_money_runs(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path
) -> None:
    script = endpoint(
        call("exec_command", cmd="sed -i 's/^X = 0.9/X = 0.5/' recipe.py"),
        call_mcp("ratchet", "submit_trial", hypothesis="lower x", expected_delta="0.3"),
        say("It was kept."),
    )
    ended = ratchet("research", "run", str(hill), "--engine", "codex", "--trials", "1", "--cost-usd", "5")
    assert ended.code == 0, ended.out + ended.err
    assert "001 keep" in ended.out
    # Codex's own choice, whose price is on the public list.
    assert {each.body["model"] for each in script.requests} == {"gpt-6.1-sol"}
    cost = ratchet("research", "status", "1", "--json").json["usage"]["cost_usd"]
    assert 0 < cost < 0.01


def test_a_budget_of_money_without_a_price_is_refused_before_anything_starts(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path
) -> None:
    endpoint(used='model = "nameless"')
    asked = ("research", "run", str(hill), "--engine", "codex", "--trials", "1", "--cost-usd", "5")
    ended = ratchet(*asked)
    assert ended.code == 3
    assert "the price of nameless is not known" in ended.err
    assert '[llm.prices."nameless"]' in ended.err
    assert no_runs(ratchet)


def test_a_model_that_means_nothing_is_refused_as_a_specialist_before_a_run_exists(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path
) -> None:
    endpoint()
    ended = ratchet("research", "run", str(hill), "--engine", "llm:no/such/model", "--trials", "1")
    assert (ended.code, no_runs(ratchet)) == (2, True), ended.err


def test_a_budget_of_tokens_that_is_typed_stands_in_for_one_of_money_from_the_settings(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path
) -> None:
    endpoint(
        call("exec_command", cmd="sed -i 's/^X = 0.9/X = 0.5/' recipe.py"),
        say("HYPOTHESIS: lower x"),
        used='model = "nameless"',
        more="[budgets.run]\ncost_usd = 5\n",
    )
    asked = ("research", "run", str(hill), "--engine", "codex", "--trials", "1")
    refused = ratchet(*asked)
    assert (refused.code, "or give a budget of tokens" in refused.err) == (3, True), refused.err
    ended = ratchet(*asked, "--tokens", "1000000")
    assert ended.code == 0, ended.out + ended.err
    assert "1,000,000 tokens, in place of the $5.00 of budgets.run.cost_usd" in ended.err


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"key": "sk-wrong"}, "export OPENAI_API_KEY="),
        ({"used": 'model = "no-such-model"'}, "set engines.codex.model"),
    ],
)
def test_a_wrong_key_or_model_is_refused_before_research_starts(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path, settings: dict[str, str], told: str
) -> None:
    script = endpoint(**settings)
    ended = ratchet("research", "run", str(hill), "--engine", "codex", "--trials", "1")
    assert (ended.code, ended.out) == (1, "")
    assert told in ended.err
    assert no_runs(ratchet)
    assert script.requests == []


@pytest.mark.soak
def test_a_wrong_key_of_claude_is_refused_before_research_starts(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path
) -> None:
    endpoint(key="sk-wrong")
    ended = ratchet("research", "run", str(hill), "--engine", "claude", "--trials", "1")
    assert (ended.code, ended.out) == (1, "")
    assert "export ANTHROPIC_API_KEY=" in ended.err
    assert no_runs(ratchet)


def test_an_account_that_runs_dry_blocks_the_run_at_once(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path
) -> None:
    endpoint(fail(429, code="insufficient_quota"))
    ended = ratchet("research", "run", str(hill), "--engine", "codex", "--trials", "3")
    assert ended.code == 1
    assert "Run 1 is blocked" in ended.out
    assert "billing" in ended.out
    shown = ratchet("runs", "show", "1", "--json").json
    assert shown["status"] == "blocked"
    assert "Quota exceeded" in shown["reason"]


def test_a_wrong_key_is_refused_before_a_blocked_run_is_resumed(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path
) -> None:
    endpoint(fail(429, code="insufficient_quota"))
    assert ratchet("research", "run", str(hill), "--engine", "codex", "--trials", "3").code == 1
    before = ratchet("runs", "show", "1", "--json").json
    assert before["status"] == "blocked"
    script = endpoint(key="sk-wrong")
    ended = ratchet("research", "resume", "1")
    assert (ended.code, "the key is refused" in ended.err, script.requests) == (1, True, []), ended.err
    assert ratchet("runs", "show", "1", "--json").json == before


@pytest.mark.parametrize("more", [(), ("--detach",)], ids=["here", "detached"])
def test_a_wrong_key_is_refused_before_a_tool_is_rewritten(
    ratchet: Ratchet, endpoint: Endpoint, more: tuple[str, ...]
) -> None:
    script = endpoint(key="sk-wrong")
    assert ratchet("tool", "run", "word_count", "--input", "text=a b").code == 0
    ended = ratchet("workflow", "evolve", "word_count", *more)
    assert (ended.code, "the key is refused" in ended.err, script.requests) == (1, True, []), ended.err
    assert no_runs(ratchet)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one commit, in which commands are called."""
    path = tmp_path / "till"
    path.mkdir()
    (path / "till.py").write_text("TOTAL = 0\n")
    (path / "ask.yaml").write_text(ASK)
    for words in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b commit -qm begin"):
        subprocess.run(["git", *words.split()], cwd=path, check=True)
    monkeypatch.chdir(path)
    return path


@pytest.mark.parametrize(
    "command",
    [
        ("agent", "create", "greeter", "Greet people by name."),
        ("agent", "create", "greeter", "Greet people by name.", "--detach"),
        ("workflow", "new", "Count the words of a text."),
        ("workflow", "new", "Count the words of a text.", "--no-reuse", "--detach"),
        ("workflow", "run", "ask.yaml"),
        ("workflow", "run", "ask.yaml", "--detach"),
        ("protocol", "new", "Add a discount to the till.", "--run"),
        ("protocol", "new", "Add a discount to the till.", "--run", "--detach"),
    ],
    ids=lambda command: "-".join((*command[:2], command[-1])),
)
def test_every_flow_refuses_a_wrong_key_before_it_begins(
    ratchet: Ratchet, endpoint: Endpoint, repository: Path, command: tuple[str, ...]
) -> None:
    script = endpoint(key="sk-wrong")
    ended = ratchet(*command)
    assert (ended.code, ended.out) == (1, "")
    assert "the key is refused" in ended.err
    assert "export OPENAI_API_KEY=" in ended.err
    assert no_runs(ratchet)
    assert script.requests == []
    branches = subprocess.run(
        ["git", "branch", "--format=%(refname:short)"],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    )
    assert branches.stdout.split() == ["main"]


def test_a_plan_that_is_remembered_needs_no_key(ratchet: Ratchet, endpoint: Endpoint) -> None:
    endpoint(answer(count_with("word_count")))
    asked = ("workflow", "new", "Count the words of a text.")
    assert ratchet(*asked).code == 0
    endpoint(key="sk-wrong")
    again = ratchet(*asked)
    assert (again.code, "No model was asked" in again.err) == (0, True), again.err


def test_answers_that_are_known_need_no_key(ratchet: Ratchet, endpoint: Endpoint, repository: Path) -> None:
    (repository / "ask.yaml").write_text(ASK.replace("tides.}", "tides., cache: true}"))
    endpoint(say("Twice a day."))
    assert ratchet("workflow", "run", "ask.yaml").out == "Twice a day.\n"
    endpoint(key="sk-wrong")
    assert ratchet("workflow", "run", "ask.yaml").out == "Twice a day.\n"
    assert "the key is refused" in ratchet("workflow", "run", "ask.yaml", "--no-cache").err


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (fail(401), "put a valid key"),
        (fail(404, code="model_not_found"), "set llm.default"),
        (fail(429, code="insufficient_quota"), "billing"),
    ],
    ids=["key", "model", "credit"],
)
def test_a_step_that_may_not_ask_blocks_its_run_until_that_is_fixed(
    ratchet: Ratchet, endpoint: Endpoint, repository: Path, turn: Turn, said: str
) -> None:
    endpoint(turn)
    ended = ratchet("workflow", "run", "ask.yaml")
    assert ended.code == 1
    assert said in ended.err
    assert "ratchet runs resume 1" in ended.err
    shown = ratchet("runs", "show", "1", "--json").json
    assert (shown["status"], said in shown["reason"]) == ("blocked", True)
    assert ratchet("workflow", "show", "1", "--json").json["steps"]["tide"]["status"] == "blocked"


def test_a_plan_without_credit_waits_for_a_person(ratchet: Ratchet, endpoint: Endpoint) -> None:
    endpoint(fail(429, code="insufficient_quota"))
    ended = ratchet("workflow", "new", "Count the words of a text.")
    assert ended.code == 1
    assert "blocked" in ended.err
    assert "has no credit left" in ended.err
    assert "other words" not in ended.err
    shown = ratchet("runs", "show", "1", "--json").json
    assert (shown["status"], "billing" in shown["reason"]) == ("blocked", True)


@pytest.mark.soak
def test_a_limit_that_passes_is_waited_for_and_the_pause_is_told(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path, home: Path
) -> None:
    endpoint(
        fail(429, message="Rate limit reached. Please try again in 1s."),
        call("exec_command", cmd="sed -i 's/^X = 0.9/X = 0.5/' recipe.py"),
        say("HYPOTHESIS: lower x"),
        more="[research]\nbackoff_seconds = 0.1\n",
    )
    ended = ratchet("research", "run", str(hill), "--engine", "codex", "--trials", "1")
    assert ended.code == 0, ended.out + ended.err
    assert re.search(r"^retrying in [01] s: Codex failed: .*", ended.err, re.MULTILINE), ended.err


@pytest.mark.soak
def test_a_cost_that_nobody_knows_is_never_told_as_nothing(
    ratchet: Ratchet, endpoint: Endpoint, hill: Path
) -> None:
    endpoint(
        call("exec_command", cmd="sed -i 's/^X = 0.9/X = 0.5/' recipe.py"),
        say("HYPOTHESIS: lower x"),
        used='model = "nameless"',
    )
    ended = ratchet("research", "run", str(hill), "--engine", "codex", "--trials", "1")
    assert ended.code == 0, ended.err
    found = ratchet("research", "status", "1", "--json").json
    assert (found["usage"]["cost_usd"], found["usage"]["tokens"] > 0) == (None, True)
    assert ratchet("runs", "show", "1", "--json").json["usage"]["cost_usd"] is None
    for shown in (("research", "status", "1"), ("research", "cost", "1"), ("runs", "show", "1")):
        told = ratchet(*shown).out
        assert "unknown" in told
        assert "$0.00" not in told


TELLER = """
id: teller
type: llm
input_schema: {type: object, properties: {topic: {type: string}}, required: [topic]}
llm: {prompt_template: "Tell about {topic}."}
"""


def test_costs_of_a_tool_that_are_known_in_part_are_told_as_that(
    ratchet: Ratchet, endpoint: Endpoint, tmp_path: Path
) -> None:
    (tmp_path / "teller.yaml").write_text(TELLER)
    endpoint(say("Tides come."), model="nameless")
    assert ratchet("tool", "add", str(tmp_path / "teller.yaml")).code == 0
    assert "unknown cost" in ratchet("tool", "run", "teller", "--input", "topic=tides").err
    assert "unknown cost so far" in ratchet("tool", "show", "teller").out
    endpoint(say("Tides go."))
    paid = ratchet("tool", "run", "teller", "--input", "topic=moons").err
    assert re.search(r" tokens, \$0\.0\d+", paid), paid
    assert re.search(r"over \$0\.0\d+ so far", ratchet("tool", "show", "teller").out)
    stats = ratchet("tool", "show", "teller", "--json").json["stats"]
    assert 0 < stats["unpriced_tokens"] < stats["tokens"]


def test_the_cost_of_a_step_without_a_price_is_unknown_in_its_profile(
    ratchet: Ratchet, endpoint: Endpoint, repository: Path
) -> None:
    endpoint(say("Twice a day."), model="nameless")
    assert ratchet("workflow", "run", "ask.yaml").code == 0
    assert "unknown cost" in ratchet("workflow", "profile", "1").out
