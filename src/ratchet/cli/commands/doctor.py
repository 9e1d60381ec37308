"""`ratchet doctor`"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial

import click

from ratchet.cli.command import command
from ratchet.cli.output import show_page
from ratchet.cli.progress import working
from ratchet.cli.session import CliSession
from ratchet.cli.words import hanging
from ratchet.doctor import ProbeCheck, addresses, disk, engines, extras, git, python, run_all, sandbox_layers
from ratchet.doctor.home import ledger


@command(
    examples=["ratchet doctor", "ratchet doctor --json | jq '.checks[] | select(.status != \"ok\")'"],
    see=["engine check", "ledger check"],
)
def doctor(session: CliSession) -> int:
    """Check this machine and the ledger, and say how to fix them.

    Nothing is made or changed. Exits with 1 if something failed; a warning is something Ratchet can do without.
    """
    loaded = session.load()
    with working("looking"):
        checks = run_all(
            [
                python,
                git,
                partial(disk, loaded.home),
                partial(ledger, loaded),
                sandbox_layers,
                partial(engines, loaded),
                partial(addresses, loaded),
                extras,
            ]
        )
    failed = any(check.status == "fail" for check in checks)
    show_page(
        session, {"ok": not failed, "checks": [asdict(check) for check in checks]}, print_checks, checks
    )
    return 1 if failed else 0


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
