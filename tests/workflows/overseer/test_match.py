"""What is done with a sentence where no model can be asked."""

from __future__ import annotations

import pytest

from ratchet.flowkit.spec import WorkflowInput
from ratchet.runtime import Runtime
from ratchet.workflows.overseer.match import guess_inputs, match_tools

CHOICE = WorkflowInput("conversion", extra={"enum": ["c_to_f", "f_to_c", "km_to_mi"]})
NUMBERS = (WorkflowInput("a", type="number"), WorkflowInput("b", type="integer"))


@pytest.mark.parametrize(
    ("sentence", "guessed"),
    [
        ("convert 100 celsius to fahrenheit", {"conversion": "c_to_f"}),
        ("convert 3 km to miles", {"conversion": "km_to_mi"}),
        ("convert it", {}),
        ("from fahrenheit to celsius, or from km to mi", {"conversion": "km_to_mi"}),
    ],
)
def test_the_choice_is_guessed_that_the_sentence_names(sentence: str, guessed: dict[str, str]) -> None:
    assert guess_inputs([CHOICE], sentence) == guessed


def test_numbers_and_quoted_texts_are_guessed_in_their_order() -> None:
    assert guess_inputs(NUMBERS, "add 1.5 and -20 and v3") == {"a": 1.5, "b": -20}
    assert guess_inputs(NUMBERS, "add some") == {}
    texts = [WorkflowInput("text"), WorkflowInput("other"), WorkflowInput("kept", default="x")]
    assert guess_inputs(texts, "join \"a b\" and 'c'") == {"text": "a b", "other": "c"}
    assert guess_inputs(texts, "it's what it is: all of this") == {"text": "all of this"}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_shipped_tool_is_found_and_is_a_workflow_of_one_step(runtime: Runtime) -> None:
    best = match_tools(runtime, "convert 100 celsius to fahrenheit")[0]
    assert (best.tool.id, best.clear) == ("unit_converter", True)
    assert [step.tool_name for step in best.spec.steps] == ["unit_converter"]
    assert {each.name for each in best.spec.inputs if each.required} == {"conversion", "value"}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_tool_that_a_model_would_do_better_is_not_clear_and_models_are_left_out(runtime: Runtime) -> None:
    found = match_tools(runtime, "summarise a text")
    assert all(each.tool.llm is None and not each.clear for each in found)
    assert match_tools(runtime, "play chess") == []
