"""Workflows in Python: functions are steps, and a function that calls them says how they belong together.

    from ratchet import step, workflow

    @step
    def clean(texts: list[str]) -> list[str]:
        return [text.strip() for text in texts if text.strip()]

    @step(retries=2)
    def count(texts: list[str]) -> int:
        return sum(len(text.split()) for text in texts)

    @workflow
    def digest(messages: list[str]) -> int:
        return count(clean(messages))

    digest.run(["Hello there ", ""])

The function of a workflow runs once, to build the graph: what a step gives back there stands for what it will give.
What comes of it is a workflow as a file has it (`digest.spec`), and runs in the same way.
"""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from sysconfig import get_path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from ratchet.flowkit.inputs import TYPES
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import StepType, WorkflowInput, WorkflowOutput, WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.flowkit.writer import write_text
from ratchet.kernel import Misuse, RatchetError, RunStatus
from ratchet.workflows.authoring import UNKNOWN, as_json, hints_of, schema_of, signature_of, summary_of
from ratchet.workflows.files import BadWorkflow, read_file
from ratchet.workflows.placeholders import BUILDING, Value, WorkflowGraph, given_json

if TYPE_CHECKING:
    from ratchet.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")
RESULT = "result"
"""The output of a workflow that gives back one value. A workflow whose only output this is gives it back by itself."""


class RunNotCompleted(RatchetError):
    """A run of a workflow that failed, was cancelled, or waits for somebody."""

    def __init__(self, workflow: str, run_id: int, status: RunStatus, reason: str | None) -> None:
        super().__init__(f"run {run_id} of {workflow} is {status}" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.status = status
        waits = status is RunStatus.BLOCKED
        self.hint = f"`ratchet {'approval list' if waits else f'workflow show {run_id}'}` says more"


class Workflow(Generic[P, R]):
    """A workflow. Called in another one it is a step of it, and called anywhere else it is run."""

    def __init__(
        self,
        function: Callable[P, R] | None = None,
        *,
        spec: WorkflowSpec | None = None,
        name: str | None = None,
    ) -> None:
        assert (function is None) != (spec is None)
        self._function = function
        self._given_spec = spec
        self._name = name
        if function is not None:
            update_wrapper(self, function)
            self._signature = signature_of(function)

    @classmethod
    def read(cls, source: str | Path | Mapping[str, Any]) -> Workflow[..., Any]:
        """The workflow of a JSON or YAML file, or of JSON."""
        spec = read_spec(dict(source)) if isinstance(source, Mapping) else read_file(source)
        require_sound(spec)
        return Workflow(spec=spec)

    @cached_property
    def spec(self) -> WorkflowSpec:
        """The workflow as data. Raises `BadWorkflow` with everything that is wrong with it."""
        return self._given_spec or self._built()

    def to_json(self) -> str:
        return write_text(self.spec)

    def write(self, path: str | Path) -> None:
        """Write it to a file, which is read as the same workflow."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        graph = BUILDING.get()
        if graph is None:
            return self.run(*args, **kwargs)
        found = graph.add(
            self.spec.workflow_id,
            step_type=StepType.SUB_WORKFLOW,
            workflow_spec=self.spec,
            input_mapping={name: given_json(value) for name, value in self._bound(args, kwargs).items()},
        )
        return cast(R, found[RESULT] if self._is_single else found)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here, to its end. Everything is on record; a worker resumes it if this process dies.

        Also in a notebook. Ctrl-C cancels it. Raises `RunNotCompleted` for one that fails or waits for a person.
        """
        from ratchet.runtime import Worker, cancel_run
        from ratchet.runtime.runs import follow_run

        with _opened() as runtime:
            run_id = self._start(runtime, args, kwargs)
            worker = Worker(runtime, role="python", run_id=run_id)
            worker.start()
            try:
                follow_run(runtime.ledger, run_id, lambda _event: None)
            except KeyboardInterrupt:
                with runtime.ledger.write(actor="python") as tx:
                    cancel_run(tx, runtime, run_id, reason="interrupted")
                raise
            finally:
                worker.stop(drain_seconds=0.0)
            return self._result(runtime, run_id)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Submitted[R]:
        """Have a worker run it (`ratchet worker` or `ratchet serve`)."""
        with _opened() as runtime:
            return Submitted(self._start(runtime, args, kwargs), self)

    @property
    def _is_single(self) -> bool:
        return [each.name for each in self.spec.outputs] == [RESULT]

    def _built(self) -> WorkflowSpec:
        function = self._function
        assert function is not None
        types = hints_of(function)
        inputs = [
            _input(function.__name__, each, types.get(each.name, UNKNOWN))
            for each in self._signature.parameters.values()
        ]
        graph = WorkflowGraph()
        before = BUILDING.set(graph)
        try:
            # Called as Python calls it, with what stands for its arguments.
            made = cast(Any, function)(**{each.name: Value(f"inputs.{each.name}") for each in inputs})
        finally:
            BUILDING.reset(before)
        spec = WorkflowSpec(
            self._name or function.__name__,
            description=summary_of(function),
            portable=bool(graph.tools),
            inputs=tuple(inputs),
            outputs=tuple(_outputs(function.__name__, made, types.get("return", UNKNOWN))),
            steps=tuple(graph.steps),
            tool_definitions=graph.tools,
        )
        require_sound(spec)
        return spec

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if self._function is not None:
            return self._signature.bind(*args, **kwargs).arguments
        if args:
            raise Misuse(f"{self.spec.workflow_id} takes its inputs by their names")
        return dict(kwargs)

    def _inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What is given, as JSON, checked by the types of the function."""
        types = {} if self._function is None else hints_of(self._function)
        bound = self._bound(args, kwargs)
        return {name: as_json(name, value, types.get(name, Any)) for name, value in bound.items()}

    def _start(self, runtime: Runtime, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
        from ratchet.workflows.runs import prepare, start_workflow

        plan = prepare(runtime, self.spec, self._inputs(args, kwargs))
        with runtime.ledger.write(actor="python") as tx:
            return start_workflow(tx, runtime, plan)

    def _result(self, runtime: Runtime, run_id: int) -> R:
        from ratchet.ledger.runs import get_run
        from ratchet.workflows.runs import read_outputs

        with runtime.ledger.read() as tx:
            run = get_run(tx, run_id)
            outputs = read_outputs(runtime.ledger.artifacts, run)
        if run.status is not RunStatus.COMPLETED:
            raise RunNotCompleted(self.spec.workflow_id, run_id, run.status, run.reason)
        value = outputs.get(RESULT) if self._is_single else outputs
        wanted = Any if self._function is None else hints_of(self._function).get("return", Any)
        return cast(R, value if value is None else _typed(value, wanted))


@dataclass(frozen=True)
class Submitted(Generic[R]):
    """A run that a worker does."""

    run_id: int
    workflow: Workflow[..., R]

    @property
    def status(self) -> RunStatus:
        from ratchet.ledger.runs import get_run

        with _opened() as runtime, runtime.ledger.read() as tx:
            return get_run(tx, self.run_id).status

    def result(self, timeout: float | None = None) -> R:
        """Wait for its end. Raises `TimeoutError`, and `RunNotCompleted`."""
        from ratchet.runtime.runs import follow_run

        with _opened() as runtime:
            late = threading.Event()
            timer = threading.Timer(timeout or 0.0, late.set)
            if timeout is not None:
                timer.start()
            try:
                follow_run(runtime.ledger, self.run_id, lambda _event: None, stop=late)
            finally:
                timer.cancel()
            if late.is_set():
                raise TimeoutError(f"run {self.run_id} has not ended after {timeout:g} s")
            return self.workflow._result(runtime, self.run_id)


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...


@overload
def workflow(*, name: str | None = None) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...


def workflow(function: Callable[P, R] | None = None, /, *, name: str | None = None) -> Any:
    """Make a workflow of a function that calls steps."""
    return Workflow(function, name=name) if function is not None else lambda given: Workflow(given, name=name)


@contextmanager
def _opened() -> Iterator[Runtime]:
    """The runtime of this directory, as commands use it."""
    from ratchet.config import load_settings
    from ratchet.observe import logs
    from ratchet.runtime import open_ledger, open_runtime

    loaded = load_settings()
    level = loaded.settings.log.level
    # What comes of it is given back; a log of it would only be in the way.
    logs.configure("warning" if level == "info" else level, loaded.settings.log.format)
    with open_ledger(loaded) as ledger:
        yield open_runtime(loaded, ledger)


def require_sound(spec: WorkflowSpec) -> None:
    problems = check_spec(spec)
    if problems:
        raise BadWorkflow(problems)


def _input(owner: str, parameter: inspect.Parameter, annotation: Any) -> WorkflowInput:
    schema = schema_of(annotation)
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    kind = kinds[0].get("type") if len(kinds) == 1 else None
    if kind not in TYPES:
        raise Misuse(
            f"{owner} takes {parameter.name} without a type that an input has",
            hint=f"say one of str, int, float, bool, list and dict, such as `{parameter.name}: str`",
        )
    given = parameter.default is not UNKNOWN
    default = as_json(parameter.name, parameter.default, annotation) if given else None
    choices = {"enum": kinds[0]["enum"]} if "enum" in kinds[0] else {}
    return WorkflowInput(parameter.name, str(kind), required=not given, default=default, extra=choices)


def _outputs(owner: str, made: Any, annotation: Any) -> Iterator[WorkflowOutput]:
    if made is None:
        return
    found = made if isinstance(made, dict) else {RESULT: made}
    for name, value in found.items():
        if not isinstance(value, Value):
            raise Misuse(
                f"{owner} gives back {value!r}, which no step has made",
                hint="give back what steps came to, one value or a dict of them",
            )
        kind = schema_of(annotation).get("type") if value is made else None
        yield WorkflowOutput(str(name), kind if kind in TYPES else "", source_reference=value._path)


def _typed(value: Any, annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation).validate_python(value)


def load_python(named: str) -> Workflow[..., Any]:
    """The workflow that a module or a file of Python defines, named as `module:name` or `file.py:name`."""
    place, _, name = named.rpartition(":")
    with _user_code(f"{place} cannot be imported"):
        module = _imported(place)
    found = getattr(module, name, None)
    if not isinstance(found, Workflow):
        there = [key for key, each in vars(module).items() if isinstance(each, Workflow)]
        raise Misuse(f"{place} has no workflow {name}", hint=f"it has {', '.join(there) or 'none'}")
    with _user_code(f"{name} cannot be built"):
        _ = found.spec
    return found


def _imported(place: str) -> ModuleType:
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return import_module(place)
    about = spec_from_file_location(Path(place).stem, Path(place).resolve())
    assert about is not None
    assert about.loader is not None
    module = module_from_spec(about)
    sys.modules[about.name] = module
    about.loader.exec_module(module)
    return module


@contextmanager
def _user_code(problem: str) -> Iterator[None]:
    """Whatever the user's own code raises is theirs to fix, so it is named with its line."""
    try:
        yield
    except RatchetError as error:
        if type(error) is not Misuse or not (line := _their_line(error)):
            raise
        raise Misuse(f"{line}: {error}", hint=error.hint) from error
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise Misuse(f"{problem}: {error}", hint="name it as module:name or file.py:name") from None
    except Exception as error:
        line = _their_line(error)
        raise Misuse(
            f"{problem}: {type(error).__name__}: {error}", hint=f"it was raised at {line}" if line else None
        ) from error


_NOT_THEIRS = (str(Path(__file__).parents[1]), *(get_path(each) for each in ("stdlib", "purelib", "platlib")))
"""Where code is that users have not written."""


def _their_line(error: Exception) -> str:
    """The last line of the user's own code that led to it."""
    lines = [
        f"{Path(each.filename).name}, line {each.lineno}"
        for each in traceback.extract_tb(error.__traceback__)
        if Path(each.filename).is_file() and not each.filename.startswith(_NOT_THEIRS)
    ]
    return lines[-1] if lines else ""
