from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Ratchet
from tests.cli.program import Program


@pytest.fixture(params=["sqlite"])
def database_url(tmp_path: Path) -> str:
    """The memory does not depend on the ledger, so one kind is enough."""
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def remember(ratchet: Ratchet, text: str, *options: str) -> str:
    done = ratchet("memory", "store", text, *options, "--json")
    assert done.code == 0, done.err
    return str(done.json["id"])


@pytest.mark.soak
def test_a_lesson_is_stored_and_found_by_its_meaning(ratchet: Ratchet) -> None:
    id = remember(ratchet, "send an e-mail to many people", "--tag", "mail", "--scope", "project:1")
    remember(ratchet, "draw a chart of the profits", "--kind", "tool", "--data", '{"cost": 2}')
    [first, second] = ratchet("memory", "find", "write a letter to my colleagues", "--json").json
    assert (first["id"], first["kind"], first["tags"], first["scope"]) == (
        id,
        "lesson",
        ["mail"],
        "project:1",
    )
    assert first["likeness"] > second["likeness"]
    assert second["data"] == {"cost": 2}
    assert first["created_at"].endswith("Z")


def test_words_are_found_exactly(ratchet: Ratchet) -> None:
    remember(ratchet, "call load_rows twice")
    remember(ratchet, "call somebody")
    found = ratchet("memory", "find", "--words", "load_rows")
    assert (found.code, len(found.out.splitlines())) == (0, 2)
    assert "call load_rows twice" in found.out


@pytest.mark.soak
def test_entries_are_listed_newest_first_and_chosen(ratchet: Ratchet) -> None:
    ids = [
        remember(ratchet, f"entry {number}", "--tag", "even" if number % 2 == 0 else "odd")
        for number in range(4)
    ]
    assert [each["id"] for each in ratchet("memory", "list", "--json").json] == ids[::-1]
    assert [each["id"] for each in ratchet("memory", "list", "--tag", "odd", "-n", "1", "--json").json] == [
        ids[3]
    ]
    assert ratchet("memory", "list", "--kind", "tool", "--json").json == []


def test_a_key_replaces(ratchet: Ratchet) -> None:
    assert remember(ratchet, "first", "--key", "k") == remember(ratchet, "second", "--key", "k")
    assert [each["text"] for each in ratchet("memory", "list", "--json").json] == ["second"]


def test_entries_are_forgotten_by_id_and_by_what_they_are(ratchet: Ratchet) -> None:
    id = remember(ratchet, "one")
    remember(ratchet, "two", "--tag", "old")
    remember(ratchet, "three", "--tag", "old")
    assert ratchet("memory", "delete", id).out == "1 entry is forgotten.\n"
    assert ratchet("memory", "delete", "--tag", "old", "--json").json == {"deleted": 2}
    again = ratchet("memory", "delete", id)
    assert (again.code, again.err.splitlines()[0]) == (1, f"error: entry {id} does not exist")


def test_forgetting_everything_by_mistake_is_refused(ratchet: Ratchet) -> None:
    remember(ratchet, "one")
    done = ratchet("memory", "delete")
    assert (done.code, "which entries" in done.err) == (2, True)
    assert len(ratchet("memory", "list", "--json").json) == 1


@pytest.mark.parametrize(
    "words", [("find", "x"), ("list",), ("delete", "--tag", "x"), ("reembed",)], ids=lambda words: words[0]
)
def test_looking_at_a_memory_does_not_make_one(ratchet: Ratchet, home: Path, words: tuple[str, ...]) -> None:
    done = ratchet("memory", *words)
    assert (done.code, "no memory here" in done.err) == (2, True)
    assert not home.exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("  ",), "nothing to remember"),
        (("x", "--kind", ""), "the kind is empty"),
        (("x", "--data", "[1]"), "must be an object"),
        (("x", "--data", "{"), "not JSON"),
    ],
)
def test_mistakes_are_misuse(ratchet: Ratchet, options: tuple[str, ...], says: str) -> None:
    done = ratchet("memory", "store", *options)
    assert (done.code, says in done.err) == (2, True)


def test_vectors_are_made_anew(ratchet: Ratchet) -> None:
    remember(ratchet, "one")
    assert ratchet("memory", "reembed", "--json").json == {"reembedded": 1}
    assert len(ratchet("memory", "find", "one", "--json").json) == 1


def test_a_damaged_memory_is_a_failure_that_says_what_to_do(ratchet: Ratchet, home: Path) -> None:
    home.mkdir()
    (home / "memory.db").write_bytes(b"rubbish" * 1000)
    done = ratchet("memory", "list")
    assert (done.code, "damaged" in done.err, "move the file away" in done.err) == (1, True, True)


def test_a_server_that_is_not_there_is_a_failure_that_says_what_to_do(ratchet: Ratchet, home: Path) -> None:
    home.mkdir()
    (home / "ratchet.toml").write_text(
        '[memory]\nstore = "qdrant"\n[memory.qdrant]\nurl = "http://127.0.0.1:9"\napi_key = "hush"\n'
    )
    done = ratchet("memory", "list")
    assert (done.code, "memory.qdrant.url" in done.err, "hush" in done.err) == (1, True, False)


@pytest.mark.soak
def test_a_text_is_read_from_the_standard_input(plain_program: Program) -> None:
    done = plain_program("memory", "store", "-")
    assert (done.code, "nothing to remember" in done.err) == (2, True)
