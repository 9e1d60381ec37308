"""`ratchet doctor`"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.output import show_page
from ratchet.cli.progress import working
from ratchet.cli.session import CliSession
from ratchet.cli.words import hanging
from ratchet.doctor import ProbeCheck, addresses, disk, engines, extras, git, python, run_all, sandbox_layers
from ratchet.doctor.home import artifact_store, ledger
from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from ratchet.doctor.attack import AttackResult
    from ratchet.doctor.security import Boundary


@command(
    examples=[
        "ratchet doctor",
        "ratchet doctor --json | jq '.checks[] | select(.status != \"ok\")'",
        "ratchet doctor --security",
        "ratchet doctor --attack",
        "ratchet doctor --fleet",
    ],
    see=["engine check", "ledger check", "nodes"],
)
@click.option("--security", is_flag=True, help="Show what is promised on this machine, and what is not.")
@click.option("--attack", is_flag=True, help="Run hostile code in the sandbox of this machine instead.")
@click.option("--fleet", is_flag=True, help="Ask all processes of the ledger instead, and compare them.")
def doctor(session: CliSession, security: bool, attack: bool, fleet: bool) -> int:
    """Check this machine and the ledger, and say how to fix them.

    Nothing is made or changed. Exits with 1 if something failed; a warning is something Ratchet can do without.

    With --security, each boundary between those who are trusted and those who are not is shown, with what holds it here
    and what is not promised here.

    With --attack, code that tries to get out, to take too much or to leave something behind is run as a node, as a
    command and as an agent program, within half a minute. Exits with 1 if one of them got through.

    With --fleet, every server and worker of the ledger is asked how it is, whatever its machine: versions, clocks
    beside that of the database, the artifact store, the addresses of servers, and the nodes of a Ray cluster.
    """
    if security + attack + fleet > 1:
        raise Misuse("--security, --attack and --fleet are different answers", hint="give one of them")
    if attack:
        return _attack(session)
    if security:
        return _security(session)
    loaded = session.load()
    if fleet:
        return _fleet(session)
    with working("looking"):
        checks = run_all(
            [
                python,
                git,
                partial(disk, loaded.home),
                partial(ledger, loaded),
                partial(artifact_store, loaded),
                sandbox_layers,
                partial(engines, loaded),
                partial(addresses, loaded),
                extras,
            ]
        )
    return _shown(session, checks)


def _fleet(session: CliSession) -> int:
    from ratchet.cli.opening import require_ledger
    from ratchet.doctor.fleet import fleet

    loaded = session.load()
    require_ledger(loaded)
    with working("asking"):
        return _shown(session, fleet(loaded))


def _shown(session: CliSession, checks: list[ProbeCheck]) -> int:
    failed = any(check.status == "fail" for check in checks)
    show_page(
        session, {"ok": not failed, "checks": [asdict(check) for check in checks]}, print_checks, checks
    )
    return 1 if failed else 0


def _security(session: CliSession) -> int:
    from ratchet.doctor.security import boundaries

    found = boundaries(session.load())
    show_page(session, {"boundaries": [asdict(each) for each in found]}, print_boundaries, found)
    return 0


def print_boundaries(found: Sequence[Boundary]) -> None:
    from ratchet.doctor.security import EVERYWHERE

    for each in found:
        click.echo(click.style(each.name, bold=True))
        for words in each.here:
            click.echo(f"  holds         {hanging(words, 16)}")
        for words in each.not_promised:
            click.echo(f"  {click.style('not promised', fg='yellow')}  {hanging(words, 16)}")
    click.echo(f"\n{hanging(EVERYWHERE, 0)}")


def _attack(session: CliSession) -> int:
    import asyncio

    from ratchet.doctor.attack import attack_here

    with working("attacking"):
        results = asyncio.run(attack_here())
    through = [each for each in results if each.held is False]
    show_page(
        session,
        {"ok": not through, "attacks": [asdict(each) for each in results]},
        print_attacks,
        results,
        len(through),
    )
    return 1 if through else 0


def print_attacks(results: Sequence[AttackResult], through: int) -> None:
    from ratchet.cli.tables import print_table

    columns: dict[str, Callable[[AttackResult], object]] = {
        "attack": lambda each: each.attack,
        "as": lambda each: each.runs_as,
        "held": lambda each: {True: "yes", False: "NO", None: "not tried"}[each.held],
        "expected": lambda each: each.expected,
        "happened": lambda each: each.happened,
        "stopped by": lambda each: each.stopped_by,
    }
    print_table(results, columns)
    untried = sum(each.held is None for each in results)
    stopped = len(results) - through - untried
    said = f"{len(results)} attacks, {stopped} stopped, {through} got through"
    click.echo(f"\n{said}, {untried} could not be tried" if untried else f"\n{said}")


def print_checks(checks: list[ProbeCheck]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        colour = {"ok": "green", "warn": "yellow", "fail": "red"}[check.status]
        status, indent = click.style(f"{check.status:4}", fg=colour), width + 8
        click.echo(f"{status}  {check.name:{width}}  {hanging(check.detail, indent)}")
        if check.fix:
            click.echo(f"{'':{indent}}{hanging(f'to fix: {check.fix}', indent)}")
    counts = Counter(check.status for check in checks)
    click.echo(f"\n{counts['ok']} ok, {counts['warn']} warnings, {counts['fail']} failed")
