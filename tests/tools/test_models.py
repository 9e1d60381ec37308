"""Model calls of steps: charged, bounded, on record, heard while they speak, and typed when they fail."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.config.engine_settings import EndpointSettings, Llm
from ratchet.engines import Request
from ratchet.engines.llm.choice import candidates
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.replay import Recording
from ratchet.kernel import Limits, Misuse
from ratchet.ledger import Spender
from ratchet.ledger.events import EventFilter, since
from ratchet.ledger.runs import create_run
from ratchet.ledger.usage import SessionRow, list_sessions, set_budget, total
from ratchet.modelserver import ModelServer, Script, Turn, answer, cut, fail, hang, say
from ratchet.runtime import Runtime, open_ledger, open_runtime
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult
from ratchet.tools.caller import call_model, call_tool
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.models import choose_model
from tests.engines.contract import KEY
from tests.modelserver.fixtures import model_server
from tests.runtime.conftest import url
from tests.runtime.worker_process import load
from tests.waiting import eventually_async

__all__ = ["model_server", "url"]

only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
SCHEMA = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}
TALE = "Once upon a time there was a ratchet that turned one way only."
_numbers = itertools.count(1)


@dataclass
class Place:
    """A home whose model plays a script, and a run that pays."""

    home: Path
    url: str
    server: ModelServer
    opened: list[Runtime] = field(default_factory=list)
    heard: list[tuple[str, str]] = field(default_factory=list)
    run_id: int = 0

    def open(self, *turns: Turn, more: str = "", **flags: object) -> Script:
        name = f"step-{next(_numbers)}"
        script = self.server.script(name, list(turns))
        (self.home / "ratchet.toml").write_text(
            f"""
            [llm]
            default = "local/scripted"
            retry_base_seconds = 0.01
            tries = 1
            [llm.endpoints.local]
            base_url = "{self.server.openai_url(name)}"
            key_variable = "MODEL_KEY"
            [llm.prices."scripted"]
            input = 1
            output = 10
            {more}
            """
        )
        loaded = load(self.home, self.url, **flags)
        runtime = open_runtime(loaded, open_ledger(loaded))
        self.opened.append(runtime)
        with runtime.ledger.write() as tx:
            self.run_id = create_run(tx, "workflow", "test")
        return script

    @property
    def runtime(self) -> Runtime:
        return self.opened[-1]

    def occasion(self, **more: Any) -> Occasion:
        whose = Occasion(self.runtime, Spender(run_id=self.run_id), seconds=30.0, listen=self._hear)
        return replace(whose, **more)

    def ask(self, prompt: str = "Who are you?", **more: Any) -> ToolResult:
        return asyncio.run(call_model(prompt, self.occasion(), **more))

    def fails(self, prompt: str = "Who are you?", **more: Any) -> ToolCallFailed:
        with pytest.raises(ToolCallFailed) as failed:
            self.ask(prompt, **more)
        return failed.value

    def call(self, tool: Tool, **values: Any) -> ToolResult:
        return asyncio.run(call_tool(tool, values, self.occasion()))

    def sessions(self) -> list[SessionRow]:
        with self.runtime.ledger.read() as tx:
            return list_sessions(tx, run_id=self.run_id)

    def _hear(self, kind: str, data: Any) -> None:
        self.heard.append((kind, data["text"]))


@pytest.fixture
def place(
    url: str, tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    monkeypatch.setenv("MODEL_KEY", KEY)
    made = Place(tmp_path, url, model_server)
    yield made
    for runtime in made.opened:
        runtime.ledger.close()


def llm_tool(**body: Any) -> Tool:
    more = {name: body.pop(name) for name in ("output_schema", "input_schema", "timeout") if name in body}
    return read_tool({"type": "llm", "llm": body, **more}, folder=None, id="writer")


@pytest.mark.soak
def test_an_answer_is_charged_to_the_run_and_on_record(place: Place) -> None:
    script = place.open(say("A step."))
    called = place.ask("Who are you?", system="Be brief.")
    assert called.value == "A step."
    assert called.use.tokens == 110
    assert called.use.cost_microusd == 100 * 1 + 10 * 10
    assert called.use.wall_ms > 0
    assert not called.simulated
    assert "Who are you?" in script.requests[0].said
    with place.runtime.ledger.read() as tx:
        assert total(tx, "run", place.run_id).tokens == 110
    [session] = place.sessions()
    assert (session.role, session.engine, session.failure) == ("step", "llm", None)
    assert session.transcript is not None


def test_a_run_that_has_used_its_budget_asks_nobody(place: Place) -> None:
    script = place.open(say("one"), say("two"))
    place.ask()
    with place.runtime.ledger.write() as tx:
        set_budget(tx, "run", place.run_id, Limits(tokens=50))
    failed = place.fails()
    assert failed.final
    assert "budget" in str(failed)
    assert len(script.requests) == 1


@pytest.mark.soak
@only_sqlite
def test_words_are_heard_before_the_answer_is_whole(place: Place) -> None:
    place.open(replace(say(TALE), pace_seconds=0.05))
    called = place.ask()
    pieces = [text for kind, text in place.heard if kind == "token"]
    assert "".join(pieces) == called.value == TALE
    assert len(pieces) > 2


@only_sqlite
def test_the_lines_of_an_answer_are_passed_on_whole(place: Place) -> None:
    place.open(say("a first line\nand a second\nand the rest"))
    given: list[str] = []
    called = asyncio.run(call_model("Say three lines.", place.occasion(give_line=given.append)))
    assert called.value == "a first line\nand a second\nand the rest"
    assert given == ["a first line", "and a second"]


@pytest.mark.soak
@only_sqlite
def test_words_that_were_heard_one_by_one_are_one_event_of_the_ledger(place: Place) -> None:
    place.open(replace(say(TALE), pace_seconds=0.05))
    place.ask()
    with place.runtime.ledger.read() as tx:
        said = since(tx.connection, where=EventFilter(run_id=place.run_id, type="session.message"))
    assert [each.message for each in said] == [TALE]


@only_sqlite
def test_an_answer_to_a_schema_fits_it(place: Place) -> None:
    place.open(answer({"score": "high"}), answer({"score": 0.5}))
    assert place.ask("How good?", schema=SCHEMA).value == {"score": 0.5}


@only_sqlite
@pytest.mark.parametrize(
    ("turns", "schema", "words"),
    [
        ([say("")] * 3, None, "empty"),
        ([say("what?")] * 3, SCHEMA, "not JSON"),
        ([cut(TALE)], None, "broke off"),
        ([fail(500)], None, "500"),
        ([Turn(raw="<html>garbage</html>")], None, "local/scripted"),
    ],
)
def test_garbage_is_a_failure_that_may_be_tried_again(
    place: Place, turns: list[Turn], schema: dict[str, Any] | None, words: str
) -> None:
    place.open(*turns)
    failed = place.fails(schema=schema)
    assert words in str(failed)
    assert not failed.final
    assert place.sessions()[0].failure is not None


@only_sqlite
@pytest.mark.parametrize(
    "turn",
    [fail(401), fail(404), replace(say("I cannot do that."), ended="refused")],
    ids=["key", "model", "no"],
)
def test_a_refusal_is_final(place: Place, turn: Turn) -> None:
    place.open(turn)
    failed = place.fails()
    assert failed.final
    assert KEY not in f"{failed} {failed.hint}"


@only_sqlite
def test_what_a_failed_answer_used_is_told(place: Place) -> None:
    place.open(*[say("what?")] * 3)
    assert place.fails(schema=SCHEMA).use.tokens == 330


@only_sqlite
def test_without_a_model_the_settings_are_named(place: Place) -> None:
    place.open()
    (place.home / "ratchet.toml").write_text("")
    loaded = load(place.home, place.url)
    place.opened.append(open_runtime(loaded, open_ledger(loaded)))
    failed = place.fails()
    assert failed.final
    assert "llm.default" in (failed.hint or "")


@only_sqlite
def test_a_model_that_says_nothing_is_given_up_in_time(place: Place) -> None:
    place.open(hang())
    failed = place.fails(seconds=0.5)
    assert not failed.final
    assert "timeout of the step" in (failed.hint or "")


@only_sqlite
def test_a_cancelled_question_is_on_record(place: Place) -> None:
    script = place.open(hang())

    async def give_up() -> None:
        asking = asyncio.create_task(call_model("Who?", place.occasion()))
        await eventually_async(lambda: len(script.requests) == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(give_up())
    assert place.sessions()[0].reason == "the step was cancelled"


@only_sqlite
def test_temperature_and_the_length_of_the_answer_reach_the_model(place: Place) -> None:
    script = place.open(say("one"), say("two"))
    place.call(llm_tool(temperature=0.25, max_tokens=77), prompt="go")
    place.call(llm_tool(), prompt="go")
    first, second = (each.body for each in script.requests)
    assert first["temperature"] == 0.25
    assert 77 in (first.get("max_tokens"), first.get("max_completion_tokens"))
    assert "temperature" not in second


@only_sqlite
def test_the_template_of_a_tool_is_filled(place: Place) -> None:
    script = place.open(say("A limerick."))
    tool = llm_tool(
        system_prompt="You write.", prompt_template='Write about {topic} as {{"style": {style}}}', tier="fast"
    )
    called = place.call(tool, topic="the sea", style=["short"])
    assert called.value == "A limerick."
    assert 'Write about the sea as {"style": ["short"]}' in script.requests[0].said
    assert "You write." in str(script.requests[0].body)


@only_sqlite
def test_a_template_that_lacks_an_input_asks_nobody(place: Place) -> None:
    script = place.open(say("never"))
    with pytest.raises(ToolCallFailed, match="topic") as failed:
        place.call(llm_tool(prompt_template="About {topic}"), other="x")
    assert failed.value.final
    assert script.requests == []


@only_sqlite
def test_a_tool_whose_answer_is_any_text_is_not_asked_for_json(place: Place) -> None:
    place.open(say("plain words"))
    tool = llm_tool(output_schema={"type": "string", "description": "the text"})
    assert place.call(tool, prompt="go").value == "plain words"


@only_sqlite
def test_a_tool_names_its_model_by_role_and_tier(place: Place) -> None:
    roles = '[llm.roles.code]\nfast = "local/quick"\n[llm.roles.default]\ngeneral = "local/usual"'
    script = place.open(*[say("yes")] * 4, more=roles)
    for body in (
        {"role": "code", "tier": "fast"},
        {"tier": "code.fast"},
        {"tier": "general"},
        {"role": "writing"},
    ):
        place.call(llm_tool(**body), prompt="go")
    assert [each.body["model"] for each in script.requests] == ["quick", "quick", "usual", "scripted"]


@only_sqlite
def test_a_recorded_answer_is_marked(place: Place, tmp_path: Path) -> None:
    cassette = tmp_path / "answers.jsonl"
    place.open(say("A recording."), **{"workflows.llm": f"replay:{cassette}"})
    real = open_engine("llm", EngineContext(place.runtime.settings, tmp_path, {"MODEL_KEY": KEY}))
    asyncio.run(Recording(real, cassette).propose(Request("Who are you?")))
    called = place.ask()
    assert (called.value, called.simulated) == ("A recording.", True)
    assert place.sessions()[0].simulated


ROLES = Llm(
    roles={"code": {"fast": "local/c"}, "default": {"general": "local/m1"}},
    endpoints={"local": EndpointSettings(base_url="http://127.0.0.1:1/v1")},
)


@pytest.mark.parametrize(
    ("role", "tier", "model"),
    [
        ("code", "fast", "c"),
        ("code", "general", "m1"),
        ("content", "general", "m1"),
        (None, "code.fast", "c"),
    ],
)
def test_a_tier_is_found_in_its_role_or_among_the_defaults(role: str | None, tier: str, model: str) -> None:
    chosen = choose_model(ROLES, role=role, tier=tier)
    assert [each.model for each in candidates(chosen, ROLES)] == [model]


def test_a_tier_that_nobody_has_is_an_error_that_names_it() -> None:
    with pytest.raises(Misuse, match=r"code\.god"):
        choose_model(ROLES, role="code", tier="god")


@pytest.mark.parametrize(
    ("model", "maker"),
    [
        ("llama3", "ollama"),
        ("claude-zzz", "anthropic"),
        ("gpt-4", "openai"),
        ("unknown", "ollama"),
        ("q2.5", "ollama"),
    ],
)
def test_a_plain_name_goes_to_the_endpoint_of_its_maker(model: str, maker: str) -> None:
    assert candidates(choose_model(ROLES, model=model), ROLES)[0].endpoint.kind == maker


@pytest.mark.parametrize("model", ["local/x", "code", "code.fast"])
def test_what_the_settings_know_is_taken_as_it_is(model: str) -> None:
    assert choose_model(ROLES, model=model) == model
