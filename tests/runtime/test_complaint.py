"""Trouble that lasts is told, and not every second."""

from __future__ import annotations

import logging

import pytest

from ratchet.runtime.processes import Complaint


def test_the_same_trouble_is_told_once_a_minute_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    complaint = Complaint(logging.getLogger("trouble"), "cannot beat", "it beats again", clock=lambda: now)
    for second in range(130):
        now = float(second)
        complaint.make("the disk is full")
    complaint.make("the disk is gone")
    complaint.end()
    complaint.end()
    complaint.make("the disk is gone")
    assert [record.getMessage() for record in caplog.records] == [
        "cannot beat: the disk is full",
        "cannot beat: the disk is full",
        "cannot beat: the disk is full",
        "cannot beat: the disk is gone",
        "it beats again",
        "cannot beat: the disk is gone",
    ]
