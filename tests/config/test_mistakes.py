"""What is wrong is said with the key, the place and the way out."""

from __future__ import annotations

import re

import pytest

from ratchet.kernel import ConfigError
from tests.config.conftest import Place
from tests.config.keys import KEYS, ONE_OF_EACH_TABLE, toml, variable


def misspelled(key: str) -> str:
    """The key with its last letter but one missing."""
    return key[:-2] + key[-1]


@pytest.mark.parametrize("key", ONE_OF_EACH_TABLE)
def test_an_unknown_key_in_the_file_names_its_line_and_the_nearest_key(place: Place, key: str) -> None:
    text = toml(misspelled(key), KEYS[key][0])
    with pytest.raises(ConfigError) as caught:
        place.load(text)
    place_of_it = f"{place.file}:{text.count(chr(10))}"
    assert str(caught.value) == f"{misspelled(key)} ({place_of_it}) is unknown; the nearest is {key}"


@pytest.mark.parametrize("key", ONE_OF_EACH_TABLE)
def test_an_unknown_variable_names_the_nearest_variable(place: Place, key: str) -> None:
    wrong = variable(misspelled(key))
    with pytest.raises(ConfigError) as caught:
        place.load(env={wrong: "1"})
    assert str(caught.value) == f"{wrong} is unknown; the nearest is {variable(key)}"


@pytest.mark.parametrize("key", ONE_OF_EACH_TABLE)
def test_an_unknown_flag_names_the_nearest_key(place: Place, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load(flags={misspelled(key): 1})
    assert str(caught.value) == f"{misspelled(key)} (command line) is unknown; the nearest is {key}"


def test_a_key_in_the_wrong_table_is_led_to_the_right_one(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"the nearest is server\.port"):
        place.load("port = 1")


def test_an_unknown_table_is_an_error_even_when_empty(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"servr \(.*:2\) is unknown; the nearest is server\."):
        place.load("\n[servr]")


def test_all_mistakes_are_told_at_once(place: Place) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load("prot = 1\n[log]\nlevl = 'x'", {"RATCHET_SEVER__HOST": "h"})
    assert str(caught.value).startswith("3 settings are wrong:\n")
    assert all(word in str(caught.value) for word in ("prot", "log.levl", "RATCHET_SEVER__HOST"))


@pytest.mark.parametrize(("text", "name"), [("server = 3", "server"), ("queues.gpu = 3", "queues.gpu")])
def test_a_value_in_the_place_of_a_table_is_refused(place: Place, text: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(name)} \(.*:1\) is a table, not a value; it holds "):
        place.load(text)


def test_a_variable_cannot_set_a_whole_table(place: Place) -> None:
    with pytest.raises(
        ConfigError, match="RATCHET_SERVER is a table, not a value; it holds host, port, token"
    ):
        place.load(env={"RATCHET_SERVER": '{"port": 1}'})


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("server.port", "65536", "less than or equal to 65535"),
        ("server.port", "-1", "greater than or equal to 0"),
        ("server.port", "true", "a number, not true or false"),
        ("server.port", "'http'", "a valid integer"),
        ("server.host", "''", "at least 1 character"),
        ("runtime.slots", "0", "greater than or equal to 1"),
        ("runtime.slots", "1.5", "a valid integer"),
        ("runtime.poll_seconds", "0", "greater than 0"),
        ("runtime.poll_seconds", "nan", "a finite number"),
        ("runtime.poll_seconds", "inf", "a finite number"),
        ("runtime.drain_seconds", "-1", "greater than or equal to 0"),
        ("runtime.job_timeout_seconds", "0", "greater than 0"),
        ("queues.gpu.concurrency", "0", "greater than or equal to 1"),
        ("budgets.run.tokens", "-5", "greater than or equal to 1"),
        ("budgets.run.cost_usd", "0", "greater than 0"),
        ("budgets.policy", "'loose'", "'strict', 'warn' or 'off'"),
        ("artifacts.retention_days", "0", "greater than or equal to 1"),
        ("log.level", "'loud'", "'debug', 'info', 'warning' or 'error'"),
        ("log.format", "'xml'", "'text' or 'json'"),
        ("tracing.enabled", "'perhaps'", "a valid boolean"),
        ("tracing.endpoint", "'collector'", "http:// or https://"),
        ("database_url", "3", "a text such as"),
    ],
)
def test_a_value_out_of_range_names_key_value_place_and_what_is_allowed(
    place: Place, key: str, value: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load(f"{key} = {value}")
    message = str(caught.value)
    shown = {"true": "True"}.get(value, value)
    assert message.startswith(f"{key} ({place.file}:1) is {shown}")
    assert allowed in message


def test_a_worker_is_not_dead_before_three_heartbeats(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"dead_after_seconds is 10; it must be at least 15"):
        place.load("[runtime]\nheartbeat_seconds = 5")


def test_the_cap_of_retries_is_not_below_their_base(place: Place) -> None:
    with pytest.raises(
        ConfigError, match=r"retry_cap_seconds is 1; it must be at least retry_base_seconds \(2\)"
    ):
        place.load("[runtime]\nretry_base_seconds = 2\nretry_cap_seconds = 1")


@pytest.mark.parametrize("key", ["rate_limit", "rate_seconds"])
def test_a_rate_needs_both_of_its_keys(place: Place, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"queues\.gpu: {key} is 3, but .* set both or neither"):
        place.load(f"[queues.gpu]\n{key} = 3")


def test_a_queue_has_a_plain_name(place: Place) -> None:
    with pytest.raises(ConfigError, match="the queue name 'My Queue' must be"):
        place.load('[queues."My Queue"]')


def test_malformed_toml_names_file_and_line(place: Place) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(str(place.file))} is not valid TOML: .*line 2"):
        place.load("[server]\nport = = 1")


def test_a_table_that_was_pasted_under_the_first_one_is_told(place: Place) -> None:
    with pytest.raises(ConfigError, match="not valid TOML") as refused:
        place.load("[protocols]\n[projects]\n[protocols]\nci = 'off'")
    assert "the file has that table already" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("/mnt/artifacts", "must be s3://BUCKET/PREFIX"),
        ("s3:///prefix", "must be s3://BUCKET/PREFIX"),
        ("gs://bucket", "must be s3://BUCKET/PREFIX"),
        ("s3://key:word@bucket", "must not contain a key"),
        ("s3://bucket?secret=x", "has the parameter 'secret'"),
    ],
)
def test_an_artifact_store_that_is_none_is_refused(place: Place, url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        place.load(f'[artifacts]\nurl = "{url}"').settings.artifacts  # noqa: B018 - read when it is asked for
    assert reason in str(refused.value)
    assert "word" not in str(refused.value)


def test_a_file_that_is_not_text_is_refused(place: Place) -> None:
    place.file.write_bytes(b"port = \xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        place.load()


def test_a_file_that_cannot_be_read_is_refused(place: Place) -> None:
    place.file.mkdir()  # even root cannot read a directory as a file
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        place.load()


def test_a_missing_file_means_the_defaults(place: Place) -> None:
    assert {each.source for each in place.load().explain()} == {"default"}


def test_settings_cannot_be_changed(place: Place) -> None:
    settings = place.load().settings
    with pytest.raises(ValueError, match="frozen"):
        settings.server.port = 1  # type: ignore[misc]
