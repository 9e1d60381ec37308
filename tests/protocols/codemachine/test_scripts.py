"""What a script is understood to say, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.protocols.codemachine import WorkspaceInvalid
from ratchet.protocols.codemachine.script import read_script
from ratchet.protocols.codemachine.syntax import plain

FILE = "config/main.agents.js"
LOCATION = f"/workspace/{FILE}"


def read(source: str) -> Any:
    return plain(read_script(source.encode(), FILE, LOCATION).exported)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("export default [1, 'two', null, true];", [1, "two", None, True]),
        ("module.exports = { a: 1, 'b-c': 2, \"d\": 3, 4: 5, };", {"a": 1, "b-c": 2, "d": 3, "4": 5}),
        ("exports.x = 1; exports.y = 'z';", {"x": 1, "y": "z"}),
        ("module.exports.x = [undefined];", {"x": [None]}),
        ("export const x = 1, y = [x];", {"x": 1, "y": [1]}),
        ("const list = [1]; export { list as default };", [1]),
        ("#!/usr/bin/env node\n'use strict';\n// one\nexport default /* two */ 1; // three", 1),
        ("export default `a\nb \\` ${'c'}${1}`;", "a\nb ` c1"),
        ("export default 'a' + \"b\" + 1 + `c`;", "ab1c"),
        ("export default ('a');", "a"),
        ("export default -1.5e3;", -1500.0),
        ("export default [0x1F, 0b11, 0o17, 1_000, .5];", [31, 3, 15, 1000, 0.5]),
        (
            r"export default '\x41\u0042\u{43}\n\'\
d';",
            "ABC\n'd",
        ),
        (r"export default '\ud83d\ude00';", "\U0001f600"),
        ("const a = { x: [1, { y: 2 }] }; export default [a.x[1].y, a['x'][0]];", [2, 1]),
        ("const a = [1], b = { k: 1, l: 2 }; export default [...a, { ...b, k: 3 }];", [1, {"k": 3, "l": 2}]),
        ("const k = 'key', v = 1; export default { [k]: v, v };", {"key": 1, "v": 1}),
        ("export default Object.freeze([1]);", [1]),
        ("function unused() { return 1; }\nexport default 1;", 1),
        ("const fs = require('fs'); const unused = fs.readdirSync('.'); export default 1;", 1),
        ("\ufeffexport default 1;", 1),
    ],
)
def test_literals_and_constants_are_read(source: str, value: Any) -> None:
    assert read(source) == value


@pytest.mark.parametrize(
    ("source", "path"),
    [
        (
            "const path = require('path'); export default path.join(__dirname, '..', 'prompts');",
            "/workspace/prompts",
        ),
        ("import path from 'node:path'; export default path.join('a', '..', './b/', 'c.md');", "b/c.md"),
        (
            "import * as p from 'path'; export default p.resolve('prompts', 'x.md');",
            "/workspace/prompts/x.md",
        ),
        ("import { join as j } from 'path'; export default j('a', '/b');", "a/b"),
        ("const { join, dirname: up } = require('path'); export default up(join('a', 'b'));", "a"),
        ("const { posix } = require('path'); export default posix.normalize('a//b/../c');", "a/c"),
        (
            "import path from 'path'; export default path.basename('/a/b.md', '.md') + path.extname('b.md');",
            "b.md",
        ),
        ("const path = require('path'); export default path.relative('a/b', 'a/c') + path.sep;", "../c/"),
        (
            "import { fileURLToPath } from 'url'; import path from 'path';\n"
            "const here = path.dirname(fileURLToPath(import.meta.url)); export default path.join(here, 'x');",
            "/workspace/config/x",
        ),
        ("import path from 'path'; export default path.join(import.meta.dirname, '..');", "/workspace"),
        ("export default __filename;", LOCATION),
        ("const path = require('path'); export default path.join(process.cwd(), 'x');", "/workspace/x"),
    ],
)
def test_functions_of_path_are_reckoned_with_the_names_of_the_workspace(source: str, path: str) -> None:
    assert read(source) == path


@pytest.mark.parametrize(
    ("source", "line", "told"),
    [
        ("export default\n[process.env.HOME];", 2, "process.env"),
        ("\nexport default unknown;", 2, "'unknown' is not a constant"),
        ("const x = later();\n\nexport default [x];", 1, "'later' is not a constant"),
        (
            "const fs = require('fs');\nexport default fs.readFileSync('x');",
            2,
            "comes from 'fs', which is not read",
        ),
        ("import x from './x.js';\nexport default x;", 2, "is not understood"),
        ("export default a ? 1 : 2;", 1, "the ternary expression `a ? 1 : 2` is not understood"),
        ("export default () => 1;", 1, "arrow function"),
        ("export default { run() {} };", 1, "method definition"),
        ("export default new Map();", 1, "new expression"),
        ("export default 'a' - 'b';", 1, "binary expression"),
        ("export default 1 + 2;", 1, "binary expression"),
        ("export default [1,, 2];", 1, "holes"),
        ("export default 1e999;", 1, "too large a number"),
        ("export default 10n;", 1, "not understood"),
        ("export default `${[1]}`;", 1, "not understood"),
        ("const list = [];\nlist.push(1);\nexport default list;", 2, "call expression"),
        ("if (true) { module.exports = 1; }", 1, "if statement"),
        ("for (;;) {}", 1, "for statement"),
        ("let x;\nexport default x;", 1, "not understood"),
        ("const x = 1;\nconst x = 2;\nexport default x;", 2, "declared twice"),
        ("export default 1;\nexport default 2;", 2, "exported twice"),
        ("export * from './other.js';", 1, "export statement"),
        ("import './side-effect.js';\nexport default 1;", 1, "import statement"),
        ("export default x?.y;", 1, "not"),
        (r"export default '\ud83d';", 1, "surrogate"),
        (r"export default '\u{110000}';", 1, "no character"),
        ("export default [1\n", 1, "not valid JavaScript"),
        ("export default require;", 1, "not understood"),
        ("const f = 1;\nexport default [f()];", 2, "not understood"),
        ("const path = require('path');\nexport default path.join(1.5);", 2, "not understood"),
        ("const path = require('path');\nexport default path.dirname();", 2, "not understood"),
    ],
)
def test_what_would_have_to_be_run_is_refused_with_its_line(source: str, line: int, told: str) -> None:
    with pytest.raises(WorkspaceInvalid) as caught:
        read(source)
    assert (caught.value.file, caught.value.line) == (FILE, line)
    assert told in str(caught.value)
    assert caught.value.http_status == 400


@pytest.mark.parametrize("source", ["", "// nothing", "const x = 1;"])
def test_a_script_must_export_something(source: str) -> None:
    with pytest.raises(WorkspaceInvalid, match="exports nothing"):
        read(source)


def test_a_file_that_is_not_text_or_too_long_is_refused() -> None:
    with pytest.raises(WorkspaceInvalid, match="not UTF-8"):
        read_script(b"export default '\xff';", FILE, LOCATION)
    with pytest.raises(WorkspaceInvalid, match="bytes"):
        read_script(b" " * 100_000, FILE, LOCATION)


def test_values_that_double_again_and_again_are_refused() -> None:
    doubled = ["const v0 = [1, 1];", *(f"const v{n} = [v{n - 1}, v{n - 1}];" for n in range(1, 60))]
    with pytest.raises(WorkspaceInvalid, match="values"):
        read("\n".join([*doubled, "export default v59;"]))


def test_texts_that_double_again_and_again_are_refused() -> None:
    doubled = ["const t0 = 'xx';", *(f"const t{n} = t{n - 1} + t{n - 1};" for n in range(1, 60))]
    with pytest.raises(WorkspaceInvalid, match="characters"):
        read("\n".join([*doubled, "export default t59;"]))


def test_many_long_texts_are_refused_together() -> None:
    long = "const a = '" + "x" * 30_000 + "';\n"
    many = "".join(f"const b{n} = a + {n};\n" for n in range(100))
    with pytest.raises(WorkspaceInvalid, match="more than can be read"):
        read(long + many + "export default b99;")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(WorkspaceInvalid, match="levels deep"):
        read("export default " + "[" * 5000 + "]" * 5000)


def test_a_long_chain_of_texts_is_no_deep_nesting() -> None:
    assert read("export default " + " + ".join(["'a'"] * 3000)) == "a" * 3000


def test_functions_of_workflows_are_not_values_of_other_files() -> None:
    with pytest.raises(WorkspaceInvalid, match="has no meaning here"):
        read("export default [resolveStep('x')];")
