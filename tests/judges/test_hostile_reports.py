"""Reports that were made to hurt whoever reads them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ratchet.judges.reports import MAX_REPORT_BYTES, BadReport, count_tests, read_report

LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>
<testsuite><testcase name="&c;"/></testsuite>"""
STEALS = (
    """<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><testsuite><testcase name="a"/>&x;</testsuite>"""
)
FETCHES = """<!DOCTYPE t SYSTEM "http://127.0.0.1:9/t.dtd"><testsuite><testcase name="a"/></testsuite>"""


@pytest.mark.parametrize("report", [LAUGHS, STEALS, FETCHES])
def test_a_document_type_is_refused(report: str) -> None:
    with pytest.raises(BadReport, match="document type"):
        count_tests(report.encode(), "junit.xml")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x01\x02",
        b"<testsuite>",
        b"<testsuite/><testsuite/>",
        b'<?xml version="1.0" encoding="no-such"?><testsuite/>',
        b"<testsuite>&undefined;</testsuite>",
        b"\xff\xfe<\x00",
    ],
)
def test_what_is_not_xml_is_refused(content: bytes) -> None:
    with pytest.raises(BadReport):
        count_tests(content, "junit.xml")


def test_a_deep_report_is_read_without_a_deep_stack() -> None:
    depth = 200_000
    report = b"<testsuite>" * depth + b'<testcase name="a"/>' + b"</testsuite>" * depth
    assert count_tests(report, "junit.xml").tests == 1


def test_claims_that_are_no_times_do_not_count() -> None:
    times = ["-5", "nan", "inf", "1e400", "x", "1,000.5", "2"]
    cases = "".join(f'<testcase name="a" time="{each}"/>' for each in times)
    assert count_tests(f"<testsuite>{cases}</testsuite>".encode(), "j").seconds == 1002.5


def test_a_test_that_fails_in_two_ways_is_counted_once_and_an_error_outside_of_tests_counts() -> None:
    report = '<testsuite><testcase name="a"><failure/><error/></testcase><error/></testsuite>'
    counts = count_tests(report.encode(), "junit.xml")
    assert (counts.tests, counts.failures, counts.errors) == (1, 0, 2)
    assert counts.broken == ["a", "outside of any test"]


@pytest.mark.parametrize("place", ["link.xml", "directory/report.xml", "directory", "absent/report.xml"])
def test_links_directories_and_absent_files_are_refused(tmp_path: Path, place: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "report.xml").write_text("<testsuite/>")
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "link.xml").symlink_to(outside / "report.xml")
    (reports / "directory").symlink_to(outside)
    with pytest.raises(BadReport):
        read_report(reports, place)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.xml")
    found: list[BaseException] = []

    def read() -> None:
        try:
            read_report(tmp_path, "report.xml")
        except BadReport as error:
            found.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(30)
    assert [str(error) for error in found] == ["the report report.xml is not a plain file"]


def test_a_report_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge.xml").open("wb") as file:
        file.truncate(MAX_REPORT_BYTES + 1)
    with pytest.raises(BadReport, match="at most"):
        read_report(tmp_path, "huge.xml")
