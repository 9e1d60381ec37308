"""Agents ask a model without a key of their own: what they use is counted, bounded and written down."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.completion import LONGEST_QUESTION, ask_llm, plain_schema
from ratchet.engines import Failure, Request, SessionFailed
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.replay import Recording
from ratchet.kernel import BudgetExceeded, Limits, Misuse, NotFound, Usage
from ratchet.ledger.agents import AgentVersion, find_version, get_agent
from ratchet.ledger.check import check
from ratchet.ledger.usage import SessionRow, list_sessions, set_budget, total
from ratchet.modelserver import ModelServer, Script, Turn, answer, fail, hang, say
from ratchet.runtime import Runtime, open_ledger, open_runtime
from tests.agents.made_up import make_agent
from tests.engines.contract import KEY, SCHEMA
from tests.modelserver.fixtures import model_server  # noqa: F401 - a fixture
from tests.runtime.worker_process import load
from tests.waiting import eventually_async

only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
_numbers = itertools.count(1)


@dataclass
class Asking:
    """A home with a greeter in it, and a model that plays a script."""

    home: Path
    url: str
    server: ModelServer
    runtime: Runtime | None = None

    def open(self, *turns: Turn, **flags: object) -> Script:
        name = f"asked-{next(_numbers)}"
        script = self.server.script(name, list(turns))
        (self.home / "ratchet.toml").write_text(
            f'[llm]\ndefault = "local/scripted"\nretry_base_seconds = 0.01\n[llm.endpoints.local]\n'
            f'base_url = "{self.server.openai_url(name)}"\nkey_variable = "MODEL_KEY"\n'
        )
        loaded = load(self.home, self.url, **flags)
        self.runtime = open_runtime(loaded, open_ledger(loaded))
        make_agent(self.runtime.ledger, self.home)
        return script

    @property
    def at(self) -> Runtime:
        assert self.runtime is not None
        return self.runtime

    @property
    def version(self) -> AgentVersion:
        with self.at.ledger.read() as tx:
            agent = get_agent(tx, "greeter")
            found = find_version(tx, agent.id, agent.current or "")
        assert found is not None
        return found

    async def asks(self, prompt: str = "Who are you?", **more: Any) -> dict[str, Any]:
        return await ask_llm(self.at, agent="greeter", commit=self.version.commit, prompt=prompt, **more)

    def ask(self, prompt: str = "Who are you?", **more: Any) -> dict[str, Any]:
        return asyncio.run(self.asks(prompt, **more))

    def sessions(self) -> list[SessionRow]:
        with self.at.ledger.read() as tx:
            return list_sessions(tx, run_id=self.version.run_id)

    def used(self) -> tuple[Usage, Usage]:
        """By the run that made the version, and by the version."""
        version = self.version
        assert version.run_id is not None
        with self.at.ledger.read() as tx:
            return total(tx, "run", version.run_id), total(tx, "version", version.id)


@pytest.fixture
def asking(
    url: str,
    tmp_path: Path,
    model_server: ModelServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Asking]:
    monkeypatch.setenv("MODEL_KEY", KEY)
    place = Asking(tmp_path, url, model_server)
    yield place
    if place.runtime is not None:
        place.runtime.ledger.close()


@pytest.mark.soak
def test_an_answer_is_charged_to_the_run_that_made_the_version(asking: Asking) -> None:
    script = asking.open(say("A greeter."))
    told = asking.ask("Who are you?", system="Be brief.")
    assert told == {"text": "A greeter.", "output": None, "simulated": False}
    assert "Who are you?" in script.requests[0].said
    assert script.requests[0].headers["authorization"] == f"Bearer {KEY}"
    of_run, of_version = asking.used()
    assert (of_run.input_tokens, of_run.output_tokens) == (100, 10)
    assert of_version == of_run
    [session] = asking.sessions()
    assert (session.role, session.engine, session.failure) == ("asked", "llm", None)
    assert session.transcript is not None
    assert b"A greeter." in asking.at.ledger.artifacts.read(session.transcript)
    assert check(asking.at.ledger).findings == ()


def test_a_version_that_has_used_its_tokens_asks_in_vain(asking: Asking) -> None:
    script = asking.open(say("one"), say("two"), say("three"), **{"agents.llm_tokens": 150})
    asking.ask()
    with pytest.raises(SessionFailed) as over:
        asking.ask()
    assert over.value.failure is Failure.BUDGET
    with pytest.raises(BudgetExceeded, match="220 of 150") as refused:
        asking.ask()
    assert "agents.llm_tokens" in (refused.value.hint or "")
    assert len(script.requests) == 2
    assert [each.failure for each in asking.sessions()] == ["budget", None]


def test_twenty_questions_at_once_are_all_counted(asking: Asking) -> None:
    asking.open(Turn(text="yes", repeat="always"))

    async def all_of_them() -> list[dict[str, Any]]:
        return await asyncio.gather(*(asking.asks(f"Question {number}?") for number in range(20)))

    assert [each["text"] for each in asyncio.run(all_of_them())] == ["yes"] * 20
    of_run, of_version = asking.used()
    assert of_run.tokens == of_version.tokens == 20 * 110
    assert len(asking.sessions()) == 20


@only_sqlite
def test_no_address_is_asked_that_an_agent_names(asking: Asking) -> None:
    """It would reach all that this machine reaches, past what its egress allows."""
    asking.open(say("one"))
    elsewhere = asking.server.script("elsewhere", [say("got you")])
    for model in (f"{asking.server.openai_url('elsewhere')}#m", "replay:/dev/zero"):
        with pytest.raises(Misuse, match="is an address or a file"):
            asking.ask(model=model)
    assert elsewhere.requests == []


@only_sqlite
def test_a_budget_of_the_run_that_made_the_version_holds_for_its_questions(asking: Asking) -> None:
    script = asking.open(say("one"), say("two"))
    asking.ask()
    with asking.at.ledger.write() as tx:
        set_budget(tx, "run", asking.version.run_id or 0, Limits(tokens=50))
    with pytest.raises(BudgetExceeded):
        asking.ask()
    assert len(script.requests) == 1


@only_sqlite
def test_an_answer_to_a_schema_fits_it(asking: Asking) -> None:
    asking.open(answer({"score": "high"}), answer({"score": 0.5}))
    assert asking.ask("How good?", schema=SCHEMA)["output"] == {"score": 0.5}


@only_sqlite
def test_a_key_that_an_endpoint_repeats_is_not_told(asking: Asking) -> None:
    asking.open(fail(401, message=f"the key {KEY} is wrong"))
    with pytest.raises(SessionFailed) as refused:
        asking.ask()
    assert refused.value.failure is Failure.NO_ACCESS
    assert KEY not in f"{refused.value} {refused.value.hint}"
    [session] = asking.sessions()
    assert session.failure == "no_access"
    assert KEY not in (session.reason or "")


@only_sqlite
def test_a_question_that_is_given_up_is_written_down_with_what_it_used(asking: Asking) -> None:
    script = asking.open(answer({"score": "high"}), hang())

    async def give_up() -> None:
        task = asyncio.create_task(asking.asks("How good?", schema=SCHEMA))
        await eventually_async(lambda: len(script.requests) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    [session] = asking.sessions()
    assert session.reason == "the caller did not wait for the answer"
    of_run, of_version = asking.used()
    assert of_run.tokens == of_version.tokens == 110


@only_sqlite
def test_a_recorded_answer_is_marked(asking: Asking, tmp_path: Path) -> None:
    cassette = tmp_path / "answers.jsonl"
    asking.open(say("A greeter."), **{"agents.llm": f"replay:{cassette}"})
    real = open_engine("llm", EngineContext(asking.at.settings, tmp_path, {"MODEL_KEY": KEY}))
    asyncio.run(Recording(real, cassette).propose(Request("Who are you?")))
    assert asking.ask() == {"text": "A greeter.", "output": None, "simulated": True}
    [session] = asking.sessions()
    assert session.simulated


@only_sqlite
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"prompt": "  "}, "empty"),
        ({"prompt": "é" * (LONGEST_QUESTION // 2 + 1)}, "bytes"),
        ({"prompt": "x", "system": "y" * LONGEST_QUESTION}, "bytes"),
        ({"prompt": "x", "schema": {"enum": ["y" * LONGEST_QUESTION]}}, "bytes"),
        ({"prompt": "x", "schema": {"type": "string", "pattern": "(a+)+$"}}, "'pattern' cannot be used"),
        ({"prompt": "x", "schema": {"type": "nothing"}}, "not a JSON Schema"),
        ({"prompt": "x", "model": "nowhere/model"}, "no endpoint 'nowhere'"),
    ],
)
def test_a_question_that_cannot_be_asked_costs_nothing(
    asking: Asking, given: dict[str, Any], reason: str
) -> None:
    script = asking.open(say("never"))
    with pytest.raises(Misuse, match=reason):
        asking.ask(**given)
    assert (script.requests, asking.used()[1]) == ([], Usage())


@only_sqlite
def test_a_version_that_is_not_there_asks_in_vain(asking: Asking) -> None:
    script = asking.open(say("never"))
    for agent, commit in (("greeter", "0" * 40), ("stranger", asking.version.commit)):
        with pytest.raises(NotFound):
            asyncio.run(ask_llm(asking.at, agent=agent, commit=commit, prompt="x"))
    assert script.requests == []


def test_references_within_a_schema_are_replaced_by_what_they_mean() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    line = {
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/Point"}, "to": {"$ref": "#/$defs/Point", "title": "end"}},
        "$defs": {"Point": point},
    }
    assert plain_schema(line) == {
        "type": "object",
        "properties": {"from": point, "to": {**point, "title": "end"}},
    }


def doubling(steps: int) -> dict[str, Any]:
    """A small schema that would be checked 2**steps times."""
    chain = {f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(steps)}
    return {"$ref": "#/$defs/s0", "$defs": {**chain, f"s{steps}": {"type": "string"}}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        doubling(15),
        nested(900),
        {"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}}}}},
        {"$ref": "#"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": ["#"]},
        {"$defs": []},
        {"items": [{"type": "string"}]},
        {"anyOf": {"type": "string"}},
        {"patternProperties": {"(a+)+$": True}},
    ],
)
def test_a_schema_that_could_keep_the_server_busy_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        plain_schema(schema)
