"""Protocols and projects as pages for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.cli.output import note
from ratchet.cli.times import age_of
from ratchet.cli.words import one_line

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
    if found["status"] == "running" and awaits and not found["in_line"]:
        return f"running: {', '.join(awaits)} waits for CI"
    return str(found["status"])


def _simulated(found: Overview) -> str | None:
    """A recording is marked wherever a run is shown."""
    if found["used_recording"]:
        return "used a recording"
    return "allowed" if found["simulated"] else None


def _short(commit: str | None) -> str | None:
    return None if commit is None else commit[:12]
