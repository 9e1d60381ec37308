"""When something is to happen again: said in English or as cron, told in words, found as moments in a time zone."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.runtime.timetable.moments import Timetable, When, read_when
else:
    __getattr__ = on_demand(__name__)
