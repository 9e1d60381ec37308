"""Sending forms of the console without a browser."""

from __future__ import annotations

import re
from typing import Any

from fastapi.testclient import TestClient


def send(client: TestClient, path: str, **values: Any) -> Any:
    """Send a form as somebody would who was given it by a page, and do not follow where it leads."""
    found = re.search(r'name="csrf" value="([^"]+)"', client.get("/console/events").text)
    assert found is not None
    return client.post(path, data={"csrf": found[1], **values}, follow_redirects=False)
