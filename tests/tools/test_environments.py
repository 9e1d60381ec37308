"""The packages of a tool: in an environment of their own, made once, and gone when nobody uses it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.config.workflow_settings import Tools
from ratchet.environments import sweep
from ratchet.tools.call import ToolCallFailed
from ratchet.tools.environments import ToolEnvironment, environment_for, read_requirements
from tests.tools.bench import Bench, program, python_tool
from tests.tools.bench_fixtures import bench, shared_runtime
from tests.waiting import eventually

__all__ = ["bench", "shared_runtime"]

DAY = 24 * 3600


def make_wheel(folder: Path, name: str, version: str, source: str) -> None:
    """A package of one module, with a program `say-NAME`."""
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", source)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/entry_points.txt", f"[console_scripts]\nsay-{name} = {name}:main\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shelf")
    make_wheel(folder, "tinything", "1.0", "VALUE = 1\ndef main():\n    print('tiny one')\n")
    make_wheel(folder, "tinything", "2.0", "VALUE = 2\ndef main():\n    print('tiny two')\n")
    return folder


@pytest.fixture(autouse=True)
def offline(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages come from the shelf and from nowhere else."""
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))


@pytest.fixture(scope="module")
def made(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ToolEnvironment]]:
    """A home with the environment of `tinything==1.0` in it: making one takes seconds."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(shelf))
        yield home, make(home, "tinything==1.0")


def make(home: Path, *requirements: str, **settings: float) -> ToolEnvironment:
    return asyncio.run(environment_for(requirements, home, Tools(**settings)))  # type: ignore[arg-type]


def fails(home: Path, *requirements: str, **settings: float) -> ToolCallFailed:
    with pytest.raises(ToolCallFailed) as failed:
        make(home, *requirements, **settings)
    return failed.value


def left_in(home: Path) -> set[str]:
    root = home / "tools" / "environments"
    return {each.name for each in root.iterdir() if each.suffix != ".lock"}


@pytest.mark.soak
def test_a_tool_has_the_packages_that_it_requires(bench: Bench) -> None:
    source = "import tinything, sys\ndef run():\n    return [tinything.VALUE, 'ratchet' in sys.modules]"
    with pytest.raises(ModuleNotFoundError):
        __import__("tinything")
    called = bench.call(python_tool(source, requirements=["tinything<2"]))
    assert called.value == [1, False]
    assert bench.call(program("say-tinything", requirements=["tinything<2"])).value["stdout"] == "tiny one\n"
    own = bench.call(
        program("python", "-c", "import tinything as t; print(t.VALUE)", requirements=["tinything<2"])
    )
    assert own.value["stdout"] == "1\n"


@pytest.mark.soak
def test_an_environment_does_not_see_the_packages_of_ratchet(made: tuple[Path, ToolEnvironment]) -> None:
    _, environment = made
    asked = subprocess.run([environment.python, "-c", "import pydantic"], capture_output=True, check=False)
    assert b"ModuleNotFoundError" in asked.stderr


@pytest.mark.soak
def test_the_same_packages_are_installed_once(made: tuple[Path, ToolEnvironment]) -> None:
    home, environment = made
    assert make(home, "TinyThing == 1.0") == environment
    assert make(home, "tinything==1.0", "tinything==1.0") == environment
    assert environment.python.exists()
    assert len(left_in(home)) == 2


@pytest.mark.soak
def test_two_at_once_make_one(tmp_path: Path) -> None:
    async def both() -> list[ToolEnvironment]:
        return await asyncio.gather(
            *(environment_for(["tinything==2.0"], tmp_path, Tools()) for _ in range(3))
        )

    first, *others = asyncio.run(both())
    assert others == [first, first]
    assert len(left_in(tmp_path)) == 2


@pytest.mark.parametrize(
    "requirement",
    [
        "-e .",
        "--index-url http://127.0.0.1/",
        "-r file.txt",
        "tinything @ file:///etc/passwd",
        "tinything @ http://127.0.0.1/x.whl",
        "git+https://127.0.0.1/x",
        "./folder",
        "/etc",
        "tinything\n--pre",
        "tinything --pre",
        "",
    ],
)
def test_only_plain_requirements_are_taken(tmp_path: Path, requirement: str) -> None:
    failed = fails(tmp_path, requirement)
    assert failed.final
    assert repr(requirement) in str(failed)
    assert not (tmp_path / "tools").exists()


def test_requirements_have_one_spelling() -> None:
    assert read_requirements(["B_x >=1, <2", "a[z]"]) == ("a[z]", "b-x<2,>=1")


@pytest.mark.soak
def test_a_failed_install_tells_what_pip_said_and_leaves_nothing(tmp_path: Path) -> None:
    failed = fails(tmp_path, "nobody-has-this-package")
    assert "No matching distribution found for nobody-has-this-package" in str(failed)
    assert left_in(tmp_path) == set()


def test_installing_is_bounded_in_time(tmp_path: Path) -> None:
    failed = fails(tmp_path, "tinything==1.0", install_seconds=0.2)
    assert "longer than 0.2 s" in str(failed)
    assert left_in(tmp_path) == set()


def test_a_home_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "tools").write_text("in the way")
    failed = fails(tmp_path, "tinything==1.0")
    assert "rights of Ratchet's home" in (failed.hint or "")


@pytest.mark.soak
def test_a_killed_build_leaves_nothing_that_counts(tmp_path: Path) -> None:
    code = "import asyncio, sys, pathlib\nfrom ratchet.config.workflow_settings import Tools\n"
    code += "from ratchet.tools.environments import environment_for\n"
    code += "asyncio.run(environment_for(['tinything==1.0'], pathlib.Path(sys.argv[1]), Tools()))"
    builder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        root = tmp_path / "tools" / "environments"
        eventually(lambda: any((each / "bin").exists() for each in root.glob("*-*")))
    finally:
        builder.kill()
        builder.wait()
    assert not [each for each in root.iterdir() if each.is_symlink()]
    environment = make(tmp_path, "tinything==1.0")
    assert subprocess.check_output([environment.programs / "say-tinything"]) == b"tiny one\n"


@pytest.mark.soak
def test_what_nobody_uses_is_removed(tmp_path: Path, made: tuple[Path, ToolEnvironment]) -> None:
    home, environment = made
    copy = tmp_path / "environments"
    shutil.copytree(home / "tools" / "environments", copy, symlinks=True)
    (copy / "of-somebody-else").mkdir()
    long_ago = time.time() - 10 * DAY
    for each in copy.iterdir():
        os.utime(each, (long_ago, long_ago), follow_symlinks=False)
    sweep(copy, 11, 600)
    assert (copy / environment.directory.name).exists()
    sweep(copy, 9, 600)
    assert {each.name for each in copy.iterdir() if each.suffix != ".lock"} == {"of-somebody-else"}


@pytest.mark.soak
def test_using_an_environment_keeps_it(made: tuple[Path, ToolEnvironment]) -> None:
    home, environment = made
    long_ago = time.time() - 10 * DAY
    os.utime(environment.directory, (long_ago, long_ago))
    make(home, "tinything==1.0")
    sweep(home / "tools" / "environments", 9, 600)
    assert environment.python.exists()


def test_an_abandoned_build_is_removed_and_one_that_goes_on_is_not(tmp_path: Path) -> None:
    name = "a" * 32
    building = tmp_path / f"{name}-{'b' * 8}"
    building.mkdir()
    os.utime(building, (1, 1))
    with (tmp_path / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(tmp_path, 30, 600)
        assert building.exists()
    sweep(tmp_path, 30, 600)
    assert not building.exists()
