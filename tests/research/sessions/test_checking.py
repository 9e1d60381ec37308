"""Looking at a recipe without running it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.engines.tool_server import Calls
from ratchet.kernel import Misuse
from tests.research.sessions.lab import Lab, tools, use


def test_a_recipe_that_compiles_is_said_to(lab: Lab) -> None:
    assert use(lab.context(), "syntax_check") == {"ok": True, "files_checked": 2, "errors": []}


def test_each_file_that_does_not_compile_is_named_with_the_place(lab: Lab) -> None:
    context = lab.context()
    (context.workspace.path / "recipe.py").write_text("x = 1\ny = (2\n")
    (context.workspace.path / "lib/more.py").write_text("return 3\n")
    (context.workspace.path / "lib/fine.py").write_text("z = 3\n")
    found = use(context, "syntax_check")
    assert (found["ok"], found["files_checked"]) == (False, 3)
    places = {each["file"]: (each["line"], each["error"]) for each in found["errors"]}
    assert places == {
        "recipe.py": (2, "SyntaxError: '(' was never closed"),
        "lib/more.py": (1, "SyntaxError: 'return' outside function"),
    }


@pytest.mark.parametrize(
    "source",
    [
        b"x = '\xff'\n",
        b"x = 1\x00\n",
        b"(" * 100_000,
        b"-" * 500_000 + b"1\n",
        b"x=" + b"[" * 5000,
        b"\xff\xfe",
    ],
)
def test_a_source_that_breaks_its_reader_is_only_an_error(lab: Lab, source: bytes) -> None:
    context = lab.context()
    (context.workspace.path / "recipe.py").write_bytes(source)
    answer = asyncio.run(Calls(list(tools(context).values())).use("syntax_check", {}))
    assert answer.failed or not json.loads(answer.text)["ok"]


def test_another_encoding_that_says_so_is_fine(lab: Lab) -> None:
    context = lab.context()
    (context.workspace.path / "recipe.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe4'\n")
    assert use(context, "syntax_check")["ok"]


def test_links_out_of_the_workspace_are_not_read(lab: Lab, tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("the password is swordfish\n")
    context = lab.context()
    recipe, library = context.workspace.path / "recipe.py", context.workspace.path / "lib"
    recipe.unlink()
    recipe.symlink_to(secret)
    (library / "more.py").unlink()
    library.rmdir()
    library.symlink_to(tmp_path)
    assert use(context, "syntax_check") == {
        "ok": False,
        "files_checked": 0,
        "errors": [],
        "strays": ["lib is a link and no plain file", "recipe.py is a link and no plain file"],
    }


def test_files_outside_the_recipe_are_not_looked_at(lab: Lab) -> None:
    context = lab.context()
    (context.workspace.path / "stray.py").write_text("not python at all")
    assert use(context, "syntax_check")["files_checked"] == 2


def test_the_size_is_told_where_it_is_limited(lab: Lab) -> None:
    context = lab.context(task=replace(lab.task, size_limit_bytes=20, size_paths=("recipe.py",)))
    size = use(context, "syntax_check")["size"]
    assert (size["verdict"], size["limit_bytes"]) == ("block", 20)


def test_a_flood_of_files_is_refused(lab: Lab) -> None:
    context = lab.context()
    for number in range(2001):
        (context.workspace.path / f"lib/{number}.py").touch()
    with pytest.raises(Misuse, match=r"more than 2000 \.py files"):
        use(context, "syntax_check")


def test_parameters_are_counted_where_sizes_are_written_down(lab: Lab) -> None:
    context = lab.context()
    (context.workspace.path / "recipe.py").write_text(
        "WIDTH = 8\nDEPTH = 2 * WIDTH\n"
        "a = nn.Linear(WIDTH, 4)\n"
        "b = Linear(in_features=10, out_features=3, bias=False)\n"
        "c = nn.Embedding(100, DEPTH)\n"
        "d = nn.Conv2d(3, 16, 3, bias=False)\n"
        "e = nn.Conv1d(4, 8, kernel_size=(5,), groups=2)\n"
        "f = nn.Linear(width_of(x), 4)\n"
    )
    (context.workspace.path / "lib/more.py").write_text("g = nn.Linear(2, 2)\n")
    found = use(context, "param_count")
    assert found["by_kind"] == {
        "Linear": 8 * 4 + 4 + 30 + 6,
        "Embedding": 1600,
        "Conv2d": 3 * 16 * 9,
        "Conv1d": 2 * 8 * 5 + 8,
    }
    assert found["total"] == sum(found["by_kind"].values())
    assert found["by_file"]["lib/more.py"] == 6
    assert [(each["file"], each["line"]) for each in found["sizes_not_written_down"]] == [("recipe.py", 8)]


def test_data_that_is_written_into_a_program_is_counted(lab: Lab) -> None:
    context = lab.context()
    rows = [[float(n) for n in range(100)] for _ in range(20)]
    text = f"WEIGHTS = {rows!r}\nSHORT = [1, 2, 3]\nBLOB = {'x' * 5000!r}\n"
    (context.workspace.path / "recipe.py").write_text(text)
    found = use(context, "param_count")
    assert (found["numbers_in_long_lists"], found["characters_in_long_texts"]) == (2000, 5000)


def test_a_size_that_no_layer_has_is_not_worked_out(lab: Lab) -> None:
    context = lab.context()
    (context.workspace.path / "recipe.py").write_text(
        "a = nn.Linear(10**9 * 10, 9999999999999999 * 99999999999)\n"
    )
    assert use(context, "param_count")["total"] == 0


def test_parameters_of_what_does_not_compile_are_not_counted(lab: Lab) -> None:
    context = lab.context()
    (context.workspace.path / "recipe.py").write_text("a = nn.Linear(\n")
    with pytest.raises(Misuse, match="cannot be read as Python"):
        use(context, "param_count")
