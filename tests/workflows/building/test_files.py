"""Workflow files of both kinds."""

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Misuse
from ratchet.workflows.files import UnreadableWorkflow, load_yaml, read_file

from ...flowkit import fixtures
from ...flowkit.strategies import values

YAML = """\
# How to greet people
workflow_id: greet
created_at: 2025-01-17
version: "1.0"
inputs:
  name: string
  times: {type: integer, default: 2}
steps:
  - step_id: say
    prompt_template: |
      Greet {name}
      in Norwegian: no
    input_mapping: {name: inputs.name, flag: no, really: true, none: ~, ratio: 1e-2, time: 12:30}
    cache: false
outputs:
  greeting: steps.say.output
"""


def test_a_yaml_file_says_the_same_as_a_json_file(tmp_path: Path) -> None:
    (tmp_path / "greet.yaml").write_text(YAML)
    spec = read_file(tmp_path / "greet.yaml")
    (tmp_path / "greet.json").write_text(json.dumps(write_spec(spec)))

    assert read_file(tmp_path / "greet.json") == spec
    assert spec.created_at == "2025-01-17"
    assert spec.steps[0].prompt_template == "Greet {name}\nin Norwegian: no\n"
    assert spec.steps[0].input_mapping == {
        "name": "inputs.name",
        "flag": "no",
        "really": True,
        "none": None,
        "ratio": 0.01,
        "time": "12:30",
    }
    assert not spec.steps[0].cache


def test_a_byte_order_mark_is_skipped_in_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps(fixtures.portable()))
    (tmp_path / "b.yml").write_text("\ufeff" + json.dumps(fixtures.portable()))

    assert read_file(tmp_path / "a.json") == read_file(tmp_path / "b.yml") == read_spec(fixtures.portable())


@pytest.mark.soak
@given(values)
def test_json_means_the_same_when_it_is_read_as_yaml(value: object) -> None:
    text = json.dumps(value)
    # YAML writes a character beyond the first 65,536 as one escape, JSON as two.
    assume("\\ud" not in text)

    assert load_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [\n", "line 3, column 1"),
        ("a: 1\n\ta: 2\n", "line 2, column 1"),
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is twice"),
        ("a: &x [1]\nb: *x\n", "line 1: anchors and aliases are not allowed"),
        ("b: *x\n", "line 1: anchors and aliases are not allowed"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1: the tag"),
        ("a: !!set {x}\n", "line 1: the tag"),
        ("a: 1\n---\nb: 2\n", "line 2: a second document begins"),
        ("1: a\n", "line 1: a key must be a text, not 1"),
        ("[a]: 1\n", "line 1: a key must be a text"),
        ("a: " + "[" * 5000, "nested too deeply"),
        ("a: 1\x00", "control characters are not allowed"),
        ("x" * 9_000_000, "at most 8,388,608 are read"),
    ],
)
def test_yaml_that_cannot_be_used_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_yaml(text)

    assert said in str(caught.value)


@pytest.mark.parametrize("number", [".inf", "-.nan"])
def test_what_is_no_number_to_json_is_a_text(number: str) -> None:
    assert load_yaml(f"a: {number}") == {"a": number}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b'{"workflow_id": "a",\n', "line 2, column 1"),
        ("a.json", b'{"a": 1, "a": 2}', "'a' is twice"),
        ("a.yaml", b"steps: []\n", "workflow_id is missing"),
        ("a.yaml", b"- a\n", "a workflow is a JSON object, not a list"),
        ("a.yaml", b"", "a workflow is a JSON object, not null"),
        ("a.yaml", b"a: \xff", "not UTF-8"),
        ("a.yaml", b"workflow_id: a\nsteps: [{step_id: a, type: bogus}, {}]", "step 2: step_id is missing"),
    ],
)
def test_a_bad_file_is_named_with_all_that_is_wrong(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(UnreadableWorkflow) as caught:
        read_file(tmp_path / name)

    assert str(caught.value).startswith(str(tmp_path / name))
    assert said in str(caught.value)
    assert isinstance(caught.value, Misuse)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")

    for path, said in (
        (tmp_path / "none.json", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "pipe.json", "not a file"),
    ):
        with pytest.raises(UnreadableWorkflow, match=said):
            read_file(path)


@given(st.text("abc:-[]{}#&*!|>'\"%@`,?\n\t 01.~", max_size=40))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert json.loads(json.dumps(load_yaml(text), allow_nan=False)) == load_yaml(text)
