"""The evidence of trials, and a run as one HTML file that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.kernel import NotFound, decoded, exact_bytes, shortened
from ratchet.ledger import Ledger, Run
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.trials import Trial, find_trial
from ratchet.research.adapter import measured_columns
from ratchet.research.decision import bound_to, check_certificate
from ratchet.research.views._knowledge import Insights, insights, tree
from ratchet.research.views._status import Status, better, read_status
from ratchet.research.views.markup import CSS, Markup, grid, joined, tag
from ratchet.research.views.plot import Frame, Level, Mark, Plot, draw_plot, plotted
from ratchet.research.views.specialists import calibration
from ratchet.research.views.text import (
    NOTHING,
    ResearchView,
    cost_of,
    duration,
    number,
    one_line,
    signed,
)
from ratchet.research.views.trials import (
    TOP,
    Leaderboard,
    leaderboard,
    near_misses,
    recent_activity,
    status_of,
)
from ratchet.workspaces import Repository

if TYPE_CHECKING:
    from ratchet.research.views._knowledge import TrialNode, TrialTree
    from ratchet.research.views.plot import Plotted


_LINES = 2000
_LINE = 400
_CERTIFICATE = 60_000
_CLASSES = {"+": "plus", "-": "minus", "@": "hunk"}


def difference(diff: str) -> Markup:
    """A diff with its lines marked. A very long one is cut, and says so."""
    lines = diff.splitlines()
    shown = [_line(each) for each in lines[:_LINES]]
    parts = [tag("div", tag("pre", joined(shown)), class_="wide")]
    if len(lines) > _LINES:
        parts.append(tag("p", f"{len(lines) - _LINES:,} more lines are not shown.", class_="soft"))
    return joined(parts)


def certificate_block(found: Mapping[str, Any]) -> Markup:
    written = json.dumps(found, indent=2, ensure_ascii=False, default=str)
    cut = written[:_CERTIFICATE] + ("\n…" if len(written) > _CERTIFICATE else "")
    return tag("div", tag("pre", cut), class_="wide")


def _line(line: str) -> Markup:
    shown = shortened(line, _LINE)
    kind = _CLASSES.get(line[:1])
    return tag("span", shown, class_=kind) if kind else tag("span", shown)


_ROW, _STEP, _MARGIN = 24.0, 18.0, 16.0
_BRANCH_TEXT = 110
# About as wide as the longest line of text gets.
_WORDS = 900.0


def branches(tree: TrialTree) -> Markup:
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


def _edge(node: TrialNode, at: int, places: dict[int, int], tree: TrialTree) -> Markup:
    parent = node.trial.parent
    if node.level == 0 or parent not in places:
        return Markup("")
    up = tree.nodes[places[parent]]
    line = f"M{_x(up):.0f} {_y(places[parent]) + 5:.0f}V{_y(at):.0f}H{_x(node) - 5:.0f}"
    return tag("path", d=line, class_="edge on-line" if node.on_line else "edge")


def _node(node: TrialNode, at: int, tree: TrialTree) -> Markup:
    trial = node.trial
    best = " — best" if trial.number == tree.best else ""
    facts = (
        f"{trial.exp_id} {status_of(trial)} {number(trial.score)} {one_line(trial.specialist, 30)}{best}: "
    )
    words = facts + one_line(trial.hypothesis, _BRANCH_TEXT)
    full = tag("title", one_line(trial.hypothesis, 1000))
    mark = tag("circle", full, cx=_x(node), cy=_y(at), r=5, class_=f"node {status_of(trial)}")
    return joined(
        [mark, tag("text", words, x=_x(node) + 12, y=_y(at) + 4, class_="ink" if node.on_line else "")]
    )


def _x(node: TrialNode) -> float:
    return _MARGIN + _STEP * node.level


def _y(at: int) -> float:
    return _MARGIN + _ROW * at


_RADIUS, _KEPT_RADIUS = 2.6, 4.5


def score_plot(status: Status, shown: Plotted) -> Markup:
    drawn = draw_plot(status, shown)
    frame = drawn.frame
    parts = [*_axes(drawn), *_baseline(drawn.baseline, frame), *_best(drawn)]
    parts += [_mark(each, kind) for kind, marks in drawn.marks.items() for each in marks]
    picture = tag(
        "svg",
        joined(parts),
        class_="plot",
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        role="img",
        aria_label="Score of each trial by its number",
        xmlns="http://www.w3.org/2000/svg",
    )
    return joined([picture, _legend(drawn.noise), tag("p", drawn.note, class_="soft")])


def _axes(drawn: Plot) -> list[Markup]:
    frame = drawn.frame
    parts = []
    for tick in drawn.scores:
        parts.append(tag("line", x1=frame.left, x2=frame.right, y1=tick.at, y2=tick.at, class_="tick"))
        parts.append(tag("text", tick.text, x=frame.left - 8, y=tick.at + 4, text_anchor="end"))
    parts += [
        tag("text", tick.text, x=tick.at, y=frame.height - 22, text_anchor="middle") for tick in drawn.numbers
    ]
    parts.append(tag("line", x1=frame.left, x2=frame.right, y1=frame.floor, y2=frame.floor, class_="axis"))
    parts.append(tag("text", "trial", x=frame.right, y=frame.height - 6, text_anchor="end"))
    parts.append(tag("text", drawn.field, x=8, y=14, class_="ink"))
    return parts


def _baseline(level: Level | None, frame: Frame) -> list[Markup]:
    if level is None:
        return []
    left, right = frame.left, frame.right
    line = tag("line", _title(level.title), x1=left, x2=right, y1=level.y, y2=level.y, class_="base-line")
    if not level.height:
        return [line]
    band = tag("rect", x=left, width=right - left, y=level.top, height=level.height, class_="base-band")
    return [band, line]


def _best(drawn: Plot) -> list[Markup]:
    band = [tag("polygon", points=drawn.band, class_="band")] if drawn.band else []
    return [*band, tag("polyline", points=drawn.best, class_="best-line")] if drawn.best else band


def _mark(mark: Mark, kind: str) -> Markup:
    title, x, y = _title(mark.title), mark.x, mark.y
    if kind.startswith("failed-"):
        return tag("line", title, x1=x, x2=x, y1=y, y2=y + 8, class_=kind)
    if kind == "outside":
        return tag("path", title, d=f"M{x - 3:.1f} {y:.1f}h6", class_=kind)
    radius = _RADIUS if kind == "discard" else _KEPT_RADIUS
    return tag("circle", title, cx=x, cy=y, r=radius, class_=kind)


def _title(words: str) -> Markup:
    return tag("title", words)


def _legend(noise: float) -> Markup:
    keys = [("base", "baseline"), ("keep", "kept, and the best so far"), ("discard", "discarded")]
    keys += [("crash", "crashed"), ("limit", "over a limit"), ("judge", "disqualified")]
    if noise:
        keys[1] = ("keep", f"kept, and the best so far ± {noise:.3g} noise")
    shown = (tag("span", tag("i", class_=f"key-{key}"), words) for key, words in keys)
    return tag("div", *shown, class_="legend")


_PLOTTED = 2000
_TEXT = 240
# Nothing is loaded and nothing runs, whatever a specialist has written.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def report(
    tx: Transaction,
    run_id: int,
    *,
    diff: str | None = None,
    certificate: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (),
    points: int = _PLOTTED,
) -> str:
    """The page. `diff` is what the best changed against the baseline, `certificate` what shows that it is better.

    Costs the same for any length of run: it plots at most `points` trials. Raises `NotFound` when there is no such
    run, or it is not research.
    """
    status = read_status(tx, run_id)
    shown = plotted(tx, run_id, status.standing.next_number, max(2, points))
    expected = calibration(tx, run_id)
    looked_at = _none(f"Over the newest {expected.trials:,} trials of the run.")
    sections = [
        _section("Score over trials", score_plot(status, shown)),
        _section("Leaderboard", _leaders(leaderboard(tx, run_id, columns=columns))),
        _section("Lineage of the best", branches(tree(tx, run_id, sideways=3))),
        _section("Specialists", _table(status.specialists, range(1, 8))),
        _section("Expected and measured", _table(expected, range(1, 5), looked_at)),
        _section("Near misses", _table(near_misses(tx, run_id), range(3))),
        _section("Lessons", _lessons(insights(tx, run_id))),
        _section("Recent activity", _table(recent_activity(tx, run_id), (0, 3, 4))),
    ]
    if diff is not None:
        sections.append(_section("What the best changed", difference(diff)))
    if certificate is not None:
        sections.append(_section("Improvement certificate", certificate_block(certificate)))
    return _document(status, joined([_heading(status, tx.now), *sections]))


def _document(status: Status, body: Markup) -> str:
    head = joined(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", f"{one_line(status.run.name, 80)} – research run {status.run.id}"),
            tag("style", Markup(CSS)),
        ]
    )
    page = tag("html", tag("head", head), tag("body", body), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _heading(status: Status, now: int) -> Markup:
    run, standing = status.run, status.standing
    moment = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = f"task {one_line(standing.task, 80)}, run {run.id}, {run.status}, as of {moment}"
    parts = [tag("h1", one_line(run.name, 120)), tag("p", facts, class_="soft")]
    if status.simulated:
        parts.append(
            tag("p", "Simulated: sessions of this run were replayed from a recording.", class_="warning")
        )
    if run.reason:
        parts.append(tag("p", one_line(run.reason, 400)))
    facts_shown = (
        tag("div", tag("b", value), tag("span", name), class_="fact") for value, name in _facts(status)
    )
    parts.append(tag("div", *facts_shown, class_="facts"))
    for what, text in (("Plain baseline", status.plain_baseline), ("Known best", status.known_best)):
        if text:
            parts.append(tag("p", f"{what}: {one_line(text, _TEXT)}", class_="soft"))
    return joined(parts)


def _facts(status: Status) -> list[tuple[str, str]]:
    standing, baseline = status.standing, status.baseline
    best = (
        NOTHING if standing.best_exp_id is None else f"{standing.best_exp_id}: {number(standing.best_score)}"
    )
    began = NOTHING if baseline is None else number(baseline.score)
    noise = "" if baseline is None or baseline.sd is None else f" (sd {baseline.sd:.3g}, n {baseline.n})"
    field = one_line(standing.score_field, 40)
    return [
        (best, f"best {field}, {better(standing.direction)}"),
        (signed(status.gained), f"better than the baseline{status.gained_range}"),
        (began, f"baseline{noise}"),
        (f"{standing.trials:,}", "trials"),
        (
            f"{sum(each.keeps for each in status.specialists.rows):,}",
            f"kept, policy {one_line(standing.keep_policy, 30)}",
        ),
        (duration(status.active_seconds), f"of running; {status.last_keep}"),
        (cost_of(status.usage), f"{status.usage.tokens:,} tokens"),
    ]


def _section(title: str, inside: Markup) -> Markup:
    return tag("section", tag("h2", title), inside)


def _none(words: str) -> Markup:
    return tag("p", words, class_="soft")


def _table(found: ResearchView, numeric: Sequence[int] = (), more: Markup | None = None) -> Markup:
    head, *rows = found.table(_TEXT)
    if not rows:
        return _none(found.none)
    return joined([grid(head, rows, numeric=numeric), *([] if more is None else [more])])


def _leaders(found: Leaderboard) -> Markup:
    if not found.rows:
        return _none(found.none)
    head, *rows = found.table(_TEXT)
    for row, trial in zip(rows, found.rows, strict=True):
        row.insert(-1, (trial.commit or NOTHING)[:10])
    numbers = 3 + len(found.columns)
    return grid([*head[:-1], "commit", head[-1]], rows, numeric=(*range(numbers), numbers + 1))


def _lessons(found: Insights) -> Markup:
    if not found.rows:
        return _none("No lessons yet.")
    rows = [[one_line(each.specialist, 40), one_line(each.text, 600)] for each in found.rows]
    return grid(["specialist", "lesson"], rows)


def columns_of(run: Run) -> tuple[str, ...]:
    """What its task names, or, of an imported run, what its file has."""
    imported = run.spec.get("imported")
    if imported is not None:
        return measured_columns(imported["columns"], imported["score_field"])
    return tuple(run.spec.get("columns", ()))


def leaderboard_of(tx: Transaction, run_id: int, *, limit: int = TOP) -> Leaderboard:
    """The leaderboard with the run's own columns."""
    return leaderboard(tx, run_id, limit=limit, columns=columns_of(get_run(tx, run_id)))


def evidence_of(ledger: Ledger, trial: Trial) -> dict[str, Any]:
    """The certificate of a kept trial, and what in it contradicts itself or the trial's row."""
    if trial.certificate is None:
        return {"certificate_content": None, "certificate_problems": []}
    content = json.loads(ledger.artifacts.read(trial.certificate))
    return {
        "certificate_content": content,
        "certificate_problems": [*check_certificate(content), *bound_to(content, trial)],
    }


def read_diff(directory: Path, trial: Trial, *, since: str | None = None) -> str:
    """How a trial's files differ from those of its parent, or of the commit `since`. Bytes that are no text are marked.

    Raises `NotFound` when only the row of the trial is known.
    """
    path = directory / "repo.git"
    if trial.commit is None or not path.exists():
        raise NotFound("commit of trial", trial.exp_id)
    if trial.parent is None and since is None:
        return ""
    with Repository.open(path) as repository:
        patch = repository.diff(since or f"{trial.commit}^", trial.commit)
    return decoded(exact_bytes(patch))


def full_report(ledger: Ledger, tx: Transaction, run_id: int, directory: Path) -> str:
    """The page of a run with what the best changed since the baseline and its certificate, as far as they are here."""
    standing = get_standing(tx, run_id)
    best = None if standing.best is None else find_trial(tx, run_id, standing.best)
    diff = certificate = None
    if best is not None:
        certificate = evidence_of(ledger, best)["certificate_content"]
        diff = _since_baseline(directory, best, find_trial(tx, run_id, 0))
    columns = columns_of(get_run(tx, run_id))
    return report(tx, run_id, diff=diff, certificate=certificate, columns=columns)


def _since_baseline(directory: Path, best: Trial, first: Trial | None) -> str | None:
    """What the best has changed in all. Of an imported run, rows may be all that there is."""
    if first is None or first.commit is None:
        return None
    try:
        return read_diff(directory, best, since=first.commit)
    except NotFound:
        return None
