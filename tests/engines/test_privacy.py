"""An agent sees the machine, but not what would give it power over Ratchet."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.engines import Request
from ratchet.engines.session_home import private_places
from ratchet.kernel import Misuse
from tests.engines.command_subject import Bench
from tests.engines.conftest import Place
from tests.engines.contract import propose


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory that a session would see: not below /tmp, of which it has its own."""
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield directory
    shutil.rmtree(directory)


def made(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")


def test_all_of_the_home_is_hidden_but_what_the_session_needs(tmp_path: Path) -> None:
    shown = (tmp_path / "sessions" / "live" / "mine", tmp_path / "projects" / "1" / "work")
    for path in shown:
        path.mkdir(parents=True)
    made(
        tmp_path / "token",
        tmp_path / "sessions" / "live" / "other" / "x",
        tmp_path / "sessions" / "codex" / "x",
    )
    made(tmp_path / "projects" / "2" / "x", shown[1] / "code.py")
    hidden = {str(path.relative_to(tmp_path)) for path in private_places(tmp_path, {}, shown)}
    assert hidden == {"token", "sessions/codex", "sessions/live/other", "projects/2"}


def test_keys_in_the_home_of_the_user_are_hidden_where_they_are(tmp_path: Path) -> None:
    made(tmp_path / "user" / ".ssh" / "id", tmp_path / "user" / ".netrc", tmp_path / "real" / "gh" / "hosts")
    (tmp_path / "user" / ".config").symlink_to(tmp_path / "real")
    (tmp_path / "home").mkdir()
    hidden = private_places(tmp_path / "home", {"HOME": str(tmp_path / "user")}, ())
    assert hidden == (tmp_path / "user" / ".ssh", tmp_path / "user" / ".netrc")


def test_what_is_asked_to_be_hidden_comes_first_and_is_never_left_out(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / "home" / f"{number:03}").mkdir(parents=True)
    (tmp_path / "judge").mkdir()
    asked = (tmp_path / "judge", tmp_path / "home" / "099", tmp_path / "nowhere")
    hidden = private_places(tmp_path / "home", {}, (), asked)
    assert hidden[:2] == asked[:2]


def test_what_a_session_needs_cannot_be_hidden_from_it(tmp_path: Path) -> None:
    (tmp_path / "judge" / "work").mkdir(parents=True)
    with pytest.raises(Misuse, match="cannot be hidden"):
        private_places(tmp_path, {}, (tmp_path / "judge" / "work",), (tmp_path / "judge",))


def test_a_session_finds_nothing_there(elsewhere: Path, workspace: Path) -> None:
    made(elsewhere / "home" / "token", elsewhere / "user" / ".ssh" / "id", elsewhere / "seen")
    program = (
        "import os, subprocess\n"
        f"print(os.listdir('{elsewhere}/user/.ssh'))\n"
        f"print(subprocess.run('cat {elsewhere}/home/token; cat {elsewhere}/seen', shell=True, "
        "capture_output=True, text=True).stdout)"
    )
    engine = Bench(Place(elsewhere / "home"), elsewhere / "bin").open(program, HOME=str(elsewhere / "user"))
    assert propose(engine, Request("x", workspace)).text == "[]\nsecret"


def test_a_session_reads_what_the_settings_name_and_nothing_beside_it(
    elsewhere: Path, tmp_path: Path, workspace: Path
) -> None:
    made(elsewhere / "data" / "file", elsewhere / "other")
    program = (
        "import glob\n"
        f"print(sorted(glob.glob('{elsewhere}/**', recursive=True)))\n"
        f"print(open('{elsewhere}/data/file').read())"
    )
    toml = f'[engines]\nreadable = ["{elsewhere}/data", "{elsewhere}/absent"]'
    engine = Bench(Place(tmp_path / "home"), tmp_path / "tools").open(program, toml)
    found = [f"{elsewhere}/", f"{elsewhere}/data", f"{elsewhere}/data/file"]
    assert propose(engine, Request("x", workspace)).text == f"{found}\nsecret"
