"""The state with which a new version begins."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.state import CannotCarry, carried_state
from ratchet.config import load_settings
from ratchet.config.workflow_settings import Agents

OLD = {"names": ["Ada"], "count": 1}
LATER = {"names": ["Ada", "Bob"], "count": 2}
PEOPLE = {"type": "object", "required": ["people"], "properties": {"people": {"type": "array"}}}
TO_PEOPLE = """
def migrate(state):
    people = [{"name": name} for name in state["names"]]
    return {"people": people, "count": state["count"]}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Agents:
    return load_settings({"home": str(tmp_path)}, env={}).settings.agents


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """A version whose schema takes any object, without a migration."""
    directory = tmp_path / "version"
    directory.mkdir()
    write_schema(directory, {"type": "object"})
    return directory


def write_schema(version: Path, schema: Any) -> None:
    (version / "state_schema.json").write_text(json.dumps(schema))


def carried(version: Path, settings: Agents, *, staged: Any, base: Any = OLD, live: Any = LATER) -> Any:
    return asyncio.run(carried_state(version, settings, base=base, staged=staged, live=live))


def test_a_state_that_nobody_touched_goes_on_as_it_is_now(version: Path, settings: Agents) -> None:
    assert carried(version, settings, staged=OLD) == LATER


def test_what_the_engine_changed_is_added_to_what_happened_meanwhile(version: Path, settings: Agents) -> None:
    staged = {**OLD, "names": ["Ada", "Eve"], "language": "en"}
    wanted = {"names": ["Ada", "Bob", "Eve"], "count": 2, "language": "en"}
    assert carried(version, settings, staged=staged) == wanted


def test_the_live_state_is_migrated(version: Path, settings: Agents) -> None:
    write_schema(version, PEOPLE)
    (version / "migrate.py").write_text(TO_PEOPLE)
    assert carried(version, settings, staged=OLD) == {
        "people": [{"name": "Ada"}, {"name": "Bob"}],
        "count": 2,
    }


def test_a_state_changed_in_the_new_form_is_added_to_the_migrated_one(
    version: Path, settings: Agents
) -> None:
    write_schema(version, PEOPLE)
    (version / "migrate.py").write_text(TO_PEOPLE)
    staged = {"people": [{"name": "Ada"}, {"name": "Eve"}], "count": 1, "language": "en"}
    wanted = {"people": [{"name": "Ada"}, {"name": "Bob"}, {"name": "Eve"}], "count": 2, "language": "en"}
    assert carried(version, settings, staged=staged) == wanted


def test_a_state_in_the_new_form_needs_no_migration_while_nothing_else_changed(
    version: Path, settings: Agents
) -> None:
    write_schema(version, PEOPLE)
    staged = {"people": [{"name": "Ada"}], "count": 1}
    assert carried(version, settings, staged=staged, live=OLD) == staged


def test_a_new_form_without_a_migration_is_refused_when_the_old_one_went_on(
    version: Path, settings: Agents
) -> None:
    write_schema(version, PEOPLE)
    with pytest.raises(CannotCarry, match="/names") as raised:
        carried(version, settings, staged={"people": [{"name": "Ada"}], "count": 1})
    assert "migrate.py" in (raised.value.hint or "")


def test_a_place_that_both_changed_is_refused(version: Path, settings: Agents) -> None:
    with pytest.raises(CannotCarry, match="/count"):
        carried(version, settings, staged={**OLD, "count": 100})


def test_a_live_state_that_does_not_fit_the_new_schema_is_refused(version: Path, settings: Agents) -> None:
    write_schema(version, PEOPLE)
    with pytest.raises(CannotCarry, match="'people' is a required property") as raised:
        carried(version, settings, staged=OLD)
    assert "migrate.py" in (raised.value.hint or "")
    assert str(version) not in str(raised.value)


def test_a_staged_state_that_does_not_fit_its_own_schema_is_refused(version: Path, settings: Agents) -> None:
    write_schema(version, PEOPLE)
    with pytest.raises(CannotCarry, match=r"the changed state\.json"):
        carried(version, settings, staged={"people": "Ada"})


def test_two_fitting_states_may_not_fit_together(version: Path, settings: Agents) -> None:
    write_schema(version, {"type": "object", "maxProperties": 2})
    with pytest.raises(CannotCarry, match="with the changes"):
        carried(version, settings, base={"a": 1}, staged={"a": 1, "b": 1}, live={"a": 1, "c": 1})


@pytest.mark.parametrize(
    "schema", [{"type": "no such type"}, ["no schema"], {"$ref": "https://example.com/schema"}]
)
def test_a_schema_that_is_none_is_refused(version: Path, settings: Agents, schema: Any) -> None:
    write_schema(version, schema)
    with pytest.raises(CannotCarry):
        carried(version, settings, staged=OLD)


def test_a_state_deeper_than_any_agent_can_store_is_refused(version: Path, settings: Agents) -> None:
    live: Any = {}
    for _ in range(200):
        live = {"deeper": live}
    with pytest.raises(CannotCarry, match="nested deeper"):
        carried(version, settings, staged=OLD, live=live)


def test_a_failing_migration_is_refused(version: Path, settings: Agents) -> None:
    (version / "migrate.py").write_text("def migrate(state):\n    raise ValueError('no way')\n")
    with pytest.raises(CannotCarry, match="no way"):
        carried(version, settings, staged=OLD)


def test_the_migration_of_the_version_before_is_not_done_again(
    version: Path, settings: Agents, tmp_path: Path
) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    for directory in (parent, version):
        (directory / "migrate.py").write_text(
            "def migrate(state):\n    return {'count': state['count'] * 100}\n"
        )
    states: Any = {"base": OLD, "staged": OLD, "live": LATER}
    assert asyncio.run(carried_state(version, settings, **states, parent=parent)) == LATER
    assert asyncio.run(carried_state(version, settings, **states)) == {"count": 200}
