"""A plan: its schema, how an engine's answer is read and checked, and the spec it becomes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from ratchet.kernel import is_name, shortened
from ratchet.protocols.spec import (
    ProtocolSpec,
    Qa,
    QaPolicy,
    StepSpec,
    files_of,
    infer_step_type,
    spec_problems,
)
from ratchet.question import BadAnswer

Schema = dict[str, Any]

_STEP_FILE: Schema = {
    "type": "object",
    "properties": {
        "filename": {
            "type": "string",
            "description": "NN-short-name.md: two digits, then small letters, digits, dashes",
        },
        "content": {"type": "string", "description": "the whole step file, as Markdown"},
        "title": {"type": ["string", "null"], "description": "what the step does, in a few words"},
        "depends_on": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "file names of the steps that must be completed before; null: those just before it",
        },
        "parallel_group": {
            "type": ["string", "null"],
            "description": "steps of one group may run at the same time; null: it runs alone",
        },
        "step_type": {"type": ["string", "null"], "enum": ["setup", "work", "qa", None]},
        "qa": {
            "type": ["string", "null"],
            "enum": ["full", "light", "skip", None],
            "description": "how the step is reviewed; null: full",
        },
        "engine": {"type": ["string", "null"], "description": "who carries it out; null: the usual one"},
        "needs_decomposition": {
            "type": ["boolean", "null"],
            "description": "whether it is to be taken apart into smaller tasks; null: its length decides",
        },
    },
    "required": ["filename", "content"],
    "additionalProperties": False,
}

_CLARIFICATION: Schema = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "a short name: small letters, digits and dashes"},
        "question": {"type": "string"},
        "options": {"type": ["array", "null"], "items": {"type": "string"}},
        "recommended": {"type": ["string", "null"]},
        "blocking": {
            "type": ["boolean", "null"],
            "description": "whether no step may run before it is answered",
        },
    },
    "required": ["key", "question"],
    "additionalProperties": False,
}

PLAN_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "plan_md": {"type": "string", "description": "the contract, as Markdown"},
        "context_md": {
            "type": "string",
            "description": "what the author of a step must know, as Markdown",
        },
        "log_md": {"type": "string", "description": "the beginning of the log, as Markdown"},
        "step_files": {"type": "array", "items": _STEP_FILE},
        "clarifications": {
            "type": ["array", "null"],
            "items": _CLARIFICATION,
            "description": "questions to people that the repository does not answer",
        },
    },
    "required": ["plan_md", "context_md", "log_md", "step_files"],
    "additionalProperties": False,
}

STEP_SCHEMA: Schema = {
    "type": "object",
    "properties": {"content": {"type": "string", "description": "the whole step file, as Markdown"}},
    "required": ["content"],
    "additionalProperties": False,
}


def with_every_key(schema: Mapping[str, Any]) -> Schema:
    """The same form for engines whose structured output wants every key there: what may be left out is null then."""
    strict = dict(schema)
    if "properties" in strict:
        strict["properties"] = {name: with_every_key(each) for name, each in strict["properties"].items()}
        strict["required"] = list(strict["properties"])
    if "items" in strict:
        strict["items"] = with_every_key(strict["items"])
    return strict


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """`name` is that of its file without the ending, such as `01-add-login`; `depends_on` has such names."""

    name: str
    content: str
    title: str | None = None
    depends_on: tuple[str, ...] = ()
    parallel_group: str | None = None
    step_type: str | None = None
    qa: str | None = None
    engine: str | None = None
    needs_decomposition: bool | None = None

    @property
    def file(self) -> str:
        return f"{self.name}.md"


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """A question to people that came with a plan."""

    key: str
    question: str
    options: tuple[str, ...] = ()
    recommended: str | None = None
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class ProtocolPlan:
    """Its steps are in the order of their numbers."""

    plan_md: str
    context_md: str
    log_md: str
    steps: tuple[PlannedStep, ...]
    questions: tuple[PlanQuestion, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """What `data` gave."""
        steps = tuple(
            PlannedStep(**{**each, "depends_on": tuple(each["depends_on"])}) for each in data["steps"]
        )
        asked = tuple(
            PlanQuestion(**{**each, "options": tuple(each["options"])}) for each in data["questions"]
        )
        return cls(data["plan_md"], data["context_md"], data["log_md"], steps, asked)

    def with_contents(self, contents: Mapping[str, str]) -> Self:
        """The same plan with other texts for some steps."""
        steps = tuple(replace(step, content=contents.get(step.name, step.content)) for step in self.steps)
        return replace(self, steps=steps)

    def files(self) -> dict[str, str]:
        """Every file of the protocol's folder, by its name there."""
        own = {"plan.md": self.plan_md, "context.md": self.context_md, "log.md": self.log_md}
        return own | {step.file: step.content for step in self.steps}


def spec_of(plan: ProtocolPlan) -> ProtocolSpec:
    """One step for each step file, in the order of their numbers."""
    return ProtocolSpec(tuple(map(_step, plan.steps)))


def _step(step: PlannedStep) -> StepSpec:
    return StepSpec(
        id=step.name,
        engine_id=step.engine,
        prompt_ref=step.file,
        qa=Qa(QaPolicy(step.qa) if step.qa else QaPolicy.FULL),
        description=step.title,
        step_type=step.step_type,
        depends_on=step.depends_on,
        parallel_group=step.parallel_group,
    )


LONGEST_FILE = 200_000
"""Characters of one file."""
LONGEST_PLAN = 1_000_000
"""Characters of all files together."""
SETUP = "00-setup"
_FILE = re.compile(r"([0-9]{2})-[a-z0-9][a-z0-9._-]*\.md", re.ASCII)
_LONGEST_WORDS = 2000
_MOST_QUESTIONS = 20
_MOST_OPTIONS = 20
_STEP_TYPES = ("setup", "work", "qa")
_QA = ("full", "light", "skip")
_TEXTS = ("plan_md", "context_md", "log_md")
# For an engine that leaves out what every protocol begins with.
_SETUP_FILE = """\
# Setup

Make sure that the work can begin. Change no code of the product in this step.

- Read plan.md and context.md.
- Run the checks of this repository once and see whether they pass before anything is changed.
- Write into context.md what the next steps must know of that: which checks there are, and which of them failed already.
"""


def read_plan(data: Any, name: str, *, engines: Collection[str] | None = None) -> ProtocolPlan:
    """The plan that an answer gives for the protocol `name`. Raises `BadAnswer` with every problem.

    A step may only name one of the `engines`; `None` asks nothing of them. What else an answer has is not read.
    """
    if not isinstance(data, Mapping):
        raise BadAnswer(
            [f"the answer is {_shown(data)}, not a JSON object with {', '.join(_TEXTS)} and step_files"]
        )
    problems: list[str] = []
    texts = {key: _text(data.get(key), key, problems, required=key == "plan_md") for key in _TEXTS}
    steps = _with_setup(list(_steps(data.get("step_files"), engines, problems)))
    plan = ProtocolPlan(
        plan_md=texts["plan_md"],
        context_md=texts["context_md"] or "# Context\n",
        log_md=texts["log_md"] or "# Log\n",
        steps=tuple(sorted(steps, key=lambda step: step.name)),
        questions=tuple(_questions(data.get("clarifications"), problems)),
    )
    problems += [*_set_problems(plan), *_spec_problems(plan, name)]
    if problems:
        raise BadAnswer(list(dict.fromkeys(problems)))
    return plan


def read_step(data: Any) -> str:
    """The text of one step file that was taken apart. Raises `BadAnswer`."""
    problems: list[str] = []
    given = data.get("content") if isinstance(data, Mapping) else None
    content = _text(given, "content", problems, required=True)
    if problems:
        raise BadAnswer(problems)
    return content


def _steps(data: Any, engines: Collection[str] | None, problems: list[str]) -> Iterator[PlannedStep]:
    if not isinstance(data, list):
        problems.append(f"step_files is {_shown(data)}, not a list of files")
        return
    for number, each in enumerate(data):
        where = f"step_files[{number}]"
        if not isinstance(each, Mapping):
            problems.append(f"{where} is {_shown(each)}, not an object with filename and content")
            continue
        content = _text(each.get("content"), f"{where}.content", problems, required=True)
        name = _name(each.get("filename"), f"{where}.filename", problems)
        if name is not None:
            yield _planned_step(name, content, each, engines, problems)


def _planned_step(
    name: str, content: str, given: Mapping[str, Any], engines: Collection[str] | None, problems: list[str]
) -> PlannedStep:
    flag = given.get("needs_decomposition")
    if flag is not None and not isinstance(flag, bool):
        problems.append(f"{name}: needs_decomposition is {_shown(flag)}, not true, false or null")
        flag = None
    depends_on = _texts(given.get("depends_on"), f"{name}: depends_on", problems)
    return PlannedStep(
        name=name,
        content=content,
        title=_words(given.get("title"), f"{name}: title", problems),
        depends_on=tuple(each.lower().removesuffix(".md") for each in depends_on),
        parallel_group=_words(given.get("parallel_group"), f"{name}: parallel_group", problems, most=200),
        step_type=_one_of(given.get("step_type"), _STEP_TYPES, f"{name}: step_type", problems),
        qa=_one_of(given.get("qa"), _QA, f"{name}: qa", problems),
        engine=_engine(given.get("engine"), engines, f"{name}: engine", problems),
        needs_decomposition=flag,
    )


def _name(given: Any, where: str, problems: list[str]) -> str | None:
    """The name of a step by that of its file, which must be a file of the protocol's own folder."""
    name = given.lower() if isinstance(given, str) else ""
    if _FILE.fullmatch(name) is None or not is_name(name):
        problems.append(
            f"{where} is {_shown(given)}; a step file is called NN-short-name.md, without directories, "
            "in small letters, digits and dashes, at most 64 characters"
        )
        return None
    return name.removesuffix(".md")


def _with_setup(steps: list[PlannedStep]) -> list[PlannedStep]:
    """The steps with one that begins: a plan may leave it out, if it leaves its number free."""
    if not steps or any(step.name.startswith("00-") for step in steps):
        return steps
    return [
        PlannedStep(SETUP, _SETUP_FILE, title="Make sure that the work can begin", step_type="setup"),
        *steps,
    ]


def _set_problems(plan: ProtocolPlan) -> Iterator[str]:
    """What is wrong with the steps together."""
    names = Counter(step.name for step in plan.steps)
    yield from (
        f"{name}.md is there {count} times in step_files" for name, count in names.items() if count > 1
    )
    numbers = Counter(name[:2] for name in names)
    for number, count in numbers.items():
        if count > 1:
            alike = ", ".join(f"{name}.md" for name in names if name.startswith(number))
            yield f"{count} step files have the number {number}: {alike}"
    first = next((name for name in names if name.startswith("00-") and name != SETUP), None)
    if first is not None:
        yield f"{first}.md has the number 00, which is that of {SETUP}.md"
    if not any(
        (step.step_type or infer_step_type(step.name)) == "work" for step in plan.steps if step.name != SETUP
    ):
        yield "there is no step that does the work: give at least one step file besides 00-setup.md"
    size = sum(map(len, plan.files().values()))
    if size > LONGEST_PLAN:
        yield f"all files together have {size:,} characters; at most {LONGEST_PLAN:,} are taken"
    keys = Counter(asked.key for asked in plan.questions)
    yield from (
        f"the key {key} is there {count} times in clarifications" for key, count in keys.items() if count > 1
    )


def _spec_problems(plan: ProtocolPlan, name: str) -> list[str]:
    """What the spec of the plan would be refused for, such as steps that wait for each other."""
    if not plan.steps or max(Counter(step.name for step in plan.steps).values()) > 1:
        return []
    root = f".protocols/{name}"
    paths = (f"{root}/{file}" for file in plan.files())
    return spec_problems(spec_of(plan), root=root, exists=files_of(paths))


def _questions(data: Any, problems: list[str]) -> Iterator[PlanQuestion]:
    if data is None:
        return
    if not isinstance(data, list) or len(data) > _MOST_QUESTIONS:
        problems.append(
            f"clarifications is {_shown(data)}, not a list of at most {_MOST_QUESTIONS} questions"
        )
        return
    for number, each in enumerate(data):
        where = f"clarifications[{number}]"
        if not isinstance(each, Mapping):
            problems.append(f"{where} is {_shown(each)}, not an object with key and question")
            continue
        key = each.get("key")
        if not isinstance(key, str) or not is_name(key):
            problems.append(
                f"{where}.key is {_shown(key)}, not a short name in small letters, digits and dashes"
            )
            key = ""
        question = _words(each.get("question"), f"{where}.question", problems)
        if question is None:
            problems.append(f"{where}.question is empty")
        options = _texts(each.get("options"), f"{where}.options", problems)
        if len(options) > _MOST_OPTIONS:
            problems.append(f"{where}.options has {len(options)} texts; at most {_MOST_OPTIONS} are taken")
        blocking = each.get("blocking")
        if blocking is not None and not isinstance(blocking, bool):
            problems.append(f"{where}.blocking is {_shown(blocking)}, not true, false or null")
        recommended = _words(each.get("recommended"), f"{where}.recommended", problems)
        yield PlanQuestion(key, question or "", tuple(options), recommended, blocking=blocking is True)


def _text(given: Any, where: str, problems: list[str], *, required: bool) -> str:
    """A text that can be a file, ending with its line; nothing in place of one that cannot."""
    if not isinstance(given, str):
        problems.append(f"{where} is {_shown(given)}, not a text")
        return ""
    problem = _text_problem(given, LONGEST_FILE)
    if problem is None and required and not given.strip():
        problem = "is empty"
    if problem is not None:
        problems.append(f"{where} {problem}")
        return ""
    return given.strip() and given.rstrip() + "\n"


def _words(given: Any, where: str, problems: list[str], *, most: int = _LONGEST_WORDS) -> str | None:
    """A short text, or nothing."""
    if given is None:
        return None
    problem = _text_problem(given, most) if isinstance(given, str) else f"is {_shown(given)}, not a text"
    if problem is not None:
        problems.append(f"{where} {problem}")
        return None
    return str(given).strip() or None


def _texts(given: Any, where: str, problems: list[str]) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list):
        problems.append(f"{where} is {_shown(given)}, not a list of texts")
        return []
    read = (_words(each, f"{where}[{number}]", problems) for number, each in enumerate(given))
    return [each for each in read if each]


def _one_of(given: Any, known: tuple[str, ...], where: str, problems: list[str]) -> str | None:
    if given is None or (isinstance(given, str) and given in known):
        return given
    problems.append(f"{where} is {_shown(given)}; it must be {', '.join(known)} or null")
    return None


def _engine(given: Any, known: Collection[str] | None, where: str, problems: list[str]) -> str | None:
    name = _words(given, where, problems, most=200)
    if name is None or known is None or name in known:
        return name
    problems.append(f"{where} is {_shown(name)}; it must be null or one of {', '.join(sorted(known))}")
    return None


def _text_problem(text: str, most: int) -> str | None:
    if len(text) > most:
        return f"has {len(text):,} characters; at most {most:,} are taken"
    if "\0" in text:
        return "has a NUL character in it"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has half of a surrogate pair in it"
    return None


def _shown(value: Any) -> str:
    """A value as a sentence can hold it."""
    if value is None:
        return "missing"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return shortened(ascii(value), 80)
