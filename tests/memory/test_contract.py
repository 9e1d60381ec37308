"""What every memory does, wherever it is kept."""

from __future__ import annotations

import json
import threading

import pytest

from ratchet.kernel import Misuse, RatchetError
from ratchet.memory import Memory
from tests.memory.conftest import OpenMemory


def texts(found: list) -> list[str]:
    return [each.entry.text if hasattr(each, "entry") else each.text for each in found]


def test_what_is_stored_comes_back_whole(memory: Memory) -> None:
    id = memory.store(
        "cache the tokens",
        kind="lesson",
        tags={"speed", "llm"},
        data={"gain": 1.5, "of": ["a", None]},
        scope="project:3",
    )
    [entry] = memory.entries(id=id)
    assert (entry.id, entry.kind, entry.text, entry.scope) == (id, "lesson", "cache the tokens", "project:3")
    assert entry.tags == {"speed", "llm"}
    assert entry.data == {"gain": 1.5, "of": ["a", None]}
    assert entry.created_at > 1_600_000_000_000


def test_an_entry_is_found_by_what_it_means(memory: Memory) -> None:
    memory.store("turn a photo into shades of grey", kind="tool")
    memory.store("send a message to a mailbox", kind="tool")
    memory.store("add up a column of numbers", kind="tool")
    found = memory.find("write an e-mail to my boss")
    assert texts(found)[0] == "send a message to a mailbox"
    assert [each.likeness for each in found] == sorted((each.likeness for each in found), reverse=True)
    assert found[0].likeness > 0.3


def test_an_entry_is_found_by_an_identifier_in_it(memory: Memory) -> None:
    memory.store("call parse_csv before load_rows", kind="lesson")
    memory.store("to parse it, split the csv by hand", kind="lesson")
    memory.store("nothing of the sort", kind="lesson")
    assert texts(memory.words("parse_csv")) == ["call parse_csv before load_rows"]
    assert len(memory.words("PARSE")) == 2


def test_words_ignore_case_and_accents(memory: Memory) -> None:
    memory.store("the Café Über alles", kind="lesson")
    assert len(memory.words("cafe")) == len(memory.words("ÜBER")) == 1


def test_rare_words_count_for_more(memory: Memory) -> None:
    for number in range(8):
        memory.store(f"the build failed again, number {number}", kind="lesson")
    memory.store("the linker ran out of memory", kind="lesson")
    assert texts(memory.words("build linker"))[0] == "the linker ran out of memory"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"kind": "tool"}, ["one", "two"]),
        ({"tags": ["red"]}, ["one", "three"]),
        ({"tags": ["red", "big"]}, ["one"]),
        ({"tags": ["re"]}, []),
        ({"tags": ["%"]}, []),
        ({"scope": "project:1"}, ["two", "three"]),
        ({"scope": "project:%"}, []),
        ({"kind": "tool", "tags": ["red"], "scope": None}, ["one"]),
        ({"kind": "tool", "scope": "project:1"}, ["two"]),
        ({"kind": "t'; DROP TABLE entries; --"}, []),
    ],
)
def test_filters_are_exact(memory: Memory, where: dict, expected: list[str]) -> None:
    memory.store("word one", kind="tool", tags=["red", "big"])
    memory.store("word two", kind="tool", scope="project:1")
    memory.store("word three", kind="lesson", tags=["red"], scope="project:1")
    wanted = sorted(f"word {each}" for each in expected)
    assert sorted(texts(memory.entries(**where))) == wanted
    assert sorted(texts(memory.find("word", **where))) == wanted
    assert sorted(texts(memory.words("word", **where))) == wanted


def test_the_newest_are_listed_first(memory: Memory) -> None:
    for number in range(5):
        memory.store(f"entry {number}", kind="work")
    assert texts(memory.entries(limit=3)) == ["entry 4", "entry 3", "entry 2"]


def test_a_key_makes_storing_safe_to_repeat(memory: Memory) -> None:
    first = memory.store("draft", kind="work", tags=["a"], key="run:1/step:2")
    before = memory.entries(id=first)[0].created_at
    assert memory.store("draft", kind="work", tags=["a"], key="run:1/step:2") == first
    assert memory.store("final", kind="work", tags=["b"], key="run:1/step:2") == first
    [entry] = memory.entries()
    assert (entry.text, entry.tags, entry.created_at) == ("final", {"b"}, before)
    assert memory.words("draft") == []
    assert texts(memory.find("final")) == ["final"]
    assert memory.store("other", kind="work", key="run:1/step:3") != first


def test_what_is_deleted_is_found_no_more(memory: Memory) -> None:
    ids = [memory.store(f"lesson number {number}", kind="lesson", tags=["old"]) for number in range(3)]
    memory.store("lesson to keep", kind="lesson")
    memory.find("lesson")
    assert memory.delete(id=ids[0]) == 1
    assert memory.delete(id=ids[0]) == 0
    assert memory.delete(kind="lesson", tags=["old"]) == 2
    assert texts(memory.find("lesson")) == texts(memory.words("lesson")) == ["lesson to keep"]


def test_deleting_without_a_condition_is_refused(memory: Memory) -> None:
    memory.store("still here", kind="lesson")
    with pytest.raises(Misuse, match="which entries"):
        memory.delete()
    with pytest.raises(Misuse, match="which entries"):
        memory.delete(kind=None, tags=())
    assert len(memory.entries()) == 1


def test_equals_come_in_the_order_they_were_stored(memory: Memory) -> None:
    ids = [memory.store("the same text", kind="work") for _ in range(20)]
    memory.delete(id=ids[3])
    del ids[3]
    assert [each.entry.id for each in memory.find("the same text", limit=30)] == ids
    assert [each.entry.id for each in memory.words("same", limit=30)] == ids


@pytest.mark.parametrize("nothing", ["", "   ", "\n\t", "\x00"])
def test_looking_for_nothing_finds_nothing(memory: Memory, nothing: str) -> None:
    memory.store("something", kind="work")
    assert memory.words(nothing) == []
    assert memory.find(nothing.replace("\x00", "")) == []


@pytest.mark.parametrize(
    "query",
    [
        'NEAR(a b) AND "c* OR ^d : -e',
        "text:stone",
        "* stone *",
        '"stone',
        "stone' OR 1=1 --",
        "(((stone",
        "stone\x00NOT stone",
        "\ud800 stone",
        "NOT stone",
        "stone" + " AND" * 500,
        "stone {}[]|\\^~",
    ],
)
def test_no_query_is_syntax(memory: Memory, query: str) -> None:
    memory.store("a stone by the road", kind="work")
    if "stone" in query:
        assert texts(memory.words(query)) == ["a stone by the road"]
    assert len(memory.find(query)) == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    "text",
    [
        "with\x00a NUL",
        "emoji 🧗🏽 and 日本語 and עברית",
        "e\u0301 combining",
        "\u202e turned \u200b around",
        "'; DROP TABLE entries; --",
        "x" * 300_000,
        "word " * 100_000,
        "\ufffe\uffff",
    ],
)
def test_any_text_comes_back_as_it_was(memory: Memory, text: str) -> None:
    id = memory.store(text, kind="work", tags=[text[:50]], scope=text[:50])
    [entry] = memory.entries(tags=[text[:50]], scope=text[:50])
    assert (entry.id, entry.text) == (id, text)
    assert memory.find(text[:1000])[0].entry.id == id


def test_half_a_surrogate_pair_becomes_the_replacement_character(memory: Memory) -> None:
    memory.store("broken \ud83d name", kind="work", data={"path": "\udcff"})
    memory.store("whole \ud83d\ude00 face", kind="work")
    whole, broken = memory.entries()
    assert (whole.text, broken.text) == ("whole 😀 face", "broken \ufffd name")
    assert broken.data == {"path": "\udcff"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"text": " \n "}, "nothing to remember"),
        ({"text": "x" * 1_000_001}, "1,000,001 characters"),
        ({"kind": ""}, "the kind is empty"),
        ({"kind": "k" * 201}, "at most 200"),
        ({"tags": "speed"}, "the one text 'speed'"),
        ({"tags": [""]}, "the tag is empty"),
        ({"tags": [str(number) for number in range(101)]}, "101 tags"),
        ({"scope": ""}, "the scope is empty"),
        ({"key": ""}, "the key is empty"),
        ({"data": {"x": float("nan")}}, "JSON"),
        ({"data": {"x": object()}}, "JSON"),
        ({"data": {"x": "y" * 1_000_001}}, "the data has"),
    ],
)
def test_what_cannot_be_stored_is_refused(memory: Memory, change: dict, says: str) -> None:
    arguments = {"text": "fine", "kind": "work"} | change
    with pytest.raises(Misuse, match=says):
        memory.store(arguments.pop("text"), **arguments)
    assert memory.entries() == []


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_limit_out_of_range_is_refused(memory: Memory, limit: int) -> None:
    for search in (memory.find, memory.words):
        with pytest.raises(Misuse, match=f"limit is {limit}"):
            search("x", limit=limit)
    with pytest.raises(Misuse, match=f"limit is {limit}"):
        memory.entries(limit=limit)


def test_a_condition_that_does_not_exist_is_refused(memory: Memory) -> None:
    with pytest.raises(Misuse, match="no 'knd'"):
        memory.delete(knd="tool")  # type: ignore[call-arg]


@pytest.mark.soak
@pytest.mark.parametrize("id", ["7", "", "x\x00", "zzzzzzzz-0000-0000-0000-000000000000"])
def test_an_id_that_no_entry_can_have_is_refused(memory: Memory, id: str) -> None:
    with pytest.raises(Misuse, match="not the id of an entry"):
        memory.delete(id=id)


def test_a_closed_memory_is_not_used(memory: Memory) -> None:
    memory.close()
    memory.close()
    with pytest.raises(Misuse, match="closed"):
        memory.entries()


def test_what_one_stores_another_finds_at_once(open_again: OpenMemory) -> None:
    one, other = open_again(), open_again()
    assert other.find("rust") == []
    id = one.store("the borrow checker of rust", kind="lesson")
    assert [each.entry.id for each in other.find("rust")] == [id]
    one.store("go has no borrow checker", kind="lesson", key="k")
    one.store("gardening in spring", kind="lesson", key="k")
    assert texts(other.find("flowers and plants"))[0] == "gardening in spring"
    one.delete(id=id)
    assert texts(other.find("rust")) == ["gardening in spring"]


@pytest.mark.soak
def test_threads_share_a_memory(memory: Memory) -> None:
    failures: list[Exception] = []

    def work(name: int) -> None:
        try:
            for number in range(10):
                id = memory.store(f"thread{name} entry{number}", kind="work", tags=[f"t{name}"])
                assert memory.words(f"thread{name} entry{number}")[0].entry.id == id
                memory.find("entry", tags=[f"t{name}"])
        except (AssertionError, RatchetError, ValueError) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(memory.find("entry", limit=100)) == 40


def test_data_is_json_whatever_its_keys_are(memory: Memory) -> None:
    data = {"π": "\x00", "deep": [[[{"a": {}}]]], "big": 2**70, "neg": -0.0}
    memory.store("text", kind="work", data=data)
    assert json.dumps(memory.entries()[0].data, sort_keys=True) == json.dumps(data, sort_keys=True)
