"""Whose commits a protocol makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.ledger.projects import Project
from ratchet.workspaces import Identity


def author_of(project: Project) -> Identity | None:
    """Who was settled when the project was set up; nobody means Ratchet itself."""
    return read_author(project.facts.get("identity"))


def read_author(data: Any) -> Identity | None:
    """Raises `Misuse` for a name or an address that cannot stand in a commit."""
    if not isinstance(data, Mapping) or not data.get("name") or not data.get("email"):
        return None
    return Identity(str(data["name"]), str(data["email"]))


def write_author(author: Identity | None) -> dict[str, str] | None:
    return None if author is None else {"name": author.name, "email": author.email}
