"""What is installed without the repository: everything is in the wheel, and it works on every Python that we name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from ratchet.modelserver import ModelServer
from tests.docs.readme import play_readme
from tests.install.conftest import ROOT, find_python, install
from tests.modelserver.fixtures import model_server

__all__ = ["model_server"]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = [
    each.rpartition(" ")[2] for each in PROJECT["classifiers"] if each.startswith("Programming Language")
]


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    """Migrations, pages, templates and shipped tasks are no modules, and are easily left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/ratchet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    ours = {each.removeprefix("src/") for each in listed.stdout.splitlines() if (ROOT / each).exists()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {each for each in archive.namelist() if ".dist-info/" not in each}
        [described] = [each for each in archive.namelist() if each.endswith("/METADATA")]
        facts = Parser().parsestr(archive.read(described).decode())
    assert packed == ours
    assert {Path(each).suffix for each in ours} >= {".html", ".js", ".css", ".toml", ".yaml", ".md", ".typed"}
    assert facts["Requires-Python"] == ">=3.11"
    assert set(facts.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_demo_server_and_research_work_from_the_wheel(wheel: Path, version: str, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    ratchet = install(wheel, python, tmp_path)

    doctor = ratchet("doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    demo = ratchet("demo", "--json")
    assert demo.returncode == 0, demo.stderr
    research = ratchet("research", "run", "circle_packing", "--engine", "search", "--trials", "4", "--json")
    assert research.returncode == 0, research.stderr

    server = ratchet.start("serve", "--port", "0", "--json")
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        link = ratchet("console").stdout.strip()
        assert link.startswith(told["console"])
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        for page in (link, f"{told['console']}research", f"{told['url']}/console/assets/console.css"):
            with opener.open(page, timeout=120) as answer:
                assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=120)
        assert server.returncode == 0, err
    finally:
        server.kill()
        server.wait()


@pytest.mark.soak
def test_the_readme_works_from_the_wheel(wheel: Path, tmp_path: Path, model_server: ModelServer) -> None:
    installed = install(wheel, sys.executable, tmp_path, extra="[codex]")
    play_readme(
        installed.place, model_server, PATH=os.pathsep.join([str(installed.program.parent), os.defpath])
    )
