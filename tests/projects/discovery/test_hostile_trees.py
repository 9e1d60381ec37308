"""A working tree that was made to do harm is looked at all the same, within bounds and within itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.projects.discovery import discover_files


def write(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pyproject.toml", b"[tool\n"),
        ("pyproject.toml", b"\xff\xfe\x00"),
        ("pyproject.toml", b"a = " + b"[" * 50_000),
        ("pyproject.toml", b".".join([b"a"] * 50_000) + b" = 1\n"),
        ("setup.cfg", b"no section\n"),
        ("package.json", b"{'scripts': 1}"),
        ("package.json", b"[" * 100_000),
        ("package.json", b'{"a": ' + b"9" * 100_000 + b"}"),
        (".github/workflows/ci.yml", b"on: [push\n"),
        (".github/workflows/ci.yml", b"[" * 50_000),
        (".github/workflows/ci.yml", b"a: &a [*a]\n"),
        (".gitlab-ci.yml", b"{" * 50_000),
        ("pom.xml", b"x" * 1_000_000),
        ("Makefile", b"test:" * 300_000),
        ("requirements.txt", b"x" * 3_000_000),
    ],
)
def test_a_file_that_cannot_be_read_harms_nothing_else(tmp_path: Path, name: str, content: bytes) -> None:
    write(tmp_path, name, content)
    write(tmp_path, "go.mod", b"module a\n")
    facts = discover_files(tmp_path)
    assert "go-test" in [check.name for check in facts.checks]
    if name != "pom.xml":
        assert any(name in note for note in facts.notes)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pyproject.toml", b'tool = 5\nproject = ["x"]\ndependency-groups = "x"\n'),
        ("pyproject.toml", b"[tool]\nruff = 1\npoetry = []\n[project]\ndependencies = {a = 1}\n"),
        ("pyproject.toml", b"[tool.poetry]\ngroup = {a = 1}\n[project.optional-dependencies]\ntest = 'x'\n"),
        ("Pipfile", b"packages = 1\n"),
        (
            "package.json",
            b'{"scripts": {"test": 5, "lint": null}, "packageManager": 7, "devDependencies": []}',
        ),
        (".github/workflows/ci.yml", b"on: {push: 5}\njobs: [1, 2]\n"),
        (".github/workflows/ci.yml", b"on: push\njobs: {a: 1, b: {strategy: x, name: [y]}}\n"),
        (".github/workflows/ci.yml", b"on: push\njobs: {a: {strategy: {matrix: {x: [[1], {}]}}}}\n"),
        (".gitlab-ci.yml", b"- a\n- b\n"),
        (".pre-commit-config.yaml", b"\n" * 200_000),
        (".github/workflows/ci.yml", b"on: push\njobs: {a: {name: '" + b"${{" * 40_000 + b"'}}\n"),
        (".git/config", b'[remote "origin"]\nurl\n'),
    ],
)
def test_values_of_another_kind_than_expected_are_left_out(tmp_path: Path, name: str, content: bytes) -> None:
    write(tmp_path, name, content)
    facts = discover_files(tmp_path)
    assert [check for check in facts.checks if check.kind in ("test", "types")] == []


def test_links_that_lead_outside_are_not_followed(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    write(outside, "go.mod", b"module a\n")
    write(outside, "workflows/ci.yml", b"on: push\njobs: {secret-name: {runs-on: x}}\n")
    write(outside, "Cargo.toml", b"[package]\n")
    tree.mkdir()
    (tree / "go.mod").symlink_to(outside / "go.mod")
    (tree / ".github").symlink_to(outside)
    (tree / "inner").symlink_to(outside)
    assert discover_files(tree).stack == ()
    assert discover_files(tree).required_checks == ()


def test_what_is_no_plain_file_does_not_keep_it_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "package.json")
    (tmp_path / "go.mod").mkdir()
    (tmp_path / "Makefile").symlink_to("/dev/zero")
    assert discover_files(tmp_path).checks == ()


def test_a_name_that_could_fool_a_terminal_or_a_script_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path, "a\nb/package.json", b'{"scripts": {"test": "x"}}')
    write(tmp_path, ".github/workflows/ci.yml", b'on: push\njobs:\n  a:\n    name: "x\\nforged"\n')
    facts = discover_files(tmp_path)
    assert facts.checks == ()
    assert facts.required_checks == ()


def test_a_tree_of_many_files_is_looked_at_within_bounds(tmp_path: Path) -> None:
    for folder in ("d00", "d01", "d02"):
        (tmp_path / folder).mkdir()
        for number in range(1700):
            os.close(os.open(tmp_path / folder / str(number), os.O_CREAT))
    write(tmp_path, "setup.py", b"")
    write(tmp_path, "d03/tests/test_last.py", b"import pytest_is_not_reached\n")
    write(tmp_path, "d00/test_first.py", b"import unittest\n")
    write(tmp_path, ".github/workflows/ci.yml", b"on: push\njobs: {test: {runs-on: x}}\n")
    facts = discover_files(tmp_path, origin="https://github.com/o/n")
    assert [check.name for check in facts.checks] == ["unittest"]
    assert facts.required_checks == ("test",)


def test_a_directory_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert discover_files(tmp_path / "gone").stack == ()
