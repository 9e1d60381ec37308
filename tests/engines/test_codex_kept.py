"""Sessions can be resumed for some days, and then they are gone."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from ratchet.engines.codex.events import Rollout
from ratchet.engines.codex.session import KeptRollouts
from ratchet.engines.session_home import KeptSessions

THREAD = "01a1e16f-d0fe-73b0-9d04-ea7ad2d89113"


class Calendar:
    def __init__(self) -> None:
        self.day = date(2026, 1, 1)

    def __call__(self) -> date:
        return self.day


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
def kept(tmp_path: Path, calendar: Calendar) -> KeptRollouts:
    return KeptRollouts(KeptSessions(tmp_path / "kept", 7, today=calendar))


def rollout(tmp_path: Path, text: str = "{}\n") -> Rollout:
    place = tmp_path / "rollouts" / "2026" / "01" / "01"
    place.mkdir(parents=True, exist_ok=True)
    (place / "rollout-1.jsonl").write_text(text)
    return Rollout(tmp_path / "rollouts")


def brought_back(kept: KeptRollouts, place: Path) -> str | None:
    if not kept.bring_back(THREAD, place):
        return None
    [file] = place.glob("*/*/*/rollout-*.jsonl")
    assert file.name.endswith(f"{THREAD}.jsonl")
    return file.read_text()


def test_what_was_kept_comes_back_without_the_key(tmp_path: Path, kept: KeptRollouts) -> None:
    kept.keep(THREAD, rollout(tmp_path, "the key\n"), lambda text: text.replace("key", "***"))
    assert brought_back(kept, tmp_path / "new") == "the ***\n"


def test_a_later_session_replaces_the_earlier(tmp_path: Path, kept: KeptRollouts, calendar: Calendar) -> None:
    kept.keep(THREAD, rollout(tmp_path, "one\n"), str)
    calendar.day = date(2026, 1, 3)
    kept.keep(THREAD, rollout(tmp_path, "one\ntwo\n"), str)
    assert brought_back(kept, tmp_path / "new") == "one\ntwo\n"
    assert len(list((tmp_path / "kept").glob("*/*"))) == 1


def test_old_ones_are_forgotten(tmp_path: Path, kept: KeptRollouts, calendar: Calendar) -> None:
    kept.keep(THREAD, rollout(tmp_path), str)
    (tmp_path / "kept" / "not-a-date").mkdir()
    calendar.day = date(2026, 1, 9)
    kept.keep(THREAD[:-1] + "0", rollout(tmp_path), str)
    assert brought_back(kept, tmp_path / "new") is None
    assert {each.name for each in (tmp_path / "kept").iterdir()} == {"2026-01-09", "not-a-date"}


def test_a_damaged_one_counts_as_gone(tmp_path: Path, kept: KeptRollouts) -> None:
    kept.keep(THREAD, rollout(tmp_path, "x" * 10_000), str)
    [file] = (tmp_path / "kept").glob("*/*")
    file.write_bytes(file.read_bytes()[:-9])
    assert not kept.bring_back(THREAD, tmp_path / "new")


@pytest.mark.parametrize("token", ["../../../etc/passwd", "", "*", THREAD.upper(), THREAD + "\n"])
def test_a_token_is_never_taken_for_a_path(tmp_path: Path, kept: KeptRollouts, token: str) -> None:
    assert not kept.bring_back(token, tmp_path / "new")
    with pytest.raises(ValueError, match="not the id of a session"):
        kept.keep(token, rollout(tmp_path), str)


USED = '{"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": 7}}}}\n'


@pytest.mark.parametrize("link", ["rollouts/2026", "rollouts/2026/01/01/rollout-1.jsonl"])
def test_a_rollout_that_a_command_has_replaced_by_a_link_is_not_followed(
    tmp_path: Path, kept: KeptRollouts, link: str
) -> None:
    """Otherwise the next session would find there what only Ratchet may read."""
    rollout(tmp_path / "elsewhere", "a secret\n" + USED)
    found = rollout(tmp_path)
    (tmp_path / link).rename(tmp_path / "away")
    (tmp_path / link).symlink_to(tmp_path / "elsewhere" / link)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        kept.keep(THREAD, found, str)
    assert brought_back(kept, tmp_path / "new") is None
    found.read()
    assert found.used.tokens == 0


def test_a_rollout_that_is_too_large_is_not_kept(tmp_path: Path, kept: KeptRollouts) -> None:
    found = rollout(tmp_path)
    with (tmp_path / "rollouts" / "2026" / "01" / "01" / "rollout-1.jsonl").open("a") as file:
        file.truncate(200 << 20)
    with pytest.raises(OSError, match="larger than"):
        kept.keep(THREAD, found, str)
