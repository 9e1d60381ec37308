"""Made-up workflows and graphs for property tests."""

from typing import Any

from hypothesis import strategies as st

from ratchet.flowkit.spec import (
    AtLimit,
    OperationType,
    Repeat,
    StepType,
    ToolDefinition,
    WorkflowInput,
    WorkflowOutput,
    WorkflowSpec,
    WorkflowStep,
)

names = st.text("abcXYZ019_-", min_size=1, max_size=8)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts | st.just("inputs.x") | st.just("${steps.a.output}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
some_values = values.filter(lambda value: value is not None)
extras = st.dictionaries(texts.map(lambda text: f"x-{text}"), values, max_size=2)
inputs = st.builds(
    WorkflowInput,
    names,
    st.sampled_from(["string", "number"]),
    st.booleans(),
    values,
    texts,
    extras,
)
outputs = st.builds(WorkflowOutput, names, st.sampled_from(["", "object"]), texts, texts, extras)
packages = st.fixed_dictionaries({"name": names}, optional={"version": texts})
tools = st.builds(
    ToolDefinition,
    names,
    texts,
    texts,
    st.sampled_from(["llm", "python", "api", "executable"]),
    st.none() | texts,
    st.none() | texts,
    st.floats(0, 2),
    st.none() | texts,
    st.none() | texts,
    st.lists(texts, max_size=2).map(tuple),
    st.none() | st.dictionaries(texts, values, max_size=2),
    st.booleans(),
    st.floats(1, 1000),
    st.none() | names,
    extras,
)


repeats = st.builds(
    Repeat, texts, st.integers(1, 9), st.none() | some_values, st.floats(0, 9), st.sampled_from(AtLimit)
)


def steps(inner: st.SearchStrategy[WorkflowSpec | None]) -> st.SearchStrategy[WorkflowStep]:
    return st.builds(
        WorkflowStep,
        names,
        st.sampled_from(StepType),
        texts,
        st.none() | texts,
        st.none() | texts,
        st.none() | texts,
        st.booleans(),
        st.none() | st.sampled_from(OperationType),
        st.none() | texts,
        inner,
        st.dictionaries(texts, values, max_size=3),
        names,
        st.floats(0.1, 1000) | st.integers(1, 1000),
        st.booleans(),
        st.integers(0, 9),
        st.none() | st.integers(0, 9) | names,
        st.lists(names, max_size=3, unique=True).map(tuple),
        st.none() | texts,
        st.none() | some_values,
        st.none() | repeats,
        st.none() | texts,
        st.floats(0, 9),
        st.floats(1, 9),
        st.floats(0, 9),
        st.floats(0, 1),
        st.lists(names, max_size=2).map(tuple),
        st.none() | st.dictionaries(texts, values, min_size=1, max_size=2),
        st.none() | st.booleans(),
        st.booleans(),
        extras,
    )


def _specs(inner: st.SearchStrategy[WorkflowSpec | None]) -> st.SearchStrategy[WorkflowSpec]:
    return st.builds(
        WorkflowSpec,
        names,
        texts,
        st.sampled_from(["1.0.0", "2.1"]),
        st.booleans(),
        st.lists(inputs, max_size=2, unique_by=lambda one: one.name).map(tuple),
        st.lists(outputs, max_size=2, unique_by=lambda one: one.name).map(tuple),
        st.lists(steps(inner), max_size=3).map(tuple),
        texts,
        texts,
        st.lists(texts, max_size=2).map(tuple),
        st.lists(texts, max_size=2).map(tuple),
        st.lists(texts, max_size=2).map(tuple),
        st.lists(packages, max_size=2).map(tuple),
        st.dictionaries(names, tools, max_size=2),
        extras,
    )


specs: st.SearchStrategy[WorkflowSpec] = _specs(st.none() | _specs(st.none()))

graphs = st.integers(0, 7).flatmap(
    lambda size: st.fixed_dictionaries(
        {f"s{number}": st.sets(st.sampled_from([f"s{one}" for one in range(size)])) for number in range(size)}
    )
)
"""Steps and what each waits for, with and without circles."""


@st.composite
def valid_specs(draw: st.DrawFn) -> WorkflowSpec:
    """Workflows that can run: each step waits for some of those before it."""
    made: list[WorkflowStep] = []
    for number in range(draw(st.integers(1, 5))):
        before = [step.step_id for step in made]
        some = st.lists(st.sampled_from(before), unique=True) if before else st.just([])
        mapping: dict[str, Any] = {f"from_{one}": f"steps.{one}.output" for one in draw(some)}
        step = WorkflowStep(
            f"s{number}",
            StepType.EXISTING_TOOL,
            draw(texts),
            tool_name="echo",
            operation_type=draw(st.none() | st.sampled_from(OperationType)),
            input_mapping=mapping | {"own": draw(st.integers() | st.just("${inputs.x} and more"))},
            output_name=draw(names.map(lambda name: f"n{name}")),
            timeout=draw(st.floats(0.1, 1000) | st.integers(1, 1000)),
            retry_on_failure=draw(st.booleans()),
            max_retries=draw(st.integers(0, 100)),
            parallel_group=draw(st.none() | st.integers(0, 9) | names),
            depends_on=tuple(draw(some)),
            when=draw(st.none() | st.just("inputs.x != 'no'")),
            for_each=draw(st.none() | st.just("inputs.list") | st.lists(st.integers(), max_size=2)),
            fallback_tool=draw(st.none() | st.just("other")),
            backoff_seconds=draw(st.floats(0, 9)),
            cache=draw(st.none() | st.booleans()),
            extra=draw(extras),
        )
        made.append(step)
    return WorkflowSpec(
        draw(names.map(lambda name: f"n{name}")),
        draw(texts),
        inputs=(WorkflowInput("x"), WorkflowInput("list", "array", default=draw(st.none() | st.just([1])))),
        outputs=(
            WorkflowOutput(
                "last", draw(st.sampled_from(["", "array"])), "", f"steps.{made[-1].step_id}.output"
            ),
        ),
        steps=tuple(made),
        pip_packages=tuple(draw(st.lists(packages, max_size=2))),
        extra=draw(extras),
    )
