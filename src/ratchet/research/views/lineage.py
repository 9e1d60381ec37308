"""The lineage part of a specialist's prompt: what is best, what was tried, what came of it, what was learned."""

from __future__ import annotations

from functools import lru_cache

from ratchet.kernel import Misuse, TrialStatus, exp_id
from ratchet.ledger.research import Standing, get_standing
from ratchet.ledger.transaction import Transaction
from ratchet.ledger.trial_pages import tallies, tried_trials
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import find_trial
from ratchet.research.views.activity import Activity, recent_activity, tried_cells
from ratchet.research.views.advice import repeated, saturation
from ratchet.research.views.baseline import Baseline, baseline_of
from ratchet.research.views.calibration import expectations_of
from ratchet.research.views.insights import insights
from ratchet.research.views.leaderboard import Leaderboard, kept_cells, leaderboard
from ratchet.research.views.misses import NearMisses, near_misses
from ratchet.research.views.row import brief, status_of, why
from ratchet.research.views.sections import Entry, Section, fit
from ratchet.research.views.status import better, counted
from ratchet.research.views.tree import Node, Tree, described, tree
from ratchet.research.views.words import cell, number, one_line, signed, table, table_row

LEAST_CHARS = 2000
_OWN = 12
_RECENT = 30
_ABOVE = "(above)"
# One prompt after the other shows nearly the same trials, and a trial that has ended reads the same in all of them.
_told_once = lru_cache(maxsize=512)


def lineage_view(
    tx: Transaction,
    run_id: int,
    specialist: str,
    *,
    budget_chars: int = 12_000,
    standing: Standing | None = None,
) -> str:
    """What `specialist` is shown of the run, in no more than `budget_chars` characters.

    `standing` is looked up unless it is at hand. Raises `Misuse` for a budget that leaves no room for the best,
    `NotFound` for a run that is not research.
    """
    if budget_chars < LEAST_CHARS:
        raise Misuse(
            f"a lineage view of {budget_chars} characters would be empty",
            hint=f"give it at least {LEAST_CHARS}",
        )
    standing = standing or get_standing(tx, run_id)
    baseline = baseline_of(tx, standing)
    own = tried_trials(tx, run_id, specialist=specialist, limit=_OWN)
    recent = recent_activity(tx, run_id, limit=_RECENT, standing=standing)
    kept = leaderboard(tx, run_id, standing=standing)
    label = standing.score_field
    sections = (
        Section("Current best", 0.0, _best(tx, standing, baseline)),
        Section("Take note", 0.12, _advice(baseline, own, recent, kept, specialist)),
        Section("Key insights", 0.20, [Entry(line) for line in insights(tx, run_id).lines()]),
        Section("Your last trials", 0.20, [_own(each) for each in own]),
        Section("Near misses", 0.12, _missed(near_misses(tx, run_id, standing=standing), label)),
        _lineage(tree(tx, run_id, upwards=12, downwards=12, standing=standing)),
        _leaders(kept),
        _recent(recent),
    )
    return fit(sections, budget_chars)


def lineage_off_view(tx: Transaction, run_id: int) -> str:
    """What a specialist is shown when lineage is turned off: the best's number and score, and nothing else."""
    standing = get_standing(tx, run_id)
    if standing.best is None:
        return "There is no best yet."
    return f"Current best: {exp_id(standing.best)}, {cell(standing.score_field, 40)} {number(standing.best_score)}."


def _best(tx: Transaction, standing: Standing, baseline: Baseline | None) -> list[Entry]:
    best = None if standing.best is None else find_trial(tx, standing.run_id, standing.best)
    goal = f"{cell(standing.score_field, 40)}, {better(standing.direction)}"
    lines = [f"- Score: {goal}. Keep policy: {cell(standing.keep_policy, 40)}."]
    if best is None:
        lines.append("- There is no best yet.")
        return [Entry(line) for line in lines]
    delta = None if baseline is None or best.score is None else best.score - baseline.score
    lines.append(f"- Best: {brief(best, standing.score_field)} {cell(best.hypothesis, 400)}")
    if baseline is not None:
        known = f", noise (sd of {baseline.n}) {number(baseline.sd)}" if baseline.sd is not None else ""
        lines.append(f"- Baseline 000: {number(baseline.score)}{known}. The best is {signed(delta)} from it.")
    ended = counted(tallies(tx, standing.run_id).values())
    told = (name for name in ended if name.tried and name is not TrialStatus.BASELINE)
    counts = ", ".join(f"{ended[name]} {name}" for name in told)
    lines.append(f"- Trials so far: {standing.trials} ({counts or 'none ended'}).")
    return [Entry(line, number=best.number if at == 1 else None) for at, line in enumerate(lines)]


def _advice(
    baseline: Baseline | None,
    own: list[Trial],
    recent: Activity,
    kept: Leaderboard,
    specialist: str,
) -> list[Entry]:
    notes = [str(each) for each in repeated([*own, *recent.rows, *kept.rows])]
    saturated = saturation(own, 0.0 if baseline is None else baseline.noise)
    if saturated is not None:
        notes.insert(0, saturated)
    mine = expectations_of(specialist, own)
    if mine is not None and mine.trials >= 3:
        notes.append(
            f"Of your last {mine.trials} trials with a score you expected {signed(mine.expected)} on average and "
            f"measured {signed(mine.actual)}; {mine.right_way} moved the way you expected."
        )
    return [Entry(f"- {note}") for note in notes]


@_told_once
def _own(trial: Trial) -> Entry:
    numbers = f"{trial.exp_id} {status_of(trial)} {number(trial.score)}"
    expected = one_line(trial.expected_delta, 20)
    delta = f" (Δ {signed(trial.delta)}, expected {cell(expected, 20) or 'nothing'})"
    origin = "" if trial.parent is None else f" from {exp_id(trial.parent)}"
    reason = why(trial, 320)
    text = f"{cell(trial.hypothesis, 200)}{' — ' if reason else ''}{reason}"
    facts = f"- {numbers}{delta if trial.delta is not None else ''}{origin}"
    return Entry(f"{facts}: {text}", f"{facts} {_ABOVE}: {reason}", trial.number)


def _missed(found: NearMisses, label: str) -> list[Entry]:
    return [_miss(each, found.gain(each), label) for each in found.rows]


@_told_once
def _miss(trial: Trial, gain: float, label: str) -> Entry:
    told = f"{number(gain)} better than the best" if gain > 0 else f"{number(-gain)} short of the best"
    facts = f"- {brief(trial, label)} {told}"
    words = f"{cell(trial.hypothesis, 160)} — {why(trial, 200)}"
    return Entry(f"{facts}: {words}", f"{facts} {_ABOVE}", trial.number)


def _lineage(found: Tree) -> Section:
    """The newest first, so that what is cut off is the oldest."""
    line = [_node(found, node, "" if at == 0 else "from ") for at, node in enumerate(reversed(found.line))]
    if found.earlier:
        line.append(Entry(f"- from {found.earlier} earlier ones"))
    tried = [_node(found, node, "child ") for node in found.offspring]
    return Section("Lineage of the best, and what was made from it", 0.14, [*line, *tried])


def _node(found: Tree, node: Node, relation: str) -> Entry:
    return _relative(node.trial, relation, found.label, node.trial.number == found.best)


@_told_once
def _relative(trial: Trial, relation: str, label: str, best: bool) -> Entry:
    short = f"- {relation}{brief(trial, label)} {_ABOVE}"
    return Entry(f"- {relation}{described(trial, label, best=best)}", short, trial.number)


def _leaders(kept: Leaderboard) -> Section:
    entries = [_leader(each) for each in kept.rows]
    return Section(f"Leaderboard (last {len(kept.rows)} kept)", 0.10, entries, table(kept.head(), []))


def _recent(recent: Activity) -> Section:
    entries = [_latest(each) for each in recent.rows]
    return Section("Recent activity", 0.12, entries, table(recent.head(), []))


@_told_once
def _leader(trial: Trial) -> Entry:
    return Entry(table_row(kept_cells(trial)), table_row(kept_cells(trial, text=_ABOVE)), trial.number)


@_told_once
def _latest(trial: Trial) -> Entry:
    return Entry(table_row(tried_cells(trial)), table_row(tried_cells(trial, _ABOVE)), trial.number)
