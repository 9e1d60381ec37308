"""The files that are made of the code, and writing them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from ratchet.cli.reference.api_page import api_page
from ratchet.cli.reference.manual import commands_page
from ratchet.cli.reference.schema_words import GENERATED, code, page, prose, resolved, table, type_words
from ratchet.config.keys import Keys
from ratchet.config.schema import ANY, KeyLeaf, KeyTable, entries
from ratchet.config.sources import ALIASES, IGNORED, Key, dotted, variable
from ratchet.kernel import Misuse

# What depends on the machine or on the home is told in words.
_DEFAULTS: Mapping[Key, str] = {
    ("database_url",): "`sqlite:///ledger.db`, a file in the home",
    ("runtime", "slots"): "twice the number of processors, and at least 4",
}
_OPENING = """\
With nothing configured, Ratchet works: one SQLite file, no server, no network. Every key on this page may be set; an
unknown key, or a value that does not fit, is an error that names its place. `ratchet config show` prints every value
and where it comes from.

## Where values come from

The later is the stronger:

1. what is built in: the defaults on this page;
2. `ratchet.toml` in the home: `ratchet init` writes one with every key, commented out;
3. older names of variables, `TASKSGODZILLA_*` and `PROTOCOL_*`, where they are listed below;
4. `RATCHET_*` variables: `RATCHET_SERVER__PORT` is `server.port`, with two underscores for a dot;
5. the command line, such as `--port` of `ratchet serve`.

An empty variable counts as not set. The word `none` in a variable unsets what the file has set. A list of words may be
written as one text, which is split as a shell would.

## The home

The home is the directory with `ratchet.toml`, the ledger and the artifacts. It is named by `--home`, else by
`RATCHET_HOME`, else it is the nearest `.ratchet` at or above the working directory, else `.ratchet` at the top
of the git repository there, or in the working directory itself."""


def settings_page() -> str:
    return page(["# Configuration", GENERATED, _OPENING, *_groups(), *_ending()])


def _groups() -> Iterator[str]:
    schema = Keys.model_json_schema()
    found = list(entries())
    yield "## All keys"
    for name, group in groupby(found, key=lambda entry: entry.key[0]):
        inner = list(group)
        head = next((each for each in inner if isinstance(each, KeyTable) and each.key[0] == name), None)
        yield f"### {name}"
        yield (_sentence(head.field.description) if head is not None and head.key == (name,) else "")
        yield from _tables(inner, schema)


def _tables(found: Sequence[KeyLeaf | KeyTable], schema: Mapping[str, Any]) -> Iterator[str]:
    """The keys of each table in it, with what the table is for."""
    for key, group in groupby(
        (each for each in found if isinstance(each, KeyLeaf)), key=lambda leaf: leaf.key[:-1]
    ):
        leaves = list(group)
        if len(key) > 1:
            yield f"#### {dotted(key)}"
            about = next(
                (each.field.description for each in found if isinstance(each, KeyTable) and each.key == key),
                None,
            )
            yield _sentence(about)
        yield table(
            ["key", "what it does", "type", "default", "variable"], (_row(leaf, schema) for leaf in leaves)
        )


def _row(leaf: KeyLeaf, schema: Mapping[str, Any]) -> Sequence[str]:
    older = [code(name) for name, alias in ALIASES.items() if alias.key == leaf.key]
    variables = [code(variable(leaf.key)), *older]
    return (
        code(dotted(leaf.key)),
        prose(leaf.field.description or ""),
        prose(type_words(_schema_of(leaf.key, schema))),
        _default(leaf),
        ", ".join(variables),
    )


def _schema_of(key: Key, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of the value at `key`. Without `null`: that is what a default of none says."""
    inner: Mapping[str, Any] = schema
    for part in key:
        inner = resolved(inner, schema["$defs"])
        inner = inner["additionalProperties"] if part == ANY else inner["properties"][part]
    inner = resolved(inner, schema["$defs"])
    several = [each for each in inner.get("anyOf", ()) if each.get("type") != "null"]
    kind = resolved(several[0], schema["$defs"]) if len(several) == 1 else inner
    return {"type": "string"} if key == ("database_url",) else kind


def _default(leaf: KeyLeaf) -> str:
    if leaf.key in _DEFAULTS:
        return _DEFAULTS[leaf.key]
    value = leaf.field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "must be given" if leaf.field.is_required() else "not set"
    if value is None or leaf.key[-1] == ANY:
        example = json.dumps(leaf.field.examples[0]) if leaf.field.examples else None
        return "not set" if example is None else f"not set; such as {code(example)}"
    return code(json.dumps(value, ensure_ascii=False))


def _ending() -> Iterator[str]:
    yield "## Older names that do nothing here"
    yield "They may be set, and `ratchet config show` says that they are ignored."
    yield table(["variable", "why"], ((code(name), prose(reason)) for name, reason in IGNORED.items()))


def _sentence(text: str | None) -> str:
    return "" if not text else f"{prose(text[:1].upper() + text[1:])}."


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands_page,
    "api.md": api_page,
    "configuration.md": settings_page,
}
"""The pages of the reference by their names."""


def write_pages(directory: Path) -> list[Path]:
    """Write every page into `directory`. The files that have changed."""
    changed = []
    for name, make in PAGES.items():
        path, text = directory / name, make()
        if not path.exists() or path.read_text() != text:
            write_page(path, text)
            changed.append(path)
    return changed


def write_page(path: Path, text: str) -> None:
    """Write one, and the directories that it lies in. Raises `Misuse`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise Misuse(
            f"{path} cannot be written: {error.strerror or error}", hint="name another place with --out"
        ) from error
