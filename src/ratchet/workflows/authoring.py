"""Steps in Python: a function is a step, and calling it in the function of a workflow puts it there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, update_wrapper
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, cast, get_args, get_type_hints, overload

from ratchet.flowkit.spec import AtLimit, Repeat, StepType, ToolDefinition
from ratchet.kernel import Misuse
from ratchet.workflows.function_source import portable_source
from ratchet.workflows.placeholders import (
    BUILDING,
    Value,
    building,
    condition_text,
    given_json,
    question_text,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
X = TypeVar("X")
UNKNOWN = inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """What a step says beside what it does, as in a file. `network` and `requirements` are those of its process."""

    retries: int = 0
    timeout: float = 300.0
    backoff_seconds: float = 0.5
    cache: bool | None = None
    requirements: tuple[str, ...] | list[str] = ()
    secrets: tuple[str, ...] | list[str] = ()
    network: bool = False
    stream: bool = False

    def fields(self) -> dict[str, Any]:
        tries = {"retry_on_failure": True, "max_retries": self.retries} if self.retries else {}
        return {
            "timeout": self.timeout,
            "backoff_seconds": self.backoff_seconds,
            "cache": self.cache,
            "stream": self.stream,
            **tries,
        }


class AuthoredStep(Generic[P, R]):
    """A function that runs in a process of its own, inside of workflows. Called anywhere else, it is the function."""

    def __init__(self, function: Callable[P, R], options: StepOptions) -> None:
        if not isinstance(function, FunctionType) or not function.__name__.isidentifier():
            raise Misuse(f"{function!r} is no function that was defined by `def`")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise Misuse(f"{function.__name__} is async; a step is a plain function")
        update_wrapper(self, function)
        self._yields = inspect.isgeneratorfunction(function)
        self.function = function
        self.options = replace(options, stream=True) if self._yields else options
        self.signature = signature_of(function)
        _STEPS[id(self)] = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if BUILDING.get() is None:
            return cast(R, self._done(*args, **kwargs))
        return cast(R, self._add(self.signature.bind(*args, **kwargs).arguments))

    def each(self, items: Iterable[Any], /, *args: Any, **kwargs: Any) -> list[R]:
        """The step for each item, which is its first argument. In a workflow all of them run at once."""
        if BUILDING.get() is None:
            return [cast(R, self._done(item, *args, **kwargs)) for item in items]
        given = self.signature.bind(Value("item"), *args, **kwargs).arguments
        return cast("list[R]", self._add(given, for_each=given_json(items)))

    def repeat(
        self,
        *,
        until: Callable[[Any], Any] | str,
        limit: int,
        pause_seconds: float = 0.0,
        keep_last: bool = False,
    ) -> Callable[P, R]:
        """The step again and again: its first argument is what it gave the last time, until that fits.

        After `limit` rounds the step fails, or has its last value with `keep_last`.
        """
        at_limit = AtLimit.KEEP if keep_last else AtLimit.FAIL

        def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
            if BUILDING.get() is None:
                return self._loop(until, limit, keep_last, args, kwargs)
            given = self.signature.bind(*args, **kwargs).arguments
            first = next(iter(self.signature.parameters))
            condition = condition_text(until if isinstance(until, str) else until(Value("last")))
            rounds = Repeat(condition, limit, given_json(given.get(first)), pause_seconds, at_limit)
            return cast(R, self._add({**given, first: Value("last")}, repeat=rounds))

        return repeated

    @cached_property
    def definition(self) -> ToolDefinition:
        """The tool that a workflow carries for this step."""
        name = self.function.__name__
        types = {"return": UNKNOWN, **hints_of(self.function)}
        if self._yields:
            types["return"] = _list_type(types["return"])
        taken = {each: types.get(each, UNKNOWN) for each in self.signature.parameters}
        for each, annotation in {**taken, "return": types["return"]}.items():
            _require_plain(name, each, annotation)
        optional = {each.name for each in self.signature.parameters.values() if each.default is not UNKNOWN}
        answer = schema_of(types["return"])
        extra: dict[str, Any] = {
            "input_schema": _object_schema(taken, optional),
            **({"output_schema": answer} if answer else {}),
            "python": {"entry": name},
            **({"network": True} if self.options.network else {}),
            **({"secrets": list(self.options.secrets)} if self.options.secrets else {}),
        }
        return ToolDefinition(
            name,
            name=name,
            description=summary_of(self.function) or name.replace("_", " "),
            tool_type="python",
            source_code=portable_source(self.function, unwrapped=_STEPS),
            requirements=tuple(self.options.requirements),
            timeout=self.options.timeout,
            extra=extra,
        )

    def _done(self, *args: Any, **kwargs: Any) -> Any:
        """What it comes to outside of a workflow."""
        made = self.function(*args, **kwargs)
        return list(made) if self._yields else made

    def _add(self, given: Mapping[str, Any], **more: Any) -> Any:
        graph = building(self.function.__name__)
        return graph.add(
            self.function.__name__,
            step_type=StepType.PYTHON_TOOL,
            description=summary_of(self.function),
            tool_name=graph.carry(self.definition),
            input_mapping={name: given_json(value) for name, value in given.items()},
            **self.options.fields(),
            **more,
        )

    def _loop(self, until: Any, limit: int, keep_last: bool, args: Any, kwargs: Any) -> R:
        if isinstance(until, str):
            raise Misuse("a condition that is a text can be asked only in a workflow", hint="use a function")
        given = self.signature.bind(*args, **kwargs).arguments
        first = next(iter(self.signature.parameters))
        for _ in range(limit):
            given[first] = self._done(**given)
            if until(given[first]):
                return cast(R, given[first])
        if keep_last:
            return cast(R, given[first])
        raise Misuse(f"{self.function.__name__} did not end in {limit} rounds")


def _list_type(annotation: Any) -> Any:
    """The list of what a generator yields."""
    yielded = get_args(annotation)
    return list[yielded[0]] if yielded else list  # type: ignore[valid-type]


_STEPS: dict[int, FunctionType] = {}
"""The functions behind steps, which other steps may call."""


@overload
def step(function: Callable[P, R], /) -> AuthoredStep[P, R]: ...


@overload
def step(
    *,
    retries: int = 0,
    timeout: float = 300.0,
    backoff_seconds: float = 0.5,
    cache: bool | None = None,
    requirements: tuple[str, ...] | list[str] = (),
    secrets: tuple[str, ...] | list[str] = (),
    network: bool = False,
    stream: bool = False,
) -> Callable[[Callable[P, R]], AuthoredStep[P, R]]: ...


def step(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a step of a function. Its types are checked when it runs, and its source goes into the workflow."""
    settings = StepOptions(**options)
    return (
        AuthoredStep(function, settings)
        if function is not None
        else lambda given: AuthoredStep(given, settings)
    )


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Steps in this block run only if it holds: `with when(score >= 0.5):`, `with when(f"'x' in {names}"):`."""
    graph = building("when")
    graph.conditions.append(condition_text(condition))
    try:
        yield
    finally:
        graph.conditions.pop()


@overload
def ask(question: str, /, *, name: str = "ask", **shown: Any) -> Mapping[str, Any]: ...


@overload
def ask(question: str, answer: type[T], /, *, name: str = "ask", **shown: Any) -> T: ...


def ask(question: str, answer: Any = None, /, *, name: str = "ask", **shown: Any) -> Any:
    """Ask a person, who sees what is `shown`. With the type of the `answer` that is given back, else yes or no."""
    return building("ask").add(
        name,
        step_type=StepType.APPROVAL,
        prompt_template=question_text(question),
        input_mapping={key: given_json(value) for key, value in shown.items()},
        answer_schema=None if answer is None else schema_of(answer),
    )


@overload
def prompt(text: str, /, *, returns: type[T], name: str = ..., **options: Any) -> T: ...


@overload
def prompt(text: str, /, *, name: str = ..., **options: Any) -> str: ...


@overload
def prompt(
    text: Callable[[X], str], /, *, each: Iterable[X], name: str = ..., **options: Any
) -> list[Any]: ...


def prompt(
    text: Any,
    /,
    *,
    each: Any = None,
    returns: Any = str,
    model: str | None = None,
    system: str | None = None,
    temperature: float | None = None,
    name: str = "prompt",
    **options: Any,
) -> Any:
    """Ask a model: `prompt(f"Shorten this: {text}")`. With `each`, the text is a function of the item."""
    graph = building("prompt")
    about = StepOptions(**options)
    tool = None
    if (model, system, temperature, returns) != (None, None, None, str):
        definition = ToolDefinition(
            name,
            tool_type="llm",
            model=model,
            system_prompt=system,
            temperature=0.7 if temperature is None else temperature,
            timeout=about.timeout,
            extra={} if returns is str else {"output_schema": schema_of(returns)},
        )
        tool = graph.carry(definition)
    template = text if each is None else text(Value("item"))
    return graph.add(
        name,
        step_type=StepType.LLM_CALL,
        tool_name=tool,
        prompt_template=question_text(template),
        for_each=None if each is None else given_json(each),
        **about.fields(),
    )


def tool(name: str, /, **inputs: Any) -> Any:
    """Call a tool that is installed, by its name."""
    mapping = {key: given_json(value) for key, value in inputs.items()}
    return building("tool").add(name, step_type=StepType.EXISTING_TOOL, tool_name=name, input_mapping=mapping)


def schema_of(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of a type. Raises `Misuse` for one that JSON does not have."""
    if annotation in (UNKNOWN, Any):
        return {}
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        found = TypeAdapter(annotation).json_schema()
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise Misuse(f"{annotation} is no type that JSON has: {str(error).splitlines()[0]}") from None
    return cast(dict[str, Any], _untitled(found))


def _untitled(schema: Any, *, names: bool = False) -> Any:
    """Without the titles that pydantic makes of names. In `names` a title is the name of a property."""
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _untitled(value, names=key in ("properties", "$defs") and not names)
        for key, value in schema.items()
        if names or key != "title" or not isinstance(value, str)
    }


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        around = inspect.getclosurevars(function).nonlocals
        return get_type_hints(function, localns=dict(around), include_extras=True)
    except NameError as error:
        raise Misuse(f"the types of {function.__name__} cannot be read: {error}") from None


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    found = inspect.signature(function)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for each in found.parameters.values():
        if each.kind not in kinds:
            raise Misuse(f"{function.__name__} takes {each}; name each value that it takes")
    return found


def summary_of(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").strip().partition("\n")[0]


def _object_schema(taken: Mapping[str, Any], optional: set[str]) -> dict[str, Any]:
    """The schema of an object with these members."""
    from typing import NotRequired

    from typing_extensions import TypedDict

    kinds = {name: Any if annotation is UNKNOWN else annotation for name, annotation in taken.items()}
    members = {name: NotRequired[kind] if name in optional else kind for name, kind in kinds.items()}
    return schema_of(TypedDict("Inputs", members))  # type: ignore[operator]


def _require_plain(owner: str, name: str, annotation: Any) -> None:
    """Raise `Misuse` for a type whose values are not what JSON gives: inside its process a step gets plain JSON."""
    from pydantic import TypeAdapter

    strange = () if annotation in (UNKNOWN, Any) else _strange(TypeAdapter(annotation).core_schema)
    for each in strange:
        raise Misuse(
            f"{owner}: {name} is of a type that JSON does not have ({each})",
            hint="use str, int, float, bool, list, dict, Literal or a TypedDict: a step gets and gives plain JSON",
        )


_PLAIN = frozenset(
    (
        *("str", "int", "float", "bool", "none", "any", "list", "dict", "literal", "nullable", "union"),
        *("typed-dict", "typed-dict-field", "definitions", "definition-ref", "default", "tagged-union"),
    )
)


def _strange(schema: Any) -> Iterator[str]:
    """The kinds in a schema of pydantic that are more than JSON."""
    if isinstance(schema, list):
        for each in schema:
            yield from _strange(each)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str) and kind not in _PLAIN:
            yield kind
            return
        for key, value in schema.items():
            if key == "fields":
                yield from _strange(list(value.values()))
            elif key in ("schema", "items_schema", "keys_schema", "values_schema", "choices", "definitions"):
                yield from _strange(
                    [each[0] if isinstance(each, tuple) else each for each in value]
                    if isinstance(value, list)
                    else value
                )


def as_json(name: str, value: Any, annotation: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(Any if annotation is UNKNOWN else annotation)
    try:
        return adapter.dump_python(adapter.validate_python(value), mode="json")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Misuse(f"{name} does not fit its type: {first['msg']}") from None
