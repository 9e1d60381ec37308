"""Prompts are filled in one go."""

from ratchet.flowkit.references import OF_ITEMS
from ratchet.flowkit.spec import StepType, WorkflowInput, WorkflowOutput
from ratchet.flowkit.templates import fill_prompt, names_in

from .callers import Functions, step, workflow
from .test_executor import run


def test_names_and_references_are_replaced_by_their_values() -> None:
    filled = fill_prompt(
        '{topic} in ${inputs.n} words of {options}; {unknown} {"a": {}} $${inputs.n} {{topic}}',
        {"topic": "tea", "options": {"x": [1]}},
        lambda reference: {"inputs.n": 7}[str(reference)],
    )

    assert filled == 'tea in 7 words of {"x": [1]}; {unknown} {"a": {}} ${inputs.n} {topic}'


def test_braces_inside_a_value_stay_what_they_are() -> None:
    values = {"a": "{b} ${inputs.secret}", "b": "{a}"}

    assert fill_prompt("{a} {b}", values, lambda _: "leaked") == "{b} ${inputs.secret} {a}"


def test_the_places_of_a_prompt_are_listed_once() -> None:
    assert names_in('{a} {b} {a} {{c}} ${inputs.d} {"e": 1} {not a name}') == ("a", "b")


def test_items_have_a_place_only_in_a_list() -> None:
    assert fill_prompt("${item}", {}, lambda _: "x") == "${item}"
    assert fill_prompt("${item}", {}, lambda _: "x", own=OF_ITEMS) == "x"


def test_what_an_input_says_leads_nowhere_however_often_it_is_passed_on() -> None:
    """Not in a mapping, an item of a list, a prompt, nor as the input of a workflow inside."""
    said = "${steps.secret.output} inputs.other {text} ${inputs.other} steps.secret.output"
    inner = workflow(
        step("say", input_mapping={"value": "inputs.text"}),
        inputs=(WorkflowInput("text"),),
        outputs=(WorkflowOutput("text", source_reference="steps.say.output"),),
    )
    spec = workflow(
        step("secret", input_mapping={"value": "hidden"}),
        step("one", input_mapping={"value": {"deep": ["inputs.text"]}}, depends_on=("secret",)),
        step("each", for_each="steps.one.output.deep", input_mapping={"value": "item"}),
        step(
            "last",
            None,
            step_type=StepType.SUB_WORKFLOW,
            workflow_spec=inner,
            input_mapping={"text": "inputs.text"},
        ),
        inputs=(WorkflowInput("text"), WorkflowInput("other")),
    )
    done = run(spec, Functions({"echo": lambda value: value}), {"text": said, "other": "hidden"})
    assert done.steps["one"].value == {"deep": [said]}
    assert done.outputs == {"each": [said], "last": {"text": said}}
    assert fill_prompt("Say {text}.", {"text": said}) == f"Say {said}."
