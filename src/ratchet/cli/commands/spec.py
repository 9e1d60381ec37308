"""`ratchet spec …`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ratchet.cli.command import command
from ratchet.cli.inputs import read_document
from ratchet.cli.opening import existing_ledger, existing_runtime
from ratchet.cli.output import print_document, show_list, show_problems
from ratchet.cli.params import Amount, within_option
from ratchet.cli.progress import working
from ratchet.cli.protocol_work import leave_to_workers
from ratchet.cli.session import CliSession
from ratchet.kernel import Misuse
from ratchet.ledger.protocols import list_protocols
from ratchet.operations import record
from ratchet.protocols.lookup import project_named, protocol_named
from ratchet.protocols.spec import files_below, spec_problems, spec_schema
from ratchet.protocols.spec.audit import audit_protocol, start_audit
from ratchet.runtime import Runtime, get_job

_PAGE = 100


@command(
    examples=[
        "ratchet spec validate spec.json",
        "ratchet spec validate spec.json --files . --root .protocols/0007-add-login",
        "ratchet spec validate --protocol 0007-add-login --json",
    ],
    see=["spec schema", "spec audit"],
)
@click.argument("file", metavar="[FILE]", required=False, help="A spec as JSON; - is the standard input.")
@click.option("--protocol", "wanted", metavar="PROTOCOL", help="The spec of this protocol instead of a file.")
@within_option
@click.option("--files", metavar="DIRECTORY", help="A checkout in which the prompts that it names must be.")
@click.option("--root", metavar="FOLDER", help="The protocol's folder in that checkout.")
def validate(
    session: CliSession,
    file: str | None,
    wanted: str | None,
    project: str | None,
    files: str | None,
    root: str | None,
) -> int:
    """Check a spec and report everything that is wrong.

    FILE is JSON; - is the standard input. Nothing is run or recorded.

    Exits with 0 when the spec is valid, 1 when something is wrong with it, 2 when there is no such file.
    """
    if (file is None) == (wanted is None):
        raise Misuse("it is not clear which spec is meant", hint="name a FILE, or --protocol PROTOCOL")
    if wanted is None:
        spec: Any = read_document(file)
    else:
        with existing_ledger(session) as ledger, ledger.read() as tx:
            protocol = protocol_named(tx, wanted, project=project)
        if protocol.spec is None:
            raise Misuse(
                f"protocol {protocol.run_id} has no spec; it is {protocol.status}",
                hint=f"`ratchet spec audit {protocol.run_id} --backfill` makes one of its files",
            )
        spec, root = protocol.spec, root or protocol.root
    problems = spec_problems(
        spec, root=root or "", exists=None if files is None else files_below(_directory(files))
    )
    return show_problems(session, "spec", file or f"protocol {wanted}", problems)


@command(
    examples=[
        "ratchet spec audit",
        "ratchet spec audit 0007-add-login --backfill",
        "ratchet spec audit --project shop --json",
        "ratchet spec audit --every 3600",
    ],
    see=["spec validate"],
)
@click.argument(
    "wanted", metavar="[PROTOCOL]", required=False, help="Only this protocol: its number or its name."
)
@click.option("--project", metavar="PROJECT", help="Only protocols of this project.")
@click.option("--backfill", is_flag=True, help="Make specs of the files of protocols that have none.")
@click.option(
    "--every",
    type=Amount(),
    metavar="SECONDS",
    help="Have a worker audit again, so often.",
)
def audit(
    session: CliSession, wanted: str | None, project: str | None, backfill: bool, every: float | None
) -> int:
    """Check the specs of protocols against what is in their repositories.

    All protocols, those of a project, or one. Nothing changes but what is recorded about the specs, and with --backfill
    the spec of a protocol that has none.

    Exits with 0 when all are valid, 1 when one is invalid or missing.
    """
    with existing_runtime(session) as runtime:
        with runtime.ledger.write(actor="cli") as tx:
            owner = None if project is None else project_named(tx, project).id
            one = None if wanted is None else protocol_named(tx, wanted, project=project).run_id
            if every is not None:
                in_line = start_audit(
                    tx, runtime, project_id=owner, protocol_id=one, backfill=backfill, interval_seconds=every
                )
                job = get_job(tx, in_line)
        if every is not None:
            told = "The audit is queued, and comes again; `ratchet schedule list` has it."
            leave_to_workers(session, runtime.ledger, record(job), told)
            return 0
        with working("looking at the specs"):
            found = [
                audit_protocol(lambda: runtime.ledger.write(actor="cli"), runtime, number, backfill=backfill)
                for number in ([one] if one is not None else _numbers(runtime, owner))
            ]
    show_list(
        session,
        found,
        {
            "protocol": lambda each: each["protocol_run_id"],
            "project": lambda each: each["project_name"],
            "name": lambda each: each["protocol_name"],
            "spec": lambda each: each["status"],
            "hash": lambda each: each["spec_hash"],
            "made again": lambda each: each["backfilled"] or None,
            "files seen": lambda each: each["paths_checked"],
            "problems": lambda each: "; ".join(each["errors"]) or None,
        },
        record=lambda each: each,
        empty='No protocols yet. `ratchet protocol new "WHAT TO CHANGE"` makes one.',
    )
    return 0 if all(each["status"] == "valid" for each in found) else 1


@command(examples=["ratchet spec schema > spec.schema.json", "ratchet spec schema | jq .properties"])
def schema() -> None:
    """Print the JSON Schema of specs."""
    print_document(spec_schema())


def _numbers(runtime: Runtime, owner: int | None) -> list[int]:
    numbers: list[int] = []
    before: int | None = None
    with runtime.ledger.read() as tx:
        while page := list_protocols(tx, project_id=owner, before=before, limit=_PAGE):
            numbers += [each.run_id for each in page]
            before = page[-1].run_id
    return numbers


def _directory(files: str) -> Path:
    path = Path(files)
    if not path.is_dir():
        raise Misuse(f"{files} is no directory", hint="name a checkout of the repository")
    return path
