"""Times in plain English and as cron, and the moments they stand for."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.kernel import Misuse
from ratchet.runtime import Timetable, read_when

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "cron"),
    [
        ("every sunday at noon", "0 12 * * 0"),
        ("daily", "0 0 * * *"),
        ("monthly at noon", "0 12 1 * *"),
        ("every 5 minutes", "*/5 * * * *"),
        ("every day at 2pm", "0 14 * * *"),
        ("weekdays at 9am", "0 9 * * 1-5"),
        ("every weekday at 9am", "0 9 * * 1-5"),
        ("  EVERY   Weekday at 9 O'Clock ", "0 9 * * 1-5"),
        ("9am daily", "0 9 * * *"),
        ("once a day at nine", "0 9 * * *"),
        ("every monday at 3pm", "0 15 * * 1"),
        ("every monday, wednesday and friday at 18:30", "30 18 * * 1,3,5"),
        ("every monday and every friday at 9 a.m.", "0 9 * * 1,5"),
        ("mon-fri at 9:00", "0 9 * * 1-5"),
        ("friday to monday at 12 pm", "0 12 * * 0,1,5,6"),
        ("every weekend at 10.15", "15 10 * * 0,6"),
        ("every hour", "0 * * * *"),
        ("hourly on weekends", "0 * * * 0,6"),
        ("every hour at minute 15", "15 * * * *"),
        ("every 2 hours", "0 */2 * * *"),
        ("every second hour", "0 */2 * * *"),
        ("every 120 minutes", "0 */2 * * *"),
        ("every 24 hours", "0 0 * * *"),
        ("every quarter hour", "*/15 * * * *"),
        ("every half an hour", "*/30 * * * *"),
        ("every fifteen mins on weekdays", "*/15 * * * 1-5"),
        ("every 30 seconds", "*/30 * * * * *"),
        ("every second", "* * * * * *"),
        ("every 60 seconds", "* * * * *"),
        ("at midnight", "0 0 * * *"),
        ("at 12am", "0 0 * * *"),
        ("at 9:30:15", "15 30 9 * * *"),
        ("every night at 2", "0 2 * * *"),
        ("every night at 11", "0 23 * * *"),
        ("at 9 in the evening", "0 21 * * *"),
        ("every tuesday morning at 7:45", "45 7 * * 2"),
        ("every day at 9am and 5pm", "0 9,17 * * *"),
        ("at 9:00 and 9:30", "0,30 9 * * *"),
        ("at 8, 12 and 16", "0 8,12,16 * * *"),
        ("weekly", "0 0 * * 0"),
        ("every week on thursday at 6", "0 6 * * 4"),
        ("first of the month", "0 0 1 * *"),
        ("on the 15th of every month at 8:05", "5 8 15 * *"),
        ("monthly on the 1st and 15th", "0 0 1,15 * *"),
        ("on day 3 of every month", "0 0 3 * *"),
        ("on the last day of the month at 23:59", "59 23 L * *"),
        ("quarterly", "0 0 1 1,4,7,10 *"),
        ("every 6 months", "0 0 1 1,7 *"),
        ("yearly at noon", "0 12 1 1 *"),
        ("every year on march 3rd", "0 0 3 3 *"),
        ("on 24 december at 18:00", "0 18 24 12 *"),
        ("0 3 * * *", "0 3 * * *"),
        ("*/30 0 9 * * mon-fri", "*/30 0 9 * * mon-fri"),
        ("@hourly", "0 * * * *"),
        ("cron 0 0 * * 1#2", "0 0 * * 1#2"),
    ],
)
def test_a_time_that_is_said_becomes_the_cron_expression_that_means_it(text: str, cron: str) -> None:
    assert read_when(text).cron == cron


def test_the_guide_tells_the_truth() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()
    rows = re.findall(r"^\| (`.+) \| (`.+`) \|$", guide, re.MULTILINE)
    assert len(rows) > 8
    for said, crons in (
        (re.findall("`(.+?)`", cell) for cell in row) for row in rows if "missed" not in row[0]
    ):
        read = [read_when(text).cron for text in said]
        assert list(dict.fromkeys(read)) == crons
    [refused] = re.findall(r"Refused, among others: (.+?)\n\n", guide, re.DOTALL)
    for text in re.findall("`(.+?)`", refused):
        with pytest.raises(Misuse):
            read_when(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sometimes", "'sometimes' says nothing exact"),
        ("every night", "'night' is no exact time"),
        ("every 7 minutes", "7 minutes do not divide an hour evenly"),
        ("every 90 minutes", "90 minutes are no whole number of hours"),
        ("every 7 hours", "7 hours do not divide a day evenly"),
        ("every 45 seconds", "45 seconds do not divide a minute evenly"),
        ("every 3 days", "every 3 days cannot be said by cron"),
        ("every other week", "every 2 weeks cannot be said by cron"),
        ("every other monday", "cron does not count weeks"),
        ("every second monday at 9", "cron does not count weeks"),
        ("every 5 months", "5 months do not divide a year evenly"),
        ("every 0 minutes", "every 0 minutes is no interval"),
        ("every -5 minutes", "'-' says nothing"),
        ("every 1.5 hours", "'1' says nothing"),
        ("every ² minutes", "'²' says nothing"),
        ("in 5 minutes", "'5' says nothing"),
        ("twice a day", "say each time"),
        ("tomorrow at 9", "'tomorrow' says nothing"),
        ("every day but sunday", "'but' says nothing"),
        ("every 5 minutes between 9am and 5pm", "'between' says nothing"),
        ("every day on monday", "exclude each other"),
        ("every monday on the 15th", "cannot join days of the week with dates"),
        ("first monday of the month", "cannot join days of the week with dates"),
        ("every minute at 9am", "every minute has no time of day"),
        ("every hour every day", "two intervals"),
        ("every january", "the day of the month is missing"),
        ("on the 32nd", "no month has a day 32"),
        ("at 25:00", "25:00 is no time of day"),
        ("at 9:75", "09:75 is no time of day"),
        ("at 13pm", "13pm is no time of day"),
        ("at 1830", "1830 is no hour"),
        ("at 3 and 5 pm", "3 could be am or pm"),
        ("every morning at 9pm", "21:00 is not in the morning"),
        ("at 9am and 5:30pm", "need a schedule each"),
        ("every", "it names no time"),
        ("", "it names no time"),
        ("x" * 1000, "longer than 200 characters"),
        ("61 * * * *", "not a cron expression"),
        ("R R * * *", "'r' says nothing"),
    ],
)
def test_what_cannot_be_understood_exactly_is_refused_and_nothing_is_guessed(text: str, told: str) -> None:
    with pytest.raises(Misuse) as refused:
        read_when(text)
    assert told in str(refused.value)
    assert "cron" in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 9 * * 1-5", "every weekday at 09:00"),
        ("0 12 * * 7", "every sunday at 12:00"),
        ("*/5 * * * 6,0", "every 5 minutes on saturdays and sundays"),
        ("5 */6 * * *", "every 6 hours at minute 5"),
        ("0 0 L * *", "on the last day of every month at 00:00"),
        ("30 8 1,22 1-3 *", "on the 1st and 22nd of january, february and march at 08:30"),
        ("*/7 * * * *", "cron */7 * * * *"),
        ("0 0 13 * 5", "cron 0 0 13 * 5"),
    ],
)
def test_a_cron_expression_is_told_in_words(cron: str, words: str) -> None:
    assert read_when(cron).words == words


HOURS, MINUTES = st.integers(0, 23), st.integers(0, 59)
DAYS = st.lists(st.integers(0, 6), min_size=1, max_size=6, unique=True)
DATES = st.lists(st.integers(1, 31), min_size=1, max_size=4, unique=True)


def joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


CRONS = st.one_of(
    st.builds("{} {} * * *".format, MINUTES, HOURS),
    st.builds("{} {} * * {}".format, MINUTES, HOURS, DAYS.map(joined)),
    st.builds("{} {} {} * *".format, MINUTES, HOURS, DATES.map(joined)),
    st.builds("{} {} {} {} *".format, MINUTES, HOURS, DATES.map(joined), st.integers(1, 12)),
    st.builds("{} {} {} * * *".format, MINUTES, MINUTES, HOURS),
    st.builds("*/{} * * * *".format, st.integers(1, 59)),
    st.builds("{} */{} * * {}".format, MINUTES, st.integers(1, 23), DAYS.map(joined)),
    st.builds("{} {}-{} * * 1-5".format, MINUTES, st.integers(0, 11), st.integers(12, 23)),
)


@given(CRONS)
def test_reading_the_words_of_a_cron_expression_gives_the_same_times(cron: str) -> None:
    words = read_when(cron).words
    again = read_when(words)
    expanded = [croniter.expand(each, second_at_beginning=True)[0][:5] for each in (again.cron, cron)]
    assert expanded[0] == expanded[1]
    assert again.words == words


@given(st.text(max_size=60))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(Misuse):
        understood = read_when(text)
        assert read_when(understood.words).words == understood.words


def moments(cron: str, timezone: str, start: datetime, count: int) -> list[str]:
    found = Timetable(cron, timezone).upcoming(start.timestamp(), count)
    return [moment.isoformat() for moment in found]


def test_a_time_of_day_that_the_clocks_leave_out_comes_when_they_have_gone_forward() -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo(BERLIN))
    assert moments("30 2 * * *", BERLIN, start, 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_of_day_that_comes_twice_counts_once() -> None:
    start = datetime(2026, 10, 24, 12, tzinfo=ZoneInfo(BERLIN))
    assert moments("30 2 * * *", BERLIN, start, 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    between = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)
    assert moments("30 2 * * *", BERLIN, between, 1) == ["2026-10-26T02:30:00+01:00"]


def test_every_hour_goes_on_while_the_clocks_are_set() -> None:
    spring = datetime(2026, 3, 29, 0, 30, tzinfo=ZoneInfo(BERLIN))
    autumn = datetime(2026, 10, 25, 1, 30, tzinfo=ZoneInfo(BERLIN))
    assert moments("0 * * * *", BERLIN, spring, 2) == [
        "2026-03-29T01:00:00+01:00",
        "2026-03-29T03:00:00+02:00",
    ]
    assert moments("0 * * * *", BERLIN, autumn, 3) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


def fields(least: int, most: int) -> st.SearchStrategy[str]:
    """What a field may hold: everything, numbers, ranges and steps."""
    number = st.integers(least, most)
    span = (
        st.lists(number, min_size=2, max_size=2, unique=True)
        .map(sorted)
        .map(lambda pair: f"{pair[0]}-{pair[1]}")
    )
    item = st.one_of(number.map(str), span, st.builds("{}/{}".format, span, st.integers(1, 9)))
    several = st.lists(item, min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), st.builds("*/{}".format, st.integers(2, most)), several)


@settings(deadline=None)
@given(
    st.tuples(fields(0, 59), fields(0, 23), fields(1, 28), fields(1, 12), fields(0, 6)).map(" ".join),
    st.integers(0, 4_000_000_000),
)
def test_the_moments_of_an_expression_are_those_of_croniter(cron: str, start: int) -> None:
    theirs = croniter(cron, datetime.fromtimestamp(start, UTC))
    assert Timetable(cron).upcoming(start, 3) == [theirs.get_next(datetime) for _ in range(3)]


@pytest.mark.parametrize(
    ("cron", "first"),
    [
        ("0 0 L 2 *", "2028-02-29"),
        ("0 0 * * l5", "2028-01-28"),
        ("0 0 * * mon#2", "2028-01-10"),
        ("0 0 * * fri-sat", "2028-01-07"),
        ("0 0 * * 6-1", "2028-01-02"),
        ("0 0 29 2 ?", "2028-02-29"),
        ("0 0 13 * 5", "2028-01-07"),
        ("0 0 0 1 1 * 2030", "2030-01-01"),
    ],
)
def test_days_may_be_the_last_ones_or_counted_or_named(cron: str, first: str) -> None:
    begin = datetime(2028, 1, 1, 12, tzinfo=UTC).timestamp()
    assert Timetable(cron).after(begin).date().isoformat() == first


NIGHTS = st.sampled_from([datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)])


@given(
    st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 */2 * * *", "15 2,3 * * *", "0 0 * * 0"]),
    NIGHTS,
    st.integers(-20 * 3600, 20 * 3600),
    st.integers(1, 30 * 3600),
)
def test_looking_back_finds_the_moments_that_looking_forward_finds(
    cron: str, night: datetime, offset: int, length: int
) -> None:
    start = (night + timedelta(seconds=offset)).timestamp()
    table = Timetable(cron, BERLIN)
    forward: list[datetime] = []
    while (
        moment := table.after(forward[-1].timestamp() if forward else start)
    ).timestamp() <= start + length:
        forward.append(moment)
    assert table.within(start, start + length, 200) == forward
    assert table.within(start, start + length, 3) == forward[-3:]


def test_moments_are_later_than_the_start_and_not_later_than_the_end() -> None:
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp()
    table = Timetable("0 12 * * *")
    assert [each.timestamp() for each in table.within(noon - 1, noon, 5)] == [noon]
    assert table.within(noon, noon + 3600, 5) == []
    assert table.after(noon).timestamp() == noon + 86400
