"""One request to a forge's REST interface, whoever carries it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from ratchet.forges.errors import Unreachable

MOST_BYTES = 16 * 1024 * 1024
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def value(self) -> Any:
        """The JSON in it; nothing where there is none."""
        if not self.content.strip():
            return None
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            if self.ok:
                raise Unreachable(
                    f"the forge answered {self.status} with something that is no JSON",
                    hint="check that protocols.github_url or protocols.gitlab_url is the address of its REST interface",
                ) from None
            return None


class Api(Protocol):
    """A way to a forge's REST interface that knows who asks."""

    login: str
    """What a person does when the forge does not accept who asks."""

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send one request; `path` is relative and escaped. Raises `Unreachable` or `Unauthenticated`."""
        ...

    def hide(self, text: str) -> str:
        """The text without any secret that this way knows."""
        ...


def with_query(path: str, **query: str | int) -> str:
    return f"{path}?{urlencode(query)}"
