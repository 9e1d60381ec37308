"""swarm_config.json: models and priorities."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratchet.kernel import Misuse
from tests.research.tasks.folders import Folder

ROSTER = """
[[specialist]]
name = "opt"
model = "own"
priority = 3

[[specialist]]
name = "arch"

[variants.two]
agents = 2
"""


def read(folder: Folder, said: Any, variant: str | None = None) -> dict[str, tuple[str | None, int]]:
    folder.add(ROSTER)
    folder.put("swarm_config.json", json.dumps(said))
    return {each.name: (each.model, each.priority) for each in folder.read(variant).roster}


def test_defaults_go_to_those_who_say_nothing_themselves(folder: Folder) -> None:
    said = {"model": {"default": "base"}, "scheduler_priority": {"default": 5}}
    assert read(folder, said) == {"opt": ("own", 3), "arch": ("base", 5)}


def test_an_override_is_stronger_than_the_task(folder: Folder) -> None:
    said = {
        "model": {"default": "base", "overrides": {"opt": "big"}},
        "scheduler_priority": {"default": 5, "overrides": {"opt": 0}},
    }
    assert read(folder, said) == {"opt": ("big", 0), "arch": ("base", 5)}


def test_it_reaches_generic_agents(folder: Folder) -> None:
    said = {"model": {"default": "base", "overrides": {"agent-02": "big", "opt": "x"}}}
    assert read(folder, said, "two") == {"agent-01": ("base", 0), "agent-02": ("big", 0)}


def test_without_the_file_nothing_changes(folder: Folder) -> None:
    folder.add(ROSTER)
    assert [(each.model, each.priority) for each in folder.read().roster] == [("own", 3), (None, 0)]


def test_keys_with_an_underscore_are_comments(folder: Folder) -> None:
    assert read(folder, {"_comment": "hello", "model": {"default": "base"}})["arch"] == ("base", 0)


@pytest.mark.parametrize(
    "said",
    [
        [],
        3,
        None,
        {"model": "base"},
        {"model": {"default": 3}},
        {"model": {"default": "base", "override": {}}},
        {"models": {}},
        {"scheduler_priority": {"default": "high"}},
        {"scheduler_priority": {"default": True}},
        {"scheduler_priority": {"default": 1.5}},
        {"scheduler_priority": {"overrides": {"opt": None}}},
        {"model": {"default": "two\nlines"}},
    ],
)
def test_a_file_that_is_not_understood_is_refused(folder: Folder, said: Any) -> None:
    with pytest.raises(Misuse, match=r"swarm_config\.json is not understood"):
        read(folder, said)


@pytest.mark.parametrize("text", ["{", '{"model": {}, "model": {}}', '{"a": NaN}', "[" * 5000, ""])
def test_a_file_that_is_no_json_is_refused(folder: Folder, text: str) -> None:
    folder.put("swarm_config.json", text)
    with pytest.raises(Misuse, match=r"swarm_config\.json is not JSON"):
        folder.read()


def test_an_override_for_nobody_names_the_nearest(folder: Folder) -> None:
    with pytest.raises(Misuse, match="for 'opp', who is in no roster") as caught:
        read(folder, {"model": {"overrides": {"opp": "big"}}})
    assert caught.value.hint == "the nearest specialist is opt"
