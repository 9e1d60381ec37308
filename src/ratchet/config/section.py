"""What every table of the settings has in common: strictness, and numbers with their ranges."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


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


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


def _split(value: object) -> object:
    # A variable can only hold one text; it is split as a shell would.
    return tuple(shlex.split(value)) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A list of words; one text counts as the words in it."""


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        # Not "must …", which would show the value: it may be a key that was put here by mistake.
        raise ValueError(
            "is not the name of an environment variable; name the one that holds the key, not the key"
        )
    return name


Variable = Annotated[str, AfterValidator(_variable)]
"""The name of an environment variable."""
