"""When something is to happen again: said in English or as cron, told in words, found as moments in a time zone."""

from ratchet.runtime.timetable.moments import Timetable
from ratchet.runtime.timetable.when import When, read_when

__all__ = ["Timetable", "When", "read_when"]
