"""Whatever makes no sense is refused with words that lead to it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.research.sessions.tools import tool_names
from ratchet.research.tasks import OWN_TOOLS, read_task
from tests.research.tasks.folders import RECIPE, TOML, Folder


def refused(folder: Folder, pattern: str, variant: str | None = None) -> Misuse:
    with pytest.raises(Misuse, match=pattern) as caught:
        folder.read(variant)
    return caught.value


@pytest.mark.parametrize(
    ("wrong", "line", "nearest"),
    [
        ("[score]\ndirecton = 'min'", 13, "score.direction"),
        ("[tril]\nfunction = 'f'", 12, "trial"),
        ("[keep]\nheldout = true", 13, "keep.held_out"),
        ("[[specialist]]\nname = 'a'\n[[specialist]]\nname = 'b'\npreambel = 'x'", 16, "specialist.preamble"),
        ("[variants.x.score]\nlabl = 'x'", 13, "variants.x.score.label"),
        ("[variants.x]\nagent = 3", 13, "variants.x.agents"),
    ],
)
def test_an_unknown_key_names_its_line_and_the_nearest(
    folder: Folder, wrong: str, line: int, nearest: str
) -> None:
    folder.add(wrong)
    error = refused(folder, rf"task\.toml:{line}\) is unknown; the nearest is {re.escape(nearest)}$")
    assert error.hint == "rename or remove it"


def test_a_key_outside_of_its_table_is_led_into_it(folder: Folder) -> None:
    folder.toml("direction = 'min'\n" + TOML)
    refused(folder, r"direction \(.*task\.toml:1\) is unknown; the nearest is score\.direction$")


def test_several_unknown_keys_are_told_at_once(folder: Folder) -> None:
    folder.add("[score]\na = 1\nb = 2")
    assert str(refused(folder, r"score\.a .*\n.*score\.b ")).startswith("2 keys are unknown:")


def test_lines_inside_a_long_text_are_not_taken_for_keys(folder: Folder) -> None:
    folder.add('[prompt]\nrules = """\n[score]\ndirecton = 1\n"""\n[score]\ndirecton = 1')
    refused(folder, r"score\.directon \(.*task\.toml:18\)")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("[score]\ndirection = 'up'", r"score\.direction \(.*:13\) is 'up'; it must be 'max' or 'min'"),
        ("[score]\ndirection = 1", r"score\.direction .* is 1; it must be 'max' or 'min'"),
        ("[score]\nfield = 'two words'", r"score\.field \(.*\) is 'two words'; it must match"),
        ("[keep]\nalpha = nan", r"keep\.alpha \(.*:13\) is nan; it must be a finite number"),
        ("[keep]\nmin_effect = inf", r"keep\.min_effect .* finite"),
        ("[keep]\nmin_effect = -1.0", r"keep\.min_effect .* greater than or equal to 0"),
        ("[keep]\nalpha = 0.5", r"keep\.alpha .* less than 0\.5"),
        ("[keep]\nleast = 0", r"keep\.least .* greater than or equal to 1"),
        ("[keep]\nmost = true", r"keep\.most .* a number, not true or false"),
        ("[keep]\nseed = -1", r"keep\.seed .* greater than or equal to 0"),
        ("[keep]\npolicy = 'lax'", r"keep\.policy .* 'confident' or 'strict'"),
        ("[keep]\ndeterministic = 'yes'", r"keep\.deterministic .* a valid boolean"),
        ("[stops]\ntrials = -3", r"stops\.trials .* greater than or equal to 1"),
        ("[stops]\nhours = 0", r"stops\.hours .* greater than 0"),
        ("[stops]\nhours = nan", r"stops\.hours .* finite"),
        ("[sessions]\nseconds = -1.0", r"sessions\.seconds .* greater than 0"),
        ("[sessions]\ntrials = 1.5", r"sessions\.trials .* a valid integer"),
        ("[size]\nlimit_bytes = 0", r"size\.limit_bytes .* greater than or equal to 1"),
        ("[size]\nlimit_bytes = 99999999999999999999", r"size\.limit_bytes"),
        ("[baseline]\nscore = nan", r"baseline\.score .* finite"),
        ("[slots]\nkind = 'tpu'", r"slots\.kind .* 'cpu' or 'gpu'"),
        ("[slots]\ncount = 0", r"slots\.count .* greater than or equal to 1"),
        ("[slots]\ncount = 1025", r"slots\.count .* less than or equal to 1024"),
        ("[slots]\nnames = ['a b']", r"slots\.names\.0 .*'a b'"),
        ("[prompt]\nrules = 3", r"prompt\.rules .* a valid string"),
        (
            "[[specialist]]\nname = 'Big Name'",
            r"specialist\.0\.name \(.*:13\) is 'Big Name'; it must be a name",
        ),
        ("[[specialist]]\nname = '../x'", r"specialist\.0\.name .* must be a name"),
        ("[variants.'A B']", r"A B.* must be a name"),
        ("[variants.x]\nagents = 0", r"variants\.x\.agents \(.*:13\) is 0; it must be greater than"),
        ("[variants.x]\nagents = 100000", r"variants\.x\.agents .* less than or equal to"),
        ("[[tool]]\nname = 'a-b'\ndescription = 'x'", r"tool\.0\.name"),
        ("[tool]\nname = 'a'", r"tool \(.*:12\)"),
        ("[[score]]\nlabel = 'x'", r"score \(.*\) is .*; it must be a table"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_place(folder: Folder, wrong: str, told: str) -> None:
    folder.add(wrong)
    refused(folder, told)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "small"', 'name = "No Name"', r"task\.name \(.*:2\) is 'No Name'; it must be a name"),
        ('name = "small"', 'name = ""', r"task\.name .* must be a name"),
        ('name = "small"', "", "the task is called '', which is no name"),
        ('recipe = ["recipe.py"]', "", "there is no recipe"),
        ('recipe = ["recipe.py"]', "recipe = []", "there is no recipe"),
        ('recipe = ["recipe.py"]', 'recipe = "recipe.py"', r"task\.recipe .* a valid list"),
        ('"recipe.py"]', '"recipe.py", "recipe.py"]', r"the recipe \(recipe\.py\) and the recipe"),
        ('"recipe.py"]', '"evaluator"]', r"the recipe \(evaluator\) and the evaluator \(evaluator\) overlap"),
        ('"recipe.py"]', '"evaluator/score.py"]', r"the recipe .* and the evaluator .* overlap"),
        ('"recipe.py"]', '"task.toml"]', "a file of Ratchet's own"),
        ('"recipe.py"]', '"absent.py"]', r"the recipe is 'absent\.py', but .*absent\.py cannot be found"),
        (
            '"recipe.py"]',
            '"../recipe.py"]',
            r"task\.recipe\.0 \(.*\) is '\.\./recipe\.py'; it must be a path below",
        ),
        ('"recipe.py"]', '"a/../recipe.py"]', "must be a path below"),
        ('"recipe.py"]', '"/etc/passwd"]', "must be a path below"),
        ('"recipe.py"]', '"./recipe.py"]', "must be a path below"),
        ('"recipe.py"]', '""]', "must be a path below"),
        ('"recipe.py"]', '"a\\u0000b"]', "must be a path below"),
        ('"recipe.py"]', '".git/config"]', "must be a path below"),
        (
            '"recipe.py"]',
            '"recipe.py"]\ninputs = "recipe.py"',
            "inputs is 'recipe.py', which is not a directory",
        ),
        ('"recipe.py"]', '"recipe.py"]\ninputs = "evaluator"', r"the evaluator .* and inputs .* overlap"),
        ('"recipe.py"]', '"recipe.py"]\ninputs = "absent"', "inputs is 'absent', but"),
        ('"recipe.py"]', '"recipe.py"]\nheld_out_inputs = "data"', "there are no inputs"),
        (
            '"recipe.py"]',
            '"recipe.py"]\ninputs = "data"\nheld_out_inputs = "data/sub"',
            r"held_out_inputs .* and inputs .* overlap",
        ),
        ('"recipe.py"]', '"recipe.py", "data"]\ninputs = "data/sub"', r"the recipe \(data\) and inputs"),
        ('"recipe.py"]', '"recipe.py"]\nstage_files = {"data/x" = "recipe.py"}', "place of a stage file"),
        ('"recipe.py"]', '"recipe.py"]\nstage_files = {"recipe.py" = "b"}', "a stage file"),
        ('"recipe.py"]', '"recipe.py"]\nstage_files = {"evaluator/score.py" = "b"}', "a stage file"),
        ('"recipe.py"]', '"recipe.py"]\nstage_files = {"absent" = "b"}', "a stage file is 'absent', but"),
        ('"recipe.py"]', '"recipe.py"]\nstage_files = {"data/x" = "../b"}', "must be a path below"),
        ('"recipe.py"]', '"recipe.py"]\nstage_files = {"data/x" = "b", "data/y" = "b/c"}', "overlap"),
        ('"recipe.py"]', '"recipe.py"]\noutput_dirs = ["recipe.py"]', "an output directory"),
        ('"recipe.py"]', '"recipe.py"]\nenvironment = {"A B" = "1"}', r"task\.environment"),
        ('"recipe.py"]', '"recipe.py"]\nenvironment = {A = 1}', r"task\.environment\.A .* a valid string"),
        ('"recipe.py"]', '"recipe.py"]\nenvironment = {RATCHET_SEED = "1"}', "RATCHET_SEED"),
        ('"recipe.py"]', '"recipe.py"]\njob_prefix = "toolong"', r"task\.job_prefix"),
        ('function = "answer"\n', "", "the trial has neither a function nor a command"),
        ('function = "answer"\n', 'function = "answer"\ncommand = ["x"]\n', "both a function and a command"),
        ('function = "answer"\n', 'command = ["x"]\n', "the trial is a command, so file and modules"),
        ('function = "answer"\n', 'function = "a b"\n', r"trial\.function"),
        ('function = "answer"\n', 'function = "other"\n', r"recipe\.py defines no 'other'"),
        ('file = "recipe.py"', "", "the function 'answer', but no file"),
        ('file = "recipe.py"', 'file = "evaluator/score.py"', "neither part of the recipe nor a stage file"),
        ('file = "recipe.py"', 'file = "recipe.py"\nseconds = -1', r"trial\.seconds .* greater than 0"),
        ('file = "recipe.py"', 'file = "recipe.py"\nseconds = nan', r"trial\.seconds .* finite"),
        ('file = "recipe.py"', 'file = "recipe.py"\nmemory_mb = 0', r"trial\.memory_mb"),
        (
            'file = "recipe.py"',
            'file = "recipe.py"\nprocesses_per_measurement = 0',
            "processes_per_measurement",
        ),
        ('file = "recipe.py"', 'file = "recipe.py"\nmodules = ["a-b"]', r"trial\.modules\.0"),
        ('function = "answer"\nfile = "recipe.py"', "command = []", "neither a function nor a command"),
        ('function = "answer"\nfile = "recipe.py"', 'command = [""]', r"trial\.command\.0"),
        ('function = "answer"\nfile = "recipe.py"', 'command = "bash x"', r"trial\.command .* a valid list"),
        ('function = "score"\nfile = "score.py"', "", "there is no evaluator, so nothing could be kept"),
        ('[evaluator]\nfunction = "score"\nfile = "score.py"', "", "there is no evaluator"),
        ('file = "score.py"', 'file = "evaluator/score.py"', "the evaluator's file is"),
        ('file = "score.py"', 'file = "absent.py"', "the evaluator's file is"),
        ('file = "score.py"', 'file = "score.py"\nprepare = "question"', "defines no 'question'"),
        (
            'file = "score.py"',
            'file = "score.py"\ndirectory = "absent"',
            "the evaluator's directory is 'absent'",
        ),
        ('file = "score.py"', 'file = "score.py"\ndirectory = "recipe.py"', "which is not a directory"),
        (
            'function = "score"\nfile = "score.py"',
            'command = ["./score"]\nprepare = "ask"',
            "the evaluator is a command, so 'ask' cannot prepare",
        ),
        (
            '[trial]\nfunction = "answer"\nfile = "recipe.py"\n\n[evaluator]',
            "[evaluator]\nreads_candidate = false",
            "it would see nothing of it",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(folder: Folder, old: str, new: str, told: str) -> None:
    for place in ("data/x", "data/y", "data/sub/z"):
        folder.put(place, "")
    folder.swap(old, new)
    refused(folder, told)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("[score]\nfield = 'status'", "cannot be called 'status'"),
        ("[score]\ncolumns = ['hypothesis']", "cannot be called 'hypothesis'"),
        ("[score]\ncolumns = ['score']", "need not be a column too"),
        ("[score]\ncolumns = ['a', 'a']", "the column 'a' is there 2 times"),
        ("[keep]\nleast = 5\nmost = 4", "not 5 to 4"),
        ("[keep]\nbaseline_repeats = 1", r"keep\.baseline_repeats is 1"),
        ("[size]\npaths = ['recipe.py']", r"size\.paths is given without size\.limit_bytes"),
        ("[size]\nlimit_bytes = 5\npaths = ['other.py']", "'other.py', which is no part of a candidate"),
        ("[slots]\nkind = 'gpu'", "no GPU is named"),
        ("[slots]\nnames = ['a']", "'a', which names no CPUs"),
        ("[slots]\nnames = ['0']\ncount = 2", r"slots\.names and slots\.count are both given"),
        ("[slots]\nnames = ['0', '0']", "the slot '0' is there 2 times"),
        ("[prompt]\nknowledge = 'absent'", "knowledge is 'absent', but"),
        ("[prompt]\nknowledge = 'evaluator'", r"the evaluator .* and knowledge .* overlap"),
        ("[[specialist]]\ndomain = 'x'", r"a \[\[specialist\]\] .* has no name"),
        ("[[specialist]]\nname = 'baseline'", "'baseline', which is no name for one"),
        (
            "[[specialist]]\nname = 'a'\n[[specialist]]\nname = 'a'\nanalyst = true",
            "specialist 'a' is there 2",
        ),
        ("[[specialist]]\nname = 'a'\nanalyst = true", "the roster is empty"),
        ("[[specialist]]\nname = 'a'\npreamble = 'x'\npreamble_file = 'recipe.py'", "both a preamble and"),
        ("[[specialist]]\nname = 'a'\npreamble_file = 'absent.md'", "preamble_file of a is 'absent.md', but"),
        ("[[specialist]]\nname = 'a'\npreamble_file = 'evaluator'", "which is not a file"),
        ("[[tool]]\ndescription = 'x'", r"a \[\[tool\]\] has no name"),
        ("[[tool]]\nname = 'a'\ncommand = ['x']", "has no description"),
        ("[[tool]]\nname = 'a'\ndescription = 'x'", "neither a function nor a command"),
        (
            "[[tool]]\nname = 'submit_trial'\ndescription = 'x'\ncommand = ['x']",
            "like one that every session has",
        ),
        ("[[tool]]\nname = 'a'\ndescription = 'x'\nfunction = 'f'\nfile = 'recipe.py'", "defines no 'f'"),
        (
            "[[tool]]\nname = 'a'\ndescription = 'x'\ncommand = ['x']\ninput_schema = {type = 'banana'}",
            "is no JSON schema",
        ),
        (
            "[[tool]]\nname = 'a'\ndescription = 'x'\ncommand = ['x']\ninput_schema = {type = 'array'}",
            "must be of type object",
        ),
    ],
)
def test_tables_that_contradict_themselves_are_refused(folder: Folder, wrong: str, told: str) -> None:
    folder.add(wrong)
    refused(folder, told)


def test_an_empty_roster_is_refused(folder: Folder) -> None:
    folder.toml("specialist = []\n" + TOML)
    refused(folder, "the roster is empty: there is no specialist to propose")


def test_an_evaluator_inside_the_recipe_is_refused(folder: Folder) -> None:
    folder.put("src/evaluator/score.py", "score = 1")
    folder.swap('"recipe.py"]', '"recipe.py", "src"]')
    folder.swap('file = "score.py"', 'directory = "src/evaluator"\nfile = "score.py"')
    refused(folder, r"the recipe \(src\) and the evaluator \(src/evaluator\) overlap")


def linked_recipe(folder: Folder) -> None:
    (folder.path / "recipe.py").replace(folder.path / "real.py")
    (folder.path / "recipe.py").symlink_to("real.py")


def linked_evaluator(folder: Folder) -> None:
    (folder.path / "evaluator").replace(folder.path / "real")
    (folder.path / "evaluator").symlink_to("real")


def linked_description(folder: Folder) -> None:
    (folder.path / "task.toml").replace(folder.path / "real.toml")
    (folder.path / "task.toml").symlink_to("real.toml")


def dangling_description(folder: Folder) -> None:
    (folder.path / "task.toml").unlink()
    (folder.path / "task.toml").symlink_to("nowhere")


def pipe_for_a_recipe(folder: Folder) -> None:
    (folder.path / "recipe.py").unlink()
    os.mkfifo(folder.path / "recipe.py")


def pipe_for_a_description(folder: Folder) -> None:
    (folder.path / "task.toml").unlink()
    os.mkfifo(folder.path / "task.toml")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (linked_recipe, "is a symbolic link"),
        (linked_evaluator, "is a symbolic link"),
        (linked_description, r"task\.toml cannot be read"),
        (dangling_description, r"task\.toml cannot be read"),
        (pipe_for_a_recipe, "which is not a file or directory"),
        (pipe_for_a_description, "is not a plain file"),
    ],
)
def test_what_is_no_plain_file_is_refused(folder: Folder, spoil: Callable[[Folder], None], told: str) -> None:
    spoil(folder)
    refused(folder, told)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[task\n", "is not valid TOML: .*line 1"),
        (b"a = \xff\n", "is not UTF-8 text: .* at byte 4"),
        (b"x = " + b"[" * 5000 + b"]" * 5000, "is not valid TOML"),
        (b"#" * 2_000_000, "is larger than"),
        (b"", "the task is called '', which is no name"),
        (b"x = 9" + b"9" * 10_000, "is not valid TOML"),
    ],
)
def test_a_file_that_is_no_description_is_refused(folder: Folder, content: bytes, told: str) -> None:
    (folder.path / "task.toml").write_bytes(content)
    refused(folder, told)


@pytest.mark.parametrize("content", [b"def answer(:", b"\xff", b"\0", b"(" * 5000])
def test_a_recipe_that_is_no_program_is_refused(folder: Folder, content: bytes) -> None:
    (folder.path / "recipe.py").write_bytes(content)
    refused(folder, r"recipe\.py cannot be read as Python")


def test_a_function_may_be_defined_under_a_condition_or_imported(folder: Folder) -> None:
    folder.put(
        "recipe.py",
        f"try:\n    from fast import answer\nexcept ImportError:\n    {RECIPE}".replace(
            "\n    return", "\n        return"
        ),
    )
    folder.put("evaluator/score.py", "from elsewhere import *\n")
    assert folder.read().name == "small"


def test_a_preamble_that_is_no_text_is_refused(folder: Folder) -> None:
    (folder.path / "p.md").write_bytes(b"\xff")
    folder.add("[[specialist]]\nname = 'a'\npreamble_file = 'p.md'")
    refused(folder, r"p\.md is not UTF-8 text")


def test_the_message_says_which_folder_it_is_about(folder: Folder) -> None:
    folder.swap('recipe = ["recipe.py"]', "")
    assert str(folder.path) in str(refused(folder, "there is no recipe"))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TOML)
    with pytest.raises(Misuse, match="is no task"):
        read_task(path)


def test_the_names_that_are_taken_are_those_of_the_tools_of_a_session(folder: Folder) -> None:
    assert set(tool_names(folder.read(), lineage=True)) == OWN_TOOLS
