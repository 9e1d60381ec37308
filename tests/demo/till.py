"""The repository of the recordings: a till that learns discounts, at first wrongly, and receipts."""

from __future__ import annotations

from typing import Any

WISH = "Add discounts and receipts to the till, with tests."

_TOTAL = "def total(prices):\n    return sum(prices)\n"
_DISCOUNT = "\n\ndef discount(price, percent):\n    return price - price * percent / {divisor}\n"
_RECEIPT = """

def receipt(prices):
    lines = [f"{price:8.2f}" for price in prices]
    return "\\n".join([*lines, f"{total(prices):8.2f} total"])
"""
_DISCOUNT_TEST = """import unittest

import prices


class Discount(unittest.TestCase):
    def test_a_tenth_is_taken_off(self):
        self.assertEqual(prices.discount(20, 10), 18)
"""
_RECEIPT_TEST = """import unittest

import prices


class Receipt(unittest.TestCase):
    def test_it_ends_with_the_total(self):
        self.assertEqual(prices.receipt([2, 3]).splitlines()[-1], "    5.00 total")
"""
_KEYS = ("title", "depends_on", "parallel_group", "step_type", "qa", "engine", "needs_decomposition")


def _step(filename: str, title: str, content: str, **more: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(_KEYS),
        "filename": filename,
        "title": title,
        "content": f"# {title}\n\n{content}\n",
        "needs_decomposition": False,
        **more,
    }


PLAN = {
    "plan_md": "# Discounts and receipts\n\nThe till gets `discount(price, percent)` and `receipt(prices)`, each "
    "with a test.\nIt is done when `python3 -m unittest` passes with both.\n",
    "context_md": "# Context\n\n`prices.py` holds the till, `tests/` its tests.\n",
    "log_md": "# Log\n\nPlanned in three steps.\n",
    "step_files": [
        _step(
            "00-setup.md", "Look around", "Make sure that the tests run. Nothing has to change.", qa="light"
        ),
        _step(
            "01-discount.md",
            "Add discounts",
            "Add `discount(price, percent)` to prices.py: what is left of a price when so many percent are taken off.\n"
            "Test it in tests/test_discount.py.",
        ),
        _step(
            "02-receipt.md",
            "Add receipts",
            "Add `receipt(prices)` to prices.py: a line for each price, then the total.\n"
            "Test it in tests/test_receipt.py.",
        ),
    ],
    "clarifications": None,
}


def wrong_discount() -> dict[str, str]:
    return {"prices.py": _TOTAL + _DISCOUNT.format(divisor=10), "tests/test_discount.py": _DISCOUNT_TEST}


def right_discount() -> dict[str, str]:
    return {"prices.py": _TOTAL + _DISCOUNT.format(divisor=100), "tests/test_discount.py": _DISCOUNT_TEST}


def receipt() -> dict[str, str]:
    return {
        "prices.py": _TOTAL + _DISCOUNT.format(divisor=100) + _RECEIPT,
        "tests/test_receipt.py": _RECEIPT_TEST,
    }
