"""The judge of a step's commit: deterministic gates first, then a reviewer; and the report of its verdict."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ratchet.config import Settings
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.transcript import account_of, write_now
from ratchet.judges import Candidate, FirstFailure, Judge, Judged, Report, VerdictJudge, first_failure
from ratchet.kernel import NotFound, decoded
from ratchet.ledger import Spender, Transaction
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol, ProtocolStep
from ratchet.ledger.runs import get_run, mark_run_simulated
from ratchet.ledger.usage import hold
from ratchet.loop import check_out, judge_candidate
from ratchet.placement import LOCAL, Placement
from ratchet.projects.environments import Environments
from ratchet.protocols.engine_choice import Author, Independence, Opener, Reviewer, choose_reviewer
from ratchet.protocols.qa.checks import CheckGate, Red
from ratchet.protocols.qa.contract import (
    ContractGate,
    SizeGate,
    StepQa,
    UnknownCheck,
    closed_files,
    places,
    prompts_of,
    read_asked,
    root_of,
    table,
    text,
)
from ratchet.protocols.qa.gates import BRIEF, FULL, ReviewGate, SecretsGate, readable
from ratchet.protocols.spec.step_spec import QaPolicy, candidates, prompt_version, unsafe_path
from ratchet.protocols.stream import ProtocolBlocked
from ratchet.runtime import JobContext, configured_budgets
from ratchet.workspaces import Repository

NAME = "qa"


@dataclass(frozen=True, kw_only=True)
class QaJudge:
    """Asks the gates in order, and none after the first that does not pass.

    Everything is held against `base`, the branch before the step, whatever commit the attempt began from: what an
    earlier attempt did wrong is still part of the change. `author` is who made the change, also if another engine
    applied it.
    """

    parts: FirstFailure
    about: About
    repository: Repository
    base: str
    author: str

    @property
    def name(self) -> str:
        return self.parts.name

    @property
    def hash(self) -> str:
        return self.parts.hash

    @property
    def policy(self) -> QaPolicy:
        return self.about.policy

    @property
    def prompt_versions(self) -> dict[str, str]:
        return self.about.prompt_versions

    async def judge(self, candidate: Candidate) -> Judged:
        shown = replace(
            candidate,
            base=self.base,
            author=self.author,
            read_diff=functools.cache(lambda: readable(self.repository.diff(self.base, candidate.commit))),
        )
        return reported(await self.parts.judge(shown), self.about, candidate.commit)


def qa_judge(
    *,
    settings: Settings,
    surroundings: EngineContext,
    project: Project,
    protocol: Protocol,
    step: ProtocolStep,
    repository: Repository,
    base: str,
    author: Author,
    spec: Mapping[str, Any] | None = None,
    feedback: str = "",
    red: Red | None = None,
    environments: Environments | None = None,
    placement: Placement = LOCAL,
    open_engine: Opener = open_engine,
) -> QaJudge:
    """The judge of one step. Reads the repository. Raises `ProtocolBlocked` before anything is spent.

    `base` is the head of the branch before the step. `spec` is the step's own if not given, and `feedback` that on an
    earlier attempt. `red` are the checks that fail without any change, and `environments` what they run in,
    where `placement` says.
    """
    spec = table(step.spec) if spec is None else spec
    asked = read_asked(spec)
    base = repository.resolve(base)
    gates: list[Judge] = [
        _contract(asked, project, protocol, step, spec, repository, base),
        SizeGate(repository=repository, base=base, most_lines=settings.protocols.diff_lines),
        SecretsGate(repository=repository, base=base),
    ]
    about = About(step.name, asked.policy, author.engine)
    if asked.policy is not QaPolicy.SKIP:
        reviewer = choose_reviewer(settings, surroundings, project, protocol, asked, author, open_engine)
        prompt = _prompt(asked, protocol, repository, base)
        root = root_of(protocol)
        checks = CheckGate(
            repository=repository,
            base=base,
            facts=table(project.facts),
            seconds=settings.protocols.check_seconds,
            strict=reviewer.engine.name == author.engine,
            environments=environments,
            red=red or {},
            placement=placement,
        )
        review = ReviewGate(
            verdict=_verdict(settings, asked, reviewer, author, prompt),
            repository=repository,
            base=base,
            root=root,
            step=step.name,
            prompts=candidates(text(spec.get("prompt_ref")) or f"{step.name}.md", root),
            feedback=feedback,
            brief=asked.policy is QaPolicy.LIGHT,
        )
        gates += [checks, review]
        versions = {"qa": prompt_version(prompt.encode("utf-8", "replace"))}
        about = replace(
            about,
            reviewer=reviewer.engine.name,
            model=reviewer.model,
            independence=reviewer.independence,
            prompt_versions=versions,
        )
    parts = first_failure(*gates, name=NAME)
    return QaJudge(parts=parts, about=about, repository=repository, base=base, author=author.engine)


def _contract(
    asked: StepQa,
    project: Project,
    protocol: Protocol,
    step: ProtocolStep,
    spec: Mapping[str, Any],
    repository: Repository,
    base: str,
) -> ContractGate:
    root = root_of(protocol)
    held = prompts_of(protocol, spec)
    closed: frozenset[str] | None = None
    if asked.policy is QaPolicy.SKIP and not asked.allow_checks:
        try:
            closed = closed_files(repository, base, table(project.facts))
        except UnknownCheck as error:
            raise ProtocolBlocked(str(error), event="qa_error", hint="change the project's checks") from error
    return ContractGate(
        repository=repository,
        base=base,
        root=root,
        held=held,
        outputs=places(asked.outputs, root) - held,
        closed=closed,
        # A step that a loop has done once more may find its work done.
        must_change=step.step_type == "work"
        and step.commit is None
        and not asked.outputs
        and not asked.allow_empty,
    )


def _prompt(asked: StepQa, protocol: Protocol, repository: Repository, base: str) -> str:
    """The reviewer's prompt as the branch has it before the change, or our own. Raises `ProtocolBlocked`."""
    if asked.prompt is None:
        return FULL
    if unsafe_path(asked.prompt) is None:
        for path in candidates(asked.prompt, root_of(protocol)):
            try:
                return decoded(repository.read_file(base, path))
            except NotFound:
                continue
    raise ProtocolBlocked(
        f"the QA prompt {asked.prompt!r} is not on the branch",
        event="spec_validation_error",
        hint=f"commit it, for instance under {root_of(protocol)}/, or change qa.prompt in the spec",
    )


def _verdict(
    settings: Settings, asked: StepQa, reviewer: Reviewer, author: Author, prompt: str
) -> VerdictJudge:
    return VerdictJudge(
        engine=reviewer.engine,
        instructions=f"{prompt}\n\n{BRIEF}" if asked.policy is QaPolicy.LIGHT else prompt,
        model=reviewer.model,
        # The policy has been asked already; this is a session of its own.
        allow_author=reviewer.engine.name == author.engine,
        deadline_seconds=settings.protocols.session_seconds,
        tries=settings.engines.tries,
        name="review",
    )


async def judge_step_commit(
    job: JobContext,
    step: ProtocolStep,
    repository: Repository,
    judge: QaJudge,
    *,
    commit: str,
    base: str,
    attempt_id: int | None = None,
) -> Judged:
    """Have `commit` judged in a fresh checkout, and its evidence recorded with the run, or with an attempt of it.

    What becomes of the step is the caller's to say. Raises `BudgetExceeded` before anything is spent. A process that
    dies in between has recorded no verdict, only what was used.
    """
    with job.write() as tx:
        spender = Spender(attempt_id, step.run_id, get_run(tx, step.run_id).project_id)
        limits = hold(
            tx, Spender(None, step.run_id, spender.project_id), configured_budgets(job.runtime.settings)
        )
    async with check_out(repository, base, commit) as checkout:
        candidate = Candidate(
            commit,
            base,
            checkout.directory,
            judge.author,
            run_id=step.run_id,
            attempt_id=attempt_id,
            read_diff=functools.cache(checkout.read_diff),
            limits=limits,
        )
        judgement = await judge_candidate(account_of(job, spender, judge.name), judge, candidate)
    verdict = judgement.judged.verdict

    def record(tx: Transaction) -> None:
        if verdict.simulated:
            mark_run_simulated(tx, step.run_id)
        tx.event(
            "qa_judged",
            run_id=step.run_id,
            step_id=step.step_id,
            attempt_id=attempt_id,
            message=verdict.reason[:1000],
            data={"commit": commit, "outcome": verdict.outcome, "report": verdict.report},
        )

    await judgement.record(write_now(job), record)
    return judgement.judged


SKIPPED = "QA was skipped by policy"
MARKDOWN = "quality-report.md"


@dataclass(frozen=True, slots=True)
class About:
    """Whose change was judged, how, and by whom."""

    step: str
    policy: QaPolicy
    author: str
    reviewer: str | None = None
    model: str | None = None
    independence: Independence | None = None
    prompt_versions: dict[str, str] = field(default_factory=dict)


def reported(judged: Judged, about: About, commit: str) -> Judged:
    """What several judges said as one, with its report in place of the plain list of verdicts."""
    own, *others = judged.reports
    verdict = judged.verdict
    if verdict.passed and about.policy is QaPolicy.SKIP:
        verdict = replace(verdict, reason=f"{verdict.reason}; {SKIPPED}")
    if about.independence is Independence.NONE:
        # At the beginning: what is shown of a reason may be its beginning only.
        verdict = replace(verdict, reason=f"({about.independence}) {verdict.reason}")
    contents = {report.sha256: report.content for report in others}
    document = {
        "step": about.step,
        "commit": commit,
        "policy": about.policy,
        "author": about.author,
        "reviewer": about.reviewer,
        "model": about.model,
        "independence": about.independence,
        "prompt_versions": about.prompt_versions,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "parts": [_part(each, contents) for each in json.loads(own.content)],
    }
    whole = Report(own.name, json.dumps(document).encode())
    page = Report(MARKDOWN, render(document).encode("utf-8", "replace"), "text/markdown")
    verdict = replace(verdict, report=whole.sha256)
    return replace(judged, verdict=verdict, reports=(whole, page, *others))


def render(document: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    return "\n".join(_lines(document)) + "\n"


def _part(verdict: Mapping[str, Any], contents: Mapping[str, bytes]) -> dict[str, Any]:
    """One gate's verdict with what its own report says."""
    content = contents.get(verdict["report"] or "")
    report = {} if content is None else json.loads(content)
    return {
        "name": verdict["judge"],
        "outcome": verdict["outcome"],
        "reason": verdict["reason"],
        "judge_hash": verdict["judge_hash"],
        "simulated": verdict["simulated"],
        "findings": report.get("findings") or [],
        "outputs": report.get("outputs") or {},
    }


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"# Quality report: {_plain(document['step'])}"
    yield ""
    yield f"**{document['outcome']}**: {_plain(document['reason'])}"
    yield ""
    yield f"- commit: `{document['commit']}`"
    yield f"- policy: {document['policy']}"
    yield f"- author: {_plain(document['author'])}"
    if document["reviewer"]:
        model = f", model {_plain(document['model'])}" if document["model"] else ""
        independence = f", {document['independence']}" if document.get("independence") else ""
        yield f"- reviewer: {_plain(document['reviewer'])}{model}{independence}"
    for name, version in document["prompt_versions"].items():
        yield f"- prompt of {name}: `{version}`"
    for part in document["parts"]:
        yield ""
        simulated = ", simulated" if part["simulated"] else ""
        yield f"## {part['name']}: {part['outcome']}{simulated}"
        yield ""
        yield _plain(part["reason"])
        yield from _table(part["findings"])


def _table(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not findings:
        return
    yield ""
    yield "| severity | file | line | rule | finding |"
    yield "|---|---|---|---|---|"
    for each in findings:
        cells = (each["severity"], each["file"], each["line"], each.get("rule", "review"), each["message"])
        yield "| " + " | ".join("" if cell is None else _plain(str(cell)) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Foreign text as one line that ends no table and begins no heading, no link and no HTML."""
    one_line = " ".join(text.split())
    for mark, escaped in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("<", "&lt;"),
        ("[", "\\["),
        ("`", "\\`"),
        ("#", "\\#"),
    ):
        one_line = one_line.replace(mark, escaped)
    return one_line
