"""Scripts as files: TOML or JSON, read strictly."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.kernel import ConfigError, Misuse, is_name
from ratchet.modelserver.turn import Call, Tokens, Turn

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_HINT = "docs/model-server.md describes the file"


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """A script that was read from a file; its name is the file's unless it says another."""

    name: str
    turns: tuple[Turn, ...]


def read_script(path: Path) -> ScriptFile:
    """Read a script. Raises `ConfigError` naming the file, the turn and the key that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            f"the script {path} cannot be read: {error.strerror}", hint="name a script that is there"
        ) from None
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(f"the script {path} is not {kind}: {error}", hint=_HINT) from None
    if not isinstance(document, dict) or not isinstance(document.get("turns"), list):
        raise ConfigError(f"the script {path} has no list of turns", hint=_HINT)
    if unknown := document.keys() - {"name", "turns"}:
        raise ConfigError(f"{path}: {min(unknown)!r} is unknown; a script has name and turns", hint=_HINT)
    name = document.get("name", path.stem.lower())
    if not isinstance(name, str) or not is_name(name):
        raise ConfigError(f"{path}: {name!r} cannot name a script", hint='give it one: name = "edit"')
    turns = tuple(_turn(path, text, number, given) for number, given in enumerate(document["turns"], 1))
    return ScriptFile(name, turns)


def _turn(path: Path, text: str, number: int, given: Any) -> Turn:
    from pydantic import TypeAdapter, ValidationError

    if isinstance(given, dict) and given.get("usage") is False:
        given = {**given, "usage": None}  # TOML has no null
    try:
        _check_keys(given)
        # As JSON, since only there may a list stand for a tuple although numbers must be numbers.
        return TypeAdapter(Turn).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        complaint = _complaint(error.errors()[0])
    except Misuse as error:
        complaint = str(error)
    except TypeError:
        complaint = "a date or a time is no value of a turn"
    place = f"{path}{_line(text, number, complaint.split()[0])}: turn {number}"
    raise ConfigError(f"{place}: {complaint}", hint=_HINT) from None


def _check_keys(turn: Any) -> None:
    """Raise `Misuse` for the first key that does not exist."""
    if not isinstance(turn, dict):
        raise Misuse(f"{turn!r} is not a table")
    calls = turn.get("calls")
    inside = [("calls.", Call, call) for call in (calls if isinstance(calls, list) else [])]
    for prefix, kind, given in [("", Turn, turn), ("usage.", Tokens, turn.get("usage")), *inside]:
        known = [each.name for each in fields(kind)]
        if isinstance(given, dict) and (unknown := [key for key in given if key not in known]):
            raise Misuse(f"{prefix}{unknown[0]} is unknown; there are: {', '.join(known)}")


def _complaint(problem: ErrorDetails) -> str:
    # Between the keys there are numbers of a list and names of types.
    keys = {each.name for kind in (Turn, Call, Tokens) for each in fields(kind)}
    place = ".".join(str(part) for part in problem["loc"] if part in keys)
    if problem["type"] == "missing":
        return f"{place} is missing"
    return f"{place} is {problem['input']!r}; it {re.sub('^(Input|Value) should', 'must', problem['msg'])}"


def _line(text: str, number: int, key: str) -> str:
    """`:12` for the line of that key of the turn in a TOML text, or of the turn; nothing where it is not found."""
    turn, found = 0, ""
    for at, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[\[\s*turns\s*\]\]", line):
            turn += 1
            if turn == number:
                found = f":{at}"
        elif turn == number and re.match(rf"\s*(\[\[?turns\.)?{re.escape(key.split('.')[0])}\b", line):
            return f":{at}"
    return found
