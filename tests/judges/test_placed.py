"""A command that judges on a node says what it says here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.judges import CommandJudge
from ratchet.kernel import Outcome
from ratchet.placement import Brokered
from ratchet.sandbox import Policy
from tests.judges.conftest import PYTHON, MakeCandidate, ask

LOOK = """
import os, pathlib
print(os.getcwd(), open('main.py').read(), open('built/out.txt').read(), open('packages/one/it.txt').read())
pathlib.Path('main.py').write_text('changed')
raise SystemExit(os.path.exists('wrong'))
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokered]:
    cache = tmp_path_factory.mktemp("judges") / "cache"
    placement = Brokered([sys.executable, "-P", "-m", "ratchet.placement.processes", "1"], str(cache))
    yield placement
    placement.close()


def test_a_node_shows_the_candidate_in_its_environment_as_it_is_shown_here(
    nodes: Brokered, make_candidate: MakeCandidate, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    for name, text in {"left/built/out.txt": "built", "left/packages/one/it.txt": "packed"}.items():
        (environment / name).parent.mkdir(parents=True, exist_ok=True)
        (environment / name).write_text(text)
    (environment / "tree").mkdir()
    here = CommandJudge(
        name="tests",
        argv=(*PYTHON, "-c", LOOK),
        policy=Policy(readable=(environment,)),
        place=environment / "tree",
        copies={"built": environment / "left" / "built"},
        mounts={"packages": environment / "left" / "packages"},
    )
    there = replace(here, placement=nodes)
    for files, outcome in (({}, Outcome.PASSED), ({"wrong": ""}, Outcome.FAILED)):
        candidate = make_candidate({"main.py": "original", **files})
        near, far = ask(here, candidate), ask(there, candidate)
        assert near.verdict.outcome is far.verdict.outcome is outcome
        assert (far.verdict.judge_hash, far.verdict.reason) == (near.verdict.judge_hash, near.verdict.reason)
        said = [json.loads(judged.reports[0].content)["stdout"] for judged in (near, far)]
        assert said == [f"{environment}/tree original built packed\n"] * 2
        assert (candidate.directory / "main.py").read_text() == "original"


def test_a_node_without_what_the_command_reads_is_refused_by_name(
    nodes: Brokered, make_candidate: MakeCandidate, tmp_path: Path
) -> None:
    judge = CommandJudge(
        name="tests",
        argv=(*PYTHON, "-c", ""),
        policy=Policy(readable=(tmp_path / "toolchain",)),
        placement=nodes,
    )
    verdict = ask(judge, make_candidate()).verdict
    assert verdict.outcome is Outcome.ERROR
    assert f"has no {tmp_path}/toolchain, which tests reads" in verdict.reason
