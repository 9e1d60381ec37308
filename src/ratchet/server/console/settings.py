"""Every setting with where it came from, and what this server is made of."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ratchet import __version__
from ratchet.config import Loaded
from ratchet.doctor import disk, python
from ratchet.ledger.check import ledger_size
from ratchet.server.console.page import Page, View
from ratchet.server.fields import TextFilter

router = APIRouter()
_PACKAGES = ("sqlalchemy", "fastapi", "uvicorn", "pydantic", "mcp", "claude-agent-sdk")
_GIVEN = ("projects", "runs", "steps", "attempts", "trials", "sessions", "events", "artifacts", "jobs")


@router.get("/settings")
def settings(page: Page, search: TextFilter = None) -> Response:
    loaded = page.api.service.loaded
    size = ledger_size(page.api.ledger)
    document = {
        "tables": _tables(loaded, search),
        "search": search,
        "ignored": loaded.ignored,
        "home": str(loaded.home),
        "versions": {"ratchet": __version__, "python": platform.python_version(), **_packages()},
        "ledger": {
            "database": size.database,
            "bytes": size.bytes,
            "schema": size.schema,
            "rows": {name: size.given[name] for name in _GIVEN},
        },
        "listening": _listening(page),
        "checks": [asdict(each) for each in (*python(), *disk(loaded.home))],
    }
    return page.show("settings.html", document, title="Settings")


def _tables(loaded: Loaded, search: str | None) -> list[dict[str, Any]]:
    """The settings, table by table; with `search` only those whose name or description has it."""
    wanted = (search or "").casefold()
    found = [
        each for each in loaded.describe() if wanted in f"{each.origin.key} {each.description}".casefold()
    ]
    return [
        {
            "name": table,
            "settings": [
                {
                    "key": each.origin.key,
                    "value": each.origin.value,
                    "default": each.default,
                    "source": each.origin.source,
                    "where": each.origin.where,
                    "description": each.description,
                }
                for each in together
            ],
        }
        for table, together in groupby(found, key=lambda each: each.table)
    ]


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _listening(page: View) -> dict[str, Any]:
    host, port = page.request.scope.get("server") or ("", None)
    return {
        "host": host,
        "port": port,
        "process": page.api.service.process_id,
        "serves_agents": page.api.service.host is not None,
    }
