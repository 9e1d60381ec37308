"""The tree of trials, the lessons that were learned, and the knowledge page of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ratchet.kernel import TrialStatus, exp_id
from ratchet.ledger.research import Lesson, Standing, get_standing, list_lessons
from ratchet.ledger.trial_pages import ancestors, branches_after, children
from ratchet.ledger.trials import find_trial
from ratchet.research.views.text import ResearchView, cell, finite, json_text
from ratchet.research.views.trials import RUNNING, Activity, TrialAnswer, brief, recent_activity

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trials import Trial


PAGE = 5000


def whole_tree(tx: Transaction, run_id: int, *, after: int = -1, limit: int = PAGE) -> dict[str, Any]:
    """The trials with a number above `after`, oldest first; `next` is the `after` of the next page.

    `status` and `specialist` are places in `statuses` and `specialists`; a parent of -1 is none.
    """
    standing = get_standing(tx, run_id)
    rows = branches_after(tx, run_id, after, limit=limit + 1)
    page = rows[:limit]
    statuses = {each: place for place, each in enumerate(dict.fromkeys(row.status for row in page))}
    specialists = {each: place for place, each in enumerate(dict.fromkeys(row.specialist for row in page))}
    return {
        "run": run_id,
        "best": standing.best,
        "field": json_text(standing.score_field),
        "number": [each.number for each in page],
        "parent": [-1 if each.parent is None else each.parent for each in page],
        "score": [finite(each.score) for each in page],
        "status": [statuses[each.status] for each in page],
        "specialist": [specialists[each.specialist] for each in page],
        "statuses": [each or RUNNING for each in statuses],
        "specialists": [json_text(each) for each in specialists],
        "next": page[-1].number if len(rows) > limit else None,
    }


_TEXT = 100


@dataclass(frozen=True, slots=True)
class NodeAnswer(TrialAnswer):
    """`on_line` says that it is the trial in focus or one that it came from."""

    level: int
    on_line: bool


@dataclass(frozen=True, slots=True)
class TreeAnswer:
    focus: int | None
    earlier_ancestors: int
    more_children: bool
    nodes: list[NodeAnswer]


@dataclass(frozen=True, slots=True)
class LessonAnswer:
    """`exp_id` is the trial it was written behind, and `status` how that ended.

    It is `verified` if that trial has a valid score.
    """

    id: int
    specialist: str
    exp_id: str | None
    text: str
    at: int
    status: str | None
    verified: bool


@dataclass(frozen=True, slots=True)
class KnowledgeAnswer:
    tree: TreeAnswer
    recent_activity: list[TrialAnswer]
    key_insights: list[LessonAnswer]


@dataclass(frozen=True, slots=True)
class TrialNode:
    """`level` is how far it is indented, `on_line` whether it is the trial asked for or one that it came from."""

    trial: Trial
    level: int
    on_line: bool


@dataclass(frozen=True, slots=True)
class TrialTree(ResearchView):
    """`nodes` in the order in which they are drawn: each after its parent.

    `earlier` counts the ancestors above the first one; `more` says that the trial in focus has older children too.
    """

    label: str
    focus: int | None
    best: int | None
    nodes: tuple[TrialNode, ...]
    earlier: int = 0
    more: bool = False

    @property
    def line(self) -> tuple[TrialNode, ...]:
        return tuple(node for node in self.nodes if node.on_line)

    def answer(self) -> TreeAnswer:
        nodes = [NodeAnswer.of(node.trial, level=node.level, on_line=node.on_line) for node in self.nodes]
        return TreeAnswer(self.focus, self.earlier, self.more, nodes)

    def describe(self, node: TrialNode) -> str:
        return described(node.trial, self.label, best=node.trial.number == self.best)

    def to_markdown(self) -> str:
        """Fenced, since it is indented."""
        if not self.nodes:
            return "There is no trial yet."
        lines = [
            f"{'   ' * node.level}{'└─ ' if node.level else ''}{self.describe(node)}" for node in self.nodes
        ]
        above = [f"… {self.earlier} earlier"] if self.earlier else []
        below = ["… and older ones"] if self.more else []
        return "\n".join(["```", *above, *lines, *below, "```"])


def described(trial: Trial, label: str, *, best: bool) -> str:
    mark = "   ← BEST" if best else ""
    return f"{brief(trial, label)} {cell(trial.hypothesis, _TEXT)}{mark}"


def tree(
    tx: Transaction,
    run_id: int,
    number: int | None = None,
    *,
    upwards: int = 24,
    downwards: int = 24,
    sideways: int = 0,
    standing: Standing | None = None,
) -> TrialTree:
    """The tree around a trial, the best if none is named: its ancestors and its newest children.

    `sideways` is how many other children of each ancestor are there too. Raises `NotFound` when it does not exist.
    """
    standing = standing or get_standing(tx, run_id)
    focus = standing.best if number is None else number
    if focus is None:
        first = find_trial(tx, run_id, 0)
        if first is None:
            return TrialTree(standing.score_field, None, None, ())
        return TrialTree(standing.score_field, first.number, None, (TrialNode(first, 0, on_line=True),))
    line = ancestors(tx, run_id, focus, limit=upwards)
    newest = _tried_children(tx, run_id, focus, downwards + 1)
    members = {each.number: each for each in (*line, *newest[:downwards])}
    if sideways:
        for ancestor in line[1:]:
            others = _tried_children(tx, run_id, ancestor.number, sideways + 1)
            known = [each for each in others if each.number not in members][:sideways]
            members |= {each.number: each for each in known}
    top = line[-1]
    return TrialTree(
        label=standing.score_field,
        focus=focus,
        best=standing.best,
        nodes=tuple(_preorder(members, top, {each.number for each in line})),
        earlier=top.depth,
        more=len(newest) > downwards,
    )


def _tried_children(tx: Transaction, run_id: int, parent: int, limit: int) -> list[Trial]:
    """The newest children that tell something about an idea, out of a page that may hold a few others."""
    page = children(tx, run_id, parent, limit=2 * limit)
    return [each for each in page if each.status is None or each.status.tried][:limit]


def _preorder(members: dict[int, Trial], top: Trial, line: set[int]) -> list[TrialNode]:
    below: dict[int | None, list[Trial]] = defaultdict(list)
    for each in members.values():
        if each.number != top.number:
            below[each.parent].append(each)
    drawn: list[TrialNode] = []
    waiting = [(top, 0)]
    while waiting:
        trial, level = waiting.pop()
        drawn.append(TrialNode(trial, level, trial.number in line))
        # The line itself comes last, so that side branches stand next to where they left it.
        order = sorted(below[trial.number], key=lambda each: (each.number in line, each.number), reverse=True)
        waiting += [(each, level + 1) for each in order]
    return drawn


_LESSON_TEXT = 400


@dataclass(frozen=True, slots=True)
class Insights(ResearchView):
    """Newest first; one that was written twice is here once."""

    rows: tuple[Lesson, ...]

    def answer(self) -> list[LessonAnswer]:
        return [
            LessonAnswer(
                id=each.id,
                specialist=json_text(each.specialist) or "",
                exp_id=None if each.trial is None else exp_id(each.trial),
                text=json_text(each.text) or "",
                at=each.at,
                status=each.status,
                verified=each.verified,
            )
            for each in self.rows
        ]

    def lines(self) -> list[str]:
        return [_line(each.text, each.specialist, each.trial, each.status) for each in self.rows]

    def key(self) -> Insights:
        """Those that may guide others: none of a disqualified trial, and first those with a measured one."""
        fit = [each for each in self.rows if not each.refused]
        return Insights(tuple(sorted(fit, key=lambda each: not each.verified)))

    def to_markdown(self) -> str:
        return "\n".join(self.lines()) or "No lessons yet."


def insights(tx: Transaction, run_id: int, *, limit: int = 30) -> Insights:
    return different(list_lessons(tx, run_id, limit=limit))


def different(newest_first: Iterable[Lesson]) -> Insights:
    """Each of these once, however often it was written."""
    newest: dict[str, Lesson] = {}
    for each in newest_first:
        said = _said(each.text)
        if said not in newest or newest[said].refused:
            newest[said] = each
    return Insights(tuple(newest.values()))


# One prompt after the other shows nearly the same lessons.
@lru_cache(maxsize=256)
def _said(text: str) -> str:
    """What a lesson says, however it is spaced and capitalised."""
    return " ".join(text.casefold().split())


@lru_cache(maxsize=256)
def _line(text: str, specialist: str, trial: int | None, status: TrialStatus | None) -> str:
    source = cell(specialist, 40)
    if trial is not None:
        source += f", {exp_id(trial)} {status or ''}".rstrip()
    verified = status is not None and status.valid
    return f"- {cell(text, _LESSON_TEXT)} ({source}{'' if verified else ', unverified'})"


@dataclass(frozen=True, slots=True)
class KnowledgeView(ResearchView):
    tree: TrialTree
    activity: Activity
    insights: Insights

    def answer(self) -> KnowledgeAnswer:
        return KnowledgeAnswer(self.tree.answer(), self.activity.answer(), self.insights.answer())

    def to_markdown(self) -> str:
        """What was learned comes first: it is the part that must not be cut off."""
        parts = (
            "# Knowledge",
            f"## Key Insights\n\n{self.insights.to_markdown()}",
            f"## Research Tree\n\n{self.tree.to_markdown()}",
            f"## Recent Activity (last {len(self.activity.rows)})\n\n{self.activity.to_markdown()}",
        )
        return "\n\n".join(parts) + "\n"


def knowledge(tx: Transaction, run_id: int) -> KnowledgeView:
    return KnowledgeView(tree(tx, run_id), recent_activity(tx, run_id), insights(tx, run_id).key())
