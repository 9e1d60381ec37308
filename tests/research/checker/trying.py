"""Calling the checks, and looking up what they found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ratchet.research.checker import Grade, TaskCheck, check_attacks, check_conformance
from ratchet.research.tasks import find_task


def conformance(folder: Path) -> dict[str, TaskCheck]:
    return by_name(asyncio.run(check_conformance(find_task(str(folder)))))


def attacked(folder: Path, *only: str) -> dict[str, TaskCheck]:
    return by_name(asyncio.run(check_attacks(find_task(str(folder)), only=only or None)))


def by_name(findings: Sequence[TaskCheck]) -> dict[str, TaskCheck]:
    named = {finding.what: finding for finding in findings}
    assert len(named) == len(findings)
    return named


def failures(findings: dict[str, TaskCheck]) -> dict[str, str]:
    return {name: each.detail for name, each in findings.items() if each.grade is Grade.FAILED}
