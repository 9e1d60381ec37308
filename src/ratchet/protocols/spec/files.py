"""Specs made of step files: what a plan says when nobody wrote down more."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ratchet.protocols.spec.step_spec import ProtocolSpec, Qa, QaPolicy, StepSpec

_STEP_FILE = re.compile(r"[0-9]{2}[^/]*\.md", re.ASCII)


def is_step_file(name: str) -> bool:
    """Whether a file of a protocol's folder is one of its steps, such as `01-build.md`."""
    return _STEP_FILE.fullmatch(name) is not None


def spec_from_files(names: Iterable[str], *, engine_id: str | None = None) -> ProtocolSpec | None:
    """A step for each step file, in the order of their names, judged in full; nothing without any."""
    steps = tuple(
        StepSpec(
            id=name.removesuffix(".md"),
            engine_id=engine_id,
            prompt_ref=name,
            qa=Qa(QaPolicy.FULL),
        )
        for name in sorted(filter(is_step_file, names))
    )
    return ProtocolSpec(steps) if steps else None
