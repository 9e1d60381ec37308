"""What is running, and what needs a person."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.ledger import Transaction
from ratchet.ledger.agents import list_agents
from ratchet.ledger.events import last_id
from ratchet.ledger.projects import list_projects
from ratchet.ledger.runs import list_runs
from ratchet.runtime.operations import approvals
from ratchet.server import shapes
from ratchet.server.console.buttons import add_buttons
from ratchet.server.console.rendering import Page
from ratchet.server.going_on import KINDS, ended, going_on, lately
from ratchet.server.needed import needed

router = APIRouter()
add_buttons(router, (approvals.approve, approvals.refuse), "/approvals/{approval_id}", "/")
_LATELY = 12
_ENDED = 6
_FIRST: tuple[dict[str, Any], ...] = (
    {
        "name": "All of it",
        "text": "All four flows in a minute, without a model.",
        "commands": ["ratchet demo"],
    },
    {
        "name": "Research",
        "text": "A program gets better by trials, and every gain is proved.",
        "commands": [
            "ratchet research tasks",
            "ratchet research run circle_packing --engine search --trials 20",
        ],
    },
    {
        "name": "Workflows",
        "text": "Steps run side by side, each in a sandbox.",
        "commands": ["ratchet tool list", 'ratchet workflow new "Count the words of a text."'],
    },
    {
        "name": "Agents",
        "text": "A service is rewritten while it serves.",
        "commands": ["ratchet engine check", 'ratchet agent create greeter "Greet people by name."'],
    },
    {
        "name": "Protocols",
        "text": "Planned changes of a repository, judged step by step.",
        "commands": ["ratchet project add .", 'ratchet protocol new "Add a test for the parser." --run'],
    },
)


@router.get("/")
def home(page: Page) -> Response:
    with page.api.read() as tx:
        running = going_on(page.api, tx)
        document = {
            "running": running,
            "kinds": {kind: sum(run["kind"] == kind for run in running) for kind in KINDS},
            "ended": ended(page.api, tx, limit=_ENDED),
            "needs": [asdict(need) for need in needed(page.api, tx)],
            "lately": [shapes.Event.model_validate(event) for event in lately(page.api, tx, limit=_LATELY)],
            "first": [] if _is_used(tx) else _FIRST,
            "events": last_id(tx.connection),
        }
    return page.show("home.html", document, title="Home", live={})


def _is_used(tx: Transaction) -> bool:
    """Whether anything was ever begun here."""
    return bool(list_runs(tx, limit=1) or list_projects(tx, limit=1) or list_agents(tx, limit=1))
