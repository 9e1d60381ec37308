"""The same quantity in another unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_METRES_IN_FOOT = 0.3048
_KILOGRAMS_IN_POUND = 0.45359237
_KILOMETRES_IN_MILE = 1.609344
_LITRES_IN_GALLON = 3.785411784

_CONVERSIONS: dict[str, Callable[[float], float]] = {
    "c_to_f": lambda value: value * 9 / 5 + 32,
    "f_to_c": lambda value: (value - 32) * 5 / 9,
    "m_to_ft": lambda value: value / _METRES_IN_FOOT,
    "ft_to_m": lambda value: value * _METRES_IN_FOOT,
    "kg_to_lbs": lambda value: value / _KILOGRAMS_IN_POUND,
    "lbs_to_kg": lambda value: value * _KILOGRAMS_IN_POUND,
    "km_to_mi": lambda value: value / _KILOMETRES_IN_MILE,
    "mi_to_km": lambda value: value * _KILOMETRES_IN_MILE,
    "l_to_gal": lambda value: value / _LITRES_IN_GALLON,
    "gal_to_l": lambda value: value * _LITRES_IN_GALLON,
}


def run(conversion: str, value: float) -> dict[str, Any]:
    return {"result": _CONVERSIONS[conversion](value), "conversion": conversion, "original_value": value}
