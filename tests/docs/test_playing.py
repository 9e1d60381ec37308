"""What pages are played by: it must not pass a page that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import Block
from tests.docs.playing import file_name, is_shown, play
from tests.waiting import eventually


def page(*parts: str) -> str:
    return "\n\n".join(parts)


def commands(text: str) -> str:
    return f"```console\n{text}\n```"


@pytest.mark.parametrize(
    "shown",
    [
        "one\ntwo",
        "one\n...\nthree",
        "...\nthree",
        "two  words are a...",
        "  two words",
        "at 0123456789ab",
    ],
)
def test_lines_that_were_printed_are_recognised(shown: str) -> None:
    printed = "one\ntwo\n\ntwo words are anything\n three\nthree\n  two words\nat fedcba987654\n"
    assert is_shown(shown, printed)


@pytest.mark.parametrize(
    "shown", ["one\nthree", "two\n...\none", "tw", "wo", "one two", "three\nfour", "at 0123"]
)
def test_lines_that_were_not_printed_so_are_noticed(shown: str) -> None:
    assert not is_shown(shown, "one\ntwo\nthree\nat fedcba987654\n")


def test_a_page_is_one_shell_with_its_files_in_their_places(tmp_path: Path) -> None:
    played = play(
        page(
            commands("mkdir deep && cd deep && export WORD=tide"),
            "Put this into `notes/today.toml`:",
            '```toml\nword = "tide"\n```',
            commands('cat notes/today.toml; echo "$WORD at $(basename "$PWD")"'),
            '```\nword = "tide"\ntide at deep\n```',
        ),
        tmp_path,
    )
    assert played == ["", 'word = "tide"\ntide at deep\n']


def test_a_command_that_fails_is_named_and_ends_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"false\nended with 1") as failed:
        play(page(commands("echo begun; false; echo on")), tmp_path)
    assert "begun" in str(failed.value)
    assert "on\n" not in str(failed.value).partition("begun")[2]


def test_what_is_shown_and_was_not_printed_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="The page shows"):
        play(page(commands("echo low"), "```\nhigh\n```"), tmp_path)


def test_what_a_page_leaves_running_is_ended_with_it(tmp_path: Path) -> None:
    [said] = play(page(commands("sleep 600 >/dev/null 2>&1 &\necho $!")), tmp_path)
    eventually(lambda: has_ended(Path(f"/proc/{said.strip()}/stat")))


def test_a_stand_in_takes_the_place_of_what_the_page_has(tmp_path: Path) -> None:
    assert play(page(commands("echo db.example.org")), tmp_path, {"db.example.org": "here"}) == ["here\n"]


def test_a_block_is_a_file_only_below_a_name_that_fits(tmp_path: Path) -> None:
    assert file_name(Block("toml", "", "Into `a.py`, then into `b/c.toml`:")) == "b/c.toml"
    assert file_name(Block("toml", "", "Into `a.py`:")) is None
    assert file_name(Block("bash", "", "Into `a.py`:")) is None


def has_ended(status: Path) -> bool:
    try:
        return status.read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True
