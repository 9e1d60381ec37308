"""What every table of the settings has in common."""

from __future__ import annotations

import shlex
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


def _split(value: object) -> object:
    # A variable can only hold one text; it is split as a shell would.
    return tuple(shlex.split(value)) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A list of words; one text counts as the words in it."""
