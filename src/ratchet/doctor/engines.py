"""The engines, each asked whether it could be used now."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from ratchet.config import Loaded
from ratchet.doctor.check import Check
from ratchet.engines.looking import Looked, look_at
from ratchet.engines.registry import Surroundings, engine_names


def engines(loaded: Loaded, environment: Mapping[str, str] | None = None) -> list[Check]:
    """One check for each engine. One that is not ready is a warning: Ratchet needs only those that are used."""
    around = Surroundings(loaded.settings, loaded.home, os.environ if environment is None else environment)
    return [_check(each) for each in asyncio.run(look_at(engine_names(loaded.settings), around))]


def _check(looked: Looked) -> Check:
    readiness = looked.readiness
    return Check(
        f"engine {looked.name}", "ok" if readiness.ready else "warn", readiness.detail, readiness.mend
    )
