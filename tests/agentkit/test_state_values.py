"""What a state may hold, and what is refused with a word on where it lies."""

import enum
from typing import Any

import pytest

from ratchet.agentkit import StateInvalid, StateStore


class Colour(str, enum.Enum):  # noqa: UP042 - the kind whose text is not its value
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


def _nested(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def _cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = [value]
    return value


def _shared(levels: int) -> Any:
    value: Any = ["x"] * 10
    for _ in range(levels):
        value = [value] * 10
    return value


@pytest.fixture
def free(store: StateStore) -> StateStore:
    (store.directory / "state_schema.json").write_text("{}")
    return store


@pytest.mark.soak
@pytest.mark.parametrize(
    ("value", "path", "said"),
    [
        (float("nan"), "state.v", "nan"),
        ([1, float("inf")], "state.v[1]", "inf"),
        ({"a": {"b": {1, 2}}}, "state.v.a.b", "of type set"),
        (b"bytes", "state.v", "of type bytes"),
        (object(), "state.v", "of type object"),
        ({1: "a"}, "state.v", "the key 1"),
        ({None: "a"}, "state.v", "the key None"),
        ({("a", "b"): 1}, "state.v", "the key"),
        (["half \ud800"], "state.v[0]", "surrogate"),
        ({"\udfff": 1}, "state.v", "surrogate"),
        (1 << 5000, "state.v", "4096 bits"),
        (_cycle(), "state.v.again[0].again[0]", "nested deeper"),
        (_nested(101), "state.v[0][0]", "nested deeper"),
        (_shared(20), "state.v[0][0]", "one value too many"),
        (["x" * 2**20] * 2**10, "state.v[256]", "longer than"),
    ],
)
def test_what_json_cannot_say_is_refused(free: StateStore, value: object, path: str, said: str) -> None:
    with pytest.raises(StateInvalid, match=said) as caught, free.edit() as state:
        state["v"] = value
    assert caught.value.path.startswith(path)
    assert free.read() == {"count": 0}
    assert len(free.history()) == 1


def test_a_state_that_is_too_large_is_refused(free: StateStore) -> None:
    with pytest.raises(StateInvalid, match="longer than"), free.edit() as state:
        state["v"] = ["x" * 2**20] * 257
    assert free.read() == {"count": 0}


def test_the_first_state_must_be_an_object(free: StateStore) -> None:
    with pytest.raises(StateInvalid, match="must be an object"):
        free.begin([1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ((1, 2), [1, 2]),
        (Colour.RED, "red"),
        (Size.LARGE, 3),
        (True, True),
        (-0.0, -0.0),
        (2**4000, 2**4000),
        ("\x00\n\u2028 ", "\x00\n\u2028 "),
        (_nested(99), _nested(99)),
        ({"": {}}, {"": {}}),
    ],
)
def test_what_json_can_say_comes_back_as_it_was(free: StateStore, value: object, stored: object) -> None:
    with free.edit() as state:
        state["v"] = value
    for read in (free.read()["v"], free.at(2)["v"]):
        assert repr(read) == repr(stored)
