"""The tree of trials as a picture: one line to a trial, each under the one that it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.research.views._report.markup import Markup, joined, tag
from ratchet.research.views.row import status_of
from ratchet.research.views.words import number, one_line

if TYPE_CHECKING:
    from ratchet.research.views._tree import Node, Tree

_ROW, _STEP, _MARGIN = 24.0, 18.0, 16.0
_TEXT = 110
# About as wide as the longest line of text gets.
_WORDS = 900.0


def branches(tree: Tree) -> Markup:
    if not tree.nodes:
        return tag("p", "There is no trial yet.", class_="soft")
    places = {node.trial.number: at for at, node in enumerate(tree.nodes)}
    parts = [_edge(node, at, places, tree) for at, node in enumerate(tree.nodes)]
    parts += [_node(node, at, tree) for at, node in enumerate(tree.nodes)]
    width = _MARGIN + _STEP * max(node.level for node in tree.nodes) + _WORDS
    drawn = tag(
        "svg",
        joined([each for each in parts if each]),
        width=width,
        height=_ROW * len(tree.nodes) + _MARGIN,
        role="img",
        aria_label="The trials that the best came from, and others made from them",
        xmlns="http://www.w3.org/2000/svg",
    )
    notes = []
    if tree.earlier:
        notes.append(f"{tree.earlier} earlier ancestors are not shown.")
    if tree.more:
        notes.append("The best has older children too.")
    return joined([tag("div", drawn, class_="wide"), *(tag("p", note, class_="soft") for note in notes)])


def _edge(node: Node, at: int, places: dict[int, int], tree: Tree) -> Markup:
    parent = node.trial.parent
    if node.level == 0 or parent not in places:
        return Markup("")
    up = tree.nodes[places[parent]]
    line = f"M{_x(up):.0f} {_y(places[parent]) + 5:.0f}V{_y(at):.0f}H{_x(node) - 5:.0f}"
    return tag("path", d=line, class_="edge on-line" if node.on_line else "edge")


def _node(node: Node, at: int, tree: Tree) -> Markup:
    trial = node.trial
    best = " — best" if trial.number == tree.best else ""
    facts = (
        f"{trial.exp_id} {status_of(trial)} {number(trial.score)} {one_line(trial.specialist, 30)}{best}: "
    )
    words = facts + one_line(trial.hypothesis, _TEXT)
    full = tag("title", one_line(trial.hypothesis, 1000))
    mark = tag("circle", full, cx=_x(node), cy=_y(at), r=5, class_=f"node {status_of(trial)}")
    return joined(
        [mark, tag("text", words, x=_x(node) + 12, y=_y(at) + 4, class_="ink" if node.on_line else "")]
    )


def _x(node: Node) -> float:
    return _MARGIN + _STEP * node.level


def _y(at: int) -> float:
    return _MARGIN + _ROW * at
