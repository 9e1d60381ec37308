"""What the answers to the questions of onboarding mean: each is checked, and changes what is done afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ratchet.kernel import Misuse
from ratchet.ledger import Transaction, to_json
from ratchet.ledger.clarifications import Clarification
from ratchet.ledger.projects import add_facts, change_project
from ratchet.projects.secrets import NAMES, secret_names
from ratchet.workspaces import Identity

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
            hint=f"for instance {json.dumps(asked.recommended)}",
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
    mend = 'answer with an object such as {"name": "Ada", "email": "ada@example.org"}'
    if not isinstance(answer, Mapping) or set(answer) != {"name", "email"}:
        raise Misuse("git_identity is a name and an email", hint=mend)
    if not all(isinstance(value, str) for value in answer.values()):
        raise Misuse("git_identity is a name and an email", hint=mend)
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
