"""Any edits, in any order, against a plain dict that goes through the same."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ratchet.agentkit import StateInvalid, StateStore

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=10,
)
keys = st.sampled_from(["a", "b", "c", "list"])


class Edits(RuleBasedStateMachine):
    """`states` is what every state should have been, the present one last."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        path = Path(self._directory.name)
        (path / "state_schema.json").write_text('{"not": {"required": ["forbidden"]}}')
        self.store = StateStore(path)
        # Long enough that most changes are stored as differences.
        self.states: list[dict[str, Any]] = [{"list": list(range(100))}]
        self.store.begin(self.states[0])

    def teardown(self) -> None:
        self._directory.cleanup()

    def _became(self, state: dict[str, Any]) -> None:
        if repr(_sorted(state)) != repr(_sorted(self.states[-1])):
            self.states.append(copy.deepcopy(state))

    @rule(key=keys, value=values)
    def set(self, key: str, value: Any) -> None:
        with self.store.edit() as state:
            state[key] = value
        self._became({**self.states[-1], key: value})

    @rule(key=keys)
    def remove(self, key: str) -> None:
        with self.store.edit() as state:
            state.pop(key, None)
        self._became({name: value for name, value in self.states[-1].items() if name != key})

    @rule(value=values)
    def append(self, value: Any) -> None:
        model = copy.deepcopy(self.states[-1])
        _append(model, value)
        with self.store.edit() as state:
            _append(state, value)
        self._became(model)

    @rule(value=values)
    def fail(self, value: Any) -> None:
        with pytest.raises(StateInvalid), self.store.edit() as state:
            state["forbidden"] = value

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.states)))
        self.store.restore(number)
        self._became(self.states[number - 1])

    @rule(value=values)
    def append_a_row(self, value: Any) -> None:
        model = copy.deepcopy(self.states[-1])
        if isinstance(model.get("list", []), list):
            self.store.append("list", value)
            _append(model, value)
            self._became(model)

    @rule(value=values)
    def add_a_row(self, value: Any) -> None:
        model = copy.deepcopy(self.states[-1])
        listed = model.setdefault("list", [])
        if isinstance(listed, list):
            new = repr(_sorted(value)) not in [repr(_sorted(each)) for each in listed]
            assert self.store.add("list", value) is new
            if new:
                listed.append(value)
                self._became(model)

    @rule(number=st.integers(-3, 3))
    def increment(self, number: int) -> None:
        value = self.states[-1].get("a", 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        self.store.increment("a", number)
        self._became({**self.states[-1], "a": value + number})

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        assert repr(_sorted(self.store.read())) == repr(_sorted(self.states[-1]))
        changes = self.store.history(limit=1000)
        assert [change.number for change in changes] == list(range(len(self.states), 0, -1))
        for change in changes[:4]:
            assert repr(_sorted(self.store.at(change.number))) == repr(
                _sorted(self.states[change.number - 1])
            )


def _append(state: dict[str, Any], value: Any) -> None:
    listed = state.setdefault("list", [])
    if isinstance(listed, list):
        listed.append(value)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value


TestEdits = Edits.TestCase
TestEdits.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
