"""A version's migrate.py, run in the sandbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.state import CannotCarry, migrate
from ratchet.config import Settings, load_settings

STATE = {"names": ["Ada"]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    flags = {"agents.call_seconds": 2.0, "agents.memory_mb": 128}
    return load_settings({"home": str(tmp_path), **flags}, env={}).settings


def migrated(directory: Path, state: dict[str, Any], settings: Settings, parent: Path | None = None) -> Any:
    return asyncio.run(migrate(directory, state, settings.agents, parent=parent))


def version(directory: Path, source: str, **files: str) -> Path:
    directory.mkdir()
    (directory / "migrate.py").write_text(source)
    for name, content in files.items():
        (directory / f"{name}.py").write_text(content)
    return directory


def test_without_a_migration_the_state_stays_as_it_is(tmp_path: Path, settings: Settings) -> None:
    assert migrated(tmp_path, STATE, settings) == STATE


def test_a_migration_may_use_what_lies_beside_it(tmp_path: Path, settings: Settings) -> None:
    source = (
        "from forms import people\n\ndef migrate(state):\n    return {'people': people(state['names'])}\n"
    )
    forms = "def people(names):\n    return [{'name': name} for name in names]\n"
    made = version(tmp_path / "new", source, forms=forms)
    assert migrated(made, STATE, settings) == {"people": [{"name": "Ada"}]}
    assert STATE == {"names": ["Ada"]}
    assert sorted(path.name for path in made.iterdir()) == ["forms.py", "migrate.py"]


def test_the_migration_of_the_version_before_is_not_done_again(tmp_path: Path, settings: Settings) -> None:
    source = "def migrate(state):\n    return {'n': state['n'] + 1}\n"
    old, new = version(tmp_path / "old", source), version(tmp_path / "new", source)
    assert migrated(new, {"n": 1}, settings, parent=old) == {"n": 1}
    assert migrated(new, {"n": 1}, settings, parent=tmp_path) == {"n": 2}
    (new / "migrate.py").write_text(source.replace("+ 1", "+ 10"))
    assert migrated(new, {"n": 1}, settings, parent=old) == {"n": 11}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def migrate(state):\n    return state['absent']\n", "KeyError: 'absent'"),
        ("def migrate(state:\n", "SyntaxError"),
        ("def other(state):\n    return state\n", "no function 'migrate'"),
        ("def migrate(state):\n    return [state]\n", "no object but list"),
        ("def migrate(state):\n    state['n'] = 1\n", "no object but NoneType"),
        ("def migrate(state):\n    return {'n': float('nan')}\n", "not JSON"),
        ("import os\n\ndef migrate(state):\n    os._exit(0)\n", "without a JSON result"),
        ("def migrate(state):\n    while True:\n        pass\n", "wall"),
        ("def migrate(state):\n    open('migrated', 'w').write('')\n    return state\n", "Error"),
        ("import socket\n\ndef migrate(state):\n    socket.create_connection(('127.0.0.1', 1))\n", "Error"),
    ],
)
def test_a_migration_that_fails_says_why(tmp_path: Path, settings: Settings, source: str, told: str) -> None:
    made = version(tmp_path / "new", source)
    with pytest.raises(CannotCarry, match=r"migrate\.py failed") as raised:
        migrated(made, STATE, settings)
    assert told in str(raised.value)
    assert "migrate(state)" in (raised.value.hint or "")


def test_a_migration_cannot_use_more_memory_than_a_server(tmp_path: Path, settings: Settings) -> None:
    made = version(tmp_path / "new", "def migrate(state):\n    return {'text': 'x' * 300_000_000}\n")
    with pytest.raises(CannotCarry, match=r"MemoryError|memory"):
        migrated(made, STATE, settings)


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_anything_but_a_plain_file_is_refused(tmp_path: Path, settings: Settings, kind: str) -> None:
    place = tmp_path / "migrate.py"
    if kind == "link":
        place.symlink_to("/etc/hostname")
    elif kind == "directory":
        place.mkdir()
    else:
        os.mkfifo(place)
    with pytest.raises(CannotCarry, match="plain file"):
        migrated(tmp_path, STATE, settings)


def test_a_state_that_is_no_json_is_refused(tmp_path: Path, settings: Settings) -> None:
    made = version(tmp_path / "new", "def migrate(state):\n    return state\n")
    odd: dict[str, Any] = {"n": float("inf")}
    with pytest.raises(CannotCarry):
        migrated(made, odd, settings)
