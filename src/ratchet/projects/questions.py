"""What onboarding asks people: nine questions, each with what was found out as its recommended answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.config import Settings
from ratchet.ledger.projects import Project
from ratchet.projects.answers import NO_PROVIDER
from ratchet.projects.registering import PROVIDERS
from ratchet.workspaces.identity import RATCHET

NUMBERED, ANY_NAME = "NNNN-task", "any"
PR_POLICIES = ("draft", "ready", "none")


@dataclass(frozen=True, slots=True)
class Question:
    key: str
    question: str
    recommended: Any
    options: Sequence[Any] | None = None


def onboarding_questions(project: Project, settings: Settings, secrets: Sequence[str]) -> list[Question]:
    """`secrets` are the names of those that the project has."""
    facts = project.facts
    ratchet = {"name": RATCHET.name, "email": RATCHET.email}
    models = {key: model for key, model in settings.protocols.models.model_dump().items() if model}
    both = (True, False)
    return [
        Question(
            "ci_provider",
            "Which forge runs the CI of this repository?",
            project.ci_provider or facts.get("ci_provider") or NO_PROVIDER,
            (*PROVIDERS, NO_PROVIDER),
        ),
        Question(
            "prefer_ssh",
            "Is a repository on GitHub fetched and pushed over SSH, with the keys of the user's agent?",
            bool(facts.get("prefer_ssh", settings.projects.github_ssh)),
            both,
        ),
        Question("git_identity", "Who is the author of commits?", facts.get("identity") or ratchet),
        Question(
            "branch_naming",
            "How are the branches of protocols named: a number and a task, or any name?",
            facts.get("branch_naming", NUMBERED),
            (NUMBERED, ANY_NAME),
        ),
        Question(
            "required_checks",
            "Which CI checks must a commit pass, by the names that the forge reports?",
            list(facts.get("required_checks") or []),
        ),
        Question(
            "pr_policy",
            "Are pull requests opened as drafts, ready for review, or not at all?",
            facts.get("pr_policy", "draft"),
            PR_POLICIES,
        ),
        Question(
            "default_models",
            "Which models plan, take apart, carry out and review?",
            project.default_models or models,
        ),
        Question(
            "secrets",
            "Which secrets does the project need? Give it their values first, and here only their names.",
            list(secrets),
        ),
        Question(
            "codex_discovery",
            "May an engine look at the repository where its files alone do not tell how it is checked?",
            bool(facts.get("engine_discovery", settings.projects.discovery is not None)),
            both,
        ),
    ]
