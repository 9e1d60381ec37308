"""The inputs of a workflow or a tool, as a person gives them: pairs on the line, or a file of JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from ratchet.flowkit.spec import WorkflowSpec

F = TypeVar("F", bound=Callable[..., Any])
_MOST_BYTES = 64 * 1024 * 1024


def input_options(function: F) -> F:
    """`--input KEY=VALUE`, as often as needed, and `--inputs FILE`."""
    for option in (
        click.option(
            "--inputs", "document", metavar="FILE", help="Inputs as a JSON object; - is the standard input."
        ),
        click.option(
            "--input",
            "-i",
            "pairs",
            metavar="KEY=VALUE",
            multiple=True,
            help="One input; @FILE as its value is the text of that file, @@ an @. May be given again.",
        ),
    ):
        function = option(function)
    return function


def workflow_inputs(spec: WorkflowSpec, pairs: Sequence[str], document: str | None) -> dict[str, Any]:
    """What was given, as the types that the workflow declares. Raises `Misuse` with all that is wrong or missing."""
    from ratchet.flowkit.errors import SpecError
    from ratchet.flowkit.inputs import given_text
    from ratchet.flowkit.validation import check_inputs, parse_input_texts

    try:
        given = {
            **read_document(document),
            **parse_input_texts(spec, {key: given_text(text) for key, text in map(split_pair, pairs)}),
        }
        check_inputs(spec, given)
    except SpecError as error:
        raise Misuse("; ".join(error.problems), hint=_how(spec)) from None
    return given


def split_pair(pair: str) -> tuple[str, str]:
    key, equals, text = pair.partition("=")
    if not key or not equals:
        raise Misuse(
            f"{pair[:80]!r} is no input", hint="write --input KEY=VALUE, or give a file with --inputs"
        )
    return key, text


def with_file_texts(pairs: Sequence[str]) -> list[str]:
    """The pairs with the text of the file for each `KEY=@FILE`. Raises `Misuse` for one that cannot be read."""
    if not any("=@" in pair for pair in pairs):
        return list(pairs)
    # Loaded here: most calls name no file.
    from ratchet.flowkit.errors import SpecError
    from ratchet.flowkit.inputs import given_text

    try:
        parts = [pair.partition("=") for pair in pairs]
        return [f"{key}{equals}{given_text(text)}" for key, equals, text in parts]
    except SpecError as error:
        raise Misuse(str(error), hint="KEY=@FILE is the text of a file, KEY=@@x the text @x") from None


def read_document(file: str | None) -> Mapping[str, Any]:
    """The object in a file of JSON; an empty one if no file is named."""
    if file is None:
        return {}
    # Loaded here: most commands of a module are given no file.
    from ratchet.flowkit.errors import SpecError
    from ratchet.flowkit.jsontext import load_json

    try:
        found = load_json(_content(file), largest=_MOST_BYTES)
    except OSError as error:
        raise Misuse(
            f"{file} cannot be read: {error.strerror or error}", hint="name a file with a JSON object"
        ) from error
    except SpecError as error:
        raise Misuse(f"{file}: {error}", hint="""it must be a JSON object, such as {"n": 3}""") from None
    if not isinstance(found, dict):
        raise Misuse(f"{file} is no JSON object", hint="""it must be one, such as {"n": 3}""")
    return found


def _content(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(_MOST_BYTES + 1)
    with Path(file).open("rb") as opened:
        return opened.read(_MOST_BYTES + 1)


def _how(spec: WorkflowSpec) -> str:
    takes = [
        f"{each.name} ({each.type}{'' if each.required and each.default is None else ', optional'})"
        for each in spec.inputs
    ]
    return f"give inputs as --input KEY=VALUE; it takes {', '.join(takes)}" if takes else "it takes no inputs"
