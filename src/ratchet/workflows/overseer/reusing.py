"""Whether a remembered plan is what is wanted, or at least shows the overseer how one looks."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.config.workflow_settings import Workflows
from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.validation import require_valid
from ratchet.ledger.workflows import SavedWorkflow, find_content, find_workflow
from ratchet.memory import MemoryFault
from ratchet.workflows.overseer.asking import SIMULATED
from ratchet.workflows.overseer.planned import Reused
from ratchet.workflows.overseer.work import Work
from ratchet.workflows.remembering import RememberedPlan, find_plans
from ratchet.workflows.remembering.sentences import differ_in


@dataclass(frozen=True, slots=True)
class Known:
    """A remembered plan that still can be run, and what is known of it."""

    plan: RememberedPlan
    saved: SavedWorkflow


@dataclass(frozen=True, slots=True)
class Found:
    """At most one of them: a plan to take, or one to show."""

    reuse: Reused | None = None
    saved: SavedWorkflow | None = None
    template: Known | None = None


def look_for_plan(work: Work) -> Found:
    """The remembered plan that is near enough. A run that wants a new one is not shown an old one either."""
    if work.memory is None or not work.spec["reuse"]:
        return Found()
    try:
        plans = find_plans(work.memory, work.sentence)
    except MemoryFault as fault:
        # A memory that is out of reach costs a session, not the plan.
        work.notes.append(f"no earlier plan was looked for: {fault}")
        return Found()
    known = [each for plan in plans if (each := _known(work, plan)) is not None]
    for each in known:
        reason = reason_to_reuse(work.settings, work.sentence, each.plan)
        if reason is not None:
            plan = each.plan
            reused = Reused(plan.workflow, plan.sentence, round(plan.likeness, 3), plan.exact, reason)
            return Found(reuse=reused, saved=each.saved)
    near = [each for each in known if each.plan.likeness >= work.settings.template]
    return Found(template=near[0] if near else None)


def reason_to_reuse(settings: Workflows, sentence: str, plan: RememberedPlan) -> str | None:
    """Why the plan is taken, if it is."""
    if plan.exact:
        return "the same sentence was planned before"
    if plan.likeness < settings.reuse or differ_in(sentence, plan.sentence) is not None:
        return None
    return (
        f"a sentence that means nearly the same was planned before "
        f"(likeness {plan.likeness:.2f}, at least {settings.reuse:g} is wanted)"
    )


def _known(work: Work, plan: RememberedPlan) -> Known | None:
    """The plan with its workflow, unless that is gone, cannot run any more, or is only a simulation."""
    with work.job.ledger.read() as tx:
        made = find_content(tx, plan.workflow, plan.hash)
        saved = find_workflow(tx, plan.workflow)
    if made is None or saved is None or (saved.origin == SIMULATED and not work.run.simulated):
        return None
    try:
        require_valid(read_spec(saved.spec), known_tools=work.tools())
    except SpecError:
        return None
    return Known(plan, saved)
