"""What a tool of the MCP face is, before its schemas are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]

LONGEST_ANSWER = 60_000
"""Characters of an answer: a model reads it, and many clients take no more."""

LONGEST_TEXT = 20_000
"""Characters of a text that are sent at once unless more are asked for."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A tool that is an endpoint of the API: it takes what that takes, may what that may, and answers the same.

    `without` are arguments of the endpoint that are not offered, and `narrowed` those with other bounds. One that
    `reads` changes nothing, which also makes it a resource unless it `is_resource` no. `repeatable` ones change nothing
    more when they are called again, and `destructive` ones end or remove something for good, or may do anything at all.
    `outside` ones reach programs and models beyond the ledger, and what `queues` work leaves it to a worker.
    """

    name: str
    title: str
    description: str
    endpoint: str
    reads: bool = False
    is_resource: bool = True
    without: frozenset[str] = frozenset()
    narrowed: Mapping[str, Schema] = field(default_factory=dict)
    repeatable: bool = False
    destructive: bool = False
    outside: bool = False
    queues: bool = False

    @property
    def method(self) -> str:
        return self.endpoint.split()[0]

    @property
    def path(self) -> str:
        return self.endpoint.split()[1]
