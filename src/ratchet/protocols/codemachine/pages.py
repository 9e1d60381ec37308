"""The pages of an imported protocol: what was imported, what whoever does a step must know, and an empty log.

They say the same for the same workspace, so that an import which was cut short can be taken up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ratchet.protocols.codemachine.workspace import CodeMachine
from ratchet.protocols.spec import ProtocolSpec, StepSpec, prompt_version


def pages_of(
    workspace: CodeMachine,
    spec: ProtocolSpec,
    name: str,
    description: str | None,
    prompts: Mapping[str, str],
) -> dict[str, str]:
    """plan.md, context.md and log.md."""
    return {
        "plan.md": _plan(workspace, spec, name, description, prompts),
        "context.md": _context(workspace, spec),
        "log.md": f"# Log of {name}\n\n",
    }


def _plan(
    workspace: CodeMachine,
    spec: ProtocolSpec,
    name: str,
    description: str | None,
    prompts: Mapping[str, str],
) -> str:
    where = "its main agents, in their order"
    if workspace.workflow:
        named = f" ({_line(workspace.workflow.name)})" if workspace.workflow.name else ""
        where = f"its workflow {workspace.workflow.file}{named}"
    sections = [
        f"# {name}",
        description or "",
        f"Imported from a CodeMachine workspace: {where}. Every prompt is in `prompts/`, whole and as it was then.",
        "## Steps",
    ]
    heading = None
    for step in spec.steps:
        if step.metadata.get("heading") != heading:
            heading = step.metadata.get("heading")
            sections.append(f"### {heading}")
        sections.append(_step(step, prompts))
    return "\n\n".join(section for section in sections if section) + "\n"


def _step(step: StepSpec, prompts: Mapping[str, str]) -> str:
    agent = step.metadata["agent"]
    lines = [f"- **{step.called}**: {_line(agent.get('description') or agent.get('name') or step.id)}"]
    engine = " ".join(part for part in (step.engine_id, step.model) if part)
    if engine:
        lines.append(f"engine {engine}")
    lines.append(f"prompt `{step.prompt_ref}` ({prompt_version(prompts[step.prompt_ref].encode())})")
    lines.append(f"review {step.qa.policy}")
    if step.metadata.get("execute_once"):
        lines.append("not done again by loops")
    lines += map(_policy, step.policies)
    return "\n  - ".join(lines)


def _policy(policy: Mapping[str, Any]) -> str:
    if policy["behavior"] == "trigger":
        return f"trigger {policy['module_id']}: {policy.get('trigger_agent_id') or policy.get('target_agent_id')}"
    most = policy.get("max_iterations")
    skipped = policy.get("skip_steps")
    return (
        f"loop {policy['module_id']}: back by {policy.get('step_back', 1)}"
        + (f", {most} times at most" if most is not None else "")
        + (f", without {', '.join(map(str, skipped))}" if skipped else "")
    )


def _context(workspace: CodeMachine, spec: ProtocolSpec) -> str:
    facts: list[str] = []
    for label, value in (
        ("Project", workspace.template.text("projectName")),
        ("Track", workspace.choices.track),
        ("Conditions", ", ".join(sorted(workspace.choices.conditions))),
    ):
        if value:
            facts.append(f"- {label}: {_line(value)}")
    agents: Iterable[Mapping[str, Any]] = spec.metadata.get("sub_agents", ())
    facts += [
        f"- Sub agent {agent['id']}: {_line(agent.get('description') or '')}".rstrip(": ") for agent in agents
    ]
    return "# Context\n\n" + ("\n".join(facts) or "Nothing yet.") + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
