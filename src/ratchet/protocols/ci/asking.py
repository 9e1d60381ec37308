"""Asking the forge what CI says, for whoever waits where no webhook comes."""

from __future__ import annotations

import asyncio

from ratchet.forges import Check, CheckState, provider_of
from ratchet.ledger.ci import put_check
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocol_steps import list_protocol_steps
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols.ci.settling import hold, settle_commit
from ratchet.protocols.forging import forge_of
from ratchet.runtime import Runtime

# A check that is not done yet must not outrank the word that a webhook brings of its end.
_EARLIER_THAN_ANY = 0


async def ask_forge(runtime: Runtime, run_id: int, *, actor: str) -> None:
    """Take what the forge says about the commits that wait for CI, as if it had sent it. Raises `ForgeError`."""
    project, commits = await asyncio.to_thread(_waiting, runtime, run_id)
    if not commits:
        return
    forge = await asyncio.to_thread(forge_of, runtime, project)
    with runtime.ledger.read() as tx:
        asked_at = tx.now
    said = [(commit, await forge.checks(commit)) for commit in commits]
    await asyncio.to_thread(_take, runtime, project, said, asked_at, actor)


def _waiting(runtime: Runtime, run_id: int) -> tuple[Project, list[str]]:
    """The commits that speak for steps that wait: the last that was pushed, and their own."""
    with runtime.ledger.read() as tx:
        protocol = get_protocol(tx, run_id)
        waiting = [each for each in list_protocol_steps(tx, run_id) if each.awaits_ci]
        commits = [protocol.pushed, *(each.commit for each in waiting)] if waiting else []
        return get_project(tx, protocol.project_id), list(dict.fromkeys(filter(None, commits)))


def _take(
    runtime: Runtime,
    project: Project,
    said: list[tuple[str, tuple[Check, ...]]],
    asked_at: int,
    actor: str,
) -> None:
    host = (project.remote or "").partition("/")[0]
    provider = project.ci_provider or provider_of(host) or "forge"
    with runtime.ledger.write(actor=actor) as tx:
        hold(tx, project.id)
        for commit, checks in said:
            for check in checks:
                put_check(
                    tx,
                    project.id,
                    commit,
                    check.name,
                    provider=provider,
                    state=str(check.state),
                    at=_EARLIER_THAN_ANY if check.state is CheckState.PENDING else asked_at,
                    url=check.url,
                )
            settle_commit(tx, runtime, project, commit)
