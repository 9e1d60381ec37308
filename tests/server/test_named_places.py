"""Whoever holds only the token of a project can have the server open no file and no address of their choice."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ratchet.operations import Operation
from ratchet.server.every_operation import EVERY
from tests.server.test_project_tokens import Place, holder, place  # noqa: F401

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
HOSTILE = [
    "replay:/dev/zero",
    "replay:/etc/passwd",
    "/etc/passwd",
    "../../../etc/passwd",
    "file:///etc/passwd",
    "http://169.254.169.254/v1#model",
    "llm:http://169.254.169.254/v1#model",
    "codex:/etc/passwd",
]
# What names an engine, a model, a path or an address, or is a table in which something may.
NAMING = re.compile("engine|model|path|root|url|template_config|policy")
# What is text, or a name of something that the project has.
PLAIN = {
    *("answer", "answered_by", "base_branch", "by", "branch", "conditions", "confirm", "depends_on"),
    *("description", "key", "kind", "protocol_name", "queue", "spec", "status", "step_name", "step_type"),
    # Where it came from: it is kept, and never opened.
    *("summary", "template_source", "track", "type", "workflow"),
}
OPENED: list[str] = []
WATCHED = re.compile(r"^/etc/passwd$|^/dev/zero$|169\.254")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in (
        "open",
        "os.listdir",
        "os.scandir",
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
    ):
        OPENED.extend(str(each) for each in arguments if WATCHED.search(str(each)))


sys.addaudithook(_watch)
OPEN_TO_PROJECTS = [each for each in EVERY if each.project_too and each.method != "GET"]


def named(operation: Operation[..., Any]) -> Iterator[str]:
    """The parameters that may name something on this machine or elsewhere."""
    for each in operation.parameters.values():
        takes_text = "str" in str(each.type) or "Any" in str(each.type) or each.type is type(None)
        if takes_text and not each.choices and NAMING.search(each.name):
            yield each.name
        else:
            assert not takes_text or each.choices or each.name in PLAIN, f"say what {each.name} names"


def tables(hostile: str) -> list[Any]:
    """The shapes in which an engine or a model can lie in a table."""
    return [
        {"template": {"engineDefaults": {"execute": hostile}}},
        {"template": {"agents": [{"id": "a", "modelName": hostile}]}},
        {"engine_id": hostile},
        {"steps": {"model": [hostile]}},
    ]


def test_nothing_that_the_holder_names_is_opened(place: Place, holder: TestClient) -> None:  # noqa: F811
    numbers = {f"{name}_id": place.mine[name] for name in ("project", "protocol", "step")}
    needed = {"step_index": 7, "step_name": "07-x", "step_type": "work", "workspace_path": "ws"}
    tried = set()
    OPENED.clear()
    for operation in OPEN_TO_PROJECTS:
        path = re.sub(r"\{(\w+)(:path)?\}", lambda found: str(numbers.get(found[1], "main")), operation.path)
        taken = {**needed, "protocol_name": "0002-x"}
        body = {name: value for name, value in taken.items() if name in operation.parameters}
        for field in named(operation):
            for hostile in HOSTILE:
                values = tables(hostile) if field in ("template_config", "policy") else [hostile]
                for value in values:
                    tried.add(field)
                    answer = holder.post(path, json={**body, field: value})
                    # As a path, some of these are a name in the clone: nothing of that name is there.
                    refusals = (403, 409, 422) if field == "workspace_path" else (403, 422)
                    assert answer.status_code in refusals, (field, value, answer.text)
    assert tried >= {"engine_id", "model", "policy", "template_config", "workspace_path"}
    assert OPENED == []


def test_what_a_project_may_name_by_itself_is_taken(place: Place, holder: TestClient) -> None:  # noqa: F811
    step = {"step_index": 7, "step_name": "07-x", "step_type": "work"}
    answer = holder.post(
        f"/protocols/{place.mine['protocol']}/steps",
        json={**step, "engine_id": "codex", "model": "openrouter/maker/model-1.5:free"},
    )
    assert answer.status_code == 200, answer.text
    answer = place.api.post(
        f"/protocols/{place.open['protocol']}/steps",
        json={**step, "engine_id": "llm", "model": "http://10.0.0.1:8000/v1#model"},
    )
    assert answer.status_code == 200, answer.text


def test_everything_else_is_the_operators(place: Place, holder: TestClient) -> None:  # noqa: F811
    for operation in (each for each in EVERY if not each.project_too):
        path = re.sub(r"\{(\w+)(:path)?\}", str(place.mine["project"]), operation.path)
        assert holder.request(operation.method, path).status_code == 403, operation.name
