"""Each key reaches the settings from each source, and the stronger source wins."""

from __future__ import annotations

from typing import Any

import pytest

from tests.config.conftest import Place
from tests.config.keys import KEYS, NAMED, ONE_OF_EACH_TABLE, toml, value_of, variable


def test_every_key_of_the_settings_is_tried_here(place: Place) -> None:
    explained = {each.key for each in place.load(NAMED).explain()}
    defaults = {key for key in explained if key == "home" or key.startswith("queues.default.")}
    assert explained - defaults == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_a_stronger_source_wins(place: Place, key: str) -> None:
    weak, middle, strong = KEYS[key]
    env: dict[str, str] = {}
    flags: dict[str, Any] = {}
    default = place.load().settings

    from_file = place.load(toml(key, weak), env, flags)
    env[variable(key)] = str(middle).lower() if isinstance(middle, bool) else str(middle)
    from_env = place.load(None, env, flags)
    flags[key] = strong
    from_flag = place.load(None, env, flags)

    assert [value_of(each.settings, key) for each in (from_file, from_env, from_flag)] == [
        weak,
        middle,
        strong,
    ]
    assert from_file.settings != default


@pytest.mark.parametrize("key", ONE_OF_EACH_TABLE)
def test_the_origin_of_each_value_is_explained(place: Place, key: str) -> None:
    weak, middle, strong = KEYS[key]
    line = toml(key, weak).count("\n")

    def origin(env: dict[str, str], flags: dict[str, object]) -> tuple[str, str]:
        found = next(each for each in place.load(None, env, flags).explain() if each.key == key)
        return found.source, found.where

    place.file.write_text(toml(key, weak))
    env = {variable(key): str(middle)}
    assert origin({}, {}) == ("file", f"{place.file}:{line}")
    assert origin(env, {}) == ("environment", variable(key))
    assert origin(env, {key: strong}) == ("flag", "command line")


def test_a_flag_that_was_not_used_changes_nothing(place: Place) -> None:
    assert place.load("[server]\nport = 1", flags={"server.port": None}).settings.server.port == 1


def test_an_empty_variable_counts_as_not_set(place: Place) -> None:
    assert place.load("[server]\nport = 1", {"RATCHET_SERVER__PORT": ""}).settings.server.port == 1


def test_none_in_a_variable_unsets_what_the_file_set(place: Place) -> None:
    loaded = place.load(
        "[runtime]\njob_timeout_seconds = 5", {"RATCHET_RUNTIME__JOB_TIMEOUT_SECONDS": "none"}
    )
    assert loaded.settings.runtime.job_timeout_seconds is None


def test_sources_add_up_within_one_table(place: Place) -> None:
    env = {"RATCHET_QUEUES__GPU__CONCURRENCY": "3", "RATCHET_QUEUES__CPU__CONCURRENCY": "9"}
    queues = place.load("[queues.gpu]\nrate_limit = 1\nrate_seconds = 2", env).settings.queues
    assert (queues["gpu"].concurrency, queues["gpu"].rate_limit, queues["cpu"].concurrency) == (3, 1, 9)


def test_naming_a_queue_creates_it_next_to_the_default_one(place: Place) -> None:
    assert list(place.load("[queues.gpu]").settings.queues) == ["default", "gpu"]
    assert list(place.load("").settings.queues) == ["default"]


def test_variables_of_the_test_suite_and_of_others_are_ignored(place: Place) -> None:
    assert place.load(env={"RATCHET_TEST_POSTGRES": "x", "RATCHETX": "y", "PORT": "z"})
