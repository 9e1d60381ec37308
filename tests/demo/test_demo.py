"""The demo as somebody sees it who has just installed Ratchet: its acts, its marks, its report, its interruption."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ratchet.config import load_settings
from ratchet.kernel import RunStatus
from ratchet.ledger import Run
from ratchet.ledger.runs import list_runs
from ratchet.runtime import open_ledger
from tests.demo.machine import SECONDS, Machine, read_until

pytestmark = pytest.mark.soak


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def runs(machine: Machine) -> dict[str, Run]:
    """By kind and name; setting up a project is a run as well."""
    with open_ledger(load_settings({"home": str(machine.home)}, env={})) as ledger, ledger.read() as tx:
        return {f"{run.kind} {run.name}": run for run in list_runs(tx, limit=100)}


def test_the_whole_demo_runs_on_a_machine_that_has_nothing(machine: Machine) -> None:
    done = machine.ratchet("demo")
    told = done.stdout
    assert done.returncode == 0, told + done.stderr
    assert "Traceback" not in done.stderr
    assert "Everything went well" in told

    # What happened, as it happened.
    assert "is killed with kill -9" in told
    assert "trial 000 the program as it is scores 2.16667" in told
    assert "is better and kept" in told
    assert "split total=10 people=3 answers 3.33 + 3.33 + 3.33 = 9.99" in told
    assert "split total=10 people=3 answers 3.34 + 3.33 + 3.33 = 10.00" in told
    assert "9 of 9 steps were known" in told
    assert "01-discount refused: checks: unittest: it exited with 1" in told
    assert "01-discount kept: passed by contract, size, secrets, checks, review" in told

    # What was recorded is said so, in the summary, in the ledger and in the report.
    marks = {line.split()[0]: line.split()[1] for line in told.split("\n\n")[-3].splitlines()}
    simulated = {"agents": "simulated", "protocols": "simulated"}
    assert marks == {**dict.fromkeys(("durability", "research", "workflows"), "real"), **simulated}
    found = runs(machine)
    assert {run.status for run in found.values()} == {RunStatus.COMPLETED}
    used = {name for name, run in found.items() if run.used_recording}
    assert used == {"agent demo-1-bill", "protocol 0001-discounts-and-receipts"}
    assert all(found[name].simulated for name in used)
    page = (machine.home / "reports" / "demo-1.html").read_text()
    assert page.count('class="badge simulated"') == 1 + len(used)
    assert page.count("No model was asked") == len(used)
    assert "Content-Security-Policy" in page
    assert "<script" not in page

    # Where to look: what it names can be typed.
    for command in ("research status", "agent call", "workflow show", "protocol show", "ratchet serve"):
        assert command in told
    assert "/console" in told
    shown = machine.ratchet("agent", "versions", "demo-1-bill", "--json")
    assert [each["version"] for each in json.loads(shown.stdout)] == ["0.0.1", "0.0.0"]


def test_a_demo_that_is_killed_goes_on_where_it_stopped(machine: Machine) -> None:
    with machine.started("demo", "--only", "agents", "protocols") as process:
        read_until(process, "01-discount refused")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = runs(machine)
    assert before["protocol 0001-discounts-and-receipts"].status is RunStatus.RUNNING

    again = machine.ratchet("demo", "--only", "agents", "protocols", "--json")
    assert again.returncode == 0, again.stderr
    assert "Taking up demo 1" in again.stderr
    came = json.loads(again.stdout)
    assert (came["demo"], came["passed"]) == (1, True)
    assert [(each["act"], each["simulated"]) for each in came["acts"]] == [
        ("agents", True),
        ("protocols", True),
    ]
    after = runs(machine)
    assert before.keys() == after.keys()
    assert {each.id for each in before.values()} <= {each.id for each in after.values()}
    # It has ended now: the next one is another demo.
    assert Path(came["report"]).name == "demo-1.html"
    following = machine.ratchet("demo", "--only", "workflows", "--json")
    assert (following.returncode, json.loads(following.stdout)["demo"]) == (0, 2)


def test_ctrl_c_stops_the_demo_and_loses_nothing(machine: Machine) -> None:
    with machine.started("demo", "--only", "research") as process:
        read_until(process, "is better and kept")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        told = process.stdout.read()
        assert process.wait(SECONDS) == 130, told
    assert "resumes where it stopped" in told
    assert "FAILED" not in told
    assert not (machine.home / "reports").exists()
    [run] = runs(machine).values()
    assert run.status is RunStatus.RUNNING


def test_an_act_that_fails_is_told_and_the_others_are_shown(machine: Machine) -> None:
    """Its worker is ended by somebody else, so nobody is left to continue."""
    with machine.started("demo", "--only", "durability", "workflows") as process:
        started = read_until(process, " starts")
        os.kill(int(started.split("worker ")[-1].split()[0]), signal.SIGKILL)
        assert process.stdout is not None
        told = process.stdout.read()
        assert process.wait(SECONDS) == 1, told
    assert "FAILED: the worker ended by itself" in told
    assert "worker.log" in told
    assert "9 of 9 steps were known" in told
    page = (machine.home / "reports" / "demo-1.html").read_text()
    assert "1 of 2 acts failed" in page
    assert "the worker ended by itself" in page


def test_an_act_that_there_is_not_is_misuse(machine: Machine) -> None:
    done = machine.ratchet("demo", "--only", "magic")
    assert done.returncode == 2
    assert "durability" in done.stderr
    assert not machine.home.exists()
