"""What is wrong with a spec besides its form: names, paths, dependencies, policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ratchet.protocols.policies.reading import policy_problems
from ratchet.protocols.spec._dependencies import dependency_problems
from ratchet.protocols.spec.paths import Exists, candidates, find_path, unsafe_path
from ratchet.protocols.spec.step_spec import ProtocolSpec, StepSpec
from ratchet.workspaces.names import unwanted_name

# What every protocol has in its folder besides the files of its steps.
CONTRACT = ("plan.md", "context.md", "log.md")
_LONGEST_SHOWN = 100


def check_spec(spec: ProtocolSpec, *, root: str = "", also: Iterable[str] = ()) -> list[str]:
    """One sentence for each problem that shows without looking at files.

    `root` is the folder of the protocol in the repository, if it is known. `also` has names of steps that could not be
    read, so that depending on them is no second problem.
    """
    return [
        *_name_problems(spec),
        *dependency_problems(spec, also=also),
        *_path_problems(spec),
        *_overwritten(spec, root),
        *_policy_problems(spec),
    ]


def check_paths(spec: ProtocolSpec, exists: Exists, *, root: str = "") -> list[str]:
    """One sentence for each prompt that is not there. `exists` tells whether a path of the repository is a file."""
    return [
        f"step {step.called}: {what} {_shown(path)} does not exist"
        for step in spec.steps
        for what, path in _prompts(step)
        if unsafe_path(path) is None and find_path(path, root, exists) is None
    ]


def _name_problems(spec: ProtocolSpec) -> Iterator[str]:
    # A name and an id of one step may be the same; of two steps they may not, as either can be depended on.
    meant = Counter(label for step in spec.steps for label in {step.id, step.called})
    yield from (f"{_shown(label)} names {count} steps" for label, count in meant.items() if count > 1)
    for label in meant:
        reason = "has a slash in it" if "/" in label else unwanted_name(label)
        if reason is not None:
            yield f"step {_shown(label)} {reason}, so no file can be called like it"


def _path_problems(spec: ProtocolSpec) -> Iterator[str]:
    for step in spec.steps:
        for what, path in (*_prompts(step), *_outputs(step)):
            reason = unsafe_path(path)
            if reason is not None:
                yield f"step {step.called}: {what} {_shown(path)} {reason}"


def _overwritten(spec: ProtocolSpec, root: str) -> Iterator[str]:
    """Outputs that would take the place of what the work is done by."""
    read = {
        place for step in spec.steps for _, path in _prompts(step) for place in candidates(path, root)
    } | {place for name in CONTRACT for place in candidates(name, root)[:1]}
    for step in spec.steps:
        for what, path in _outputs(step):
            if not read.isdisjoint(candidates(path, root)):
                yield f"step {step.called}: {what} {_shown(path)} would overwrite an input of the protocol"


def _policy_problems(spec: ProtocolSpec) -> Iterator[str]:
    for index, step in enumerate(spec.steps):
        labels: frozenset[int | str] = frozenset({index, step.id, step.called})
        yield from (
            f"step {step.called}: {problem}" for problem in policy_problems(step.policies, labels=labels)
        )


def _prompts(step: StepSpec) -> Iterator[tuple[str, str]]:
    yield "prompt_ref", step.prompt_ref
    if step.qa.prompt is not None:
        yield "qa.prompt", step.qa.prompt


def _outputs(step: StepSpec) -> Iterator[tuple[str, str]]:
    for name, path in step.outputs.paths.items():
        yield f"output {_shown(name)}", path


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
