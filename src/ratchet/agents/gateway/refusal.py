"""Answers that the gateway gives by itself."""

from __future__ import annotations

import json
from http import HTTPStatus

# JSON-RPC's word for a request that is wrong, and the first of those left to servers.
_INVALID_REQUEST = -32600
_SERVER_ERROR = -32000

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Refusal(Exception):
    """A request that no server answers, and what its caller is told instead."""

    def __init__(
        self, status: int, message: str, *, hint: str | None = None, header: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.header = header

    def encoded(self, *, close: bool, bodiless: bool = False) -> bytes:
        """The whole answer. An MCP client shows the message of such a body to whoever made the call."""
        error: dict[str, object] = {
            "code": _INVALID_REQUEST if self.status < 500 else _SERVER_ERROR,
            "message": self.message,
        }
        if self.hint is not None:
            error["data"] = {"hint": self.hint}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        lines = ["content-type: application/json", f"content-length: {len(body)}"]
        if self.header is not None:
            lines.append(self.header)
        if close:
            lines.append("connection: close")
        head = (
            STATUS_LINES[self.status] + "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n"
        )
        return head if bodiless else head + body
