"""`ratchet setup`"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import say_where_home_is
from ratchet.cli.output import note, show_one
from ratchet.cli.progress import working
from ratchet.cli.session import configure_logs
from ratchet.config.file import add_settings
from ratchet.engines.providers import how_to_price, unused_addresses
from ratchet.engines.registry import EngineContext, look_at
from ratchet.kernel import Missing, RatchetError
from ratchet.setup import (
    costs_at_most,
    find_means,
    install,
    missing_programs,
    plain_model,
    plan_for,
    reviewer_in,
    silent_ollama,
)

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.setup import Means, SetupPlan

_NOTHING = (
    "export OPENAI_API_KEY=… or ANTHROPIC_API_KEY=… or OPENROUTER_API_KEY=…, or run `ratchet engine login codex` or "
    "`ratchet engine login claude`, or start Ollama; then run `ratchet setup` again"
)


@command(
    examples=["ratchet setup", "ratchet setup --yes", "ratchet setup --yes --json | jq -r .costs_at_most"],
    see=["engine check", "doctor", "config show"],
)
@click.option("--yes", is_flag=True, help="Ask nothing: take the first of what is found that works.")
def setup(session: CliSession, yes: bool) -> None:
    """Find keys, logins and models here, and choose who works and reviews.

    Looks for keys in the environment, logins of Codex and Claude, Ollama (OLLAMA_HOST) and other endpoints on this
    machine; installs agent programs that are missing; tries the key and the model without paying; and writes what it
    chose to ratchet.toml, where everything that is set already stays as it is. Keys and logins are used where they are
    and never copied. On a terminal it asks two questions at most.

    Exits with 3 if nothing is found to work with, and 1 if nothing of it works.
    """
    loaded = session.load()
    configure_logs(loaded)
    with working("looking for keys, logins and models"):
        found = asyncio.run(find_means(os.environ))
    if silent := silent_ollama(os.environ, found):
        note(f"{silent}.")
    for what, fix in unused_addresses(loaded.settings, os.environ):
        note(f"{what}; {fix}.")
    if not found:
        raise Missing("there is no key, no login and no model on this machine", hint=_NOTHING)
    asking = not yes and not session.json and sys.stdin.isatty()
    found = _preferred(found, loaded.settings.engines)
    if asking and len(found) > 1:
        found = _asked(found)
    installed = _installed(found, asking)
    plan, around, unproven = _first_ready(session, found)
    _report_unused(found, plan, around)
    reviewer = reviewer_in(around)
    file = add_settings(loaded.home, plan.settings)
    say_where_home_is(loaded.home)
    review = reviewer.engine.name + (f" with {reviewer.model}" if reviewer.model else "")
    price = (
        f"${plan.price.input:g} in, ${plan.price.output:g} out for a million tokens"
        if plan.price
        else f"not known: {how_to_price(plan.model or 'MODEL')}"
    )
    costs = costs_at_most(plan, around.settings)
    document: dict[str, Any] = {
        "found": [asdict(each) for each in found],
        "installed": installed,
        "author": {"engine": plan.engine, "model": plan.model, "with": plan.means.source},
        "reviewer": {
            "engine": reviewer.engine.name,
            "model": reviewer.model,
            "independence": str(reviewer.independence),
        },
        "unverified": unproven,
        "default_model": around.settings.llm.default,
        "price": None if plan.price is None else plan.price.model_dump(),
        "costs_at_most": costs,
        "config": str(file),
    }
    show_one(
        session,
        document,
        {
            "author": str(replace(plan.means, agent=plan.engine, model=plan.model)),
            **({"not verified": unproven} if unproven else {}),
            "reviewer": f"{review} ({reviewer.independence})",
            "plain model": plain_model(around.settings, plan.engine, os.environ),
            "price": costs if plan.means.kind == "login" else price,
            "budget of a run": costs,
            "written to": str(file),
        },
    )


def _report_unused(found: Sequence[Means], plan: SetupPlan, around: EngineContext) -> None:
    """Say why another agent, for which there is a key or a login, reviews nothing."""
    others = dict.fromkeys(each.agent for each in found if each.agent != plan.engine.partition(":")[0])
    with working("trying the others"):
        looked = asyncio.run(look_at(others, around))
    for each in looked:
        if not each.readiness.ready:
            note(f"not used: {each.name}: {each.readiness.detail}")


def _preferred(found: list[Means], engines: Any) -> list[Means]:
    """Who is set already comes first."""
    if "default" not in engines.model_fields_set:
        return found
    plain = engines.default.partition(":")[0]
    return sorted(found, key=lambda each: each.agent != plain)


def _asked(found: list[Means]) -> list[Means]:
    for number, each in enumerate(found, 1):
        note(f"{number}  {each}")
    chosen = click.prompt("Who writes code", type=click.IntRange(1, len(found)), default=1, err=True)
    first = found[chosen - 1]
    return [first, *(each for each in found if each is not first)]


def _installed(found: Sequence[Means], asking: bool) -> list[str]:
    """Install the agents that can be paid for and are not here."""
    absent = missing_programs([each.agent for each in found], os.environ)
    if not absent or (
        asking and not click.confirm(f"Install {' and '.join(absent)}", default=True, err=True)
    ):
        return []
    done = []
    for agent in absent:
        try:
            done.append(install(agent))
        except Missing as error:
            # Another one may do; if none does, its own hint says the same.
            note(f"{error}\nhint: {error.hint}")
    return done


def _first_ready(session: CliSession, found: Sequence[Means]) -> tuple[SetupPlan, EngineContext, str | None]:
    """The first that works, the settings as they will be, and what could not be shown of it. Nothing is paid for."""
    refused, fixes = [], []
    for means in found:
        others = [each for each in found if each is not means]
        loaded = session.load()
        try:
            before = EngineContext(loaded.settings, loaded.home, os.environ)
            plan = plan_for(means, others, before, loaded.is_set)
            loaded = session.load({".".join(key): value for key, value in plan.settings.items()})
        except RatchetError as error:
            refused.append(f"{means}: {error}")
            fixes += [error.hint] if error.hint else []
            continue
        around = EngineContext(loaded.settings, loaded.home, os.environ)
        with working(f"trying {means}"):
            [looked] = asyncio.run(look_at([plan.engine], around))
        if looked.readiness.ready:
            for each in refused:
                note(f"left out: {each}")
            if looked.readiness.unproven:
                advice = f" ({looked.readiness.fix})" if looked.readiness.fix else ""
                note(f"warning: {means} could not be verified: {looked.readiness.unproven}{advice}")
            return plan, around, looked.readiness.unproven
        refused.append(f"{means}: {looked.readiness.detail}")
        fixes += [looked.readiness.fix] if looked.readiness.fix else []
    hint = "; or ".join(dict.fromkeys(fixes)) or _NOTHING
    raise RatchetError(f"nothing of what was found works: {'; '.join(refused)}", hint=hint)
