"""What is hidden of that which every run sees, what is shown by another path than its own, and where it runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel import Misuse
from ratchet.sandbox import Bounds, CannotStart, Node, Policy, run
from ratchet.sandbox.policy import is_shown

LOOK = """
import json, os, sys
def look(asked):
    found = [open(path).read() if os.path.exists(path) else None for path in asked]
    return [found, sorted(os.sched_getaffinity(0))]
"""
CALL = LOOK + "print(json.dumps(look(json.load(sys.stdin))))"


def look(way: str, paths: list[Path], policy: Policy, bounds: Bounds | None = None) -> list[Any]:
    given = json.dumps([str(path) for path in paths]).encode()
    if way == "node":
        done = asyncio.run(run(Node(LOOK, "look"), stdin=given, policy=policy, bounds=bounds))
    else:
        argv = [sys.executable, "-I", "-S", "-c", CALL]
        done = asyncio.run(run(argv, cwd=Path("/tmp"), stdin=given, policy=policy, bounds=bounds))
    assert done.ok, done
    value: list[Any] = done.value
    return value


@pytest.fixture
def packages() -> Iterator[Path]:
    """A directory among the packages of Python."""
    if not os.access(sysconfig.get_paths()["purelib"], os.W_OK):
        pytest.skip("this user cannot write among the packages of Python")
    with tempfile.TemporaryDirectory(prefix="ratchet-test-", dir=sysconfig.get_paths()["purelib"]) as place:
        (Path(place) / "kept").mkdir()
        (Path(place) / "kept" / "secret").write_text("a secret")
        (Path(place) / "plain").write_text("plain")
        yield Path(place)


@pytest.mark.parametrize("readable", [False, True])
def test_a_directory_among_the_packages_can_be_hidden(
    way: str, packages: Path, tmp_path: Path, readable: bool
) -> None:
    (tmp_path / "more").write_text("more")
    shown = (tmp_path,) if readable else ()
    paths = [packages / "kept" / "secret", packages / "plain", tmp_path / "more"]
    more = "more" if readable else None
    assert look(way, paths, Policy(readable=shown))[0] == ["a secret", "plain", more]
    hidden = Policy(readable=shown, hidden=(packages / "kept",))
    assert look(way, paths, hidden)[0] == [None, "plain", more]
    assert is_shown(packages / "kept")


def test_it_is_hidden_by_every_name_that_it_has(way: str, packages: Path, tmp_path: Path) -> None:
    by_link = tmp_path / "link"
    by_link.symlink_to(packages)
    policy = Policy(hidden=(by_link / "kept",))
    assert look(way, [packages / "kept" / "secret"], policy)[0] == [None]


def test_what_nobody_is_shown_cannot_be_hidden(way: str, tmp_path: Path) -> None:
    assert not is_shown(tmp_path)
    with pytest.raises(Misuse, match="no directory that the policy shows"):
        look(way, [], Policy(hidden=(tmp_path / "kept",)))


def test_a_directory_is_shown_by_another_path_than_its_own(way: str, tmp_path: Path) -> None:
    (tmp_path / "number").write_text("7")
    policy = Policy(places={Path("/given/data"): tmp_path})
    found, _ = look(way, [Path("/given/data/number"), tmp_path / "number"], policy)
    assert found == ["7", None]


def test_what_is_placed_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("7")
    policy = Policy(places={Path("/given"): tmp_path})
    done = asyncio.run(run(["sh", "-c", "echo 8 > /given/number"], cwd=Path("/tmp"), policy=policy))
    assert done.exit_code != 0
    assert (tmp_path / "number").read_text() == "7"


def test_what_is_placed_and_writable_can_be_written_but_not_what_is_placed_inside_of_it(
    tmp_path: Path,
) -> None:
    work, packages = tmp_path / "work", tmp_path / "packages"
    work.mkdir()
    packages.mkdir()
    policy = Policy(writable=(work,), places={Path("/given"): work, Path("/given/packages"): packages})
    code = "echo 8 > /given/number; echo 9 > /given/packages/number"
    done = asyncio.run(run(["sh", "-c", code], cwd=Path("/tmp"), policy=policy))
    assert done.exit_code != 0
    assert (work / "number").read_text() == "8\n"
    assert [*packages.iterdir()] == []


def test_a_place_that_is_absent_is_misuse(way: str, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="does not exist"):
        look(way, [], Policy(places={Path("/given"): tmp_path / "absent"}))


def test_a_run_stays_on_its_cpus(way: str) -> None:
    first = min(os.sched_getaffinity(0))
    assert look(way, [], Policy(), Bounds(cpus=(first,)))[1] == [first]
    assert look(way, [], Policy())[1] == sorted(os.sched_getaffinity(0))


def test_cpus_that_are_not_there_are_refused() -> None:
    with pytest.raises(CannotStart):
        asyncio.run(run(["true"], cwd=Path("/tmp"), bounds=Bounds(cpus=(8000,))))


def test_a_text_can_be_given_the_name_of_its_file() -> None:
    done = asyncio.run(run(Node("def run(_):\n    return 1 / 0", file="recipe.py")))
    assert b'File "recipe.py", line 2, in run\n    return 1 / 0\n' in done.stderr
