"""Who runs the CI of a repository."""

from __future__ import annotations

import re

from ratchet.projects.discovery.facts import Provider
from ratchet.projects.discovery.tree import Tree

_HOST = re.compile(r"^(?:[a-z+]+://)?(?:[^/@]*@)?([^/:]+)", re.IGNORECASE)


def find_provider(tree: Tree, origin: str | None) -> Provider | None:
    """The one whose files are there; if both or none are, the one that the origin belongs to."""
    with_github = bool(workflow_files(tree))
    with_gitlab = tree.has(".gitlab-ci.yml")
    if with_github != with_gitlab:
        return "github" if with_github else "gitlab"
    by_origin = provider_of(origin or _origin(tree))
    return by_origin or ("github" if with_github else None)


def workflow_files(tree: Tree) -> list[str]:
    """The workflows of GitHub Actions."""
    folder = ".github/workflows"
    return [f"{folder}/{name}" for name in tree.names(folder) if name.endswith((".yml", ".yaml"))]


def provider_of(url: str | None) -> Provider | None:
    """Whose address it is, by a host such as github.com, github.example.org or gitlab.example.org."""
    found = _HOST.match(url or "")
    labels = found[1].lower().split(".") if found else []
    if "github" in labels:
        return "github"
    return "gitlab" if "gitlab" in labels else None


def _origin(tree: Tree) -> str | None:
    """The address of `origin` as git's own file has it."""
    remote = tree.ini(".git/config").get('remote "origin"', {})
    return remote.get("url")
