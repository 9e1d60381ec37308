"""`docs/reference/api.md`: every request with what it takes, what it answers and who may ask."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.cli.reference.schema_words import (
    GENERATED,
    Schema,
    anchor,
    block,
    code,
    name_of,
    page,
    prose,
    resolved,
    sample,
    table,
    type_words,
)
from ratchet.config import load_settings
from ratchet.runtime import Kinds, open_ledger, open_runtime
from ratchet.server.app import create_app
from ratchet.server.project_scope import ALLOWED, OPEN
from ratchet.server.service import HEADER

_METHODS = ("get", "post", "put", "patch", "delete")
# Whose token opens a request.
_FOR_ALL, _FOR_PROJECTS, _FOR_OPERATORS = (
    "anybody",
    "the operator, and the project it is about",
    "the operator",
)
_NOTHING = "nothing"

_OPENING = """\
`ratchet serve` answers these requests, by default at `http://127.0.0.1:8484`. The same description for programs is at
`GET /openapi.json`. Bodies and answers are JSON; numbers in paths are those of the ledger.

## Who may ask

Every request but the open ones needs `Authorization: Bearer TOKEN`. The operator's token is `server.token`, or in
the file `token` of the home. The token of a project, its secret `api_token`, opens what that project owns and nothing
else. For the things of a project that has such a token, the operator sends it as `{header}` beside the own one.

```sh
TOKEN=$(cat .ratchet/token)
curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8484/runs
```

## What goes wrong

An error is a problem document (RFC 9457) of the type `application/problem+json`: `type`, `title`, `status`, `detail`
with the offending value, `hint` with the next step, and `request_id`, under which logs and events know the request. 401
is a missing or wrong token, 403 that of another project, 404 a thing that is not there, 409 one that is not in a state
that allows it, 422 a wrong value, and 503 a database that is away.

## Pages of a list

A list has a `limit`. A page that is not the last names the next one in the header `Link`; where an answer has `items`,
its `next` is what to send as `before`."""


class ApiRequest(NamedTuple):
    """One method of one path, as OpenAPI describes it."""

    method: str
    path: str
    described: Mapping[str, Any]

    @property
    def heading(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def tag(self) -> str:
        return str(self.described["tags"][0])

    @property
    def asked_by(self) -> str:
        if self.path in OPEN:
            return _FOR_ALL
        allowed = {(method, path.replace(":path}", "}")) for method, path in ALLOWED}
        return _FOR_PROJECTS if (self.method, self.path) in allowed else _FOR_OPERATORS


def api_page() -> str:
    document = _description()
    schemas = document["components"]["schemas"]
    requests = [
        ApiRequest(method.upper(), path, described)
        for path, operations in document["paths"].items()
        for method, described in operations.items()
        if method in _METHODS
    ]
    opening = _OPENING.format(header=HEADER)
    return page(["# HTTP API", GENERATED, opening, *_sections(requests, schemas), *_shapes(schemas)])


def _description() -> dict[str, Any]:
    """What the server says of itself, asked of one that works on an empty ledger and serves nobody."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / ".ratchet"
        loaded = load_settings({"home": str(home)}, env={}, cwd=Path(directory))
        with open_ledger(loaded) as ledger:
            runtime = open_runtime(loaded, ledger, Kinds())
            return create_app(runtime, loaded, "no token").openapi()


def _sections(requests: Sequence[ApiRequest], schemas: Schema) -> Iterator[str]:
    tags = list(dict.fromkeys(request.tag for request in requests))
    yield "## All requests"
    yield table(
        ["request", "who", "what"],
        (
            (f"[`{each.heading}`](#{anchor(each.heading)})", each.asked_by, prose(_summary(each)))
            for tag in tags
            for each in requests
            if each.tag == tag
        ),
    )
    for tag in tags:
        yield f"## Requests: {tag}"
        for each in requests:
            if each.tag == tag:
                yield from _section(each, schemas)


def _section(request: ApiRequest, schemas: Schema) -> Iterator[str]:
    yield f"### {request.heading}"
    yield from (
        prose(" ".join(each.split())) for each in request.described.get("description", "").split("\n\n")
    )
    yield f"Who may ask: {request.asked_by}."
    yield _parameters(request)
    yield from _body(request, schemas)
    yield f"Answers: {_answers(request)}."
    yield block([_curl(request, schemas)], "sh")


def _summary(request: ApiRequest) -> str:
    text = " ".join(request.described.get("description", "").split())
    return text.partition(". ")[0].removesuffix(".")


def _parameters(request: ApiRequest) -> str:
    rows = [
        (
            code(each["name"]),
            each["in"],
            prose(type_words(each.get("schema", {}))),
            "required" if each.get("required") else _default(each.get("schema", {})),
            prose(each.get("description", "")),
        )
        for each in request.described.get("parameters", ())
        if each["name"] != HEADER
    ]
    return table(["parameter", "in", "type", "default", "meaning"], rows) if rows else ""


def _body(request: ApiRequest, schemas: Schema) -> Iterator[str]:
    content = request.described.get("requestBody", {}).get("content", {})
    if not content:
        return
    kind, described = next(iter(content.items()))
    schema = described.get("schema", {})
    chosen = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    # One that may be left out is described like any other.
    whole = resolved(chosen[0] if len(chosen) == 1 else schema, schemas)
    if not whole.get("properties"):
        yield f"Body: {prose(type_words(whole))}, as `{kind}`."
        return
    yield "Body, which may be left out:" if chosen else "Body:"
    yield _fields(whole)


def _fields(schema: Schema) -> str:
    required = schema.get("required", ())
    return table(
        ["field", "type", "default", "meaning"],
        (
            (
                code(name),
                _linked(each),
                "required" if name in required else _default(each),
                prose(each.get("description", "")),
            )
            for name, each in schema["properties"].items()
        ),
    )


def _answers(request: ApiRequest) -> str:
    told = []
    for status, answer in request.described["responses"].items():
        if not status.isdecimal() or int(status) >= 400:
            continue
        content = answer.get("content", {})
        kinds = [
            _linked(each["schema"]) if each.get("schema") else code(kind) for kind, each in content.items()
        ]
        told.append(f"{status} with {' or '.join(kinds) or _NOTHING}")
    problems = sorted(
        each for each in request.described["responses"] if each.isdecimal() and int(each) >= 400
    )
    return "; ".join(told) + (f". Problems: {', '.join(problems)}" if problems else "")


def _curl(request: ApiRequest, schemas: Schema) -> str:
    words = ["curl"]
    if request.method != "GET":
        words.append(f"-X {request.method}")
    if request.asked_by != _FOR_ALL:
        words.append('-H "Authorization: Bearer $TOKEN"')
    content = request.described.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        body = json.dumps(sample(content["application/json"].get("schema", {}), schemas), ensure_ascii=False)
        words += ['-H "Content-Type: application/json"', f"-d {shlex.quote(body)}"]
    return " ".join([*words, f"http://127.0.0.1:8484{_filled(request)}"])


def _filled(request: ApiRequest) -> str:
    path = request.path
    for each in request.described.get("parameters", ()):
        if each["in"] == "path":
            value = sample(each.get("schema", {}), {}) if each.get("schema") else 1
            path = path.replace(f"{{{each['name']}}}", str(value) if value != "…" else each["name"].upper())
    return path


def _default(schema: Schema) -> str:
    value = schema.get("default")
    return "" if value is None else code(json.dumps(value, ensure_ascii=False))


def _linked(schema: Schema) -> str:
    """The type, and where it is a shape of ours a link to it."""
    if "$ref" in schema:
        name = name_of(schema["$ref"])
        return f"[{prose(name)}](#{anchor(name)})"
    if schema.get("type") == "array" and "$ref" in schema.get("items", {}):
        return f"list of {_linked(schema['items'])}"
    return prose(type_words(schema))


def _shapes(schemas: Schema) -> Iterator[str]:
    yield "## Shapes"
    yield "What requests and answers are made of."
    for name, schema in sorted(schemas.items()):
        yield f"### {prose(name)}"
        yield prose(" ".join(schema.get("description", "").split()))
        yield _parts(schema) if schema.get("properties") else f"{prose(type_words(schema)).capitalize()}."


def _parts(schema: Schema) -> str:
    rows = [
        (code(name), _linked(each), prose(each.get("description", "")))
        for name, each in schema["properties"].items()
    ]
    return table(["field", "type", "meaning"], rows)
