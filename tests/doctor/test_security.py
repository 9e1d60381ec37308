"""What is promised on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ratchet.cli.commands.doctor import print_boundaries
from ratchet.config import load_settings
from ratchet.doctor.security import Boundary, boundaries
from ratchet.sandbox import granted
from tests.docs.markdown import DOCS
from tests.sandbox.places import python_as, without_namespaces

ELSEWHERE = """
import json, tempfile
from ratchet.config import load_settings
from ratchet.doctor.security import boundaries
found = boundaries(load_settings({"home": "/nonexistent"}, env={}))
print(json.dumps([found[0].here, found[0].not_promised]))
"""


def found_in(home: Path, **settings: str) -> dict[str, Boundary]:
    loaded = load_settings({"home": str(home), **settings}, env={})
    return {each.name: each for each in boundaries(loaded)}


def test_the_boundaries_are_those_of_the_page(tmp_path: Path) -> None:
    section = (DOCS / "security.md").read_text().split("## Boundaries")[1].split("## ")[0]
    assert list(found_in(tmp_path)) == re.findall(r"^- \*\*(.+?)\*\*", section, re.MULTILINE)


def test_the_layers_are_those_that_this_machine_grants(tmp_path: Path) -> None:
    code = found_in(tmp_path)["Foreign code"]
    assert all(layer in code.here[0] for layer in granted().names if layer != "overlayfs")
    assert any("as root" in words for words in code.not_promised) == (os.geteuid() == 0)
    assert any("on a file system" in words for words in code.not_promised) == ("own user" in granted())


def test_a_machine_that_grants_less_promises_less() -> None:
    here, not_promised = python_as(without_namespaces, ELSEWHERE)
    assert "nodes run" in here
    assert any(words.startswith("commands are refused for want of pid namespace") for words in here)
    assert any(words.startswith("no user namespace") for words in not_promised)


def test_a_home_that_others_can_enter_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "secret.key").touch(0o644)
    open_home = found_in(tmp_path)
    assert "0755" in open_home["The home"].not_promised[0]
    assert "0644" in open_home["Keys"].not_promised[0]
    tmp_path.chmod(0o700)
    (tmp_path / "secret.key").chmod(0o600)
    closed = found_in(tmp_path)
    assert (closed["The home"].not_promised, closed["Keys"].not_promised) == ((), ())


def test_a_server_that_others_reach_is_told(tmp_path: Path) -> None:
    assert found_in(tmp_path)["The server"].not_promised == ()
    assert "0.0.0.0" in found_in(tmp_path, **{"server.host": "0.0.0.0"})["The server"].not_promised[0]


def test_people_see_what_holds_and_what_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    print_boundaries([Boundary("Git", ("it holds",), ("but not that",))])
    shown = capsys.readouterr().out
    assert shown.splitlines()[:3] == ["Git", "  holds         it holds", "  not promised  but not that"]
    assert "kernel" in shown
