"""Registering a project: its row, its secrets, the questions about it, and the job that sets it up."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.config import Settings
from ratchet.kernel import Conflict, Misuse, ProjectId, RunId
from ratchet.ledger import Transaction, to_json
from ratchet.ledger.projects import (
    DEFAULT_BRANCH,
    Project,
    add_facts,
    add_project,
    change_project,
    get_project,
)
from ratchet.ledger.questions import Clarification
from ratchet.ledger.runs import get_run
from ratchet.projects.address import read_address, remote_key
from ratchet.projects.clone import check_branch
from ratchet.projects.jobs import SETUP
from ratchet.projects.secrets import NAMES, put_secrets, secret_names
from ratchet.runtime import Runtime, resume_run, start_run
from ratchet.workspaces import Identity
from ratchet.workspaces.trees import RATCHET

if TYPE_CHECKING:
    pass


PHASES = ("planning", "decompose", "exec", "qa", "discovery")
NO_PROVIDER = "none"
_LARGEST = 16 * 1024
_Check = Callable[[Transaction, int, Any], Any]


def read_answer(asked: Clarification, text: str) -> Any:
    """What somebody typed as an answer: JSON where the question is about something that is no text. Raises `Misuse`."""
    if isinstance(asked.options, list):
        return next((each for each in asked.options if text in (each, json.dumps(each))), text)
    if not isinstance(asked.recommended, list | dict | bool | int | float):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise Misuse(
            f"the answer to {asked.key} must be JSON",
            hint=f"for instance {shlex.quote(json.dumps(asked.recommended))}",
        ) from None


def check_answer(tx: Transaction, asked: Clarification, answer: Any) -> Any:
    """The answer as it is kept. Raises `Misuse`, which does not repeat it: somebody may have answered with a secret."""
    if answer is None or answer == "":
        raise Misuse(f"{asked.key} was given no answer", hint=f"the question is: {asked.question}")
    if len(to_json(answer)) > _LARGEST:
        raise Misuse(
            f"the answer to {asked.key} is longer than {_LARGEST} bytes", hint="put it in fewer words"
        )
    # In JSON 1 is not true.
    if asked.options is not None and to_json(answer) not in map(to_json, asked.options):
        offered = ", ".join(map(to_json, asked.options))
        raise Misuse(f"that is not one of the answers to {asked.key}", hint=f"answer with one of: {offered}")
    check = _CHECKS.get(asked.key) if _is_onboarding(asked) else None
    return answer if check is None else check(tx, asked.project_id, answer)


def apply_answer(tx: Transaction, asked: Clarification, answer: Any) -> None:
    """Let an answer have its effect. The other answers are for whoever asked."""
    if not _is_onboarding(asked):
        return
    match asked.key:
        case "ci_provider":
            change_project(tx, asked.project_id, ci_provider=None if answer == NO_PROVIDER else answer)
        case "default_models":
            change_project(tx, asked.project_id, default_models=answer)
        case "git_identity":
            add_facts(tx, asked.project_id, {"identity": answer})
        case "codex_discovery":
            add_facts(tx, asked.project_id, {"engine_discovery": answer})
        case "prefer_ssh" | "branch_naming" | "required_checks" | "pr_policy":
            add_facts(tx, asked.project_id, {asked.key: answer})


def check_models(models: Any) -> dict[str, str]:
    """Models by the phase that they are for. Raises `Misuse`."""
    hint = f"give an object whose keys are among: {', '.join(PHASES)}"
    if not isinstance(models, Mapping) or not set(models) <= set(PHASES):
        raise Misuse("default_models names a model for each phase", hint=hint)
    if not all(isinstance(value, str) and value.strip() for value in models.values()):
        raise Misuse("default_models names a model for each phase", hint=hint)
    return dict(models)


def _is_onboarding(asked: Clarification) -> bool:
    return asked.applies_to == "onboarding" and asked.run_id is None


def _identity(_tx: Transaction, _project_id: int, answer: Any) -> dict[str, str]:
    fix = 'answer with an object such as {"name": "Ada", "email": "ada@example.org"}'
    if not isinstance(answer, Mapping) or set(answer) != {"name", "email"}:
        raise Misuse("git_identity is a name and an email", hint=fix)
    if not all(isinstance(value, str) for value in answer.values()):
        raise Misuse("git_identity is a name and an email", hint=fix)
    Identity(answer["name"], answer["email"])
    return dict(answer)


def _names(_tx: Transaction, _project_id: int, answer: Any) -> list[str]:
    if not isinstance(answer, list) or not all(isinstance(each, str) and each.strip() for each in answer):
        raise Misuse("required_checks is a list of names", hint="answer with a list, which may be empty")
    return list(dict.fromkeys(answer))


def _models(_tx: Transaction, _project_id: int, answer: Any) -> dict[str, str]:
    return check_models(answer)


def _secrets(tx: Transaction, project_id: int, answer: Any) -> list[str]:
    if not isinstance(answer, list) or not all(each in NAMES for each in answer):
        raise Misuse(
            "the question for secrets is answered with the names of those that the project needs, never with values",
            hint=f"answer with a list of some of: {', '.join(NAMES)}",
        )
    missing = sorted(set(answer) - set(secret_names(tx, project_id)))
    if missing:
        raise Misuse(
            f"the project has not been given: {', '.join(missing)}", hint="give it these secrets, then answer"
        )
    return sorted(set(answer))


_CHECKS: Mapping[str, _Check] = {
    "git_identity": _identity,
    "required_checks": _names,
    "default_models": _models,
    "secrets": _secrets,
}


PROVIDERS = ("github", "gitlab")
_LONGEST_NAME = 200


def register_project(
    tx: Transaction,
    runtime: Runtime,
    *,
    name: str,
    git_url: str | None = None,
    local_path: str | None = None,
    base_branch: str = DEFAULT_BRANCH,
    ci_provider: str | None = None,
    default_models: Mapping[str, str] | None = None,
    secrets: Mapping[str, str | None] | None = None,
    ci_files: bool = False,
) -> ProjectId:
    """A new project, and its onboarding queued. One with a `local_path` is worked on where it is.

    Only with `ci_files` are scripts and a CI file written where the repository lacks them.

    Raises `Misuse` for what cannot be meant, and `Conflict` when the name is taken.
    """
    if git_url is None and local_path is None:
        raise Misuse(f"project {name[:80]!r} has neither a git_url nor a local_path", hint="give one of them")
    columns = checked_columns(
        {
            "name": name,
            "base_branch": base_branch,
            "ci_provider": ci_provider,
            "default_models": default_models or {},
            **({} if git_url is None else {"git_url": git_url}),
        }
    )
    if local_path is not None:
        columns["local_path"] = _path(local_path)
    project_id = add_project(tx, **columns)
    put_secrets(tx, runtime, project_id, secrets or {})
    if ci_files:
        add_facts(tx, project_id, {"ci_files": True})
    _start(tx, runtime, project_id)
    return project_id


def update_project(tx: Transaction, runtime: Runtime, project_id: int, changes: Mapping[str, Any]) -> None:
    """Change the name, address, base branch, CI provider, models or secrets of a project. Raises as registering does.

    `archived` puts it away, or takes it out again.
    """
    changed = dict(changes)
    secrets = changed.pop("secrets", None)
    archived = changed.pop("archived", None)
    columns = checked_columns(changed)
    if archived is not None:
        columns["archived_at"] = tx.now if archived else None
    change_project(tx, project_id, **columns)
    put_secrets(tx, runtime, project_id, secrets or {})
    if columns:
        tx.event("project.changed", project_id=project_id, message=", ".join(sorted(columns)))


def set_up_again(tx: Transaction, runtime: Runtime, project_id: int, *, ci_files: bool = False) -> RunId:
    """Resume an onboarding that is blocked or paused, or begin again after one that has ended. The run of it.

    With `ci_files` it also writes the CI files that are missing. Raises `Conflict` while it runs.
    """
    project = get_project(tx, project_id)
    check_set_up_again(tx, project)
    if ci_files:
        add_facts(tx, project_id, {"ci_files": True})
    if project.setup_run_id is None or get_run(tx, project.setup_run_id).status.final:
        return _start(tx, runtime, project_id)
    resume_run(tx, runtime, project.setup_run_id)
    return project.setup_run_id


def check_set_up_again(tx: Transaction, project: Project) -> None:
    """Raises `Conflict` while the onboarding runs."""
    if project.setup_run_id is None:
        return
    status = get_run(tx, project.setup_run_id).status
    if not status.stands:
        raise Conflict(f"the onboarding of project {project.id} is {status} already", hint="wait for its end")


def checked_columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a project as they are kept. Raises `Misuse` for the first that cannot be meant."""
    return {column: value for key, each in given.items() for column, value in _column(key, each).items()}


def _column(key: str, value: Any) -> dict[str, Any]:
    match key:
        case "name":
            return {"name": _name(value)}
        case "git_url":
            address = read_address(value)
            return {"git_url": address.text, "remote": remote_key(address.text)}
        case "base_branch":
            return {"base_branch": check_branch(value)}
        case "ci_provider":
            if value is not None and value not in PROVIDERS:
                raise Misuse(
                    f"{str(value)[:80]!r} is not a CI provider", hint=f"use one of: {', '.join(PROVIDERS)}"
                )
            return {"ci_provider": value}
        case "default_models":
            return {"default_models": check_models(value)}
    raise Misuse(f"a project has no {key[:80]!r} that can be changed")


def _start(tx: Transaction, runtime: Runtime, project_id: int) -> RunId:
    name = f"setup-{project_id}"
    run_id = start_run(
        tx, runtime, SETUP, kind="protocol", name=name, project_id=project_id, spec={"project": project_id}
    )
    change_project(tx, project_id, setup_run_id=run_id)
    tx.event("setup_enqueued", project_id=project_id, run_id=run_id, message="onboarding is queued")
    return run_id


def _name(name: str) -> str:
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise Misuse(
            f"{name[:80]!r} cannot be the name of a project",
            hint=f"use at most {_LONGEST_NAME} printable characters",
        )
    return name.strip()


def _path(local_path: str) -> str:
    path = Path(local_path).expanduser() if local_path.isprintable() else Path()
    if not path.is_absolute():
        raise Misuse(
            f"{local_path[:200]!r} is not an absolute path", hint="give the whole path of the repository"
        )
    return str(path)


NUMBERED, ANY_NAME = "NNNN-task", "any"
PR_POLICIES = ("draft", "ready", "none")


@dataclass(frozen=True, slots=True)
class OnboardingQuestion:
    key: str
    question: str
    recommended: Any
    options: Sequence[Any] | None = None


def onboarding_questions(
    project: Project, settings: Settings, secrets: Sequence[str]
) -> list[OnboardingQuestion]:
    """`secrets` are the names of those that the project has."""
    facts = project.facts
    ratchet = {"name": RATCHET.name, "email": RATCHET.email}
    models = {key: model for key, model in settings.protocols.models.model_dump().items() if model}
    both = (True, False)
    return [
        OnboardingQuestion(
            "ci_provider",
            "Which forge runs the CI of this repository?",
            project.ci_provider or facts.get("ci_provider") or NO_PROVIDER,
            (*PROVIDERS, NO_PROVIDER),
        ),
        OnboardingQuestion(
            "prefer_ssh",
            "Is a repository on GitHub fetched and pushed over SSH, with the keys of the user's agent?",
            bool(facts.get("prefer_ssh", settings.projects.github_ssh)),
            both,
        ),
        OnboardingQuestion("git_identity", "Who is the author of commits?", facts.get("identity") or ratchet),
        OnboardingQuestion(
            "branch_naming",
            "How are the branches of protocols named: a number and a task, or any name?",
            facts.get("branch_naming", NUMBERED),
            (NUMBERED, ANY_NAME),
        ),
        OnboardingQuestion(
            "required_checks",
            "Which CI checks must a commit pass, by the names that the forge reports?",
            list(facts.get("required_checks") or []),
        ),
        OnboardingQuestion(
            "pr_policy",
            "Are pull requests opened as drafts, ready for review, or not at all?",
            facts.get("pr_policy", "draft"),
            PR_POLICIES,
        ),
        OnboardingQuestion(
            "default_models",
            "Which models plan, take apart, carry out and review?",
            project.default_models or models,
        ),
        OnboardingQuestion(
            "secrets",
            "Which secrets does the project need? Give it their values first, and here only their names.",
            list(secrets),
        ),
        OnboardingQuestion(
            "codex_discovery",
            "May an engine look at the repository where its files alone do not show how it is checked?",
            bool(facts.get("engine_discovery", settings.projects.discovery is not None)),
            both,
        ),
    ]
