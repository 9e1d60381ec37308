"""Numbers with their ranges."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field


def _no_bool(value: object) -> object:
    # Python takes `true` for 1; a person who wrote it meant something else.
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


Whole = Annotated[int, BeforeValidator(_no_bool)]
Real = Annotated[float, BeforeValidator(_no_bool), Field(allow_inf_nan=False)]

Count = Annotated[Whole, Field(ge=1)]
Port = Annotated[Whole, Field(ge=0, le=65535)]
Seconds = Annotated[Real, Field(gt=0)]
Dollars = Annotated[Real, Field(gt=0)]
