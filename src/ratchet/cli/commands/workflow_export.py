"""`ratchet workflow export`"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.inputs import split_pair
from ratchet.cli.opening import existing_runtime
from ratchet.cli.output import note, print_document
from ratchet.cli.params import ID, source_argument
from ratchet.cli.progress import working
from ratchet.cli.words import lines
from ratchet.cli.workflow_sources import existing_file
from ratchet.kernel import RunId
from ratchet.runtime import Kinds
from ratchet.workflows import views
from ratchet.workflows.exports import Exported, export_workflow, read_target
from ratchet.workflows.saved import load_workflow, names_file

if TYPE_CHECKING:
    from ratchet.cli.session import Session


@command(
    examples=[
        "ratchet workflow export report --target cloud --out report-cloud --model '*=openai/gpt-5-mini'",
        "ratchet workflow export report.yaml --target embedded --run 12 --out report-embedded",
    ]
)
@source_argument
@click.option("--target", required=True, metavar="TARGET", help="cloud, edge or embedded.")
@click.option("--out", required=True, metavar="DIR", help="The folder to write; it must be empty or absent.")
@click.option(
    "--run", "run_id", type=ID, metavar="RUN", help="A completed run, whose answers are taken along."
)
@click.option(
    "--model",
    "models",
    metavar="NAME=MODEL",
    multiple=True,
    help="Which model answers for which; * is all others.",
)
@click.option("--force", is_flag=True, help="Write into a folder that is not empty, and replace its files.")
@click.pass_obj
def export(
    session: Session,
    source: str,
    target: str,
    out: str,
    run_id: int | None,
    models: tuple[str, ...],
    force: bool,
) -> None:
    """Write a workflow as a folder that runs without Ratchet.

    cloud asks hosted models (OpenAI, Anthropic), edge an Ollama nearby, embedded no model at all: it needs steps that
    only compute, or the recorded answers of a run. Each folder has pinned requirements, a README and a test, and gives
    the same outputs. The workflow itself is not changed.
    """
    wanted = read_target(target)
    if names_file(source):
        existing_file(source)
    with existing_runtime(session, Kinds()) as runtime, working("exporting"):
        spec, base = load_workflow(runtime, source)
        exported = asyncio.run(
            export_workflow(
                spec,
                wanted,
                Path(out),
                runtime=runtime,
                run_id=None if run_id is None else RunId(run_id),
                models=dict(map(split_pair, models)) or None,
                base=base,
                force=force,
            )
        )
    if session.json:
        print_document(views.exported_record(exported))
    else:
        _tell(exported)


def _tell(exported: Exported) -> None:
    print(f"{exported.folder}: {len(exported.files)} files for {exported.target}")
    told: dict[str, Any] = dict(exported.models)
    for name, model in told.items():
        print(lines(f"{name} is answered by {model}"))
    if exported.recorded:
        print(f"{exported.recorded} answers are taken from the run")
    for each in exported.notes:
        note(lines(each))
    note(f"Its README says how to run it: {exported.folder / 'README.md'}")
