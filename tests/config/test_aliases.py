"""Settings by their older names."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.config.sources import ALIASES, IGNORED
from ratchet.kernel import ConfigError
from tests.config.conftest import Place
from tests.config.keys import KEYS, toml, value_of, variable

GIVEN: dict[str, tuple[str, Any]] = {
    "TASKSGODZILLA_DB_PATH": ("/data/it's 5% #1?.db", "sqlite:////data/it's 5%25 #1%3F.db"),
    "TASKSGODZILLA_DB_URL": ("postgresql://h/db", "postgresql://h/db"),
    "TASKSGODZILLA_API_HOST": ("0.0.0.0", "0.0.0.0"),
    "TASKSGODZILLA_API_PORT": ("8010", 8010),
    "TASKSGODZILLA_API_TOKEN": ("hush", "hush"),
    "TASKSGODZILLA_WEBHOOK_TOKEN": ("hush", "hush"),
    "TASKSGODZILLA_LOG_LEVEL": ("CRITICAL", "error"),
    "TASKSGODZILLA_LOG_JSON": ("Yes", "json"),
    "TASKSGODZILLA_MAX_TOKENS_PER_STEP": ("5", 5),
    "TASKSGODZILLA_MAX_TOKENS_PER_PROTOCOL": ("50", 50),
    "TASKSGODZILLA_TOKEN_BUDGET_MODE": ("WARN", "warn"),
    "TASKSGODZILLA_AUTO_QA_ON_CI": ("1", True),
    "TASKSGODZILLA_SPEC_AUDIT_INTERVAL_SECONDS": ("61", 2),
    "TASKSGODZILLA_PROJECTS_ROOT": ("/srv/clones", "/srv/clones"),
    "TASKSGODZILLA_AUTO_CLONE": ("off", False),
    "TASKSGODZILLA_GH_SSH": ("on", True),
    "TASKSGODZILLA_GIT_USER": ("Ada", "Ada"),
    "TASKSGODZILLA_GIT_EMAIL": ("ada@example.org", "ada@example.org"),
    "TASKSGODZILLA_REQUIRE_ONBOARDING_CLARIFICATIONS": ("true", True),
    "TASKSGODZILLA_DISCOVERY_TIMEOUT": ("15", 15.0),
    "PROTOCOL_PLANNING_MODEL": ("a", "a"),
    "PROTOCOL_DECOMPOSE_MODEL": ("b", "b"),
    "PROTOCOL_EXEC_MODEL": ("c", "c"),
    "PROTOCOL_QA_MODEL": ("d", "d"),
    "PROTOCOL_DISCOVERY_MODEL": ("e", "e"),
}


def key_of(name: str) -> str:
    return ".".join(ALIASES[name].key)


def test_every_alias_is_tried_here() -> None:
    assert set(GIVEN) == set(ALIASES)


@pytest.mark.parametrize("name", GIVEN)
def test_an_alias_sets_its_setting_and_is_named_as_the_source(place: Place, name: str) -> None:
    text, wanted = GIVEN[name]
    loaded = place.load(env={name: text})
    assert value_of(loaded.settings, key_of(name)) == wanted
    origin = next(each for each in loaded.explain() if each.key == key_of(name))
    assert (origin.source, origin.where) == ("environment", name)


@pytest.mark.parametrize("name", GIVEN)
def test_an_alias_is_stronger_than_the_file_and_weaker_than_the_own_name(place: Place, name: str) -> None:
    key = key_of(name)
    in_file, own, _ = KEYS[key]
    text, wanted = GIVEN[name]
    assert value_of(place.load(toml(key, in_file), {name: text}).settings, key) == wanted
    written = str(own).lower() if isinstance(own, bool) else str(own)
    both = place.load(None, {name: text, variable(key): written})
    assert value_of(both.settings, key) == own


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TASKSGODZILLA_AUTO_CLONE", "maybe", "'maybe'; it must be 1, true, yes or on"),
        ("TASKSGODZILLA_LOG_JSON", "2", "it must be 1, true"),
        ("TASKSGODZILLA_API_PORT", "http", "'http'; it must be a valid integer"),
        ("TASKSGODZILLA_LOG_LEVEL", "chatty", "'chatty'; it must be 'debug'"),
        ("TASKSGODZILLA_MAX_TOKENS_PER_STEP", "0", "it must be greater than or equal to 1"),
        ("TASKSGODZILLA_TOKEN_BUDGET_MODE", "loose", "'loose'; it must be 'strict'"),
        ("TASKSGODZILLA_SPEC_AUDIT_INTERVAL_SECONDS", "-1", "it must be a number of seconds"),
        ("TASKSGODZILLA_SPEC_AUDIT_INTERVAL_SECONDS", "nan", "it must be a number of seconds"),
        ("TASKSGODZILLA_DB_URL", "mysql://h/db", "mysql"),
        ("TASKSGODZILLA_DISCOVERY_TIMEOUT", "0", "it must be greater than 0"),
    ],
)
def test_a_bad_value_is_told_with_the_name_that_was_set(
    place: Place, name: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load(env={name: text})
    assert str(caught.value).startswith(f"{name} ")
    assert said in str(caught.value)


def test_a_bad_value_does_not_matter_where_the_own_name_is_set(place: Place) -> None:
    env = {"TASKSGODZILLA_AUTO_CLONE": "maybe", "RATCHET_PROJECTS__AUTO_CLONE": "false"}
    assert place.load(env=env).settings.projects.auto_clone is False


def test_an_empty_alias_counts_as_not_set(place: Place) -> None:
    assert place.load("[server]\nport = 1", {"TASKSGODZILLA_API_PORT": ""}).settings.server.port == 1


@pytest.mark.parametrize(("text", "minutes"), [("0", None), ("30", 1), ("60", 1), ("3600", 60)])
def test_the_interval_of_audits_is_rounded_up_to_minutes(
    place: Place, text: str, minutes: int | None
) -> None:
    loaded = place.load(env={"TASKSGODZILLA_SPEC_AUDIT_INTERVAL_SECONDS": text})
    assert loaded.settings.protocols.audit_minutes == minutes


def test_relative_paths_start_at_the_working_directory(place: Place) -> None:
    env = {"TASKSGODZILLA_DB_PATH": "old.sqlite", "TASKSGODZILLA_PROJECTS_ROOT": "projects"}
    settings = place.load(env=env).settings
    assert settings.database_url.path == place.directory / "old.sqlite"
    assert settings.projects.root == str(place.directory / "projects")


def test_an_address_of_the_database_is_stronger_than_its_path(place: Place) -> None:
    env = {"TASKSGODZILLA_DB_URL": "postgresql://h/db", "TASKSGODZILLA_DB_PATH": "/old.sqlite"}
    assert place.load(env=env).settings.database_url.reveal() == "postgresql://h/db"


def test_an_unknown_alias_is_refused_with_the_nearest_one(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"TASKSGODZILLA_API_PORTS is unknown; .* TASKSGODZILLA_API_PORT$"):
        place.load(env={"TASKSGODZILLA_API_PORTS": "1"})


@pytest.mark.parametrize("name", IGNORED)
def test_what_has_no_counterpart_changes_nothing_and_says_so(place: Place, name: str) -> None:
    loaded = place.load(env={name: "x"})
    assert loaded.settings == place.load().settings
    [told] = loaded.ignored
    assert told.startswith(f"{name} is ignored: ")


def test_variables_of_other_programs_are_left_alone(place: Place) -> None:
    loaded = place.load(env={"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "upb", "PROTOCOL_X": "1"})
    assert loaded.ignored == ()


def test_variables_of_the_ci_scripts_are_no_settings(place: Place) -> None:
    env = {"RATCHET_URL": "http://h", "RATCHET_WEBHOOK_SECRET": "s", "RATCHET_CI_BRANCH": "b"}
    assert place.load(env=env).settings == place.load().settings


def test_a_secret_by_its_older_name_is_masked(place: Place) -> None:
    loaded = place.load(env={"TASKSGODZILLA_API_TOKEN": "hush", "TASKSGODZILLA_WEBHOOK_TOKEN": "hush"})
    assert "hush" not in str(loaded.explain()) + repr(loaded)
