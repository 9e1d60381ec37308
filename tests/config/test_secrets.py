"""A secret goes in and never comes out by accident."""

from __future__ import annotations

import traceback

import pytest

from ratchet.kernel import ConfigError
from tests.config.conftest import Place

SECRET = "hunter2hunter2"
TOML = f"database_url = 'postgresql://u:{SECRET}@h/db'\n[server]\ntoken = '{SECRET}'"


def test_secrets_are_in_the_settings_and_in_nothing_that_is_shown(place: Place) -> None:
    loaded = place.load(TOML, {"RATCHET_SERVER__TOKEN": SECRET}, {"server.token": SECRET})
    settings = loaded.settings
    assert settings.server.token is not None
    assert settings.server.token.get_secret_value() == SECRET
    assert SECRET in settings.database_url.reveal()
    shown = [
        repr(loaded),
        str(loaded),
        repr(settings),
        str(settings),
        settings.server.model_dump_json(),
        str(vars(settings)),
        str(loaded.explain()),
    ]
    assert [text for text in shown if SECRET in text] == []


def test_explain_masks_secrets(place: Place) -> None:
    shown = {each.key: each.value for each in place.load(TOML).explain()}
    assert shown["server.token"] == "********"
    assert shown["database_url"] == "postgresql://u:********@h/db"


def test_an_unset_secret_is_not_shown_as_set(place: Place) -> None:
    assert {each.key: each.value for each in place.load().explain()}["server.token"] is None


@pytest.mark.parametrize(
    "text",
    [
        f"[server]\ntokn = '{SECRET}'",
        f"[server]\ntoken = ['{SECRET}']",
        f"[server]\ntoken = '{SECRET}'\nport = -1",
        f"database_url = 'mysql://u:{SECRET}@h/db'",
        f"database_url = ['postgresql://u:{SECRET}@h/db']",
        f"[tracing]\nendpoint = 'http://u:{SECRET}@h'",
        f"[engines.codex]\nkey_variable = 'sk-{SECRET}'",
        f"[engines.claude]\nkey_variable = 'sk-{SECRET}'\nenvironment = ['sk-{SECRET}']",
        f"[llm.endpoints.local]\nbase_url = 'http://h/v1'\nkey_variable = 'sk-{SECRET}'",
    ],
)
def test_a_mistake_near_a_secret_does_not_print_it(place: Place, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load(text)
    everything = "".join(traceback.format_exception(caught.value))
    assert SECRET not in everything.replace(text, "")


def test_a_key_in_the_place_of_its_variable_is_refused_with_what_to_write(place: Place) -> None:
    with pytest.raises(
        ConfigError, match=r"codex\.key_variable .* is not the name of an environment variable"
    ):
        place.load(f"[engines.codex]\nkey_variable = 'sk-{SECRET}'")
