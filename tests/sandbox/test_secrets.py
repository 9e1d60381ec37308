"""What must not be found: the environment of Ratchet, and what other runs were given."""

from __future__ import annotations

import asyncio
import os
import uuid

import pytest

from ratchet.sandbox import Node, Policy, run
from tests.sandbox.ways import attack, unconfined


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch) -> str:
    """A secret in the environment of this process."""
    value = f"canary-{uuid.uuid4().hex}"
    monkeypatch.setenv("RATCHET_TEST_CANARY", value)
    return value


def halves(word: str) -> str:
    return f"{word[:20]}|{word[20:]}"


def test_the_environment_is_what_the_policy_says_and_nothing_else(way: str, canary: str) -> None:
    assert unconfined("environment")["RATCHET_TEST_CANARY"] == canary
    assert set(attack(way, "environment").value) <= {"LC_CTYPE"}  # Python itself sets it
    given = {"NAME": "value", "OTHER": "ü", "LC_ALL": "C.UTF-8"}
    assert attack(way, "environment", policy=Policy(environment=given)).value == given


def test_the_environment_of_parents_is_not_shown(way: str, canary: str) -> None:
    assert canary in unconfined("environment_of_others")
    done = attack(way, "environment_of_others")
    assert not done.ok or canary not in done.value


def test_memory_holds_nothing_of_the_environment(way: str, canary: str) -> None:
    assert unconfined("scan_memory", halves(canary)) is True
    assert attack(way, "scan_memory", halves(canary)).value is False


def test_memory_holds_nothing_of_other_nodes(canary: str) -> None:
    keeps = Node("def run(x):\n    return x")
    for _ in range(4):
        given = f'"{canary}"'.encode()
        done = asyncio.run(run(keeps, stdin=given, policy=Policy(environment={"KEY": canary})))
        assert done.value == canary
    for _ in range(4):
        assert attack("node", "scan_memory", halves(canary)).value is False


def test_nothing_is_left_open(way: str) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        assert set(unconfined("write_to_descriptors", close_fds=False)) & {write}
        assert attack(way, "open_descriptors").value in ([0, 1, 2], [0, 1, 2, 3])
        assert attack(way, "write_to_descriptors").value == []
    finally:
        os.close(read)
        os.close(write)
