"""Whether the ledger, the store and the repository tell what happened, and nothing that did not.

What was acknowledged comes from the record, which no fault reaches; everything else from the ledger itself. Each rule
is a function of both that yields what is broken.
"""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import REOPENED, RUN_TRANSITIONS, STEP_TRANSITIONS, Outcome, RunStatus, StepStatus
from ratchet.ledger import Ledger
from ratchet.ledger.check import check
from ratchet.ledger.tables import (
    artifacts,
    attempts,
    events,
    job_tallies,
    jobs,
    runs,
    sessions,
    steps,
    usage_totals,
)
from ratchet.runtime import JobStatus
from tests.faults.plan import Plan
from tests.faults.world import REF, REPOSITORY, SLOTS, TOKENS


@dataclass(frozen=True)
class History:
    """What is left in the end, and what was noted on the way."""

    plan: Plan
    ledger: Ledger
    repository: Path
    notes: Sequence[dict[str, Any]]
    tables: dict[str, list[Any]]

    def noted(self, what: str) -> list[dict[str, Any]]:
        return [note for note in self.notes if note["what"] == what]

    def events(self, *types: str) -> list[Any]:
        return [event for event in self.tables["events"] if event.type in types]

    @property
    def acted(self) -> dict[str, Any]:
        """What became of each thing that the client did."""
        return {event.message: event.data for event in self.events("client.acted")}


Rule = Callable[[History], Iterator[str]]
TABLES = (artifacts, attempts, events, job_tallies, jobs, runs, sessions, steps, usage_totals)


def check_history(
    home: Path, url: str, notes: Sequence[dict[str, Any]], plan: Plan, rules: Sequence[Rule] | None = None
) -> list[str]:
    """Every rule that is broken, and how."""
    with Ledger.open(url, home / "artifacts") as ledger:
        with ledger.read() as tx:
            tables = {
                table.name: list(tx.connection.execute(sa.select(table).order_by(*table.primary_key.columns)))
                for table in TABLES
            }
        history = History(plan, ledger, home / REPOSITORY, notes, tables)
        wanted = RULES if rules is None else rules
        return [f"{rule.__name__}: {what}" for rule in wanted for what in rule(history)]


def nothing_acknowledged_is_lost(history: History) -> Iterator[str]:
    acted = history.acted
    for note in history.noted("acted"):
        if note["act"] not in acted:
            yield f"the client was promised {note['act']}, and the ledger does not know of it"
    worked = {(event.job_id, event.data["part"]) for event in history.events("worked")}
    kept = {artifact.name for artifact in history.tables["artifacts"]}
    for note in history.noted("worked"):
        if (note["job"], note["part"]) not in worked:
            yield f"part {note['part']} of job {note['job']} was recorded, and is not there"
        if note["bytes"] and f"{note['name']}.{note['part']}" not in kept:
            yield f"the artifact of part {note['part']} of {note['name']} was recorded, and is not there"
    step_status = {(step.run_id, step.name): step.status for step in history.tables["steps"]}
    for note in history.noted("step done"):
        if step_status.get((note["run"], f"step-{note['step']}")) != StepStatus.COMPLETED:
            yield f"step {note['step']} of run {note['run']} was completed, and is not"
    outcomes = {attempt.id: attempt.outcome for attempt in history.tables["attempts"]}
    for note in history.noted("kept"):
        if outcomes.get(note["attempt"]) != Outcome.PASSED:
            yield f"attempt {note['attempt']} was kept, and its row says {outcomes.get(note['attempt'])}"
    status = {run.id: run.status for run in history.tables["runs"]}
    for note in history.noted("completed"):
        if status.get(note["run"]) != RunStatus.COMPLETED:
            yield f"run {note['run']} was completed, and is {status.get(note['run'])}"


def everything_ends_as_it_should(history: History) -> Iterator[str]:
    """No shortage, death or partition makes work fail: only a cancelled run and one without budget do not complete."""
    acted = history.acted
    for act in history.plan.acts:
        if act.name not in acted:
            yield f"the client never came to {act.name}"
    cancelled = {name.partition(":")[2] for name in acted if name.startswith("cancel:")}
    for run in history.tables["runs"]:
        allowed = {RunStatus.COMPLETED}
        if run.name in cancelled:
            allowed.add(RunStatus.CANCELLED)
        if history.plan.budget is not None and "budget" in (run.reason or ""):
            allowed.add(RunStatus.FAILED)
        if history.plan.budget is not None and "too few tokens" in (run.reason or ""):
            allowed.add(RunStatus.FAILED)
        if RunStatus(run.status) not in allowed:
            yield f"run {run.id} ({run.name}) is {run.status}: {run.reason}"
    for job in history.tables["jobs"]:
        if job.run_id is None and job.status != JobStatus.FINISHED:
            yield f"job {job.id} ({job.kind}) is {job.status}: {job.error}"


def no_attempt_is_counted_twice(history: History) -> Iterator[str]:
    parts = Counter((event.job_id, event.data["part"]) for event in history.events("worked"))
    for (job_id, part), count in parts.items():
        if count != 1:
            yield f"part {part} of job {job_id} was recorded {count} times"
    failed: dict[int, list[int]] = defaultdict(list)
    for event in history.events("job.retrying", "job.failed"):
        if "PlannedFailure" in (event.message or ""):
            failed[event.job_id].append(event.data["attempt"])
    for job in history.tables["jobs"]:
        if job.kind == "job" and failed[job.id] != list(range(1, job.payload["fails"] + 1)):
            yield f"job {job.id} was to fail {job.payload['fails']} times, and its failed tries are {failed[job.id]}"
    ended = Counter((job.queue, job.status) for job in history.tables["jobs"] if job.ended_at is not None)
    tallied: Counter[tuple[str, str]] = Counter()
    for tally in history.tables["job_tallies"]:
        tallied[tally.queue, tally.status] += tally.count
    if +tallied != ended:
        yield f"the tallies count {dict(tallied)}, and the jobs are {dict(ended)}"
    passed = Counter(row.step_id for row in history.tables["attempts"] if row.outcome == Outcome.PASSED)
    for step_id, count in passed.items():
        if count != 1:
            yield f"step {step_id} has {count} attempts that passed"
    of_attempt = Counter(session.attempt_id for session in history.tables["sessions"])
    for attempt_id, count in of_attempt.items():
        if count != 1:
            yield f"attempt {attempt_id} has {count} sessions"


def no_fenced_worker_writes(history: History) -> Iterator[str]:
    """Deliveries of a job come one after the other: none writes once a later one has."""
    latest: dict[int, int] = {}
    for event in history.events("worked"):
        delivery = event.data["delivery"]
        if delivery < latest.get(event.job_id, 0):
            yield f"delivery {delivery} of job {event.job_id} wrote after delivery {latest[event.job_id]}"
        latest[event.job_id] = max(delivery, latest.get(event.job_id, 0))


def states_move_along_their_edges(history: History) -> Iterator[str]:
    for table, column, kind, edges in (
        ("runs", "run_id", RunStatus, RUN_TRANSITIONS),
        ("steps", "step_id", StepStatus, STEP_TRANSITIONS),
    ):
        entity = table[:-1]
        now: dict[int, str] = {}
        types = {f"{entity}.{status}" for status in kind}
        for event in history.events(*types):
            if not isinstance(event.data, dict) or "from" not in event.data:
                continue
            key, old, new = getattr(event, column), event.data["from"], event.data["to"]
            if now.setdefault(key, old) != old:
                yield f"{entity} {key} went from {old} to {new} when it was {now[key]}"
            reopened = table == "steps" and kind(old) in REOPENED and kind(new) is StepStatus.PENDING
            if kind(new) not in edges[kind(old)] and not reopened:  # type: ignore[index]
                yield f"{entity} {key} went from {old} to {new}"
            now[key] = new
        for row in history.tables[table]:
            if row.id in now and now[row.id] != row.status:
                yield f"{entity} {row.id} is {row.status}, and its last event says {now[row.id]}"


def no_budget_is_overspent(history: History) -> Iterator[str]:
    """What was charged is what was paid for, once, and no more than the budget.

    A worker that is given up while it lives has sessions that no budget is held for any more: they are charged.
    """
    alive = any(life.workers > 1 for life in history.plan.lives)
    spare = SLOTS * TOKENS if alive else 0
    paid: Counter[int] = Counter(note["run"] for note in history.noted("paid"))
    recorded = Counter(session.run_id for session in history.tables["sessions"])
    for total in history.tables["usage_totals"]:
        if total.scope == "project" and history.plan.budget is not None:
            if total.input_tokens > history.plan.budget + spare:
                yield f"the project used {total.input_tokens} tokens of {history.plan.budget}"
        elif total.scope == "run":
            least, most = (TOKENS * each[total.scope_id] for each in (recorded, paid))
            if not least <= total.input_tokens <= most:
                yield f"run {total.scope_id} was charged {total.input_tokens} tokens, not {least} to {most}"


def refs_and_rows_agree(history: History) -> Iterator[str]:
    fsck = _git(history, "fsck", "--strict", "--no-dangling", "--no-progress")
    said = [line for line in fsck.stderr.splitlines() if not line.startswith("notice: ")]
    if fsck.returncode or said:
        yield f"git fsck: {fsck.stdout}{' '.join(said)}"
    log = _git(history, "log", "--format=%H", REF).stdout.split()
    listed = _git(history, "for-each-ref", "--format=%(objectname)", "refs/ratchet/attempts").stdout.split()
    kept = [note["commit"] for note in history.noted("kept")]
    for run in history.tables["runs"]:
        if run.name.startswith("climb") and run.status == RunStatus.COMPLETED:
            kept += run.result
    for commit in dict.fromkeys(kept):
        if commit not in log:
            yield f"commit {commit} was kept, and {REF} does not have it"
        if commit not in listed:
            yield f"commit {commit} was kept, and no ref of an attempt has it"
    passed = sum(
        row.outcome == Outcome.PASSED
        for row in history.tables["attempts"]
        if any(step.id == row.step_id and step.name.startswith("climb-") for step in history.tables["steps"])
    )
    # One commit is the first; one more for a ref that was moved by an attempt which was cancelled before it said so.
    spare = sum(name.startswith("cancel:") for name in history.acted)
    if not passed <= len(log) - 1 <= passed + spare:
        yield f"{passed} attempts were kept, and {REF} has {len(log) - 1} commits more than at first"
    number = _git(history, "show", f"{REF}:number.txt").stdout.strip()
    if number != str(len(log) - 1):
        yield f"the number is {number} after {len(log) - 1} climbs"


def what_is_promised_can_be_read(history: History) -> Iterator[str]:
    """In the middle of the work: the database is whole, and so are artifacts, and commits that were kept."""
    with history.ledger.read() as tx:
        for (line,) in tx.connection.exec_driver_sql("PRAGMA integrity_check"):
            if line != "ok":
                yield f"the database is damaged: {line}"
    for artifact in history.tables["artifacts"]:
        history.ledger.artifacts.read(artifact.sha256)
    reached = _git(history, "rev-list", "--objects", REF)
    if reached.returncode:
        yield f"git rev-list: {reached.stderr}"
    for note in history.noted("kept"):
        if note["commit"] not in reached.stdout:
            yield f"commit {note['commit']} was kept, and {REF} does not have it"


def the_ledger_is_sound(history: History) -> Iterator[str]:
    for finding in check(history.ledger).findings:
        if finding.severity == "error":
            yield finding.what
    for attempt in history.tables["attempts"]:
        if attempt.ended_at is None:
            yield f"attempt {attempt.id} is open"


def _git(history: History, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "--git-dir", str(history.repository), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


AT_ANY_TIME: tuple[Rule, ...] = (
    nothing_acknowledged_is_lost,
    states_move_along_their_edges,
    what_is_promised_can_be_read,
)
RULES: tuple[Rule, ...] = (
    nothing_acknowledged_is_lost,
    everything_ends_as_it_should,
    no_attempt_is_counted_twice,
    no_fenced_worker_writes,
    states_move_along_their_edges,
    no_budget_is_overspent,
    refs_and_rows_agree,
    the_ledger_is_sound,
)
