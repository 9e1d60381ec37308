"""The state that a new version begins with: the live one, in the new form, with what the engine changed in it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ratchet.agentkit import StateInvalid
from ratchet.agentkit.values import plain
from ratchet.agents.checks.finding import NotPassed
from ratchet.agents.checks.reading import read_state
from ratchet.agents.contract import MIGRATE, SCHEMA, STATE
from ratchet.agents.merging import Clash, merge, same
from ratchet.agents.migrating import CannotCarry, migrate
from ratchet.config import Settings
from ratchet.judges.deadline import Deadline
from ratchet.kernel import Misuse

__all__ = ["CannotCarry", "carried_state", "check_fits"]

State = dict[str, Any]

_MIGRATE_IT = (
    f"leave {STATE} as it was and add {MIGRATE}, whose migrate(state) returns the state as {SCHEMA} wants it"
)


async def carried_state(
    directory: Path,
    settings: Settings,
    *,
    base: State,
    staged: State,
    live: State,
    parent: Path | None = None,
) -> State:
    """The state for the version in `directory`. Raises `CannotCarry` if none is certain.

    `base` is the state as the engine was given it, `staged` as it left it, in the form of the new version, and `live`
    as it is now; the agent went on meanwhile. An engine that left the state alone changed nothing in it, whatever form
    the new version wants: then the live state is migrated. `parent` is the directory of the version before.
    """
    if same(staged, base):
        carried = await migrate(directory, live, settings.agents, parent=parent)
        await check_fits(carried, directory, "the live state", _MIGRATE_IT)
        return carried
    await check_fits(staged, directory, f"the changed {STATE}", f"make {STATE} and {SCHEMA} agree")
    begun = await migrate(directory, base, settings.agents, parent=parent)
    now = begun if same(live, base) else await migrate(directory, live, settings.agents, parent=parent)
    try:
        merged: State = merge(begun, now, staged)
    except (Clash, Misuse) as error:
        raise CannotCarry(
            f"the agent changed its state while the new version was made, and {error}", hint=_MIGRATE_IT
        ) from error
    await check_fits(merged, directory, f"the live state with the changes of {STATE}", _MIGRATE_IT)
    return merged


async def check_fits(state: State, directory: Path, what: str, hint: str) -> None:
    """Raise `CannotCarry` unless the schema in `directory` takes the state.

    In the sandbox, since the schema is the engine's, and a pattern in it may never come to an end.
    """
    schema = directory.resolve() / SCHEMA  # noqa: ASYNC240 - a look at a local path
    with tempfile.TemporaryDirectory(prefix="ratchet-state-") as scratch:
        file = Path(scratch).resolve() / STATE  # noqa: ASYNC240
        try:
            file.write_text(json.dumps(plain(state)), encoding="utf-8")
            await read_state(schema, file, Deadline(None))
        except StateInvalid as error:
            raise CannotCarry(f"{what} cannot be used: {error}", hint=hint) from error
        except NotPassed as finding:
            reason = str(finding).replace(f"{file.parent}/", "").replace(f"{schema.parent}/", "")
            raise CannotCarry(f"{what} cannot be used: {reason}", hint=hint) from finding
