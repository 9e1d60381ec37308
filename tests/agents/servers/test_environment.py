"""The packages that an agent's requirements.txt names."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.agents.contract import Role
from ratchet.agents.servers import call_tool, serving
from ratchet.agents.servers.environment import CannotInstall, packages_of, read_requirements
from ratchet.config.workflow_settings import Agents
from ratchet.environments import own_pip
from tests.agents.servers.versions import launch_of, write_version

_IMPORTS = """
import os
from tiny import serve

def styled(word):
    import colorama
    return [colorama.__version__, colorama.__file__, os.access(colorama.__file__, os.W_OK)]

serve(styled)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_lines_are_read_without_comments_and_none_is_none(tmp_path: Path) -> None:
    assert read_requirements(tmp_path) == ()
    (tmp_path / "requirements.txt").write_text("# what it needs\n\nrich>=13  # for tables\n")
    assert read_requirements(tmp_path) == ("rich>=13",)


@pytest.mark.parametrize(
    "line", ["x @ https://example.com/x.whl", "-r other.txt", "--index-url https://example.com", "../x"]
)
def test_a_line_that_names_no_package_is_refused_before_anything_is_installed(
    tmp_path: Path, cache: Path, line: str
) -> None:
    (tmp_path / "requirements.txt").write_text(line)
    with pytest.raises(CannotInstall, match=r"requirements\.txt cannot be installed"):
        asyncio.run(packages_of(tmp_path))
    assert not cache.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").symlink_to("/etc/hostname")
    with pytest.raises(CannotInstall, match="cannot be read"):
        read_requirements(tmp_path)


@pytest.mark.soak
def test_a_server_imports_its_own_packages_which_it_cannot_change(tmp_path: Path, cache: Path) -> None:
    directory = write_version(tmp_path / "version", _IMPORTS)
    (directory / "requirements.txt").write_text("colorama==0.4.6\n")

    async def start() -> list[object]:
        async with serving(launch_of(directory), Role.RUNNER, Agents(start_seconds=60.0)) as server:
            answer = await call_tool(server.url, "styled", {"word": "x"}, 60)
            return list(answer.structured["result"])

    version, file, writable = asyncio.run(start())

    assert version == "0.4.6"
    assert str(file).startswith(str(cache.resolve()))
    assert writable is False


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """uv, as a user has it on PATH."""
    place = tmp_path_factory.mktemp("uv")
    pip = [*(own_pip(sys.executable) or ()), "install", "-q", "--target", str(place), "uv"]
    subprocess.run(pip, check=True)
    return place / "bin" / "uv"


@pytest.mark.soak
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_uv_installs_where_there_is_one_and_pip_where_it_cannot(
    installer: str, uv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installer == "pip":
        uv = tmp_path / "bin" / "uv"
        uv.parent.mkdir()
        uv.write_text("#!/bin/sh\necho there is no such version of uv\nexit 1\n")
        uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "requirements.txt").write_text("colorama==0.4.6\n")
    packages = asyncio.run(packages_of(tmp_path))
    assert packages is not None
    assert (packages / "colorama-0.4.6.dist-info" / "INSTALLER").read_text().strip() == installer
    assert list((packages / "colorama" / "__pycache__").iterdir())


@pytest.mark.soak
def test_what_does_not_go_with_the_kit_or_is_nowhere_is_said(tmp_path: Path) -> None:
    for line in ("pydantic<2", "ratchet-has-no-such-package==1"):
        (tmp_path / "requirements.txt").write_text(line)
        with pytest.raises(CannotInstall, match="could not be installed"):
            asyncio.run(packages_of(tmp_path))
