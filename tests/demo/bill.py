"""The agent of the recordings: it splits a bill, at first with a cent missing."""

from __future__ import annotations

import json

WISH = "Split a bill evenly among a number of people."
FEEDBACK = "Split 10.00 among 3 people: the shares make 9.99. They must add up to the total."

_RUNNER = '''"""Splits bills."""

from ratchet.agentkit import Runner, state
from shares import shares

runner = Runner("bill")


@runner.tool
def split(total: float, people: int) -> str:
    """Who pays what, when a number of people share a bill."""
    if people < 1 or total < 0:
        raise ValueError("a bill needs at least one person and no negative total")
    with state.edit() as known:
        known["bills"] += 1
    each = shares(total, people)
    return " + ".join(f"{share:.2f}" for share in each) + f" = {sum(each):.2f}"


if __name__ == "__main__":
    runner.run()
'''
_TUNER = '''"""Takes opinions about split bills."""

from ratchet.agentkit import Tuner, send_to_architect, state

tuner = Tuner("bill")


@tuner.tool
def feedback(text: str, rating: int) -> str:
    """Say how well a bill was split, from 1 (bad) to 5 (good)."""
    with state.edit() as known:
        known["ratings"] = [*known["ratings"], rating][-100:]
    if rating == 1:
        send_to_architect(text, severity="high")
    return "noted"


if __name__ == "__main__":
    tuner.run()
'''
_ROUNDED = '''"""The shares of a bill."""


def shares(total, people):
    return [round(total / people, 2)] * people
'''
_EXACT = '''"""The shares of a bill, in whole cents: none is lost."""


def shares(total, people):
    cents = round(total * 100)
    least, left_over = divmod(cents, people)
    return [(least + (place < left_over)) / 100 for place in range(people)]
'''
_TESTS = """from shares import shares


def test_everybody_pays_the_same():
    assert shares(30, 3) == [10, 10, 10]


def test_one_person_pays_it_all():
    assert shares(12.5, 1) == [12.5]
"""
_ADDS_UP = """

def test_the_shares_add_up_to_the_total():
    assert shares(10, 3) == [3.34, 3.33, 3.33]
    assert round(sum(shares(100, 7)), 2) == 100
"""
_SCHEMA = {
    "type": "object",
    "properties": {
        "bills": {"type": "integer", "minimum": 0},
        "ratings": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["bills", "ratings"],
    "additionalProperties": False,
}
_CALL = {"tool": "split", "arguments": {"total": 30, "people": 3}, "expect": {"contains": "= 30.00"}}
_HARD_CALL = {"tool": "split", "arguments": {"total": 10, "people": 3}, "expect": {"contains": "= 10.00"}}


def first() -> dict[str, str]:
    """Every file of the first version, with its first state."""
    return {
        "runner.py": _RUNNER,
        "tuner.py": _TUNER,
        "shares.py": _ROUNDED,
        "tests.py": _TESTS,
        "canary.json": _json([_CALL]),
        "state_schema.json": _json(_SCHEMA),
        "state.json": _json({"bills": 0, "ratings": []}),
        "metadata.json": _json({"version": "0.0.0"}),
        "README.md": "# bill\n\nSplits a bill: `split total=30 people=3`. Its state counts the bills.\n",
    }


def second() -> dict[str, str]:
    """What the feedback changes."""
    return {"shares.py": _EXACT, "tests.py": _TESTS + _ADDS_UP, "canary.json": _json([_CALL, _HARD_CALL])}


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


TEXT_WISH = "Split a bill whose total is written as text."
PRODUCTION = "In production a call of the tool split"
_TEXT_RUNNER = '''"""Splits bills that people write down."""

from ratchet.agentkit import Runner, state
from amounts import cents

runner = Runner("tab")


@runner.tool
def split(total: str, people: int) -> str:
    """What each person pays, the first ones what is left over."""
    least, left_over = divmod(cents(total), max(1, people))
    with state.edit() as known:
        known["bills"] += 1
    return " + ".join(f"{(least + (place < left_over)) / 100:.2f}" for place in range(max(1, people)))


if __name__ == "__main__":
    runner.run()
'''
_POINT = '''"""Amounts of money as people write them."""


def cents(text: str) -> int:
    return round(float(text) * 100)
'''
_COMMA = '''"""Amounts of money as people write them, with a point or a comma before the cents."""


def cents(text: str) -> int:
    return round(float(text.strip().replace(",", ".")) * 100)
'''
_TEXT_TESTS = """from amounts import cents


def test_an_amount_is_read():
    assert cents("12.50") == 1250
"""
_READS_COMMAS = """

def test_a_comma_is_read_as_well():
    assert cents("12,50") == 1250
"""
_TEXT_CALL = {"tool": "split", "arguments": {"total": "12.50", "people": 2}, "expect": {"contains": "6.25"}}


def before_the_incident() -> dict[str, str]:
    """Every file of the agent that breaks in production."""
    return {
        **{name: text for name, text in first().items() if name != "shares.py"},
        "runner.py": _TEXT_RUNNER,
        "tuner.py": _TUNER.replace('Tuner("bill")', 'Tuner("tab")'),
        "amounts.py": _POINT,
        "tests.py": _TEXT_TESTS,
        "canary.json": _json([_TEXT_CALL]),
        "README.md": "# tab\n\nSplits a bill: `split total=12.50 people=2`. Its state counts the bills.\n",
    }


def after_the_incident() -> dict[str, str]:
    """What is learned from it."""
    return {"amounts.py": _COMMA, "tests.py": _TEXT_TESTS + _READS_COMMAS}
