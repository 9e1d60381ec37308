from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from ratchet.config import load_settings, write_initial
from ratchet.kernel import ConfigError
from tests.config.keys import KEYS


def test_the_first_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".ratchet").mkdir()
    before = load_settings(env={}, cwd=tmp_path).explain()
    assert write_initial(tmp_path / ".ratchet") == tmp_path / ".ratchet" / "ratchet.toml"
    assert load_settings(env={}, cwd=tmp_path).explain() == before


@pytest.mark.soak
def test_every_key_is_in_it_and_valid_when_uncommented(tmp_path: Path) -> None:
    path = write_initial(tmp_path / ".ratchet")
    path.write_text(re.sub(r"^#(?! )", "", path.read_text(), flags=re.MULTILINE))
    origins = load_settings(env={}, cwd=tmp_path).explain()
    assert {each.key for each in origins if each.source == "file"} == set(KEYS)


def test_an_existing_file_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ratchet.toml").write_text("# mine")
    assert write_initial(tmp_path).read_text() == "# mine"


def test_only_one_of_many_writers_creates_it_and_none_leaves_a_trace(tmp_path: Path) -> None:
    writers = [threading.Thread(target=write_initial, args=(tmp_path,)) for _ in range(16)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert sorted(each.name for each in tmp_path.iterdir()) == [".gitignore", "ratchet.toml"]


def test_git_is_told_to_leave_the_home_alone(tmp_path: Path) -> None:
    write_initial(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "*\n"


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    assert write_initial(tmp_path).stat().st_mode & 0o077 == 0


def test_a_home_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_initial(tmp_path / "file" / "home")
