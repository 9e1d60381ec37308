"""The spec of a protocol as a value: steps, dependencies and paths, and how it is written, hashed and stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from ratchet.flowkit.graph import cycle_message, cycles
from ratchet.kernel import StepStatus
from ratchet.ledger.protocols import ProtocolStep
from ratchet.workspaces.trees import unwanted_name

Exists = Callable[[str], bool]


def plain_path(path: str) -> str:
    """The path without parts that say nothing, such as `./`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def unsafe_path(path: str) -> str | None:
    """Why a path must not be used, or nothing if it may."""
    if "\0" in path:
        return "has a NUL in it"
    if path.startswith(("/", "\\")) or path[1:3] in (":\\", ":/"):
        return "is absolute"
    parts = plain_path(path).split("/")
    if ".." in path.replace("\\", "/").split("/"):
        return "leads out of its folder"
    return next((reason for reason in map(unwanted_name, parts) if reason is not None), None)


def candidates(path: str, root: str) -> tuple[str, ...]:
    """The paths in the repository that `path` may mean, the likeliest first. `root` is the protocol's folder."""
    plain = plain_path(path)
    return (str(PurePosixPath(root, plain)), plain) if root else (plain,)


def find_path(path: str, root: str, exists: Exists) -> str | None:
    """The file that `path` means, as a path in the repository; nothing if there is none."""
    return next((each for each in candidates(path, root) if exists(each)), None)


def files_of(paths: Iterable[str]) -> Exists:
    """The question put to a list of files."""
    return frozenset(paths).__contains__


def files_below(directory: Path) -> Exists:
    """The question put to a directory. What a link leads out of it is not there."""
    top = directory.resolve()

    def exists(path: str) -> bool:
        if unsafe_path(path) is not None:
            return False
        found = (top / path).resolve()
        return found.is_relative_to(top) and found.is_file()

    return exists


MOST_STEPS = 1000
Name = Annotated[str, Field(min_length=1, max_length=200)]
Place = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(plain_path)]
# For JSON that is read; a spec that a program makes is checked when it is recorded.
_CONFIG = ConfigDict(extra="forbid", strict=True)


class QaPolicy(StrEnum):
    """How a step is judged: by checks and a reviewer, by a brief review, or not at all."""

    FULL = "full"
    LIGHT = "light"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """Where the text of the session is written to. Never the path of a prompt, a plan or a step file."""

    __pydantic_config__ = _CONFIG
    protocol: Place | None = None
    aux: Mapping[str, Place] = field(default_factory=dict)

    @property
    def paths(self) -> dict[str, str]:
        """All of them by name."""
        return {**({} if self.protocol is None else {"protocol": self.protocol}), **self.aux}


@dataclass(frozen=True, slots=True)
class Qa:
    """Who reviews a step and how. No policy means `full`."""

    __pydantic_config__ = _CONFIG
    policy: QaPolicy | None
    prompt: Place | None = None
    model: str | None = None
    engine_id: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step. `prompt_ref` is a path in the protocol's folder or in the repository; no engine is the usual one.

    `depends_on` has names or ids of steps that must be completed before; nothing means those just before it. Steps of
    one `parallel_group` may run at once; the group stands where its first step stands. Steps are sorted by `order`, and
    one without stays behind the step before it. `inputs` go into the prompt. `policies` are loops and triggers as they
    were written.
    """

    __pydantic_config__ = _CONFIG
    id: Name
    engine_id: str | None
    prompt_ref: Place
    qa: Qa
    name: Name | None = None
    description: str | None = None
    model: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: StepOutputs = field(default_factory=StepOutputs)
    step_type: Annotated[str, Field(pattern="^(setup|work|qa)$")] | None = None
    policies: tuple[Mapping[str, Any], ...] = ()
    order: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    depends_on: tuple[Name, ...] = ()
    parallel_group: Name | None = None

    @property
    def called(self) -> str:
        """What the step is called in the ledger."""
        return self.name or self.id

    @property
    def kind(self) -> str:
        """Its type: as it says, or as its name tells."""
        return self.step_type or infer_step_type(self.called)


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """The steps of a protocol in the order in which they are numbered, who carries them out and how they are judged."""

    __pydantic_config__ = _CONFIG
    steps: Annotated[tuple[StepSpec, ...], Field(min_length=1, max_length=MOST_STEPS)]
    version: str | int | None = None
    placeholders: Mapping[str, Any] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


def infer_step_type(name: str) -> str:
    """`setup`, `qa` or `work`, by what the name says."""
    lower = name.lower()
    if lower.startswith("00-") or "setup" in lower:
        return "setup"
    return "qa" if "qa" in lower else "work"


_NEEDED = {StepSpec: ("id", "engine_id", "prompt_ref", "qa"), Qa: ("policy",)}


def write_protocol_spec(spec: ProtocolSpec) -> dict[str, Any]:
    """The spec as the schema wants it; what was not said is left out."""
    return {**_written(spec), "steps": [write_step_spec(step) for step in spec.steps]}


def write_step_spec(step: StepSpec) -> dict[str, Any]:
    """Paths are written without parts that say nothing, so that they name files of a commit as they are."""
    written = {**_written(step), "prompt_ref": plain_path(step.prompt_ref), "qa": _written(step.qa)}
    if step.qa.prompt is not None:
        written["qa"]["prompt"] = plain_path(step.qa.prompt)
    return written


def _outputs(outputs: StepOutputs) -> dict[str, Any]:
    aux = {name: plain_path(path) for name, path in outputs.aux.items()}
    protocol = {} if outputs.protocol is None else {"protocol": plain_path(outputs.protocol)}
    return {**protocol, **({"aux": aux} if aux else {})}


def _written(value: ProtocolSpec | StepSpec | Qa) -> dict[str, Any]:
    needed = _NEEDED.get(type(value), ())
    named = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return {name: given for name, given in named.items() if name in needed or given not in (None, {}, [])}


def _plain(value: Any) -> Any:
    """Free tables are JSON already, however deep they are."""
    if isinstance(value, StepOutputs):
        return _outputs(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, str) else value


MISSING = "missing"
_DIGITS = 12


def spec_hash(spec: ProtocolSpec | Mapping[str, Any]) -> str:
    """Twelve digits for a spec. The order of keys and the spaces between them do not count."""
    data = write_protocol_spec(spec) if isinstance(spec, ProtocolSpec) else spec
    return _short(json.dumps(data, sort_keys=True, separators=(",", ":")).encode())


def prompt_version(content: bytes | None) -> str:
    """Twelve digits for a prompt, or `missing` without one."""
    return MISSING if content is None else _short(content)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def step_rows(spec: ProtocolSpec) -> list[dict[str, Any]]:
    """What `add_protocol_steps` is to add. Dependencies are by name; what follows from the order is left unsaid."""
    names = names_of(spec.steps)
    return [
        {
            "name": step.called,
            "step_index": index,
            "step_type": step.kind,
            "spec": write_step_spec(step),
            "engine_id": step.engine_id,
            "model": step.model,
            "policy": list(step.policies) or None,
            "depends_on": [names[label] for label in step.depends_on] or None,
        }
        for index, step in enumerate(spec.steps)
    ]


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    id: str
    depends_on: tuple[str, ...]
    group: str | None
    cancelled: bool


def dependencies(given: ProtocolSpec | Sequence[ProtocolStep]) -> dict[str, frozenset[str]]:
    """For each step, by name, the steps that must be completed before it.

    Those it names itself; without any, all of the step or group just before it. A group stands where its first step
    stands. Who waits for a cancelled step waits for what that one waited for. A name that no step has stays in, so that
    what depends on it never becomes ready.
    """
    steps = _steps(given)
    edges = _edges(steps)
    cancelled = {step.name for step in steps if step.cancelled}
    return {name: _past(cancelled, others, edges) for name, others in edges.items()}


def dependency_problems(
    given: ProtocolSpec | Sequence[ProtocolStep], *, also: Iterable[str] = ()
) -> list[str]:
    """Dependencies on steps that do not exist, and steps that wait for each other. Names in `also` count as known."""
    edges = _edges(_steps(given))
    known = {*edges, *also}
    unknown = [
        f"step {name} depends on {other}, which does not exist"
        for name, others in edges.items()
        for other in sorted(others - known)
    ]
    return [*unknown, *map(cycle_message, cycles(edges))]


def names_of(steps: Iterable[StepSpec]) -> dict[str, str]:
    """What each name or id means: the name of a step."""
    return {label: step.called for step in steps for label in (step.id, step.called)}


def _edges(steps: Sequence[_Step]) -> dict[str, frozenset[str]]:
    names = {label: step.name for step in steps for label in (step.id, step.name)}
    edges: dict[str, frozenset[str]] = {}
    for before, block in _blocks(steps):
        for step in block:
            chosen = (names.get(label, label) for label in step.depends_on)
            edges[step.name] = frozenset(chosen) or before
    return {step.name: edges[step.name] for step in steps}


def _blocks(steps: Sequence[_Step]) -> Iterator[tuple[frozenset[str], list[_Step]]]:
    """Groups and single steps in their order, each with the names of the one before."""
    blocks: dict[object, list[_Step]] = {}
    for number, step in enumerate(steps):
        blocks.setdefault(number if step.group is None else step.group, []).append(step)
    before: frozenset[str] = frozenset()
    for block in blocks.values():
        yield before, block
        before = frozenset(step.name for step in block)


def _past(cancelled: set[str], names: Iterable[str], edges: dict[str, frozenset[str]]) -> frozenset[str]:
    """The names, with those that a cancelled one waited for in its place."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in cancelled:
            found.add(name)
        elif name not in seen:
            seen.add(name)
            waiting.extend(edges[name])
    return frozenset(found)


def _steps(given: ProtocolSpec | Sequence[ProtocolStep]) -> list[_Step]:
    if isinstance(given, ProtocolSpec):
        return [
            _Step(step.called, step.id, step.depends_on, step.parallel_group, cancelled=False)
            for step in given.steps
        ]
    return [_of_ledger(step) for step in sorted(given, key=lambda step: step.step_index)]


def _of_ledger(step: ProtocolStep) -> _Step:
    spec = step.spec if isinstance(step.spec, dict) else {}
    return _Step(
        name=step.name,
        id=_text(spec.get("id")) or step.name,
        depends_on=tuple(step.depends_on or ()),
        group=_text(spec.get("parallel_group")),
        cancelled=step.status is StepStatus.CANCELLED,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
