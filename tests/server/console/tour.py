"""A tour of the console: from its home along every link, to one page of each kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from fastapi.routing import APIRoute
from starlette.routing import compile_path

from ratchet.server.console.app import ROUTERS
from tests.server.console.visitor import Visitor

_ROUTES = {
    route.path: compile_path(route.path)[0]
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and "GET" in route.methods
}
# What is no page: a download, data, and a report in which no script may run, not even one that looks for findings.
NO_PAGES = {"/artifacts/{sha256}", "/research/{run}/lineage/data", "/research/{run}/report"}
PAGES = _ROUTES.keys() - NO_PAGES


class Tour:
    """Goes where links lead. `seen` are the kinds of pages that were opened."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor
        self._waiting: deque[str] = deque(["/"])
        self._noted = {("/", frozenset[str]())}
        self.seen: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        """Open one page after the other, and say which one is open."""
        while self._waiting:
            path = self._waiting.popleft()
            self._visitor.open(path)
            self.seen.add(kind_of(path))
            yield path
            self._note_links()

    def _note_links(self) -> None:
        links: list[str] = self._visitor.page.evaluate(
            "[...document.querySelectorAll('main a[href], header a[href]')].map(a => a.getAttribute('href'))"
        )
        for link in links:
            parts = urlsplit(link)
            asked = parse_qs(parts.query)
            if parts.netloc or not parts.path.startswith("/console/") or "format" in asked:
                continue
            path = parts.path.removeprefix("/console")
            kind = (kind_of(path), frozenset(asked))
            if kind not in self._noted and kind[0] not in NO_PAGES:
                self._noted.add(kind)
                self._waiting.append(f"{path}?{parts.query}" if parts.query else path)


def kind_of(path: str) -> str:
    """The route that leads to a page; a path that none leads to is its own kind."""
    plain = path.partition("?")[0]
    return next((route for route, pattern in _ROUTES.items() if pattern.match(plain)), plain)
