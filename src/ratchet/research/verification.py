"""Checking a certificate against the home that wrote it, and measuring again what it claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse, NotFound, RatchetError, RunStatus, exp_id, with_hint
from ratchet.ledger import Ledger, change_run
from ratchet.ledger.research import find_research
from ratchet.ledger.runs import get_run
from ratchet.ledger.trials import Trial, get_trial
from ratchet.operations import record
from ratchet.research.campaign import ResearchPlan, research_directory, task_of
from ratchet.research.decision import (
    KEY_FILE,
    CertificateKey,
    Champion,
    Decided,
    bound_to,
    check_certificate,
    decide,
    read_certificate,
)
from ratchet.research.measurement import TaskMeter
from ratchet.research.measurement.result import Unmeasured
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.views.trials import Verified
from ratchet.runtime import JobContext, complete_run, enter_run
from ratchet.runtime.call import Call
from ratchet.workspaces import Repository

# Where the seeds of rounds begin that no trial of the run has had.
_FRESH_SEEDS = 1_000_000_007


def verify_certificate(ledger: Ledger, home: Path, content: Mapping[str, Any]) -> Verified:
    """Whether it holds by itself, was signed by this home, and is the one of the trial that it names."""
    problems = check_certificate(content)
    signed_by = content.get("signed_by")
    if signed_by is None:
        problems.append("it is not signed")
    elif not (home / KEY_FILE).exists() or signed_by != CertificateKey(home).public:
        problems.append(f"it is signed by the key {str(signed_by)[:16]}…, which is not the key of this home")
    trial = _row(ledger, content)
    if trial is None:
        problems.append("this home has no such trial")
    else:
        problems += bound_to(content, trial)
        if trial.certificate is not None:
            stored = json.loads(ledger.artifacts.read(trial.certificate))
            if stored.get("sha256") != content.get("sha256"):
                problems.append(f"the ledger has another certificate for trial {trial.exp_id}")
    return Verified(
        None if trial is None else trial.run_id,
        None if trial is None else trial.exp_id,
        signed_by if isinstance(signed_by, str) else None,
        _number(content),
        problems,
    )


async def remeasure(ledger: Ledger, home: Path, content: Mapping[str, Any], verified: Verified) -> Verified:
    """Measure both commits again, with seeds of their own, by the evaluator of the run. Raises `NotFound`.

    What contradicts itself claims nothing that could be measured: that stays as it was verified.
    """
    if verified.run is None:
        raise NotFound("trial of the certificate", str(content.get("commit"))[:40])
    if check_certificate(content):
        return verified
    with ledger.read() as tx:
        run = get_run(tx, verified.run)
    plan, task = ResearchPlan.of(run.spec), task_of(ledger, home, run)
    with Repository.open(research_directory(home, run.id) / "repo.git") as repository:
        meter = TaskMeter(task, repository, home, origin=plan.origin)
        if meter.hash != content.get("evaluator"):
            problem = f"the evaluator here has the hash {meter.hash[:16]}…, not that of the certificate"
            return replace(verified, problems=[*verified.problems, problem])
        try:
            decided = await _decided_again(meter, content)
        except Unmeasured as failed:
            problem = f"it cannot be measured again: {failed.status}: {failed.reason}"
            return replace(verified, problems=[*verified.problems, problem])
    problems = (
        verified.problems
        if decided.kept
        else [*verified.problems, "it is not better when it is measured again"]
    )
    return replace(verified, problems=problems, again=decided.reason)


async def _decided_again(meter: TaskMeter, content: Mapping[str, Any]) -> Decided:
    read = read_certificate(content)
    rule, champion = read.rule, read.champion
    if rule.deterministic or rule.policy == "strict":
        measured = await meter.measure(champion.commit, seed=rule.seed)
        champion = Champion(champion.number, champion.commit, measured.score, (measured.score,), (rule.seed,))
    else:
        rule = replace(rule, seed=rule.seed + _FRESH_SEEDS)
        champion = replace(champion, seeds=())
    return await decide(
        meter,
        read.commit,
        champion,
        replace(rule, held_out=False),
        read.direction,
        read.noise,
        trial=read.trial,
    )


def _row(ledger: Ledger, content: Mapping[str, Any]) -> Trial | None:
    run, number = content.get("run"), content.get("trial")
    run_id = run.get("id") if isinstance(run, Mapping) else None
    if not isinstance(run_id, int) or not isinstance(number, int):
        return None
    try:
        with ledger.read() as tx:
            return get_trial(tx, run_id, number)
    except (NotFound, Misuse):
        # A number that no row can have is not this home's either.
        return None


def _number(content: Mapping[str, Any]) -> float | None:
    delta = content.get("delta")
    return float(delta) if isinstance(delta, int | float) and not isinstance(delta, bool) else None


async def verification_run(job: JobContext) -> Any:
    """The handler of `research.verify`. That a certificate does not hold is a result of it, too."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    ledger, home, content = job.ledger, job.runtime.home, run.spec["certificate"]
    try:
        found = verify_certificate(ledger, home, content)
        found = await remeasure(ledger, home, content, found)
    except RatchetError as error:
        with job.write() as tx:
            change_run(tx, run.id, RunStatus.FAILED, reason=with_hint(error))
        return None
    result = record(found)
    with job.write() as tx:
        complete_run(tx, run.id, result)
    return result


def typed_certificate(_call: Call, named: str) -> str | dict[str, Any]:
    """What a person has typed: the content of a file, which no one else may name, or RUN/TRIAL. Raises `Misuse`.

    The file may also be a trial as `ratchet research trial --json` shows it.
    """
    path = Path(named)
    if not path.is_file():
        return named
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Misuse(
            f"{named} is no certificate: {error}",
            hint="`ratchet research trial RUN TRIAL --json` has that of a trial",
        ) from error
    return found if isinstance(found, dict) else {}


def find_certificate(ledger: Ledger, given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The certificate itself, that in a trial as it is shown, or that of RUN/TRIAL. Raises `NotFound` and `Misuse`."""
    if not isinstance(given, str):
        shown = given.get("certificate_content")
        return shown if isinstance(shown, dict) else given
    run, _, trial = given.rpartition("/")
    if not run or not given.isprintable():
        raise NotFound("certificate", given)
    with ledger.read() as tx:
        row = get_trial(tx, find_research(tx, run), trial_number(trial))
    if row.certificate is None:
        raise NotFound("certificate of trial", exp_id(row.number))
    content: dict[str, Any] = json.loads(ledger.artifacts.read(row.certificate))
    return content
