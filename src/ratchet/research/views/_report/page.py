"""A run as one HTML file that needs nothing else: no network, no script, no file beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ratchet.research.views._calibration import Calibration, calibration
from ratchet.research.views._insights import Insights, insights
from ratchet.research.views._leaderboard import Leaderboard, leaderboard
from ratchet.research.views._report.branches import branches
from ratchet.research.views._report.markup import Markup, grid, joined, tag
from ratchet.research.views._report.plot import plot
from ratchet.research.views._report.proof import certificate as shown_certificate
from ratchet.research.views._report.proof import difference
from ratchet.research.views._report.style import CSS
from ratchet.research.views._status import Status, better, read_status
from ratchet.research.views._tree import tree
from ratchet.research.views.activity import recent_activity
from ratchet.research.views.misses import NearMisses, near_misses
from ratchet.research.views.plotted import plotted
from ratchet.research.views.row import measured, status_of, why
from ratchet.research.views.words import NOTHING, both_ends, cost_of, duration, number, one_line, signed

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial
    from ratchet.research.views._yields import Yields

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
    sections = [
        _section("Score over trials", plot(status, shown)),
        _section("Leaderboard", _leaders(leaderboard(tx, run_id, columns=columns))),
        _section("Lineage of the best", branches(tree(tx, run_id, sideways=3))),
        _section("Specialists", _specialists(status.specialists)),
        _section("Expected and measured", _calibration(calibration(tx, run_id))),
        _section("Near misses", _missed(near_misses(tx, run_id))),
        _section("Lessons", _lessons(insights(tx, run_id))),
        _section("Recent activity", _recent(recent_activity(tx, run_id).rows)),
    ]
    if diff is not None:
        sections.append(_section("What the best changed", difference(diff)))
    if certificate is not None:
        sections.append(_section("Improvement certificate", shown_certificate(certificate)))
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
    parts.append(tag("div", *(_fact(*each) for each in _facts(status)), class_="facts"))
    for what, told in (("Plain baseline", status.plain_baseline), ("Known best", status.known_best)):
        if told:
            parts.append(tag("p", f"{what}: {one_line(told, _TEXT)}", class_="soft"))
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
        (signed(status.gained), "better than the baseline"),
        (began, f"baseline{noise}"),
        (f"{standing.trials:,}", "trials"),
        (
            f"{sum(each.keeps for each in status.specialists.rows):,}",
            f"kept, policy {one_line(standing.keep_policy, 30)}",
        ),
        (duration(status.active_seconds), f"of running; {status.last_keep}"),
        (cost_of(status.usage), f"{status.usage.tokens:,} tokens"),
    ]


def _fact(value: str, name: str) -> Markup:
    return tag("div", tag("b", value), tag("span", name), class_="fact")


def _section(title: str, inside: Markup) -> Markup:
    return tag("section", tag("h2", title), inside)


def _none(words: str) -> Markup:
    return tag("p", words, class_="soft")


def _leaders(found: Leaderboard) -> Markup:
    if not found.rows:
        return _none("Nothing was kept yet.")
    extra = [one_line(name, 40) for name in found.columns]
    columns = ["exp", one_line(found.score_field, 40), *extra, "Δ", "specialist", "commit", "hypothesis"]
    rows = [
        [
            each.exp_id,
            number(each.score),
            *(number(measured(each, name)) for name in found.columns),
            signed(each.delta),
            one_line(each.specialist, 40),
            (each.commit or NOTHING)[:10],
            one_line(each.hypothesis, _TEXT),
        ]
        for each in found.rows
    ]
    return grid(columns, rows, numeric=(*range(3 + len(extra)), 4 + len(extra)))


def _specialists(found: Yields) -> Markup:
    if not found.rows:
        return _none("No session has ended yet.")
    columns = [
        "specialist",
        "sessions",
        "trials",
        "keeps",
        "per trial",
        "tokens",
        "cost",
        "time",
        "last problem",
    ]
    rows = [
        [
            one_line(each.specialist, 40),
            f"{each.sessions:,}",
            f"{each.trials:,}",
            f"{each.keeps:,}",
            NOTHING if each.keeps_per_trial is None else f"{each.keeps_per_trial:.3f}",
            f"{each.usage.tokens:,}",
            cost_of(each.usage),
            duration(each.usage.wall_seconds),
            f"{each.failures}× {one_line(each.problem or '', _TEXT)}" if each.failures else "",
        ]
        for each in found.rows
    ]
    return grid(columns, rows, numeric=range(1, 8))


def _calibration(found: Calibration) -> Markup:
    if not found.rows:
        return _none("No trial with an expectation has a score yet.")
    columns = ["specialist", "trials", "mean Δ expected", "mean Δ measured", "moved as expected"]
    rows = [
        [
            one_line(each.specialist, 40),
            f"{each.trials}",
            signed(each.expected),
            signed(each.actual),
            f"{each.right_way} of {each.trials}",
        ]
        for each in found.rows
    ]
    note = _none(f"Over the newest {found.looked_at:,} trials of the run.")
    return joined([grid(columns, rows, numeric=range(1, 5)), note])


def _missed(found: NearMisses) -> Markup:
    if not found.rows:
        return _none("No near misses.")
    columns = ["exp", one_line(found.standing.score_field, 40), "better than best by", "status"]
    rows = [
        [
            each.exp_id,
            number(each.score),
            signed(found.gain(each)),
            status_of(each),
            one_line(each.specialist, 40),
            one_line(each.hypothesis, _TEXT),
            both_ends(each.reason, _TEXT) if each.reason else why(each, _TEXT),
        ]
        for each in found.rows
    ]
    return grid([*columns, "specialist", "hypothesis", "why not kept"], rows, numeric=range(3))


def _lessons(found: Insights) -> Markup:
    if not found.rows:
        return _none("No lessons yet.")
    rows = [[one_line(each.specialist, 40), one_line(each.text, 600)] for each in found.rows]
    return grid(["specialist", "lesson"], rows)


def _recent(rows: Sequence[Trial]) -> Markup:
    if not rows:
        return _none("Nothing was tried yet.")
    shown = [
        [
            each.exp_id,
            number(each.score),
            signed(each.delta),
            status_of(each),
            one_line(each.specialist, 40),
            one_line(each.hypothesis, _TEXT),
        ]
        for each in rows
    ]
    return grid(["exp", "score", "Δ", "status", "specialist", "hypothesis"], shown, numeric=range(3))
