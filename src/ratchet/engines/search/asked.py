"""What a request asks of a search, as its `data` says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ratchet.kernel import Misuse

_Count = Annotated[int, Field(ge=0, lt=2**53)]


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Proposal(_Asked):
    """The `data["proposal"]` of a session: its point, and which draw it was."""

    signature: str
    generation: _Count
    trial: _Count
    places: list[float]
    options: list[int]


class Feedback(_Asked):
    """How a proposal did. Without a score it has failed, which is worse than any score."""

    proposal: Proposal
    score: float | None = Field(allow_inf_nan=False)


class Asked(_Asked):
    """`trial` numbers the draw, so that workers who ask at once get different points; by default they are counted."""

    trial: _Count | None = None
    feedback: list[Feedback] = Field(default_factory=list)
    goal: Literal["max", "min"] = "max"
    seed: _Count = 0
    constants: Literal["declared", "all"] = "declared"
    files: list[str] = Field(default_factory=lambda: ["*.py"], min_length=1)


def read_asked(data: Mapping[str, Any], **defaults: Any) -> Asked:
    """Raises `Misuse` that names what is wrong."""
    try:
        return Asked.model_validate({**defaults, **data})
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise Misuse(
            f"the data of the request is not what the search engine takes: {told}",
            hint=f"it takes {', '.join(Asked.model_fields)}; a session's data has its proposal",
        ) from None
