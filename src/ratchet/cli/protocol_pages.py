"""Protocols and projects as pages for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ratchet.cli.output import note
from ratchet.cli.words import age_of, compact, one_line
from ratchet.operations import record

if TYPE_CHECKING:
    from ratchet.ledger import Transaction
    from ratchet.ledger.projects import Project

Record = Mapping[str, Any]


def whole_project(tx: Transaction, project: Project) -> dict[str, Any]:
    """A project with its onboarding, as `--json` shows it."""
    from ratchet.projects.operations import ProjectAnswer
    from ratchet.projects.stages import onboarding_view

    return {
        **record(ProjectAnswer.at(tx, project.id)),
        "onboarding": record(onboarding_view(tx, project)),
    }


def print_project(found: Record) -> None:
    """A project: where it is, what is known about it, and the progress of its onboarding."""
    from ratchet.cli.tables import print_fields, print_table

    facts, setup = found["facts"], found["onboarding"]
    print_fields(
        {
            "project": found["id"],
            "name": found["name"],
            "address": found["git_url"],
            "path": found["local_path"],
            "base": found["base_branch"],
            "forge": found["ci_provider"],
            "stack": ", ".join(facts.get("stack") or []) or None,
            "checks": "\n".join(
                f"{each['name']} ({each['kind']}): {' '.join(each['argv'])}"
                for each in facts.get("checks") or []
            )
            or None,
            "required by CI": ", ".join(facts.get("required_checks") or []) or None,
            "models": compact(found["default_models"]),
            "secrets": ", ".join(found["secret_names"]) or None,
            "onboarding": setup["status"],
            "reason": setup["reason"] if setup["status"] != "completed" else None,
            "open questions": found["open_questions"] or None,
            "created": age_of(found["created_at"]),
            "archived": age_of(found["archived_at"]),
        }
    )
    if setup["status"] != "completed":
        print()
        print_table(
            setup["stages"],
            {
                "stage": lambda stage: stage["name"],
                "status": lambda stage: stage["status"],
                "reason": lambda stage: stage["reason"],
            },
        )
    _tell_next(found)


def print_setup(found: Record) -> None:
    """What an onboarding has come to."""
    setup, facts = found["onboarding"], found["facts"]
    name = one_line(found["name"])
    if setup["status"] != "completed":
        print(f"Project {found['id']}, {name}: its onboarding is {setup['status']}.")
        if setup["reason"]:
            note(one_line(setup["reason"]))
        _tell_next(found)
        return
    stack = ", ".join(facts.get("stack") or []) or "no known stack"
    checks = ", ".join(each["name"] for each in facts.get("checks") or []) or "none"
    print(f"Project {found['id']}, {name}, is set up: {stack}; checks: {checks}.")
    commands = [" ".join(argv) for argv in facts.get("setup") or []]
    if commands:
        print("\n  ".join(["Its environment is made by:", *map(one_line, commands)]))
        note(f"`ratchet project setup {found['id']}` makes it now; otherwise the first protocol does.")
    note(f"`ratchet project questions {found['id']}` shows what could be decided better;")
    note(f'`ratchet protocol new "WHAT TO CHANGE" --project {found["id"]} --run` begins.')


def _tell_next(found: Record) -> None:
    setup, number = found["onboarding"], found["id"]
    if setup["status"] == "blocked":
        waits = any(
            stage["name"] == "clarifications" and stage["status"] == "blocked" for stage in setup["stages"]
        )
        if waits:
            note(
                f"\nNext:\n  ratchet project questions {number}\n  ratchet project answer {number} --recommended"
            )
        else:
            note(f"\nNext, once that is fixed:\n  ratchet project onboard {number}")
    elif setup["status"] in ("pending", "paused", "failed"):
        note(f"\nNext:\n  ratchet project onboard {number}")


Overview = Mapping[str, Any]


def print_overview(found: Overview) -> None:
    """A protocol with its steps, and the commands to type next."""
    from ratchet.cli.tables import print_fields, print_table

    print_fields(
        {
            "protocol": found["id"],
            "name": found["protocol_name"],
            "project": found["project"],
            "status": _status(found),
            "reason": found["reason"],
            "simulated": _simulated(found),
            "wanted": None if found["description"] is None else one_line(found["description"]),
            "base": f"{found['base_branch']} {_short(found['base_commit']) or ''}".strip(),
            "branch": found["branch"] if found["base_commit"] else None,
            "worktree": found["worktree_path"],
            "pushed": _short(found["pushed"]),
            "pull request": pull_request(found["pull_request"]),
            "created": age_of(found["created_at"]),
        }
    )
    if found["steps"]:
        print()
        print_table(
            found["steps"],
            {
                "step": lambda step: step["id"],
                "name": lambda step: step["step_name"],
                "status": lambda step: step["status"],
                "tries": lambda step: step["attempts"],
                "verdict": lambda step: step["outcome"],
                "commit": lambda step: _short(step["commit"]),
                "ci": lambda step: step["ci"],
                "engine": lambda step: step["engine_id"],
                "reason": lambda step: step["reason"],
            },
        )
    for asked in found["questions"]:
        note(f"\nasked: {one_line(asked['question'])}")
    if found["next"]:
        note("\nNext:")
        for each in found["next"]:
            note(f"  {each['command']}    # {one_line(each['why'])}")


def pull_request(known: Any) -> str | None:
    if not isinstance(known, Mapping) or "number" not in known:
        return None
    draft = ", draft" if known.get("draft") else ""
    return f"{known.get('url')} ({known.get('state')}{draft})"


def _status(found: Overview) -> str:
    awaits = [step["step_name"] for step in found["steps"] if step["awaits_ci"]]
    if found["status"] == "running" and awaits and not found["queued"]:
        return f"running: {', '.join(awaits)} waits for CI"
    return str(found["status"])


def _simulated(found: Overview) -> str | None:
    """A recording is marked wherever a run is shown."""
    if found["used_recording"]:
        return "used a recording"
    return "allowed" if found["simulated"] else None


def _short(commit: str | None) -> str | None:
    return None if commit is None else commit[:12]
