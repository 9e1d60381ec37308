"""The engines, each asked whether it could be used now, and the extras that are not installed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from ratchet.config import Loaded
from ratchet.doctor.run import Check
from ratchet.engines.registry import Looked, Surroundings, engine_names, look_at
from ratchet.extras import PURPOSES, find_extra, install_line


def extras() -> list[Check]:
    """One check for each extra. None is needed by all: one that is absent is well, and says how to have it."""
    return [_check_extra(name) for name in PURPOSES]


def _check_extra(name: str) -> Check:
    extra = find_extra(name)
    if not extra.absent:
        return Check(f"extra {name}", "ok", f"installed, for {extra.purpose}")
    return Check(f"extra {name}", "ok", f"not installed; it is for {extra.purpose}: {install_line(name)}")


def engines(loaded: Loaded, environment: Mapping[str, str] | None = None) -> list[Check]:
    """One check for each engine. One that is not ready is a warning: Ratchet needs only those that are used."""
    around = Surroundings(loaded.settings, loaded.home, os.environ if environment is None else environment)
    return [_check(each) for each in asyncio.run(look_at(engine_names(loaded.settings), around))]


def _check(looked: Looked) -> Check:
    readiness = looked.readiness
    return Check(
        f"engine {looked.name}", "ok" if readiness.ready else "warn", readiness.detail, readiness.mend
    )
