"""An agent is made, used, told what was wrong, and rewritten while people go on using it at the same address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.agents.addresses import address
from ratchet.agents.architect import AgentRequest, create_agent, send_feedback
from ratchet.agents.contract import Role
from ratchet.agents.host import reached
from ratchet.agents.servers import call_tool
from ratchet.agents.views import comparison, find_compared, versions
from ratchet.demo.pictures.calls import Call, draw_calls
from ratchet.demo.recordings import RECORDED, recorded_engine
from ratchet.demo.shown import Command, Shown
from ratchet.demo.stage import ActFailed, Stage
from ratchet.ledger import Event, Run
from ratchet.ledger.runs import list_runs

WISH = "Split a bill evenly among a number of people."
FEEDBACK = "Split 10.00 among 3 people: the shares make 9.99. They must add up to the total."
_TOOL, _ARGUMENTS = "split", {"total": 10, "people": 3}
_CALLED = f"{_TOOL} total=10 people=3"
_STAGES = {
    "session": "the engine works on it (a recording)",
    "checking": "its tests run, its servers start, canary calls are made",
    "checked": "all of that passed",
}
_CALL_SECONDS = 60.0
# Between two calls while it is rewritten, and how long its new version may take to answer.
_PAUSE_SECONDS, _SWAP_SECONDS = 0.7, 60.0
_MORE_CALLS = 4


@dataclass(frozen=True, slots=True)
class _Life:
    """What the agent has gone through."""

    made: Run
    changed: Run
    versions: Sequence[dict[str, Any]]
    before: Call
    calls: Sequence[Call]
    address: str


def act(stage: Stage) -> Shown:
    life = asyncio.run(_live(stage, stage.place.name("bill")))
    return _shown(stage, life)


async def _live(stage: Stage, name: str) -> _Life:
    async with reached(stage.runtime, stage.loaded) as base:
        made = await asyncio.to_thread(_asked, stage, name, "create")
        always = address(base, name, Role.RUNNER)
        known = await asyncio.to_thread(_versions, stage, name)
        # Of a demo that was cut off, the address may lead to the second version already.
        first = always if len(known) == 1 else address(base, name, Role.RUNNER, known[-1]["commit"])
        before = await _call(first)
        stage.say(f"{_CALLED} answers {before.answer}")
        stage.say(f'feedback: "{FEEDBACK}"')
        using = asyncio.create_task(_use(always, unlike=before.answer))
        try:
            changed = await asyncio.to_thread(_asked, stage, name, "feedback")
            calls = await asyncio.wait_for(using, _SWAP_SECONDS)
        except TimeoutError:
            raise ActFailed(
                f"{name} still answers {before.answer}", hint=f"ratchet agent versions {name}"
            ) from None
        finally:
            using.cancel()
        found = await asyncio.to_thread(_versions, stage, name)
    stage.say(f"{_CALLED} answers {calls[-1].answer}")
    stage.say(f"one address all along: {len(calls)} calls while it was rewritten, none failed")
    return _Life(made, changed, found, before, calls, always)


def _asked(stage: Stage, name: str, action: str) -> Run:
    """The run in which the agent is made or changed, when it has ended. Begun once, whoever asks again."""
    with stage.ledger.read() as tx:
        found = [run.id for run in list_runs(tx, kind="agent", name=name) if run.spec["action"] == action]
    run_id = found[-1] if found else _begin(stage, name, action)
    stage.say(f"Run {run_id}: {'the agent is written' if action == 'create' else 'the agent is rewritten'}")
    return stage.carried(run_id, lambda event: _tell(stage, event))


def _begin(stage: Stage, name: str, action: str) -> int:
    if action == "feedback":
        return send_feedback(stage.runtime, name, FEEDBACK, simulated=True, actor="demo")
    wanted = AgentRequest(name=name, description=WISH, engine=recorded_engine("architect"), simulated=True)
    return create_agent(stage.runtime, wanted, actor="demo")


def _tell(stage: Stage, event: Event) -> None:
    if event.type == "agent.stage" and event.message in _STAGES:
        stage.say(_STAGES[event.message])
    elif event.type == "agent.promoted":
        stage.say(f"its address leads to version {(event.message or '').split()[-1]} now")


def _versions(stage: Stage, name: str) -> list[dict[str, Any]]:
    with stage.ledger.read() as tx:
        return versions(tx, name)


async def _use(url: str, *, unlike: str) -> list[Call]:
    """Call it again and again until it answers otherwise, and a few times more."""
    calls = [await _call(url)]
    while sum(call.answer != unlike for call in calls) < _MORE_CALLS:
        await asyncio.sleep(_PAUSE_SECONDS)
        calls.append(await _call(url))
    return calls


async def _call(url: str) -> Call:
    began = time.monotonic()
    answer = await call_tool(url, _TOOL, _ARGUMENTS, _CALL_SECONDS)
    if answer.failed:
        raise ActFailed(f"{_CALLED} failed: {answer.text}")
    return Call(began, time.monotonic(), answer.text)


def _of_python(patch: str) -> str:
    """The part of a patch that is about Python files, without the lines that only git reads."""
    files = [part for part in patch.split("diff --git ") if part.partition("\n")[0].endswith(".py")]
    return "\n".join("--- a/" + part.partition("--- a/")[2].strip("\n") for part in files)


def _shown(stage: Stage, life: _Life) -> Shown:
    name, newest, oldest = life.made.name, life.versions[0], life.versions[-1]
    with stage.ledger.read() as tx:
        compared = find_compared(tx, name)
    diff = _of_python(comparison(stage.runtime.home, compared)["diff"])
    old = sum(1 for call in life.calls if call.answer == life.before.answer)
    return Shown(
        headline=f"An agent was rewritten from feedback, {oldest['version']} to {newest['version']}, while it was in "
        "use at one address.",
        facts={
            f"{oldest['version']} answers": life.before.answer,
            f"{newest['version']} answers": life.calls[-1].answer,
            "calls meanwhile, none failed": str(len(life.calls)),
            "answered by the old version": str(old),
        },
        real="The agent's code is real: two MCP servers in a sandbox. Its tests, its start and its canary calls had to "
        "pass before the address led to it. Every version is a commit, and every call was a real MCP call.",
        recorded=f"{RECORDED}, once for the first version and once for the feedback.",
        runs=(life.made.id, life.changed.id),
        look=(
            Command(f"ratchet agent call {name} {_CALLED}", "call it again"),
            Command(f"ratchet agent versions {name}", "its versions"),
            Command(f"ratchet agent diff {name}", "what the rewrite changed"),
            Command(f"ratchet agent rollback {name}", "take it back"),
        ),
        pictures=(draw_calls(life.calls, life.before.answer, (oldest["version"], newest["version"])),),
        quotes={"The feedback": FEEDBACK, "What it changed": diff},
    )
