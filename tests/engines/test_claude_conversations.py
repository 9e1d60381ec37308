"""Conversations are kept without what does not belong to them, and without trusting who wrote them."""

from __future__ import annotations

import gzip
import json
import os
from datetime import date
from pathlib import Path

import pytest

from ratchet.engines.claude.environment import PROJECT, ClaudeConversations
from ratchet.engines.session_home import KeptSessions

TOKEN = "0193d4c5-0000-7000-8000-00000000000a"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "projects" / PROJECT).mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def conversations(tmp_path: Path) -> ClaudeConversations:
    return ClaudeConversations(KeptSessions(tmp_path / "kept", 7))


def plain(text: str) -> str:
    return text


def file_in(home: Path) -> Path:
    return home / "projects" / PROJECT / f"{TOKEN}.jsonl"


def test_what_is_kept_comes_back(conversations: ClaudeConversations, home: Path, tmp_path: Path) -> None:
    file_in(home).write_text('{"type": "user"}\n{"type": "assistant"}\n')
    assert conversations.keep(TOKEN, home, plain)
    assert conversations.bring_back(TOKEN, tmp_path / "next")
    assert file_in(tmp_path / "next").read_text() == '{"type": "user"}\n{"type": "assistant"}\n'


def test_the_cost_so_far_and_half_a_line_are_left_out(conversations: ClaudeConversations, home: Path) -> None:
    lines = ['{"type": "user"}', '{"type": "cost-state", "totalCostUSD": 5}', "[]", '{"type": "assis']
    file_in(home).write_text("\n".join(lines))
    conversations.keep(TOKEN, home, plain)
    [kept] = (home.parent / "kept").rglob("*.gz")
    assert gzip.decompress(kept.read_bytes()) == b'{"type": "user"}\n'


def test_secrets_are_not_kept(conversations: ClaudeConversations, home: Path) -> None:
    file_in(home).write_text(json.dumps({"type": "user", "text": "my key is sesame"}))
    conversations.keep(TOKEN, home, lambda text: text.replace("sesame", "***"))
    [kept] = (home.parent / "kept").rglob("*.gz")
    assert b"sesame" not in gzip.decompress(kept.read_bytes())


@pytest.mark.parametrize("where", ["file", "directory", "pipe"])
def test_a_conversation_that_leads_elsewhere_is_not_kept(
    conversations: ClaudeConversations, home: Path, tmp_path: Path, where: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{TOKEN}.jsonl").write_text('{"type": "user", "text": "of somebody else"}\n')
    if where == "file":
        file_in(home).symlink_to(elsewhere / f"{TOKEN}.jsonl")
    elif where == "directory":
        file_in(home).parent.rmdir()
        file_in(home).parent.symlink_to(elsewhere)
    else:
        os.mkfifo(file_in(home))
    assert not conversations.keep(TOKEN, home, plain)
    assert not (home.parent / "kept").exists()


@pytest.mark.parametrize("token", ["../../etc/passwd", "", TOKEN.upper(), TOKEN + "\n", TOKEN[:-1] + "b"])
def test_a_token_that_names_nothing_kept_brings_nothing_back(
    conversations: ClaudeConversations, home: Path, tmp_path: Path, token: str
) -> None:
    file_in(home).write_text('{"type": "user"}\n')
    conversations.keep(TOKEN, home, plain)
    assert not conversations.bring_back(token, tmp_path / "next")


def test_a_damaged_one_brings_nothing_back(
    conversations: ClaudeConversations, home: Path, tmp_path: Path
) -> None:
    file_in(home).write_text('{"type": "user"}\n')
    conversations.keep(TOKEN, home, plain)
    [kept] = (home.parent / "kept").rglob("*.gz")
    kept.write_bytes(kept.read_bytes()[:-9])
    assert not conversations.bring_back(TOKEN, tmp_path / "next")


def test_what_is_too_old_is_removed(home: Path, tmp_path: Path) -> None:
    file_in(home).write_text('{"type": "user"}\n')
    kept = tmp_path / "kept"
    for day, left in ((1, {1}), (8, {1, 8}), (9, {8, 9})):
        ClaudeConversations(KeptSessions(kept, 7, today=lambda day=day: date(2030, 1, day))).keep(
            TOKEN, home, plain
        )
        assert {int(path.name[-2:]) for path in kept.iterdir()} == left


def test_no_room_to_keep_it_is_no_failure(home: Path, tmp_path: Path) -> None:
    file_in(home).write_text('{"type": "user"}\n')
    (tmp_path / "full").write_text("a file where a directory is wanted")
    assert not ClaudeConversations(KeptSessions(tmp_path / "full", 7)).keep(TOKEN, home, plain)
