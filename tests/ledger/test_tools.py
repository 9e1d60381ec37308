"""Tools, their versions and their calls in the ledger."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from ratchet.kernel import Conflict, NotFound, StateChanged
from ratchet.kernel.semver import Bump
from ratchet.ledger import EventFilter, Ledger, Transaction
from ratchet.ledger.events import since
from ratchet.ledger.tools import (
    CallRow,
    CallStats,
    Source,
    ToolDraft,
    ToolRow,
    ToolVersionStatus,
    VersionRow,
    add_new_tools,
    add_tool,
    add_version,
    call_stats,
    called_versions,
    calls_of,
    calls_of_tool,
    changed_tools,
    find_tool,
    get_tool,
    get_version,
    last_revision,
    line_of,
    list_sources,
    list_tools,
    list_versions,
    pin_version,
    promote_version,
    record_calls,
    refuse_version,
    remove_tool,
    roll_back,
    score_call,
    take_start,
    tools_by_id,
    unpin_tool,
    version_numbered,
)
from tests.ledger.effort import analyze, effort

HOUR = 3_600_000


def made(ledger: Ledger, *hashes: str, name: str = "clean") -> ToolRow:
    """A tool whose definitions were current one after the other."""
    with ledger.write() as tx:
        add_tool(tx, name, Source("/somewhere/clean.yaml", "mark"))
    for hash in hashes:
        with ledger.write() as tx:
            tool = get_tool(tx, name)
            version = added(tx, tool, hash, parent_id=tool.current_id)
            promote_version(tx, tool, version, expected=tool.current_id)
    return known(ledger, name)


def added(tx: Transaction, tool: ToolRow, hash: str, **rest: Any) -> VersionRow:
    return add_version(tx, tool, {"says": hash}, hash, **rest)


def known(ledger: Ledger, name: str = "clean") -> ToolRow:
    with ledger.read() as tx:
        return get_tool(tx, name)


def current(ledger: Ledger) -> VersionRow:
    tool = known(ledger)
    with ledger.read() as tx:
        return get_version(tx, tool.current_id or 0)


def events_of(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        return [event.type for event in since(tx.connection, where=EventFilter(type="tool.*"))]


def call(version: VersionRow, **rest: Any) -> CallRow:
    values = {"ok": True, "wall_ms": 10.0, "at": 1} | rest
    return CallRow(tool_id=version.tool_id, version_id=version.id, **values)


def stats_after(ledger: Ledger, rows: Sequence[CallRow], *, last: int = 100) -> CallStats:
    with ledger.write() as tx:
        record_calls(tx, rows)
    with ledger.read() as tx:
        return call_stats(tx, rows[0].version_id, last=last)


def test_the_first_version_is_one(ledger: Ledger) -> None:
    made(ledger, "a")

    assert current(ledger).version == "1.0.0"
    assert events_of(ledger) == ["tool.added", "tool.version", "tool.promoted"]


@pytest.mark.parametrize(
    ("bump", "version"), [(Bump.PATCH, "1.0.1"), (Bump.MINOR, "1.1.0"), (Bump.MAJOR, "2.0.0")]
)
def test_a_changed_definition_gets_the_next_number(ledger: Ledger, bump: Bump, version: str) -> None:
    tool = made(ledger, "a")

    with ledger.write() as tx:
        following = added(tx, tool, "b", bump=bump)

    assert (following.version, following.change_type) == (version, str(bump))


@pytest.mark.parametrize(
    ("declared", "version"), [("3.2.0", "3.2.0"), ("1.0.0", "1.0.1"), ("0.9.0", "1.0.1"), (None, "1.0.1")]
)
def test_a_declared_number_counts_only_if_it_is_higher(
    ledger: Ledger, declared: str | None, version: str
) -> None:
    tool = made(ledger, "a")

    with ledger.write() as tx:
        assert added(tx, tool, "b", declared=declared).version == version


def test_numbers_are_compared_as_numbers(ledger: Ledger) -> None:
    tool = made(ledger, "a")

    with ledger.write() as tx:
        added(tx, tool, "b", declared="9.0.0")
        assert added(tx, tool, "c", declared="10.0.0").version == "10.0.0"


def test_the_same_definition_is_one_version(ledger: Ledger) -> None:
    tool = made(ledger, "a", "b")

    with ledger.write() as tx:
        again = added(tx, tool, "a")
        promote_version(tx, tool, again, expected=tool.current_id)

    assert current(ledger).hash == "a"
    with ledger.read() as tx:
        assert [each.hash for each in list_versions(tx, tool.id)] == ["b", "a"]


def test_a_version_knows_what_it_was_made_from(ledger: Ledger) -> None:
    made(ledger, "a", "b", "c")

    with ledger.read() as tx:
        line = line_of(tx, current(ledger))
        short = line_of(tx, current(ledger), limit=2)

    assert [each.hash for each in line] == ["c", "b", "a"]
    assert [each.hash for each in short] == ["c", "b"]


def test_a_refused_variant_is_kept_with_its_reason_and_its_parent(ledger: Ledger) -> None:
    tool = made(ledger, "a")

    with ledger.write() as tx:
        variant = added(tx, tool, "b", parent_id=tool.current_id, origin="evolved")
        refuse_version(tx, tool, variant, "not faster", verdict={"outcome": "failed"})

    with ledger.read() as tx:
        kept = get_version(tx, variant.id)
    assert (kept.status, kept.reason, kept.parent_id) == (
        ToolVersionStatus.REFUSED,
        "not faster",
        tool.current_id,
    )
    assert kept.verdict == {"outcome": "failed"}
    assert current(ledger).hash == "a"
    assert events_of(ledger)[-1] == "tool.refused"


def test_what_was_promoted_cannot_be_refused(ledger: Ledger) -> None:
    tool = made(ledger, "a")

    with pytest.raises(Conflict, match=r"1\.0\.0 of clean was promoted"), ledger.write() as tx:
        refuse_version(tx, tool, current(ledger), "too late")


def test_promoting_needs_the_version_that_was_judged_against(ledger: Ledger) -> None:
    tool = made(ledger, "a")
    with ledger.write() as tx:
        b, c = added(tx, tool, "b"), added(tx, tool, "c")
        promote_version(tx, tool, b, expected=tool.current_id)

    with pytest.raises(StateChanged), ledger.write() as tx:
        promote_version(tx, tool, c, expected=tool.current_id)

    assert current(ledger).hash == "b"


def test_rolling_back_goes_from_one_to_the_one_before(ledger: Ledger) -> None:
    made(ledger, "a", "b", "c")

    went = []
    for _ in range(2):
        with ledger.write() as tx:
            went.append(roll_back(tx, get_tool(tx, "clean"), reason="worse").hash)

    assert went == ["b", "a"]
    with pytest.raises(Conflict, match="no earlier version"), ledger.write() as tx:
        roll_back(tx, get_tool(tx, "clean"))
    assert current(ledger).hash == "a"
    assert events_of(ledger)[-2:] == ["tool.rolled_back", "tool.rolled_back"]


def test_what_was_rolled_back_says_so_and_can_come_back(ledger: Ledger) -> None:
    made(ledger, "a", "b")
    with ledger.write() as tx:
        roll_back(tx, get_tool(tx, "clean"), reason="worse")

    with ledger.write() as tx:
        tool = get_tool(tx, "clean")
        b = version_numbered(tx, tool, "1.0.1")
        assert (b.status, b.reason) == (ToolVersionStatus.ROLLED_BACK, "worse")
        promote_version(tx, tool, b, expected=tool.current_id)

    assert current(ledger).hash == "b"


def test_a_pin_holds_while_others_are_promoted(ledger: Ledger) -> None:
    tool = made(ledger, "a", "b")
    with ledger.write() as tx:
        pin_version(tx, tool, version_numbered(tx, tool, "1.0.0"))
    made(ledger, "c")

    pinned = known(ledger)
    with ledger.write() as tx:
        unpin_tool(tx, pinned)

    with ledger.read() as tx:
        assert get_version(tx, pinned.called_id or 0).hash == "a"
        assert get_version(tx, get_tool(tx, "clean").called_id or 0).hash == "c"
    assert events_of(ledger).count("tool.pinned") == events_of(ledger).count("tool.unpinned") == 1


def test_a_refused_version_cannot_be_pinned(ledger: Ledger) -> None:
    tool = made(ledger, "a")
    with ledger.write() as tx:
        variant = added(tx, tool, "b")
        refuse_version(tx, tool, variant, "wrong answers")

    with pytest.raises(Conflict, match="wrong answers"), ledger.write() as tx:
        pin_version(tx, tool, get_version(tx, variant.id))


def test_a_version_that_is_not_there_is_an_error_that_lists_those_that_are(ledger: Ledger) -> None:
    tool = made(ledger, "a", "b")

    with pytest.raises(NotFound) as error, ledger.read() as tx:
        version_numbered(tx, tool, "7.0.0")

    assert "7.0.0" in str(error.value)
    assert error.value.hint == "there are 1.0.0, 1.0.1"


def test_a_removed_tool_keeps_its_history_and_may_come_back(ledger: Ledger) -> None:
    tool = made(ledger, "a")
    with ledger.write() as tx:
        remove_tool(tx, tool)
    with ledger.read() as tx:
        assert find_tool(tx, "clean") is None
        assert tools_by_id(tx, [tool.id]) == {}
        assert list_tools(tx) == []

    with ledger.write() as tx:
        back = add_tool(tx, "clean", Source("/elsewhere.yaml"))

    assert (back.id, back.current_id) == (tool.id, tool.current_id)
    assert events_of(ledger)[-2:] == ["tool.removed", "tool.added"]


def test_tools_of_a_folder_are_apart(ledger: Ledger) -> None:
    made(ledger, "a")

    with ledger.write() as tx:
        own = add_tool(tx, "clean", Source("/flow/tools/clean.yaml"), folder="/flow/tools")

    with ledger.read() as tx:
        assert get_tool(tx, "clean").id != own.id
        assert get_tool(tx, "clean", folder="/flow/tools").id == own.id
        assert len(list_tools(tx, folders=["", "/flow/tools"])) == 2
        assert [row.folder for row in list_sources(tx, ["/flow/tools"])] == ["/flow/tools"]


def test_every_change_has_a_revision_of_its_own(ledger: Ledger) -> None:
    tool = made(ledger, "a")
    made(ledger, "a", name="other")
    with ledger.read() as tx:
        seen = last_revision(tx)

    with ledger.write() as tx:
        remove_tool(tx, tool)

    with ledger.read() as tx:
        assert [row.name for row in changed_tools(tx, after=seen, limit=10)] == ["clean"]
        assert [row.name for row in changed_tools(tx, after=0, limit=10)] == ["other", "clean"]


def test_many_new_tools_are_recorded_as_if_one_after_the_other(ledger: Ledger) -> None:
    made(ledger, "a")
    drafts = [
        ToolDraft(
            name, folder, Source(f"/{name}.yaml", "mark", "h" + name), {"says": name}, "h" + name, version
        )
        for name, folder, version in (("clean", "", None), ("sort", "", "3.0.0"), ("clean", "/flow", None))
    ]

    with ledger.write() as tx:
        known_already = add_new_tools(tx, drafts)

    assert known_already == drafts[:1]
    with ledger.read() as tx:
        rows = {(row.folder, row.name): row for row in called_versions(tx, folders=["", "/flow"])}
        sort = get_tool(tx, "sort")
        assert get_version(tx, sort.current_id or 0).definition == {"says": "sort"}
        assert [row.name for row in changed_tools(tx, after=0, limit=10)] == ["clean", "sort", "clean"]
    assert {key: (row.version, row.hash) for key, row in rows.items()} == {
        ("", "clean"): ("1.0.0", "a"),
        ("", "sort"): ("3.0.0", "hsort"),
        ("/flow", "clean"): ("1.0.0", "hclean"),
    }
    assert sort.source_hash == "hsort"
    assert events_of(ledger) == ["tool.added", "tool.version", "tool.promoted"] * 3


def test_callers_at_once_record_one_version(ledger: Ledger) -> None:
    tool = made(ledger, "a")
    found: list[str] = []

    def add() -> None:
        with ledger.write() as tx:
            found.append(added(tx, tool, "b").version)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == ["1.0.1"] * 4
    with ledger.read() as tx:
        assert len(list_versions(tx, tool.id)) == 2


def test_calls_add_up(ledger: Ledger) -> None:
    made(ledger, "a")
    version = current(ledger)

    stats = stats_after(
        ledger,
        [
            call(version, wall_ms=10.0, cost_microusd=5, tokens=7, peak_bytes=100),
            call(version, wall_ms=30.0, ok=False, error="no", score=0.5, peak_bytes=300),
            call(version, wall_ms=20.0, score=1.0),
        ],
    )

    assert (stats.runs, stats.failures, stats.tokens, stats.cost_microusd) == (3, 1, 7, 5)
    assert stats.mean_wall_ms == pytest.approx(20.0)
    assert stats.success_rate == stats.recent_success_rate == pytest.approx(2 / 3)
    assert stats.mean_score == stats.recent_score == 0.75
    assert stats.recent_peak_bytes == 300
    assert stats.recent_p95_ms == 30.0


def test_a_version_without_calls_says_nothing_of_itself(ledger: Ledger) -> None:
    made(ledger, "a")

    with ledger.read() as tx:
        stats = call_stats(tx, current(ledger).id)

    assert (stats.runs, stats.success_rate, stats.mean_wall_ms, stats.recent_p95_ms) == (0, None, None, None)


def test_recent_figures_are_of_the_last_calls_only(ledger: Ledger) -> None:
    made(ledger, "a")
    version = current(ledger)

    stats = stats_after(ledger, [call(version, wall_ms=float(ms)) for ms in range(1, 201)], last=100)

    assert (stats.runs, stats.recent) == (200, 100)
    assert stats.recent_p95_ms == 195.0
    assert stats.recent_wall_ms == pytest.approx(150.5)


def test_simulated_calls_are_on_record_and_count_nowhere(ledger: Ledger) -> None:
    made(ledger, "a")
    version = current(ledger)

    stats = stats_after(ledger, [call(version, simulated=True, ok=False), call(version)])

    assert (stats.runs, stats.failures, stats.recent) == (1, 0, 1)
    with ledger.read() as tx:
        assert [each.simulated for each in calls_of(tx, version.id)] == [False, True]


def test_small_inputs_and_outputs_are_kept_and_large_ones_are_not(ledger: Ledger) -> None:
    made(ledger, "a")
    version = current(ledger)

    with ledger.write() as tx:
        record_calls(tx, [call(version, input={"x": "y"}, output={"big": "z" * 20_000})])

    with ledger.read() as tx:
        [kept] = calls_of(tx, version.id)
    assert (kept.input, kept.output) == ({"x": "y"}, None)


def test_calls_are_paged_from_the_newest(ledger: Ledger) -> None:
    made(ledger, "a")
    version = current(ledger)
    with ledger.write() as tx:
        record_calls(tx, [call(version, at=at) for at in (1, 2, 3)])

    with ledger.read() as tx:
        newest = calls_of(tx, version.id, limit=2)
        older = calls_of(tx, version.id, before=newest[-1].id)
        assert [each.at for each in newest + older] == [3, 2, 1]
        assert [each.at for each in calls_of_tool(tx, version.tool_id, limit=2)] == [3, 2]


def test_a_later_score_replaces_the_earlier_one(ledger: Ledger) -> None:
    made(ledger, "a")
    version = current(ledger)
    with ledger.write() as tx:
        record_calls(tx, [call(version, score=0.2)])
        [only] = calls_of(tx, version.id)
        score_call(tx, only.id or 0, 0.8)

    with ledger.read() as tx:
        stats = call_stats(tx, version.id)

    assert stats.mean_score == stats.recent_score == pytest.approx(0.8)


def test_a_tool_starts_no_more_often_than_it_may_within_an_hour(ledger: Ledger) -> None:
    tool = made(ledger, "a")

    with ledger.write() as tx:
        taken = [take_start(tx, tool.id, 2, now) for now in (1000, 2000, 3000, 1000 + HOUR, 1001 + HOUR)]

    assert taken == [None, None, 1000 + HOUR, None, 2000 + HOUR]


def test_a_lower_limit_counts_what_was_started_before(ledger: Ledger) -> None:
    tool = made(ledger, "a")

    with ledger.write() as tx:
        for now in (1000, 2000, 3000):
            take_start(tx, tool.id, 5, now)
        assert take_start(tx, tool.id, 2, 4000) == 2000 + HOUR


def test_callers_at_once_do_not_overshoot(ledger: Ledger) -> None:
    tool = made(ledger, "a")
    taken: list[int | None] = []

    def start() -> None:
        for _ in range(3):
            with ledger.write() as tx:
                taken.append(take_start(tx, tool.id, 5, tx.now))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert taken.count(None) == 5
    assert len(taken) == 12


def test_what_is_asked_of_a_tool_costs_the_same_after_many_calls(ledger: Ledger) -> None:
    made(ledger, "a")
    version = current(ledger)

    def work() -> int:
        analyze(ledger)
        with ledger.read() as tx:
            return effort(
                tx, lambda tx: (call_stats(tx, version.id, last=20), calls_of(tx, version.id, limit=20))
            )

    with ledger.write() as tx:
        record_calls(tx, [call(version, at=at) for at in range(300)])
    few = work()
    with ledger.write() as tx:
        record_calls(tx, [call(version, at=at) for at in range(300, 3000)])

    assert work() <= few * 1.5
