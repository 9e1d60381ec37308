"""Which model answers for which name in an export. Nothing is swapped silently: a name that has no place is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ratchet.config import Settings
from ratchet.engines.llm.choice import Candidate, candidates
from ratchet.kernel import Missing, Misuse
from ratchet.tools.definition import LlmBody
from ratchet.tools.models import choose_model
from ratchet.workflows.exports.target import Target

ALL = "*"
"""In a table of models: whatever is not named."""


class NoModel(Exception):
    """A name for which nobody has said who answers."""


def check_table(target: Target, models: Mapping[str, str]) -> None:
    """Raises `Misuse` for a model that the target cannot have."""
    for name, wanted in models.items():
        provider, _, model = wanted.partition("/")
        if provider not in target.providers or not model:
            known = " or ".join(f"{each}/MODEL" for each in target.providers)
            raise Misuse(
                f"{wanted!r} for {name!r} is no model of {target}",
                hint=f"name it as {known}" if known else "an export without models needs no --model",
            )


def place_of(name: str, body: LlmBody, target: Target, models: Mapping[str, str], settings: Settings) -> str:
    """`provider/model` for a name as the workflow has it; the empty name is the default. Raises `NoModel`.

    First what the table says. Else what the settings say, where that is a model of this target at its maker's own
    address: it is the same model then. An address of somebody's own would not exist elsewhere.
    """
    for known in (name, ALL):
        if known in models:
            return models[known]
    meant = _meant(body, settings)
    if meant and meant.endpoint.kind in target.providers and meant.is_at_home:
        return f"{meant.endpoint.kind}/{meant.model}"
    shown = f"the model {name!r}" if name else "the default model"
    raise NoModel(
        f"{shown} has no place there; name one with --model {name or ALL}={target.providers[0]}/MODEL"
    )


def _meant(body: LlmBody, settings: Settings) -> Candidate | None:
    """The model that a run here would ask first."""
    engine, _, own = settings.workflows.llm.partition(":")
    try:
        choice = choose_model(
            settings.llm, model=body.model, role=body.role, tier=body.tier, environment=os.environ
        )
        return candidates(choice or own or None, settings.llm, os.environ)[0] if engine == "llm" else None
    except (Misuse, Missing):
        return None
