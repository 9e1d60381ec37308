"""Writes the recordings that `ratchet demo` replays: `python -m tests.demo.recording`.

Nobody's model said any of this. The sessions are written here by hand, so that the demo needs no key, and everything
that plays one marks it as simulated. What they write into files is run, tested and judged like anything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ratchet.engines.cassette import Header, Recorded, RecordedChange, add
from ratchet.engines.engine import Capabilities, EventKind
from ratchet.kernel import Usage
from tests.demo import bill, till

PLACE = Path(__file__).parents[2] / "src" / "ratchet" / "demo" / "recordings"
AUTHOR = Capabilities(edits_files=True, structured_output=True)
READER = Capabilities(structured_output=True)
# 16 November 2026.
_ENDED_AT = 1_794_787_200_000
_FILE = "100644"


@dataclass(frozen=True)
class Scene:
    """One session: which prompts it answers, what it says and writes, and what it comes to."""

    holds: Sequence[str]
    says: Sequence[str]
    text: str
    lacks: Sequence[str] = ()
    output: Any = None
    files: Mapping[str, str] = field(default_factory=dict)

    def recorded(self, engine: str) -> Recorded:
        events = [_event(EventKind.MESSAGE, said) for said in self.says]
        events += [_event(EventKind.FILE_CHANGE, name) for name in self.files]
        events += [_event(EventKind.MESSAGE, self.text)]
        transcript = "".join(json.dumps({"ms": 0, **each}) + "\n" for each in events)
        result = {
            "engine": engine,
            "model": None,
            "text": self.text,
            "output": self.output,
            "usage": asdict(Usage()),
            "resume": None,
            "transcript": transcript,
            "simulated": True,
            "data": {},
            "ended_at": _ENDED_AT,
        }
        return Recorded(
            {"prompt_holds": list(self.holds), "prompt_lacks": list(self.lacks)},
            tuple(("event", event) for event in events),
            tuple(RecordedChange(name, _FILE, content.encode()) for name, content in self.files.items()),
            "session",
            result,
        )


def _event(kind: EventKind, text: str) -> dict[str, Any]:
    return {"kind": str(kind), "text": text, "data": {}}


CREATED = Scene(
    holds=("Design and write a new agent", bill.WISH),
    says=("A Runner with one tool, split, and a state that counts the bills.",),
    files=bill.first(),
    text="I wrote split and its tests.",
    output={"summary": "Splits a bill evenly and counts the bills.", "refused": None},
)
REWRITTEN = Scene(
    holds=("This directory is a copy of a running agent", bill.FEEDBACK),
    says=("Rounding each share loses a cent. Whole cents do not; who is first pays what is left over.",),
    files=bill.second(),
    text="Shares are counted in cents now. A test and a canary call hold it.",
    output={
        "decision": "code",
        "bump": "patch",
        "summary": "Shares add up to the total: whole cents, and the first ones pay what is left over.",
        "refused": None,
    },
)
PLANNED = Scene(
    holds=("The change that is wanted", till.WISH),
    says=("The till has prices.py and its tests. Two small changes, each with its own test.",),
    text="Three steps: look around, discounts, receipts.",
    output=till.PLAN,
)
AUTHORED = (
    Scene(
        holds=("# Your step: 00-setup",),
        says=("The tests run. Nothing has to change.",),
        text="The repository is ready: its tests pass.",
    ),
    Scene(
        holds=("# Your step: 01-discount",),
        lacks=("# What was wrong with the last attempt",),
        says=("I add discount to prices.py.",),
        files=till.wrong_discount(),
        text="discount is there, with a test.",
    ),
    Scene(
        holds=("# Your step: 01-discount", "# What was wrong with the last attempt"),
        says=(
            "The test says 20 with 10 % off is 18, and it became 0: a percent is a hundredth, not a tenth.",
        ),
        files=till.right_discount(),
        text="discount divides by 100 now.",
    ),
    Scene(
        holds=("# Your step: 02-receipt",),
        says=("A receipt has a line for each price and one for the total.",),
        files=till.receipt(),
        text="receipt is there, with a test.",
    ),
)
REVIEWED = tuple(
    Scene(
        holds=(f"# The step {step}",),
        says=(),
        text=summary,
        output={"verdict": "pass", "summary": summary, "findings": []},
    )
    for step, summary in (
        ("00-setup", "Nothing was asked for, and nothing was changed."),
        ("01-discount", "discount does what the step asks for, and its test would fail without it."),
        ("02-receipt", "receipt lists every price and the total, and is tested."),
    )
)
CREATED_BEFORE = Scene(
    holds=("Design and write a new agent", bill.TEXT_WISH),
    says=("A Runner with one tool, split, that reads the total from a text.",),
    files=bill.before_the_incident(),
    text="I wrote split and its test.",
    output={"summary": "Splits a bill whose total is written as text.", "refused": None},
)
REPAIRED = Scene(
    holds=("This directory is a copy of a running agent", bill.PRODUCTION, "12,50"),
    says=("The caller wrote the total with a comma, and float() knows only the point.",),
    files=bill.after_the_incident(),
    text="A comma before the cents is read as well, and a test holds it.",
    output={
        "decision": "code",
        "bump": "patch",
        "summary": "Totals may be written with a comma before the cents.",
        "refused": None,
    },
)
CASSETTES = {
    "architect": (AUTHOR, (CREATED, REWRITTEN)),
    "incident": (AUTHOR, (CREATED_BEFORE, REPAIRED)),
    "planner": (READER, (PLANNED,)),
    "author": (AUTHOR, AUTHORED),
    "reviewer": (READER, REVIEWED),
}


def write(place: Path) -> None:
    for engine, (capabilities, scenes) in CASSETTES.items():
        cassette = place / f"{engine}.jsonl"
        cassette.unlink(missing_ok=True)
        for scene in scenes:
            add(cassette, Header(engine, capabilities), scene.recorded(engine))


if __name__ == "__main__":
    write(PLACE)
