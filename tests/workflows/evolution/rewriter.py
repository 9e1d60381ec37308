"""An engine for the tests: it writes a ready variant, by name, and may die on its way.

`rewriter:same,direct` writes `same` in its first try and `direct` in its second; which try it is it takes from what the
prompt says was tried before. Some words say how: one that `speaks` answers with the source instead of editing files,
one that is `gated` waits until there is no file `gate`, one that is `recorded` says that it is, and one that is
`absent` does nothing. What it does is marked in a file of the home, and a file there may name the place at which the
whole process is to die, once.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from ratchet.engines import Capabilities, Engine, Failure, Readiness, Request, Session, SessionFailed
from ratchet.engines.registry import EngineContext
from ratchet.kernel import Usage
from ratchet.ledger import Ledger
from ratchet.ledger.usage import list_sessions
from ratchet.workflows.evolution.author import TRIED
from tests.runtime.deaths import pass_by
from tests.runtime.kinds import mark
from tests.waiting import eventually
from tests.workflows.evolution.variants import variant

COST_MICROUSD = 1_000
IN_JUDGE = "in the judge"
_HOW = ("speaks", "gated", "recorded", "absent")


def die_in_judge(home: Path) -> bool:
    death = home / "death"
    return death.exists() and death.read_text() == IN_JUDGE


def _await_judge(home: Path, url: str) -> None:
    """Once the session is on record, its variant is being judged."""
    with Ledger.open(url, home / "artifacts") as ledger:

        def recorded() -> bool:
            with ledger.read() as tx:
                return bool(list_sessions(tx, limit=1))

        eventually(recorded)
    pass_by(home, IN_JUDGE)


class Rewriter:
    name = "rewriter"

    def __init__(self, home: Path, url: str, words: list[str]) -> None:
        self.home = home
        self.url = url
        self.how = {word for word in words if word in _HOW}
        self.names = [word for word in words if word not in _HOW]
        self.capabilities = Capabilities(
            edits_files="speaks" not in self.how, structured_output=True, reports_usage=True
        )

    async def propose(self, request: Request) -> Session:
        pass_by(self.home, "before the session")
        if "absent" in self.how:
            raise SessionFailed(Failure.MISSING, "nobody is there", session=Session(self.name))
        if "gated" in self.how:
            await asyncio.to_thread(eventually, lambda: not (self.home / "gate").exists())
        _, _, tried = request.prompt.partition(TRIED)
        number = len([line for line in tried.split("\n\n")[0].splitlines() if line.startswith("- ")])
        mark(str(self.home / "prompts"), request.prompt.replace("\n", "\N{SYMBOL FOR NEWLINE}"))
        name = self.names[min(number, len(self.names) - 1)]
        source = variant(name, self.home)
        output = {"summary": f"tried {name}", "change_type": "minor"}
        if request.workspace is None:
            output["source"] = source
        else:
            file = "workflow.json" if name.startswith("graph/") else "tool.py"
            await asyncio.to_thread((request.workspace / file).write_text, source)
        pass_by(self.home, "after the session")
        if die_in_judge(self.home):
            threading.Thread(target=_await_judge, args=(self.home, self.url), daemon=True).start()
        return Session(
            self.name,
            text="done",
            output=output,
            usage=Usage(input_tokens=10, cost_microusd=COST_MICROUSD),
            transcript=b"{}\n",
            simulated="recorded" in self.how,
        )

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def open_rewriter(surroundings: EngineContext, option: str) -> Engine:
    url = surroundings.settings.database_url.reveal()
    return Rewriter(surroundings.home, url, option.split(","))


def prompts(home: Path) -> list[str]:
    """What it was asked, in order."""
    lines = (home / "prompts").read_text().splitlines()
    return [line.replace("\N{SYMBOL FOR NEWLINE}", "\n") for line in lines]
