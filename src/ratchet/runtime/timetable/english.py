"""Reading a time that is said in plain English. Every word must be understood, or none is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from ratchet.runtime.timetable import vocabulary
from ratchet.runtime.timetable.vocabulary import Heard, Interval, Spoken, TimeOfDay, refuse

_LONGEST = 200


def listen(text: str) -> Heard:
    """What `text` says. Raises `Misuse` that names the first word that says nothing."""
    if len(text) > _LONGEST:
        refuse(text[:_LONGEST] + "…", f"it is longer than {_LONGEST} characters")
    return _Listener(text).hear()


class _Listener:
    """Goes through the words from left to right; each rule takes the words it understands."""

    def __init__(self, text: str) -> None:
        self._text = text
        plain = text.lower()
        for spelling, usual in vocabulary.SPELLINGS:
            plain = plain.replace(spelling, usual)
        self._words: list[str] = vocabulary.WORD.findall(plain)
        self._heard = Heard()
        self._rules: tuple[Callable[[], bool], ...] = (
            self._every,
            self._adverb,
            self._weekdays,
            self._date,
            self._times,
            self._minute,
            self._part,
            self._period,
            self._joint,
        )

    def hear(self) -> Heard:
        while self._words:
            if not any(rule() for rule in self._rules):
                word = self._words[0]
                refuse(self._text, vocabulary.REASONS.get(word, f"{word!r} says nothing exact here"))
        if self._heard == Heard():
            refuse(self._text, "it names no time")
        return self._heard

    def _every(self) -> bool:
        if self._next(0) == "once" and self._next(1) in ("a", "an", "per", "every", "each"):
            self._words = ["every", *self._words[2:]]
        if not self._take("every", "each"):
            return False
        if share := self._take("quarter", "half"):
            self._share(share)
        elif self._next(0) in ("other", "second") and self._next(1) in vocabulary.UNITS:
            self._repeat(2, vocabulary.UNITS[self._words[1]], words=2)
        elif self._next(0) == "second" and (
            self._next(1) in vocabulary.WEEKDAYS or self._next(1) in vocabulary.GROUPS
        ):
            refuse(self._text, vocabulary.REASONS["other"])
        elif self._next(0) in vocabulary.UNITS:
            self._repeat(1, vocabulary.UNITS[self._words[0]], words=1)
        elif self._number(0) is not None and self._next(1) in vocabulary.UNITS:
            self._repeat(self._number(0) or 0, vocabulary.UNITS[self._words[1]], words=2)
        return True

    def _share(self, part: str) -> None:
        for word in ("of", "an", "a", "-"):
            self._take(word)
        if self._take("hour"):
            self._repeat(15 if part == "quarter" else 30, "minute")
        elif part == "quarter":
            self._repeat(3, "month")
        else:
            refuse(self._text, "'half' of what is not said")

    def _adverb(self) -> bool:
        if self._next(0) not in vocabulary.ADVERBS:
            return False
        self._repeat(*vocabulary.ADVERBS[self._words[0]], words=1)
        return True

    def _weekdays(self) -> bool:
        word = self._next(0)
        if word in vocabulary.GROUPS:
            self._words = self._words[1:]
            self._heard.weekdays |= vocabulary.GROUPS[word]
            return True
        if word not in vocabulary.WEEKDAYS:
            return False
        first = last = vocabulary.WEEKDAYS[word]
        self._words = self._words[1:]
        if self._next(0) in ("to", "through", "until", "-") and self._next(1) in vocabulary.WEEKDAYS:
            last = vocabulary.WEEKDAYS[self._words[1]]
            self._words = self._words[2:]
        self._heard.weekdays |= {(first + step) % 7 for step in range((last - first) % 7 + 1)}
        return True

    def _date(self) -> bool:
        """`15th`, `first day`, `last day`, `day 15`, `24 december`, `december 24`, or a month alone."""
        if self._next(0) == "last" and self._next(1) == "day":
            self._words = self._words[2:]
            self._heard.last_day = True
            return True
        if self._next(0) in vocabulary.MONTHS:
            self._heard.months.add(vocabulary.MONTHS[self._words[0]])
            self._words = self._words[1:]
            if _is_number(self._next(0)) and self._next(1) not in ("am", "pm"):
                self._day(int(self._words[0]), words=1)
            return True
        if self._next(0) == "day" and _is_number(self._next(1)):
            self._day(int(self._words[1]), words=2)
            return True
        ordinal = self._ordinal()
        if ordinal is None:
            return False
        self._day(ordinal, words=1)
        self._take("day")
        return True

    def _ordinal(self) -> int | None:
        word = self._next(0) or ""
        if self._next(1) in vocabulary.MONTHS and _is_number(word):
            return int(word)
        return (
            int(word[:-2]) if _is_number(word[:-2]) and word[-1].isalpha() else vocabulary.ORDINALS.get(word)
        )

    def _day(self, number: int, *, words: int) -> None:
        if not 1 <= number <= 31:
            refuse(self._text, f"no month has a day {number}")
        self._heard.days.add(number)
        self._words = self._words[words:]

    def _times(self) -> bool:
        said = self._next(0) == "at"
        start = 1 if said else 0
        if not self._is_time(start, alone=not said):
            return False
        self._words = self._words[start:]
        self._heard.times.append(self._time())
        while True:
            joints = len(list(itertools.takewhile(lambda word: word in ("and", ","), self._words)))
            after = joints + (self._next(joints) == "at")
            if not joints or not self._is_time(after, alone=False):
                return True
            self._words = self._words[after:]
            self._heard.times.append(self._time())

    def _is_time(self, at: int, *, alone: bool) -> bool:
        """Whether a time of day stands there. `alone`, without `at` before it, a mere number is none."""
        word = self._next(at) or ""
        if word in vocabulary.NAMED_TIMES or ":" in word[1:] or "." in word[1:]:
            return True
        follows = self._next(at + 1)
        if self._number(at) is None or follows in vocabulary.UNITS or follows in vocabulary.MONTHS:
            return False
        return follows in ("am", "pm") or not alone

    def _time(self) -> Spoken:
        word = self._words[0]
        if word in vocabulary.NAMED_TIMES:
            self._words = self._words[1:]
            return Spoken(vocabulary.NAMED_TIMES[word])
        bare = not set(word) & set(":.")
        numbers = [self._number(0) or 0] if bare else [int(part) for part in re.split("[:.]", word)]
        hour, minute, second = (*numbers, 0, 0)[:3]
        self._words = self._words[1:]
        if hour > 24 and bare:
            refuse(self._text, f"{hour} is no hour; write for example 18:30")
        half = self._take("am", "pm")
        return Spoken(TimeOfDay(hour, minute, second), half, bare and half is None)

    def _minute(self) -> bool:
        if not (self._next(0) == "at" and self._next(1) == "minute" and _is_number(self._next(2))):
            return False
        minute = int(self._words[2])
        if minute > 59 or self._heard.minute not in (None, minute):
            refuse(self._text, f"minute {minute} is not one of an hour, or not the only one")
        self._heard.minute = minute
        self._words = self._words[3:]
        return True

    def _part(self) -> bool:
        part = vocabulary.DAY_PARTS.get(self._next(0) or "")
        if part is None:
            return False
        if self._heard.part not in (None, part):
            refuse(self._text, f"{self._heard.part} and {part} exclude each other")
        self._heard.part = part
        self._words = self._words[1:]
        return True

    def _period(self) -> bool:
        """`of the month`, `of each year`: what the day before it is a day of."""
        if self._next(0) not in ("month", "year") or not (self._heard.days or self._heard.last_day):
            return False
        self._repeat(1, self._words[0], words=1)
        return True

    def _joint(self) -> bool:
        return self._take(*vocabulary.JOINTS) is not None

    def _repeat(self, number: int, unit: str, *, words: int = 0) -> None:
        interval = Interval(number, unit)
        if self._heard.interval not in (None, interval):
            refuse(self._text, "it has two intervals")
        self._heard.interval = interval
        self._words = self._words[words:]

    def _next(self, at: int) -> str | None:
        return self._words[at] if at < len(self._words) else None

    def _number(self, at: int) -> int | None:
        word = self._next(at) or ""
        return int(word) if _is_number(word) else vocabulary.NUMBERS.get(word)

    def _take(self, *wanted: str) -> str | None:
        if self._next(0) not in wanted:
            return None
        word, *self._words = self._words
        return word


def _is_number(word: str | None) -> bool:
    return word is not None and word.isascii() and word.isdigit()
