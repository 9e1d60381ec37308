from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ratchet.config import Loaded, load_settings
from ratchet.doctor import ProbeCheck, engines
from tests.doctor.conftest import Programs

READY = ["aider", "codemachine", "gemini", "opencode"]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load_settings(env={}, cwd=tmp_path)


def found(loaded: Loaded, programs: Programs) -> dict[str, ProbeCheck]:
    environment = {"PATH": programs.path, "HOME": str(programs.directory)}
    return {each.name.removeprefix("engine "): each for each in engines(loaded, environment)}


def test_every_engine_is_looked_at_and_an_absent_one_is_a_warning_that_tells_how_to_install_it(
    loaded: Loaded, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests announce engines of their own to the whole process.
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not each.endswith("announced")])
    checks = found(loaded, programs)
    assert set(checks) == {*READY, "claude", "codex", "llm", "replay", "search"}
    assert {checks[name].status for name in READY} == {"warn"}
    assert all((fix := checks[name].fix) and "install" in fix and "://" not in fix for name in READY)
    assert checks["search"].status == "ok"


def test_an_address_that_other_programs_use_and_ratchet_does_not_is_named(
    loaded: Loaded, tmp_path: Path
) -> None:
    elsewhere = {"PATH": "", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    [named] = [each for each in engines(loaded, elsewhere) if each.name == "engine addresses"]
    assert (named.status, "OPENAI_BASE_URL is set and is not used" in named.detail) == ("warn", True)
    assert "llm.endpoints.openai.base_url" in (named.fix or "")
    configured = load_settings(
        {"llm.endpoints.openai.base_url": "http://127.0.0.1:9/v1"}, env={}, cwd=tmp_path
    )
    assert "engine addresses" not in {each.name for each in engines(configured, elsewhere)}


def test_a_present_engine_tells_its_version(loaded: Loaded, programs: Programs) -> None:
    programs.add("aider", '[ "$1" = --version ] && echo "aider 1.2.3"')
    check = found(loaded, programs)["aider"]
    assert check.status == "ok"
    assert "1.2.3" in check.detail


def test_an_engine_that_fails_or_cannot_start_is_a_warning_with_the_reason(
    loaded: Loaded, programs: Programs
) -> None:
    programs.add("aider", "echo 'no config' >&2; exit 7")
    programs.add("gemini", "", interpreter="/does/not/exist")
    checks = found(loaded, programs)
    assert (checks["aider"].status, checks["gemini"].status) == ("warn", "warn")
    assert "no config" in checks["aider"].detail


@pytest.mark.soak
def test_an_engine_that_hangs_is_killed_with_its_children_and_holds_up_nobody(
    loaded: Loaded, programs: Programs
) -> None:
    programs.add("aider", "sleep 86399.4321 & wait")
    started = time.monotonic()
    checks = found(loaded, programs)
    assert time.monotonic() - started < 30
    assert checks["aider"].status == "warn"
    assert checks["search"].status == "ok"
    assert not [each for each in Path("/proc").glob("[0-9]*/cmdline") if b"86399.4321" in contents(each)]


def contents(path: Path) -> bytes:
    try:
        found = path.read_bytes()
    except OSError:
        return b""
    return found if f"/{os.getpid()}/" not in str(path) else b""
