"""What a tool of the MCP face is, before its schemas are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ratchet.operations import Operation

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

    @classmethod
    def of(cls, operation: Operation[..., Any]) -> Declared | None:
        """The tool that an operation is declared as, if it is."""
        if operation.tool is None:
            return None
        given = asdict(operation.tool)
        if operation.reads:
            given |= {"reads": True, "repeatable": True}
        return cls(description=" ".join(operation.help.split()), endpoint=operation.api, **given)

    @property
    def method(self) -> str:
        return self.endpoint.split()[0]

    @property
    def path(self) -> str:
        return self.endpoint.split()[1]
