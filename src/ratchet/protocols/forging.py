"""The forge of a project, as the project's own token opens it."""

from __future__ import annotations

from ratchet.forges import Forge, open_forge
from ratchet.ledger.projects import Project
from ratchet.projects.secrets import FORGE_TOKEN, read_secret
from ratchet.runtime import Runtime


def forge_of(runtime: Runtime, project: Project) -> Forge:
    """May run a program, so it is not for the event loop. Raises `ForgeError` where there is none that can be used."""
    with runtime.ledger.read() as tx:
        token = read_secret(tx, runtime, project.id, FORGE_TOKEN)
    return open_forge(runtime.settings, project.ci_provider, project.remote, token)
