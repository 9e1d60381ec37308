"""Deliveries of webhooks: whether they are from the forge, and what they say.

A delivery is signed over its raw bytes, so these are kept as they came. Which secret it must be signed with depends on
the project that it is about, which only the caller knows.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs

from ratchet.forges.event import ForgeEvent
from ratchet.forges.forge import Provider
from ratchet.forges.github_events import read_github
from ratchet.forges.gitlab_events import read_gitlab
from ratchet.forges.payload import text
from ratchet.kernel import RatchetError

_FORM = "application/x-www-form-urlencoded"
_TOKENS = ("x-gitlab-token", "x-ratchet-webhook-token", "x-tasksgodzilla-webhook-token")
_SIGNATURES: Mapping[Provider, str] = {
    "github": "x-hub-signature-256",
    "gitlab": "x-gitlab-signature-256",
}


class MalformedDelivery(RatchetError):
    """It cannot be read."""

    http_status = 400


class UnsignedDelivery(RatchetError):
    """It does not prove that it is from the forge."""

    http_status = 401


@dataclass(frozen=True, slots=True)
class Delivery:
    """A request as it came; the names of its headers are in lower case."""

    provider: Provider
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, provider: Provider, headers: Mapping[str, str], body: bytes) -> Delivery:
        return cls(provider, {name.lower(): value for name, value in headers.items()}, body)

    @property
    def proof(self) -> bool:
        """Whether it brings what proves where it is from. Not whether that is right."""
        if self.provider == "github":
            return bool(self.headers.get(_SIGNATURES["github"]))
        return bool(self._token)

    def is_signed_with(self, secret: str) -> bool:
        """Whether it comes from somebody who knows the secret. Takes as long for a near guess as for a far one."""
        if not secret:
            return False
        if self.provider == "github":
            return self._is_signed(secret)
        token_fits = hmac.compare_digest(_bytes(self._token), secret.encode())
        signature_fits = _SIGNATURES["gitlab"] not in self.headers or self._is_signed(secret)
        return token_fits and signature_fits

    def read(self) -> ForgeEvent:
        """What it says. Raises `MalformedDelivery`; whatever is missing or odd inside of the JSON is left out."""
        value = self._value()
        if not isinstance(value, dict):
            raise MalformedDelivery(
                f"the delivery is a JSON {type(value).__name__}, not an object",
                hint="let the webhook send application/json",
            )
        read = read_github if self.provider == "github" else read_gitlab
        return replace(read(self.headers, value), delivery=self._id())

    @property
    def _token(self) -> str:
        return next((self.headers[name] for name in _TOKENS if self.headers.get(name)), "")

    def _is_signed(self, secret: str) -> bool:
        given = self.headers.get(_SIGNATURES[self.provider], "").strip().removeprefix("sha256=")
        wanted = hmac.new(secret.encode(), self.body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(_bytes(given.lower()), wanted.encode())

    def _value(self) -> Any:
        try:
            content = self.body
            if self.headers.get("content-type", "").lower().startswith(_FORM):
                # What GitHub sends unless it is told otherwise: a form whose only field is the JSON.
                content = parse_qs(content.decode(), strict_parsing=True)["payload"][0].encode()
            return json.loads(content)
        except (ValueError, KeyError, RecursionError) as error:
            told = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
            raise MalformedDelivery(
                f"the delivery cannot be read: {told}", hint="let the webhook send application/json"
            ) from None

    def _id(self) -> str:
        """What the forge calls it; a hash of its content where the forge does not say."""
        digest = hashlib.sha256(self.body).hexdigest()
        if self.provider == "github":
            return text(self.headers.get("x-github-delivery"), 200) or digest
        # An event's own id is shared by the events that it causes, so it does not do alone.
        event = text(self.headers.get("x-gitlab-event-uuid"), 100)
        return text(self.headers.get("idempotency-key"), 200) or (f"{event}:{digest}" if event else digest)


def _bytes(header: str) -> bytes:
    return header.encode("utf-8", "surrogateescape")
