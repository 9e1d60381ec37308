"""An agent is made, used, told what was wrong, and rewritten while people continue using it at the same address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.agents.addresses import address
from ratchet.agents.architect import AgentRequest, create_agent, send_feedback
from ratchet.agents.contract import Role
from ratchet.agents.host import reached
from ratchet.agents.servers import call_tool
from ratchet.agents.views import ListedVersion, comparison, find_compared, versions
from ratchet.demo.stage import RECORDED, ActFailed, DemoCommand, DemoStage, Shown, recorded_engine
from ratchet.ledger import Event, Run
from ratchet.ledger.runs import list_runs
from ratchet.research.views.markup import Markup, joined, tag
from ratchet.research.views.plot import Scale

_WIDTH, _HEIGHT = 760.0, 120.0
_LEFT, _RIGHT = 76.0, 24.0
_LANES = (70.0, 30.0)


@dataclass(frozen=True, slots=True)
class AgentCall:
    """When a call began and ended, in seconds of any clock, and what was answered."""

    began: float
    ended: float
    answer: str


def draw_calls(calls: Sequence[AgentCall], old: str, versions: tuple[str, str]) -> Markup:
    """`old` is what the first of both versions answers."""
    zero = calls[0].began
    end = max(call.ended for call in calls) - zero
    across = Scale(0.0, max(end, 0.1), _LEFT, _WIDTH - _RIGHT)
    parts = [*_lanes(versions), *(_dot(call, zero, old, across) for call in calls), *_axis(across)]
    svg = tag(
        "svg",
        joined(parts),
        class_="plot small",
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        role="img",
        aria_label=f"{len(calls)} calls while the agent was rewritten, by the version that answered",
        xmlns="http://www.w3.org/2000/svg",
    )
    told = (
        "Every dot is a call at the same address, from the feedback on, where it was answered. None failed."
    )
    return joined([tag("div", svg, class_="wide"), tag("p", told, class_="soft")])


def _lanes(versions: tuple[str, str]) -> list[Markup]:
    lines = [tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="tick") for y in _LANES]
    names = [
        tag("text", version, x=_LEFT - 14, y=y + 4, text_anchor="end", class_="ink")
        for version, y in zip(versions, _LANES, strict=True)
    ]
    return [*lines, *names]


def _dot(call: AgentCall, zero: float, old: str, across: Scale) -> Markup:
    first = call.answer == old
    title = tag("title", f"{call.ended - zero:.1f} s: {call.answer}")
    return tag(
        "circle",
        title,
        cx=across(call.ended - zero),
        cy=_LANES[0] if first else _LANES[1],
        r=5,
        class_="first" if first else "second",
    )


def _axis(across: Scale) -> list[Markup]:
    return [
        tag("text", f"{value:g} s", x=across(value), y=_HEIGHT - 14, text_anchor="middle")
        for value in across.ticks(6)
    ]


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
    versions: Sequence[ListedVersion]
    before: AgentCall
    calls: Sequence[AgentCall]
    address: str


def act(stage: DemoStage) -> Shown:
    life = asyncio.run(_live(stage, stage.place.name("bill")))
    return _shown(stage, life)


async def _live(stage: DemoStage, name: str) -> _Life:
    async with reached(stage.runtime, stage.loaded) as host:
        base = host.url
        made = await asyncio.to_thread(_asked, stage, name, "create")
        always = address(base, name, Role.RUNNER)
        known = await asyncio.to_thread(_versions, stage, name)
        # Of a demo that was cut off, the address may lead to the second version already.
        first = always if len(known) == 1 else address(base, name, Role.RUNNER, known[-1].commit)
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


def _asked(stage: DemoStage, name: str, action: str) -> Run:
    """The run in which the agent is made or changed, when it has ended. Begun once, whoever asks again."""
    with stage.ledger.read() as tx:
        found = [run.id for run in list_runs(tx, kind="agent", name=name) if run.spec["action"] == action]
    run_id = found[-1] if found else _begin(stage, name, action)
    stage.say(f"Run {run_id}: {'the agent is written' if action == 'create' else 'the agent is rewritten'}")
    return stage.carried(run_id, lambda event: _tell(stage, event))


def _begin(stage: DemoStage, name: str, action: str) -> int:
    if action == "feedback":
        return send_feedback(stage.runtime, name, FEEDBACK, about=[_TOOL], simulated=True, actor="demo")
    wanted = AgentRequest(name=name, description=WISH, engine=recorded_engine("architect"), simulated=True)
    return create_agent(stage.runtime, wanted, actor="demo")


def _tell(stage: DemoStage, event: Event) -> None:
    if event.type == "agent.stage" and event.message in _STAGES:
        stage.say(_STAGES[event.message])
    elif event.type == "agent.promoted":
        stage.say(f"its address leads to version {(event.message or '').split()[-1]} now")


def _versions(stage: DemoStage, name: str) -> list[ListedVersion]:
    with stage.ledger.read() as tx:
        return versions(tx, name)


async def _use(url: str, *, unlike: str) -> list[AgentCall]:
    """Call it again and again until it answers otherwise, and a few times more."""
    calls = [await _call(url)]
    while sum(call.answer != unlike for call in calls) < _MORE_CALLS:
        await asyncio.sleep(_PAUSE_SECONDS)
        calls.append(await _call(url))
    return calls


async def _call(url: str) -> AgentCall:
    began = time.monotonic()
    answer = await call_tool(url, _TOOL, _ARGUMENTS, _CALL_SECONDS)
    if answer.failed:
        raise ActFailed(f"{_CALLED} failed: {answer.text}")
    return AgentCall(began, time.monotonic(), answer.text)


def _of_python(patch: str) -> str:
    """The part of a patch that is about Python files, without the lines that only git reads."""
    files = [part for part in patch.split("diff --git ") if part.partition("\n")[0].endswith(".py")]
    return "\n".join("--- a/" + part.partition("--- a/")[2].strip("\n") for part in files)


def _shown(stage: DemoStage, life: _Life) -> Shown:
    name, newest, oldest = life.made.name, life.versions[0], life.versions[-1]
    with stage.ledger.read() as tx:
        compared = find_compared(tx, name)
    diff = _of_python(comparison(stage.runtime.home, compared).diff)
    old = sum(1 for call in life.calls if call.answer == life.before.answer)
    return Shown(
        headline=f"An agent was rewritten from feedback, {oldest.version} to {newest.version}, while it was in "
        "use at one address.",
        facts={
            f"{oldest.version} answers": life.before.answer,
            f"{newest.version} answers": life.calls[-1].answer,
            "calls meanwhile, none failed": str(len(life.calls)),
            "answered by the old version": str(old),
        },
        real="The agent's code is real: two MCP servers in a sandbox. Its tests, its start and its canary calls had to "
        "pass before the address led to it. Every version is a commit, and every call was a real MCP call.",
        recorded=f"{RECORDED}, once for the first version and once for the feedback.",
        runs=(life.made.id, life.changed.id),
        look=(
            DemoCommand(f"ratchet agent call {name} {_CALLED}", "call it again"),
            DemoCommand(f"ratchet agent versions {name}", "its versions"),
            DemoCommand(f"ratchet agent diff {name}", "what the rewrite changed"),
            DemoCommand(f"ratchet agent rollback {name}", "take it back"),
        ),
        pictures=(draw_calls(life.calls, life.before.answer, (oldest.version, newest.version)),),
        quotes={"The feedback": FEEDBACK, "What it changed": diff},
    )
