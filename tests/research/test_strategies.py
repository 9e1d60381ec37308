"""Strategies choose from the trials of a run, the same again after a crash, and move no best by themselves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from ratchet.kernel import Direction, Misuse, RatchetError, TrialStatus
from ratchet.ledger.trials import TrialOrigin
from ratchet.research.strategy import (
    ISLANDS,
    PLATEAU,
    STRATEGIES,
    Choice,
    Population,
    find_strategy,
    strategy_names,
)


def trial(
    number: int,
    score: float | None,
    *,
    parent: int | None = 0,
    status: TrialStatus = TrialStatus.DISCARD,
    island: int | None = None,
    shape: tuple[int, int] | None = None,
    **instances: float,
) -> TrialOrigin:
    origin = {"island": island} if shape is None else {"island": island, "shape": list(shape)}
    means = {f"instance_{name}": value for name, value in instances.items()}
    parent = None if number == 0 else parent
    return TrialOrigin(number, parent, "s", status, score, origin, {"means": means}, number)


def population(*trials: TrialOrigin, direction: Direction = Direction.MAX) -> Population:
    made = Population(direction)
    made.add(trial(0, 1.0, status=TrialStatus.BASELINE, a=1.0, b=1.0))
    for each in trials:
        made.add(each)
    return made


def choices(name: str, among: Population, times: int = 400) -> list[Choice]:
    return [find_strategy(name)(among, Random(f"{name}/{seed}")) for seed in range(times)]


def test_greedy_begins_from_the_best_and_shows_nothing_else() -> None:
    assert set(choices("greedy", population(trial(1, 5.0)))) == {Choice()}


def test_best_of_n_begins_from_the_baseline_and_is_told_of_nothing() -> None:
    assert set(choices("best_of_n", population(trial(1, 5.0)))) == {Choice(parent=0, alone=True)}


def test_sequential_begins_from_what_was_measured_last_however_it_did() -> None:
    among = population(trial(1, 5.0), trial(2, 0.5), trial(3, None, status=TrialStatus.CRASH))
    assert set(choices("sequential", among)) == {Choice(parent=2)}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@pytest.mark.parametrize("direction", list(Direction))
def test_every_strategy_names_only_trials_with_a_valid_score(name: str, direction: Direction) -> None:
    chance = Random(name)
    among = population(direction=direction)
    for number in range(1, 300):
        status = chance.choice([TrialStatus.DISCARD, TrialStatus.CRASH, TrialStatus.DISQUALIFIED])
        score = None if status is TrialStatus.CRASH else chance.random()
        choice = find_strategy(name)(among, chance)
        among.add(
            trial(number, score, parent=choice.parent or 0, status=status, island=choice.island, a=1.0, b=2.0)
        )
    valid = {member.number for member in among.members()}
    for choice in choices(name, among, 100):
        assert choice.parent in {*valid, 0, None}
        assert set(choice.inspirations) <= valid - {choice.parent}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_the_same_rows_make_the_same_choices_after_a_crash(name: str) -> None:
    chance = Random(1)
    rows = [
        trial(number, chance.random(), parent=chance.randrange(number), island=number % ISLANDS, a=0.1, b=1.0)
        for number in range(1, 200)
    ]
    assert choices(name, population(*rows), 50) == choices(name, population(*rows), 50)


def test_islands_stay_apart_but_for_inspirations() -> None:
    rows = [trial(number, number / 100, island=number % ISLANDS) for number in range(1, 41)]
    home = {each.number: each.number % ISLANDS for each in rows} | {0: 0}
    found = choices("islands", population(*rows))
    own = [choice for choice in found if choice.parent is not None and choice.island == home[choice.parent]]
    assert len(own) > 0.9 * len(found)
    assert Counter(choice.island for choice in found).keys() == set(range(ISLANDS))
    guests = [home[number] != choice.island for choice in own for number in choice.inspirations]
    assert any(guests)


def test_an_island_keeps_the_best_of_every_kind_of_program() -> None:
    small = [trial(number, 0.1 + number / 1000, island=0, shape=(100, 2)) for number in range(1, 30)]
    large = trial(40, 0.01, island=0, shape=(5000, 60))
    found = choices("islands", population(*small, large), 2000)
    parents = Counter(choice.parent for choice in found if choice.island == 0)
    # It is the worst of all, and the only one of its kind.
    assert parents[40] > 2 * max(parents[number] for number in range(1, 20))


def test_a_clade_is_worth_what_came_of_it() -> None:
    # 1 scored better, but nothing came of it; from 2 came the best.
    rows = [trial(1, 3.0), trial(2, 2.9)]
    rows += [trial(number, 0.1, parent=1) for number in range(3, 23)]
    rows += [trial(number, 3.1 + number / 100, parent=2) for number in range(23, 43)]
    found = Counter(choice.parent for choice in choices("clade", population(*rows)))
    assert found[1] < 5
    assert sum(count for number, count in found.items() if number is not None and number >= 23) > 300


def test_pareto_chooses_who_is_best_at_some_instance() -> None:
    among = population(trial(1, 1.5, a=5.0, b=0.0), trial(2, 1.4, a=0.0, b=5.0), trial(3, 2.0, a=2.0, b=2.0))
    found = choices("pareto", among)
    assert {choice.parent for choice in found} == {1, 2}
    assert {(choice.parent, choice.inspirations) for choice in found} == {(1, (2,)), (2, (1,))}


def test_pareto_without_instances_says_what_is_missing() -> None:
    among = Population(Direction.MAX)
    among.add(trial(0, 1.0, status=TrialStatus.BASELINE))
    with pytest.raises(Misuse, match="needs the scores of single instances"):
        find_strategy("pareto")(among, Random(0))


def test_a_plateau_changes_the_strategy_and_a_keep_changes_it_back() -> None:
    rows = [trial(number, 0.5, island=number % ISLANDS) for number in range(1, PLATEAU + 1)]
    assert set(choices("adaptive", population(*rows[:-1]))) == {Choice()}
    stuck = population(*rows)
    assert {choice.island for choice in choices("adaptive", stuck)} == set(range(ISLANDS))
    stuck.add(trial(PLATEAU + 1, 2.0, status=TrialStatus.KEEP))
    assert set(choices("adaptive", stuck)) == {Choice()}


def test_a_low_score_is_the_better_one_where_the_task_wants_that() -> None:
    among = population(trial(1, 0.5), trial(2, 3.0), direction=Direction.MIN)
    assert [member.number for member in among.top(3)] == [1, 0, 2]


def test_a_population_and_a_choice_stay_small_however_many_trials_there_were() -> None:
    among = population()
    for number in range(1, 3000):
        among.add(trial(number, number % 997 / 997, parent=max(0, number - 1), island=number % ISLANDS))
    assert len(list(among.members())) <= 100 * ISLANDS
    # What is very far below tells nothing any more.
    assert sum(among.evidence(0)) == pytest.approx(200)


def test_an_unknown_strategy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Misuse, match="there is no strategy 'clever'") as refused:
        find_strategy("clever")
    assert "islands" in (refused.value.hint or "")
    assert {"greedy", "islands", "clade", "pareto", "best_of_n", "sequential"} <= set(strategy_names())


def test_another_package_brings_a_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "oldest.py").write_text(
        "from ratchet.research.strategy import Choice\n\n\ndef choose(population, chance):\n"
        "    return Choice(parent=min(each.number for each in population.members()))\n"
    )
    described = tmp_path / "oldest-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: oldest\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[ratchet.strategies]\noldest = oldest:choose\nbroken = absent:x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert strategy_names()[-2:] == ["broken", "oldest"]
    assert set(choices("oldest", population(trial(1, 5.0)), 5)) == {Choice(parent=0)}
    with pytest.raises(RatchetError, match="the strategy 'broken' of absent:x cannot be loaded"):
        find_strategy("broken")
