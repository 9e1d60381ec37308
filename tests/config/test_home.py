from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.config import Loaded, load_settings, write_initial
from ratchet.kernel import ConfigError


def source(loaded: Loaded) -> str:
    return next(each.source for each in loaded.explain() if each.key == "home")


def test_without_anything_the_home_is_below_the_working_directory(tmp_path: Path) -> None:
    loaded = load_settings(env={}, cwd=tmp_path)
    assert loaded.home == tmp_path / ".ratchet"
    assert loaded.settings.database_url.reveal() == f"sqlite:///{tmp_path}/.ratchet/ledger.db"
    assert not loaded.home.exists()


def test_inside_a_repository_a_new_home_lies_at_its_top(tmp_path: Path) -> None:
    inside = tmp_path / "repository" / "src" / "deep"
    inside.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    assert load_settings(env={}, cwd=inside).home == tmp_path / "repository" / ".ratchet"


def test_the_nearest_home_above_is_found(tmp_path: Path) -> None:
    (tmp_path / ".ratchet").mkdir()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert load_settings(env={}, cwd=deep).home == tmp_path / ".ratchet"


def test_a_variable_is_stronger_than_the_nearest_home_and_a_flag_stronger_still(tmp_path: Path) -> None:
    (tmp_path / ".ratchet").mkdir()
    env = {"RATCHET_HOME": str(tmp_path / "env")}
    by_env = load_settings(env=env, cwd=tmp_path)
    by_flag = load_settings({"home": tmp_path / "flag"}, env=env, cwd=tmp_path)
    assert (by_env.home, source(by_env)) == (tmp_path / "env", "environment")
    assert (by_flag.home, source(by_flag)) == (tmp_path / "flag", "flag")


def test_a_relative_home_starts_at_the_working_directory(tmp_path: Path) -> None:
    assert load_settings(env={"RATCHET_HOME": "here"}, cwd=tmp_path).home == tmp_path / "here"


def test_the_file_is_read_from_the_chosen_home(tmp_path: Path) -> None:
    home = tmp_path / "elsewhere"
    home.mkdir()
    (home / "ratchet.toml").write_text("[server]\nport = 77")
    assert load_settings({"home": str(home)}, env={}, cwd=tmp_path).settings.server.port == 77


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file, which is not a directory"):
        load_settings(env={"RATCHET_HOME": "file"}, cwd=tmp_path)


def test_a_home_does_not_hand_on_the_group_of_the_directory_around_it(tmp_path: Path) -> None:
    """What is made below would have the setgid bit, and then copying it fails in a sandbox."""
    tmp_path.chmod(0o2755)
    for _ in range(2):
        write_initial(tmp_path / ".ratchet")
        (tmp_path / ".ratchet" / "below").mkdir(exist_ok=True)
        assert (tmp_path / ".ratchet").stat().st_mode & 0o7777 == 0o700
        assert not (tmp_path / ".ratchet" / "below").stat().st_mode & 0o2000
        (tmp_path / ".ratchet").chmod(0o2700)
