"""Arithmetic with two numbers."""

from __future__ import annotations

import operator
from typing import Any

_OPERATIONS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "modulo": operator.mod,
    "power": operator.pow,
}
# Beyond this a power takes long and is of no use to anybody.
_LARGEST_POWER = 10_000


def run(operation: str, a: float, b: float) -> dict[str, Any]:
    if operation in ("divide", "modulo") and b == 0:
        raise ValueError(f"{a} cannot be divided by 0")
    if operation == "power" and (abs(a) > _LARGEST_POWER or abs(b) > _LARGEST_POWER):
        raise ValueError(f"{a} to the power of {b} is too large")
    result = _OPERATIONS[operation](a, b)
    if isinstance(result, complex):
        raise ValueError(f"{a} to the power of {b} is not a real number")
    return {"result": result, "operation": operation}
