"""The token is made once, kept private, and the same for all."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.config import Loaded, load_settings
from ratchet.kernel import ConfigError
from ratchet.server.address import find_token


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load_settings({"home": str(tmp_path / "home")}, env={})


def test_it_is_made_at_the_first_start_and_reused(loaded: Loaded) -> None:
    first = find_token(loaded)
    assert len(first.value) >= 32
    assert first.path == loaded.home / "token"
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert find_token(loaded).value == first.value
    assert [file.name for file in loaded.home.iterdir()] == ["token"]


def test_all_who_start_at_once_agree(loaded: Loaded) -> None:
    with ThreadPoolExecutor(16) as threads:
        tokens = set(threads.map(lambda _: find_token(loaded).value, range(64)))
    assert len(tokens) == 1


def test_a_configured_one_wins_and_is_not_written_down(tmp_path: Path) -> None:
    loaded = load_settings({"home": str(tmp_path), "server.token": "mine"}, env={})
    token = find_token(loaded)
    assert (token.value, token.configured, list(tmp_path.iterdir())) == ("mine", True, [])
    assert "mine" not in repr(token)


def test_one_that_others_could_read_becomes_private(loaded: Loaded) -> None:
    token = find_token(loaded)
    assert token.path is not None
    token.path.chmod(0o644)
    assert find_token(loaded).value == token.value
    assert stat.S_IMODE(token.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"  \n", b"\xff\xfe"])
def test_a_file_without_a_token_is_an_error_that_helps(loaded: Loaded, content: bytes) -> None:
    loaded.home.mkdir()
    (loaded.home / "token").write_bytes(content)
    with pytest.raises(ConfigError) as error:
        find_token(loaded)
    assert str(loaded.home / "token") in str(error.value)
    assert error.value.hint


def test_a_place_that_cannot_hold_it_is_an_error_that_helps(loaded: Loaded) -> None:
    (loaded.home / "token").mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be kept") as error:
        find_token(loaded)
    assert "set server.token" in str(error.value.hint)
