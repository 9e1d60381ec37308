"""Deliveries of webhooks: whether they are from the forge, and what they say.

A delivery is signed over its raw bytes, so these are kept as they came. Which secret it must be signed with depends on
the project that it is about, which only the caller knows.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ratchet.config import Settings
from ratchet.forges.api import PROGRAMS, Api, NoForge, RestApi, Unauthenticated, find_program
from ratchet.forges.forge import Forge, ForgeEvent, Provider, text
from ratchet.forges.github import GRAPHQL, HEADERS, GitHub, read_github
from ratchet.forges.gitlab import GitLab, read_gitlab
from ratchet.kernel import RatchetError, exact_bytes

# The host in the address of a repository, by the host of the REST interface where they differ.
_HOSTS = {"api.github.com": "github.com"}
_PUBLIC = {"github": "github.com", "gitlab": "gitlab.com"}


def open_forge(
    settings: Settings,
    provider: str | None,
    remote_key: str | None,
    token: str | None,
    *,
    environment: Mapping[str, str] | None = None,
) -> Forge:
    """The forge of a repository: by REST with the project's token, else by `gh` or `glab` as whoever is logged in.

    May ask one of these programs, so it is not for the event loop. Raises `NoForge` or `Unauthenticated`.
    """
    host, repository = check_on_forge(remote_key)
    which = _provider(provider, host)
    url = settings.protocols.github_url if which == "github" else settings.protocols.gitlab_url
    api = _way(which, url, host, token, os.environ if environment is None else environment)
    return GitHub(api, repository) if which == "github" else GitLab(api, repository)


def check_on_forge(remote_key: str | None) -> tuple[str, str]:
    """The host and the repository on it. Raises `NoForge` for a remote that is a directory, and for none."""
    host, _, repository = (remote_key or "").partition("/")
    if not host or "/" not in repository:
        raise NoForge(
            f"{remote_key or 'a repository without a remote'} is no repository on a forge",
            hint="pull requests need a project whose git_url is on GitHub or GitLab",
        )
    return host, repository


def provider_of(host: str) -> Provider | None:
    """The kind of forge that a host is, as far as its name tells."""
    name = host.partition(":")[0].lower()
    if name == "github.com" or name.startswith("github."):
        return "github"
    return "gitlab" if name == "gitlab.com" or name.startswith("gitlab.") else None


def _provider(given: str | None, host: str) -> Provider:
    if given == "github":
        return "github"
    if given == "gitlab":
        return "gitlab"
    found = provider_of(host) if given is None else None
    if found is None:
        raise NoForge(
            f"there is no forge {given!r}" if given else f"it is not known which forge {host} is",
            hint="set the project's ci_provider to github or gitlab",
        )
    return found


def _way(provider: Provider, url: str, host: str, token: str | None, environment: Mapping[str, str]) -> Api:
    there = urlsplit(url).hostname or ""
    serves = _HOSTS.get(there, there)
    if serves == _PUBLIC[provider] and host != serves:
        # Without being told the address, a token of one forge would go to another.
        raise NoForge(
            f"{host} is not {serves}, and it is not known where its REST interface is",
            hint=f"set protocols.{provider}_url, for instance to https://{host}/api/"
            + ("v3" if provider == "github" else "v4"),
        )
    if token:
        headers = HEADERS if provider == "github" else {"accept": "application/json"}
        return RestApi(url, token, headers, elsewhere={GRAPHQL: _graphql(url)})
    # A program that is logged in to the forge itself must not be used when the address is another one.
    found = find_program(provider, host, environment) if host == serves else None
    if found is None:
        raise Unauthenticated(
            f"there is no login for {host}",
            hint=f"give the project a secret `forge_token`, or run `{PROGRAMS[provider]} auth login --hostname {host}`",
        )
    return found


def _graphql(url: str) -> str:
    """Beside `/api/v3` on a server of one's own, below the address otherwise."""
    plain = url.rstrip("/")
    return f"{plain.removesuffix('/v3')}/graphql" if plain.endswith("/api/v3") else f"{plain}/graphql"


_FORM = "application/x-www-form-urlencoded"
# Of a form, whose only field is the delivery: reading millions takes long, and the sender has proved nothing yet.
_MOST_FIELDS = 10
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
                content = parse_qs(content.decode(), strict_parsing=True, max_num_fields=_MOST_FIELDS)[
                    "payload"
                ][0].encode()
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
    return exact_bytes(header)
