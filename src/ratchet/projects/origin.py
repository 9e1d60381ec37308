"""Which remote a project has, and git for it with the project's own credentials."""

from __future__ import annotations

from ratchet.ledger.projects import Project
from ratchet.projects.places import corner_of
from ratchet.projects.remote import over_ssh
from ratchet.projects.secrets import GIT_TOKEN, read_secret
from ratchet.projects.transfer import Transfer
from ratchet.runtime import Runtime


def origin_of(runtime: Runtime, project: Project) -> str | None:
    """The address that is fetched from and pushed to; `None` for a repository without a remote."""
    if project.git_url is None:
        return None
    return over_ssh(project.git_url) if prefers_ssh(runtime, project) else project.git_url


def prefers_ssh(runtime: Runtime, project: Project) -> bool:
    """Whether GitHub is spoken to over SSH: as a person has answered, else as it is configured."""
    answered = project.facts.get("prefer_ssh")
    return runtime.settings.projects.github_ssh if answered is None else bool(answered)


def transfer_for(runtime: Runtime, project: Project) -> Transfer | None:
    """Git for the project's remote; `None` without one."""
    origin = origin_of(runtime, project)
    if origin is None:
        return None
    with runtime.ledger.read() as tx:
        token = read_secret(tx, runtime, project.id, GIT_TOKEN)
    return Transfer.to(
        origin,
        corner_of(runtime, project.id),
        seconds=runtime.settings.projects.remote_seconds,
        token=token,
    )
