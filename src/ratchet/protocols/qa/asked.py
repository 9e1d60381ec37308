"""What a step's spec says about its QA, read with care: it may have been written by anybody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.ledger.protocols import Protocol
from ratchet.protocols.qa.contract import FOLDER
from ratchet.protocols.spec.paths import candidates, unsafe_path
from ratchet.protocols.spec.step_spec import QaPolicy
from ratchet.protocols.stream import Blocked


@dataclass(frozen=True, slots=True)
class Asked:
    """`allow_author` lets a step be reviewed by who made it; a spec must say so in so many words."""

    policy: QaPolicy
    prompt: str | None
    model: str | None
    engine_id: str | None
    outputs: tuple[str, ...]
    allow_author: bool
    allow_empty: bool
    allow_checks: bool


def read_asked(spec: Mapping[str, Any]) -> Asked:
    """Raises `Blocked` for a policy that there is not."""
    qa, metadata = table(spec.get("qa")), table(spec.get("metadata"))
    outputs = table(spec.get("outputs"))
    word = qa.get("policy")
    try:
        policy = QaPolicy.FULL if word is None else QaPolicy(word)
    except ValueError:
        known = ", ".join(QaPolicy)
        raise Blocked(
            f"there is no QA policy {word!r}", event="qa_error", hint=f"use one of {known} in the step's spec"
        ) from None
    return Asked(
        policy,
        text(qa.get("prompt")),
        text(qa.get("model")),
        text(qa.get("engine_id")),
        tuple(path for path in (outputs.get("protocol"), *table(outputs.get("aux")).values()) if text(path)),
        allow_author=metadata.get("allow_author") is True,
        allow_empty=metadata.get("allow_empty") is True,
        allow_checks=metadata.get("allow_checks") is True,
    )


def root_of(protocol: Protocol) -> str:
    """The folder of the protocol's own files on its branch."""
    return f"{FOLDER}/{protocol.name}"


def prompts_of(protocol: Protocol, spec: Mapping[str, Any]) -> frozenset[str]:
    """Every path that may be the prompt of a step of the protocol."""
    root = root_of(protocol)
    steps = table(protocol.spec).get("steps")
    return frozenset(
        path
        for step in (spec, *(steps if isinstance(steps, list) else ()))
        for reference in _references(table(step))
        for path in candidates(reference, root)
    ) | {f"{root}/plan.md", f"{root}/00-setup.md"}


def places(paths: tuple[str, ...], root: str) -> frozenset[str]:
    """Where these paths of a spec may lie in the repository."""
    return frozenset(place for path in paths if unsafe_path(path) is None for place in candidates(path, root))


def table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _references(step: Mapping[str, Any]) -> Iterator[str]:
    for reference in (step.get("prompt_ref"), table(step.get("qa")).get("prompt")):
        path = text(reference)
        if path is not None and unsafe_path(path) is None:
            yield path
