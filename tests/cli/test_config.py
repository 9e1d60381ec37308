from __future__ import annotations

import pytest

from tests.cli.program import Program


@pytest.mark.soak
def test_config_show_tells_where_each_value_comes_from(plain_program: Program) -> None:
    plain_program.make_home()
    file = plain_program.home / "ratchet.toml"
    file.write_text("[server]\nport = 9000\nhost = '10.0.0.1'\n")
    plain_program.env["RATCHET_SERVER__HOST"] = "127.0.0.2"
    shown = plain_program("config", "show", "--json", "--log-level", "debug")
    found = {each["key"]: each for each in shown.json}
    assert found["server.port"] == {
        "key": "server.port",
        "value": 9000,
        "source": "file",
        "where": f"{file}:2",
    }
    assert found["server.host"]["where"] == "RATCHET_SERVER__HOST"
    assert (found["log.level"]["value"], found["log.level"]["source"]) == ("debug", "flag")
    assert found["runtime.max_attempts"]["source"] == "default"


@pytest.mark.soak
def test_config_show_names_the_older_name_that_was_set_and_what_is_ignored(plain_program: Program) -> None:
    plain_program.make_home()
    plain_program.env |= {"TASKSGODZILLA_API_PORT": "8010", "TASKSGODZILLA_REDIS_URL": "redis://x"}
    shown = plain_program("config", "show", "--json")
    [port] = [each for each in shown.json if each["key"] == "server.port"]
    assert (port["value"], port["where"]) == (8010, "TASKSGODZILLA_API_PORT")
    assert shown.err.startswith("TASKSGODZILLA_REDIS_URL is ignored: ")


@pytest.mark.soak
def test_config_show_is_a_table_with_one_line_for_each_key(plain_program: Program) -> None:
    header, *lines = plain_program("config", "show").out.splitlines()
    assert header.split() == ["key", "value", "source", "where"]
    assert all(len(line.split()) >= 4 for line in lines)


@pytest.mark.soak
def test_config_show_masks_secrets(plain_program: Program) -> None:
    shown = plain_program("config", "show", "--database-url", "postgresql://me:hush@nowhere/db")
    assert "hush" not in shown.out + shown.err
    assert "postgresql://me:********@nowhere/db" in shown.out


@pytest.mark.soak
def test_config_path_names_the_file_without_making_it(plain_program: Program) -> None:
    done = plain_program("config", "path")
    assert done.out.strip() == str(plain_program.home / "ratchet.toml")
    assert plain_program("config", "path", "--json").json["exists"] is False
    assert not plain_program.home.exists()


@pytest.mark.soak
def test_verbose_is_the_debug_level_unless_another_was_given(plain_program: Program) -> None:
    def level(*options: str) -> object:
        found = plain_program("config", "show", "--json", *options).json
        return next(each["value"] for each in found if each["key"] == "log.level")

    assert level("-v") == "debug"
    assert level("-v", "--log-level", "error") == "error"


@pytest.mark.soak
def test_an_unknown_key_names_the_nearest_and_is_misuse(plain_program: Program) -> None:
    plain_program.make_home()
    (plain_program.home / "ratchet.toml").write_text("[server]\nprot = 9000\n")
    done = plain_program("queue", "list")
    assert done.code == 2
    assert "server.prot" in done.err
    assert "the nearest is server.port" in done.err
    assert "Traceback" not in done.err


@pytest.mark.soak
def test_an_unknown_variable_names_the_nearest_and_is_misuse(plain_program: Program) -> None:
    plain_program.env["RATCHET_SERVER__PROT"] = "1"
    done = plain_program("doctor", "--json")
    assert done.code == 2
    assert "RATCHET_SERVER__PORT" in done.err
    assert done.out == ""


def test_a_flag_with_a_wrong_value_is_misuse(plain_program: Program) -> None:
    done = plain_program("--log-level", "loud", "config", "show")
    assert done.code == 2
    assert "log.level" in done.err
    assert "'loud'" in done.err
