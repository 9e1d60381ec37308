"""Whatever is sent to the endpoints of projects and protocols: no 5xx, and every answer is as it is described."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ratchet.ledger import Ledger
from ratchet.ledger.runs import get_step, open_attempt
from tests.server.conftest import TOKEN
from tests.server.protocol_things import new_project, new_protocol, new_step

TAGS = {"projects", "protocols", "steps", "attempts", "clarifications", "specs", "webhooks"}
EXAMPLES = 10
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_nothing_that_is_sent_breaks_the_api(api: TestClient, ledger: Ledger) -> None:
    for number in range(3):
        protocol = new_protocol(api, new_project(api, f"shop-{number}"))
        step = new_step(api, protocol)
        with ledger.write() as tx:
            open_attempt(tx, get_step(tx, step))
    schema = schemathesis.openapi.from_asgi("/openapi.json", api.app)
    operations = [found.ok() for found in schema.get_all_operations()]
    wanted = [
        each for each in operations if TAGS & set(each.tags or ()) and not each.path.endswith("/stream")
    ]
    assert len(wanted) > 45
    # What ends or removes things comes last, or little would be left to look at.
    for operation in sorted(
        wanted, key=lambda each: (each.path.endswith("/cancel"), each.method == "delete")
    ):
        for mode in GenerationMode:
            _try(operation, mode)


def _try(operation: Any, mode: GenerationMode) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @SETTINGS
    def answered(case: Case) -> None:
        # Half of the numbers name something that exists: two of each kind do for all of them.
        for name, value in case.path_parameters.items():
            if name.endswith("_id") and isinstance(value, int) and value % 2:
                case.path_parameters[name] = value % 4 + 1
        headers = {"Authorization": f"Bearer {TOKEN}"}
        case.call_and_validate(headers=headers, checks=CHECKS)

    answered()
