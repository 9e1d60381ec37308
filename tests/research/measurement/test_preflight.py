"""What is found wrong with a commit before it is measured."""

from __future__ import annotations

import importlib.util
import marshal
import py_compile
from pathlib import Path

import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import Refused, SizeCheck, TaskAdapter
from ratchet.workspaces.trees import LINK, TreeChange, TreeEntry, commit_content
from tests.research.measurement.conftest import SOLVE, Bench, MakeBench, ended


def link(bench: Bench, name: str, target: str) -> str:
    """A commit with a symbolic link in it."""
    with bench.repository.workspace(bench.base) as workspace:
        (workspace.path / name).unlink(missing_ok=True)
        (workspace.path / name).symlink_to(target)
        return workspace.commit("link").hash


def test_a_changed_recipe_is_fine(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.accept(bench.base)
    bench.accept(bench.change(recipe="x = '\\d' is 1\ndef solve(asked):\n    return 2.5\n"))


def test_changes_outside_of_the_recipe_are_named(make_bench: MakeBench) -> None:
    bench = make_bench(files={"run.sh": "true"}, stage_files={"run.sh": "run.sh"})
    commit = bench.change(recipe=SOLVE, evaluator__evaluate="x = 1", recipe_too="x = 1")
    assert ended(bench.refuse(commit)) == (
        TrialStatus.DISQUALIFIED,
        "only recipe.py may be changed, not evaluator/evaluate.py, recipe_too.py",
    )
    gone = bench.repository.commit_files({"run.sh": None}, parent=bench.base, message="remove")
    assert "not run.sh" in bench.refuse(gone).reason


def test_many_changes_outside_are_not_all_named(make_bench: MakeBench) -> None:
    bench = make_bench()
    commit = bench.change(**{f"other_{number}": "x = 1" for number in range(100)})
    assert bench.refuse(commit).reason.endswith("and 95 more")


def test_everything_in_a_directory_of_the_recipe_may_be_changed(make_bench: MakeBench) -> None:
    bench = make_bench(files={"lib/a.py": "x = 1", "lib/b.py": "x = 1"}, recipe_paths=("recipe.py", "lib"))
    bench.accept(bench.change(lib__a=None, lib__c="x = 2"))
    assert bench.refuse(bench.change(library="x = 1")).status is TrialStatus.DISQUALIFIED


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("def solve(asked)\n    return 1\n", "SyntaxError: expected ':' (recipe.py:1)"),
        ("x = 1\n\nreturn x\n", "SyntaxError: 'return' outside function (recipe.py:3)"),
        ("def f():\nx = 1\n", "(recipe.py:2)"),
        ("x = '\0'\n", "(recipe.py:1)"),
        ("x = " + "-" * 200_000 + "1\n", "(recipe.py:1)"),
        ("x = a" + ".b" * 200_000 + "\n", "(recipe.py:1)"),
    ],
)
def test_a_file_that_does_not_compile(make_bench: MakeBench, recipe: str, reason: str) -> None:
    bench = make_bench()
    refused = bench.refuse(bench.change(recipe=recipe))
    assert refused.status is TrialStatus.PREFLIGHT_CRASH
    assert reason in refused.reason


def test_a_syntax_error_that_came_with_the_base_is_found_as_well(make_bench: MakeBench) -> None:
    bench = make_bench(files={"lib/a.py": "x = 1"}, recipe_paths=("recipe.py", "lib"))
    broken = bench.change(lib__a="x = (")
    child = bench.repository.commit_files({"recipe.py": b"y = 2\n"}, parent=broken, message="child")
    assert "(lib/a.py:1)" in bench.refuse(child, broken).reason


def test_nothing_is_executed_or_written(make_bench: MakeBench, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    bench = make_bench()
    bench.accept(bench.change(recipe=f"open({str(mark)!r}, 'w')\n"))
    assert not mark.exists()
    assert not list(bench.repository.workspaces.glob("*"))


def test_a_recipe_that_is_gone(make_bench: MakeBench) -> None:
    bench = make_bench(files={"lib/a.py": "x = 1"}, recipe_paths=("recipe.py", "lib"))
    assert ended(bench.refuse(bench.change(recipe=None))) == (
        TrialStatus.PREFLIGHT_CRASH,
        "recipe.py of the recipe is gone",
    )


def test_links_are_disqualified(make_bench: MakeBench) -> None:
    bench = make_bench(files={"lib/a.py": "x = 1"}, recipe_paths=("recipe.py", "lib"))
    refused = bench.refuse(link(bench, "lib/b.py", "a.py"))
    assert ended(refused) == (TrialStatus.DISQUALIFIED, "lib/b.py is a link and no plain file")


def test_a_link_that_leads_out_is_disqualified_when_it_is_measured_all_the_same(
    make_bench: MakeBench,
) -> None:
    bench = make_bench("x = 1\n", "def score(asked):\n    return {'score': 1}", trial=None)
    with bench.repository._objects.batch("test") as batch:
        blob = batch.blob(b"/etc/passwd")
        tree = batch.tree({"recipe.py": TreeEntry(LINK, blob)})
        commit = batch.add(b"commit", commit_content(tree, [bench.base], "link", author=None, at=None))
    assert bench.repository.changes(bench.base, commit) == [
        TreeChange("recipe.py", bench.repository.list_files(bench.base)["recipe.py"], TreeEntry(LINK, blob))
    ]
    assert bench.fail(commit).status is TrialStatus.DISQUALIFIED


def test_the_size_of_the_recipe_is_bounded(make_bench: MakeBench) -> None:
    bench = make_bench("#\n", size_limit_bytes=10)
    bench.accept(bench.change(recipe="#23456789\n"))
    refused = bench.refuse(bench.change(recipe="#234567890\n"))
    assert ended(refused) == (TrialStatus.SIZE_BLOCKED, "recipe.py has 11 bytes; 10 are allowed")
    assert refused.facts == {"total_bytes": 11, "limit_bytes": 10}


def test_only_the_sized_paths_count(make_bench: MakeBench) -> None:
    files = {"lib/a.py": "#", "lib/b.py": "#"}
    bench = make_bench(
        files=files, recipe_paths=("recipe.py", "lib"), size_limit_bytes=10, size_paths=("lib",)
    )
    bench.accept(bench.change(recipe="#" * 100))
    assert bench.refuse(bench.change(lib__a="#" * 10)).status is TrialStatus.SIZE_BLOCKED


class Looking(TaskAdapter):
    def preflight(self, directory: Path) -> None:
        text = (directory / "recipe.py").read_text()
        if "eval" in text:
            raise Refused(TrialStatus.DISQUALIFIED, "eval is not allowed")
        if "keep" in text:
            raise Refused(TrialStatus.KEEP, "it is so good")
        if "break" in text:
            raise KeyError("broken")


@pytest.mark.parametrize(
    ("recipe", "status", "reason"),
    [
        ("eval('1')", TrialStatus.DISQUALIFIED, "eval is not allowed"),
        ("keep = 1", TrialStatus.INFRA_ERROR, "which is no reason"),
        ("# break", TrialStatus.INFRA_ERROR, "KeyError: 'broken'"),
    ],
)
def test_a_task_may_look_by_itself(
    make_bench: MakeBench, recipe: str, status: TrialStatus, reason: str
) -> None:
    bench = make_bench(kind=Looking)
    bench.accept(bench.base)
    refused = bench.refuse(bench.change(recipe=recipe))
    assert refused.status is status
    assert reason in refused.reason


def test_a_task_may_weigh_by_itself(make_bench: MakeBench) -> None:
    class Weighing(TaskAdapter):
        def size_check(self, directory: Path) -> SizeCheck:
            return SizeCheck(total_bytes=(directory / "recipe.py").read_text().count("x"), limit_bytes=3)

    bench = make_bench("#\n", kind=Weighing)
    bench.accept(bench.change(recipe="# xxx"))
    assert ended(bench.refuse(bench.change(recipe="# xxxx"))) == (
        TrialStatus.SIZE_BLOCKED,
        "it has 4 bytes; 3 are allowed",
    )


def test_a_commit_that_is_not_there_is_no_fault_of_the_recipe(make_bench: MakeBench) -> None:
    bench = make_bench()
    assert bench.refuse("f" * 40).status is TrialStatus.INFRA_ERROR


def replace_bytecode(source: Path, other: str) -> bytes:
    """Bytecode of another program in the place of a source's own, of the kind that Python never compares with it."""
    cached = Path(importlib.util.cache_from_source(str(source)))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(cached), invalidation_mode=mode)
    content = cached.read_bytes()[:16] + marshal.dumps(compile(other, str(source), "exec"))
    cached.write_bytes(content)
    return content


def test_an_improvement_cannot_hide_in_bytecode(make_bench: MakeBench) -> None:
    recipe = "from lib.a import x\n\n\ndef solve(asked):\n    return x\n"
    bench = make_bench(recipe, files={"lib/a.py": "x = 1.5"}, recipe_paths=("recipe.py", "lib"))
    with bench.repository.workspace(bench.base) as workspace:
        content = replace_bytecode(workspace.path / "lib/a.py", "x = 99.5")
        (workspace.path / "recipe.py").write_text(recipe + "# unchanged\n")
        commit = workspace.commit("hidden").hash
    assert set(bench.repository.list_files(commit)) == {"recipe.py", "lib/a.py"}
    bench.accept(commit)
    assert bench.measure(commit).score == 1.5
    # Nor in a commit that was made in another way.
    name = Path(importlib.util.cache_from_source("lib/a.py")).as_posix()
    forged = bench.repository.commit_files({name: content}, parent=bench.base, message="forged")
    assert ended(bench.refuse(forged)) == (
        TrialStatus.DISQUALIFIED,
        f"{name} is left behind by a tool and never part of a candidate",
    )


def test_a_binary_file_is_refused_unless_the_task_allows_it(make_bench: MakeBench) -> None:
    files = {"lib/a.py": "x = 1"}
    bench = make_bench(files=files, recipe_paths=("recipe.py", "lib"))
    commit = bench.repository.commit_files({"lib/w.bin": b"\0\1"}, parent=bench.base, message="binary")
    refused = bench.refuse(commit)
    assert refused.status is TrialStatus.DISQUALIFIED
    assert refused.reason.startswith("lib/w.bin is binary")
    allowing = make_bench(files=files, recipe_paths=("recipe.py", "lib"), binary_files=("lib/*.bin",))
    commit = allowing.repository.commit_files({"lib/w.bin": b"\0\1"}, parent=allowing.base, message="binary")
    allowing.accept(commit)


def test_bytecode_in_the_folder_of_a_task_is_not_in_its_baseline(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    root = tmp_path / "dirty"
    (root / "lib").mkdir(parents=True)
    (root / "lib/a.py").write_text("x = 1\n")
    (root / "lib/a.pyc").write_bytes(b"\0")
    (root / "lib/a.py~").write_bytes(b"x")
    bench = make_bench(root=root, recipe_paths=("recipe.py", "lib"))
    assert set(bench.repository.list_files(bench.base)) == {"recipe.py", "lib/a.py"}
