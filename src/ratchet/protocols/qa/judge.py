"""The judge of a step's commit: deterministic gates first, then a reviewer."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratchet.config import Settings
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.judges import Candidate, FirstFailure, Judge, Judged, VerdictJudge, first_failure
from ratchet.kernel import NotFound
from ratchet.ledger.projects import Project
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.ledger.protocols import Protocol
from ratchet.projects.environments import Environments
from ratchet.protocols.qa.asked import Asked, places, prompts_of, read_asked, root_of, table, text
from ratchet.protocols.qa.check_plan import UnknownCheck, closed_files
from ratchet.protocols.qa.checks import CheckGate, Red
from ratchet.protocols.qa.contract import ContractGate
from ratchet.protocols.qa.instructions import BRIEF, FULL
from ratchet.protocols.qa.patch import readable
from ratchet.protocols.qa.reporting import About, reported
from ratchet.protocols.qa.reviewer import Author, Opener, Reviewer, choose_reviewer
from ratchet.protocols.qa.reviewing import ReviewGate
from ratchet.protocols.qa.secrets import SecretsGate
from ratchet.protocols.qa.size import SizeGate
from ratchet.protocols.spec.hashing import prompt_version
from ratchet.protocols.spec.paths import candidates, unsafe_path
from ratchet.protocols.spec.step_spec import QaPolicy
from ratchet.protocols.stream import Blocked
from ratchet.workspaces import Repository

NAME = "qa"


@dataclass(frozen=True, kw_only=True)
class QaJudge:
    """Asks the gates in order, and none after the first that does not pass.

    Everything is held against `base`, the branch before the step, whatever commit the attempt began from: what an
    earlier attempt did wrong is still part of the change. `author` is who made the change, also if somebody else
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
    surroundings: Surroundings,
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
    open_engine: Opener = open_engine,
) -> QaJudge:
    """The judge of one step. Reads the repository. Raises `Blocked` when it cannot be made, before anything is spent.

    `base` is the head of the branch before the step. `spec` is the step's own if not given, and `feedback` what an
    earlier attempt was told. `red` are the checks that fail without any change, and `environments` what they run in.
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
    asked: Asked,
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
            raise Blocked(str(error), event="qa_error", hint="change the project's checks") from error
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


def _prompt(asked: Asked, protocol: Protocol, repository: Repository, base: str) -> str:
    """The reviewer's prompt as the branch has it before the change, or our own. Raises `Blocked`."""
    if asked.prompt is None:
        return FULL
    if unsafe_path(asked.prompt) is None:
        for path in candidates(asked.prompt, root_of(protocol)):
            try:
                return repository.read_file(base, path).decode("utf-8", "replace")
            except NotFound:
                continue
    raise Blocked(
        f"the QA prompt {asked.prompt!r} is not on the branch",
        event="spec_validation_error",
        hint=f"commit it, for instance under {root_of(protocol)}/, or change qa.prompt in the spec",
    )


def _verdict(
    settings: Settings, asked: Asked, reviewer: Reviewer, author: Author, prompt: str
) -> VerdictJudge:
    return VerdictJudge(
        engine=reviewer.engine,
        instructions=f"{prompt}\n\n{BRIEF}" if asked.policy is QaPolicy.LIGHT else prompt,
        model=reviewer.model,
        # The policy has been asked already; this is a session of its own, whoever holds it.
        allow_author=reviewer.engine.name == author.engine,
        deadline_seconds=settings.protocols.session_seconds,
        tries=settings.engines.tries,
        name="review",
    )
