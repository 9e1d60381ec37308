"""The way to a forge by HTTP, with a token."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ratchet.config.masking import MASK
from ratchet.forges.api import MOST_BYTES, SECONDS, Answer
from ratchet.forges.errors import Unreachable

if TYPE_CHECKING:
    import httpx2

_CONNECT_SECONDS = 10.0
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


class RestApi:
    """Sends the token to one address and to no other: redirects are not followed."""

    login = "give the project a new secret `forge_token`"

    def __init__(
        self, url: str, token: str, headers: Mapping[str, str], *, elsewhere: Mapping[str, str] | None = None
    ) -> None:
        """`elsewhere` are paths that are not below `url`."""
        self._url = url.rstrip("/")
        self._token = token
        self._elsewhere = dict(elsewhere or {})
        self._headers = {
            **headers,
            "authorization": f"Bearer {token}",
            # A little that is compressed may unfold to a lot.
            "accept-encoding": "identity",
            "user-agent": "ratchet",
        }

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        import httpx2

        url = self._elsewhere.get(path, f"{self._url}/{path}")
        content = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **({} if body is None else {"content-type": "application/json"})}
        try:
            async with (
                self._client() as client,
                client.stream(method, url, headers=headers, content=content) as response,
            ):
                return Answer(response.status_code, _lower(response.headers), await _read(response))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            told = self.hide(str(error)) or type(error).__name__
            raise Unreachable(
                f"{self._url} cannot be reached: {told}",
                hint="check the network, and the address in protocols.github_url or protocols.gitlab_url",
            ) from None

    def hide(self, text: str) -> str:
        return text.replace(self._token, MASK)

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        parts = urlsplit(self._url)
        return httpx2.AsyncClient(
            # Certificates take long to load, and are of no use without https.
            verify=_certificates() if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            timeout=httpx2.Timeout(SECONDS, connect=_CONNECT_SECONDS),
            follow_redirects=False,
            # A proxy is for other machines.
            trust_env=parts.hostname not in _HERE,
        )


@functools.cache
def _certificates() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _read(response: httpx2.Response) -> bytes:
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MOST_BYTES:
            raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
    return bytes(content)
