"""Where a trial came from and what came of it: a page of the tree of trials."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.ledger.research import Standing, get_standing
from ratchet.ledger.trial_pages import ancestors, children
from ratchet.ledger.trials import find_trial
from ratchet.research.views.row import brief, record
from ratchet.research.views.words import cell

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial

_TEXT = 100


@dataclass(frozen=True, slots=True)
class Node:
    """`level` is how far it is indented, `on_line` whether it is the trial asked for or one that it came from."""

    trial: Trial
    level: int
    on_line: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """`nodes` in the order in which they are drawn: each after its parent.

    `earlier` counts the ancestors above the first one; `more` says that the trial in focus has older children too.
    """

    label: str
    focus: int | None
    best: int | None
    nodes: tuple[Node, ...]
    earlier: int = 0
    more: bool = False

    @property
    def line(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.on_line)

    @property
    def offspring(self) -> tuple[Node, ...]:
        """The children of the trial in focus, newest first."""
        return tuple(node for node in reversed(self.nodes) if node.trial.parent == self.focus)

    def to_dict(self) -> dict[str, Any]:
        return {
            "focus": self.focus,
            "earlier_ancestors": self.earlier,
            "more_children": self.more,
            "nodes": [
                {**record(node.trial), "level": node.level, "on_line": node.on_line} for node in self.nodes
            ],
        }

    def describe(self, node: Node) -> str:
        return described(node.trial, self.label, best=node.trial.number == self.best)

    def to_markdown(self) -> str:
        """Fenced, since it is indented."""
        if not self.nodes:
            return "There is no trial yet."
        lines = [_branch(node) + self.describe(node) for node in self.nodes]
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
) -> Tree:
    """The tree around a trial, the best if none is named: its ancestors and its newest children.

    `sideways` is how many other children of each ancestor are there too. Raises `NotFound` when it does not exist.
    """
    standing = standing or get_standing(tx, run_id)
    focus = standing.best if number is None else number
    if focus is None:
        first = find_trial(tx, run_id, 0)
        if first is None:
            return Tree(standing.score_field, None, None, ())
        return Tree(standing.score_field, first.number, None, (Node(first, 0, on_line=True),))
    line = ancestors(tx, run_id, focus, limit=upwards)
    newest = _told_children(tx, run_id, focus, downwards + 1)
    members = {each.number: each for each in (*line, *newest[:downwards])}
    if sideways:
        for ancestor in line[1:]:
            others = _told_children(tx, run_id, ancestor.number, sideways + 1)
            known = [each for each in others if each.number not in members][:sideways]
            members |= {each.number: each for each in known}
    top = line[-1]
    return Tree(
        label=standing.score_field,
        focus=focus,
        best=standing.best,
        nodes=tuple(_preorder(members, top, {each.number for each in line})),
        earlier=top.depth,
        more=len(newest) > downwards,
    )


def _told_children(tx: Transaction, run_id: int, parent: int, limit: int) -> list[Trial]:
    """The newest children that tell something about an idea, out of a page that may hold a few others."""
    page = children(tx, run_id, parent, limit=2 * limit)
    return [each for each in page if each.status is None or each.status.tried][:limit]


def _preorder(members: dict[int, Trial], top: Trial, line: set[int]) -> list[Node]:
    below: dict[int | None, list[Trial]] = defaultdict(list)
    for each in members.values():
        if each.number != top.number:
            below[each.parent].append(each)
    drawn: list[Node] = []
    waiting = [(top, 0)]
    while waiting:
        trial, level = waiting.pop()
        drawn.append(Node(trial, level, trial.number in line))
        # The line goes on last, so that side branches stand next to where they left it.
        order = sorted(below[trial.number], key=lambda each: (each.number in line, each.number), reverse=True)
        waiting += [(each, level + 1) for each in order]
    return drawn


def _branch(node: Node) -> str:
    return "   " * (node.level - 1) + "   └─ " if node.level else ""
