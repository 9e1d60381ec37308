"""Which forge a repository is on, and the way to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from ratchet.config import Settings
from ratchet.forges.api import Api
from ratchet.forges.errors import NoForge, Unauthenticated
from ratchet.forges.forge import Forge, Provider
from ratchet.forges.github import GRAPHQL, HEADERS, GitHub
from ratchet.forges.gitlab import GitLab
from ratchet.forges.program import PROGRAMS, find_program
from ratchet.forges.rest import RestApi

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
    host, _, repository = (remote_key or "").partition("/")
    if not host or "/" not in repository:
        raise NoForge(
            f"{remote_key or 'a repository without a remote'} is no repository on a forge",
            hint="pull requests need a project whose git_url is on GitHub or GitLab",
        )
    which = _provider(provider, host)
    url = settings.protocols.github_url if which == "github" else settings.protocols.gitlab_url
    api = _way(which, url, host, token, os.environ if environment is None else environment)
    return GitHub(api, repository) if which == "github" else GitLab(api, repository)


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
