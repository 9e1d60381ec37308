"""Which step waits for which."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ratchet.flowkit.graph import levels
from ratchet.kernel import RunId, StepId, StepStatus
from ratchet.ledger.protocols import ProtocolStep
from ratchet.protocols.spec import (
    ProtocolSpec,
    Qa,
    StepSpec,
    check_spec,
    dependencies,
    dependency_problems,
    step_rows,
)


def spec(**steps: str | None) -> ProtocolSpec:
    """Steps by name. What follows `@` is a group; other words are what a step depends on."""
    made = []
    for name, words in steps.items():
        given = (words or "").split()
        groups = [word[1:] for word in given if word.startswith("@")]
        others = tuple(word for word in given if not word.startswith("@"))
        made.append(
            StepSpec(
                f"id-{name}",
                None,
                f"{name}.md",
                Qa(None),
                name=name,
                depends_on=others,
                parallel_group=groups[0] if groups else None,
            )
        )
    return ProtocolSpec(tuple(made))


def rows(given: ProtocolSpec, **statuses: StepStatus) -> list[ProtocolStep]:
    """The same steps as the ledger has them."""
    return [
        ProtocolStep(
            step_id=StepId(index),
            run_id=RunId(1),
            step_index=row["step_index"],
            step_type=row["step_type"],
            engine_id=None,
            model=None,
            policy=None,
            runtime_state=None,
            summary=None,
            retries=0,
            depends_on=row["depends_on"],
            commit=None,
            awaits_ci=False,
            name=row["name"],
            status=statuses.get(row["name"], StepStatus.PENDING),
            reason=None,
            spec=row["spec"],
            result=None,
            created_at=0,
            updated_at=0,
            ended_at=None,
        )
        for index, row in enumerate(step_rows(given))
    ]


def plain(found: dict[str, frozenset[str]]) -> dict[str, str]:
    return {name: " ".join(sorted(others)) for name, others in found.items()}


def test_steps_follow_one_another_unless_they_say_otherwise() -> None:
    given = spec(a=None, b=None, c="a", d=None)

    assert plain(dependencies(given)) == {"a": "", "b": "a", "c": "a", "d": "c"}


def test_a_group_runs_side_by_side_and_what_follows_waits_for_all_of_it() -> None:
    given = spec(a=None, b="@g", c="@g", d="@g", e=None)

    assert plain(dependencies(given)) == {"a": "", "b": "a", "c": "a", "d": "a", "e": "b c d"}


def test_a_group_stands_where_its_first_step_stands() -> None:
    given = spec(a=None, b="@g", c=None, d="@g")

    assert plain(dependencies(given)) == {"a": "", "b": "a", "d": "a", "c": "b d"}


def test_dependencies_may_be_named_by_id() -> None:
    given = spec(a=None, b=None, c="id-a")

    assert dependencies(given)["c"] == {"a"}
    assert dependencies(rows(given))["c"] == {"a"}


def test_the_ledger_says_the_same_as_the_spec() -> None:
    given = spec(a=None, b="@g", c="@g a", d=None, e="b")

    assert dependencies(rows(given)) == dependencies(given)
    assert dependencies(list(reversed(rows(given)))) == dependencies(given)


def test_who_waits_for_a_cancelled_step_waits_for_what_that_one_waited_for() -> None:
    given = spec(a=None, b=None, c=None, d="b")

    found = dependencies(rows(given, b=StepStatus.CANCELLED))

    assert plain(found) == {"a": "", "b": "a", "c": "a", "d": "a"}


def test_the_last_of_a_group_may_be_cancelled() -> None:
    given = spec(a="@g", b="@g", c=None)

    assert dependencies(rows(given, a=StepStatus.CANCELLED, b=StepStatus.CANCELLED))["c"] == set()


def test_a_step_that_does_not_exist_keeps_others_from_ever_being_ready() -> None:
    [only] = rows(spec(a=None))
    steps = [replace(only, depends_on=["gone"])]

    assert dependencies(steps)["a"] == {"gone"}
    assert dependency_problems(steps) == ["step a depends on gone, which does not exist"]


def test_a_circle_is_named_step_by_step() -> None:
    told = check_spec(spec(a="c", b="a", c="b"))

    assert told == ["steps wait for each other in a circle: a → c → b → a"]


def test_a_step_cannot_wait_for_itself() -> None:
    assert check_spec(spec(a=None, b="b")) == ["steps wait for each other in a circle: b → b"]


def test_a_circle_through_the_order_of_the_list_is_found_too() -> None:
    told = check_spec(spec(a="b", b=None))

    assert told == ["steps wait for each other in a circle: a → b → a"]


_groups = st.none() | st.sampled_from(["@g", "@h"])


@given(st.lists(_groups, min_size=1, max_size=8), st.sets(st.integers(0, 7)))
def test_what_names_no_dependencies_always_comes_to_an_end(groups: list[str | None], gone: set[int]) -> None:
    names = [chr(97 + number) for number in range(len(groups))]
    given = spec(**dict(zip(names, groups, strict=True)))
    cancelled = {names[n]: StepStatus.CANCELLED for n in gone if n < len(names)}

    found = dependencies(rows(given, **cancelled))

    live = {name: others for name, others in found.items() if name not in cancelled}
    assert sum(map(len, levels(live))) == len(live)
    assert all(others.isdisjoint(cancelled) for others in live.values())
