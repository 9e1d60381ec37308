"""Projects, what is asked about them, and the branches of their remotes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ratchet.ledger.projects import get_project
from ratchet.projects.operations import OPERATIONS
from ratchet.projects.secrets import put_secrets, secret_names
from ratchet.server.fields import Id, Secret, Text
from ratchet.server.operation import router_of, shape_of
from ratchet.server.problems import documented
from ratchet.server.service import Api

router = router_of("projects", OPERATIONS, responses=documented(400, 401, 403, 422, 502))


@dataclass(frozen=True, slots=True)
class SecretsAnswer:
    secret_names: list[str] = field(metadata={"examples": [["api_token", "webhook_secret"]]})


@router.put(
    "/projects/{project_id}/secrets", response_model=shape_of(SecretsAnswer), responses=documented(404)
)
def keep_secrets(api: Api, project_id: Id, secrets: dict[Text, Secret]) -> SecretsAnswer:
    """Set secrets by name, or remove those that are null; others stay. Answers with the names alone.

    For the operator alone. An `api_token` is needed for this project's things from then on.
    """
    with api.write() as tx:
        get_project(tx, project_id)
        put_secrets(tx, api.runtime, project_id, secrets)
        return SecretsAnswer(secret_names(tx, project_id))
