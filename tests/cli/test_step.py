"""`ratchet step …`"""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger, change_run
from ratchet.ledger.projects import add_project
from ratchet.ledger.protocols import list_protocol_steps
from ratchet.ledger.runs import get_run
from ratchet.protocols.actions import add_step, create_protocol
from ratchet.protocols.jobs import complete_if_done, complete_step
from ratchet.runtime import Runtime
from tests.cli.conftest import Ratchet
from tests.cli.protocol_world import make_shop, wish

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def protocol(runtime: Runtime) -> int:
    """Planned by hand, with two steps."""
    with runtime.ledger.write(actor="test") as tx:
        number = create_protocol(
            tx, runtime, add_project(tx, "shop"), "0001-paint", planned=True, automatic=False
        )
        for index, name in enumerate(("00-sand", "01-paint")):
            add_step(tx, number, name=name, step_index=index, step_type="work")
    return number


@ONE_DATABASE
def test_steps_are_listed_and_named_by_number_by_place_and_by_name(ratchet: Ratchet, protocol: int) -> None:
    listed = ratchet("step", "list", "0001-paint", "--json").json
    assert [(step["step_name"], step["status"]) for step in listed] == [
        ("00-sand", "pending"),
        ("01-paint", "pending"),
    ]
    table = ratchet("step", "list", str(protocol)).out
    assert ("00-sand" in table, "pending" in table) == (True, True)
    for wanted in (str(listed[1]["id"]), "0001-paint/01", f"{protocol}/1", "0001-paint/01-paint"):
        assert ratchet("step", "show", wanted, "--json").json["step_name"] == "01-paint", wanted
    assert "qa        full" in ratchet("step", "show", "0001-paint/00").out


@ONE_DATABASE
def test_what_names_no_step_is_told_with_what_does(ratchet: Ratchet, protocol: int) -> None:
    assert "it has: 00-sand, 01-paint" in ratchet("step", "show", "0001-paint/07").err
    assert "PROTOCOL/NN" in ratchet("step", "show", "9999").err
    shapeless = ratchet("step", "run", "paint")
    assert (shapeless.code, "names no step" in shapeless.err) == (2, True)
    assert ratchet("step", "run", "0009-none/01").code == 1
    assert "it was tried 0 times" in ratchet("step", "show", "0001-paint/00", "--print", "diff").err


@ONE_DATABASE
def test_a_step_is_approved_in_the_place_of_its_judges_once(
    ratchet: Ratchet, protocol: int, ledger: Ledger
) -> None:
    approved = ratchet("step", "approve", "0001-paint/00", "--by", "Ada", "--detach", "--json")
    assert approved.code == 0, approved.err
    assert (approved.json["status"], approved.json["reason"]) == ("completed", "approved by Ada")
    again = ratchet("step", "approve", "0001-paint/00")
    assert (again.code, "is completed" in again.err) == (1, True)
    assert ratchet("step", "qa", "0001-paint/00").code == 1
    in_line = ratchet("step", "run", "0001-paint/01", "--detach")
    assert in_line.out == f"Protocol {protocol}: 01-paint is queued.\n"
    assert ratchet("step", "run", "0001-paint/01", "--detach").code == 1


@ONE_DATABASE
def test_a_protocol_whose_step_was_approved_does_not_claim_that_it_passed(
    ratchet: Ratchet, protocol: int, ledger: Ledger
) -> None:
    assert ratchet("step", "approve", "0001-paint/01", "--by", "Ada", "--detach").code == 0
    with ledger.write(actor="test") as tx:
        complete_step(tx, list_protocol_steps(tx, protocol)[0], "all checks passed")
        change_run(tx, protocol, RunStatus.RUNNING, expected=(get_run(tx, protocol).status,))
        assert complete_if_done(tx, protocol)
        ended = get_run(tx, protocol)
    assert (ended.status, ended.reason) == (
        RunStatus.COMPLETED,
        "1 step passed, 1 approved by Ada without passing",
    )


@pytest.mark.soak
@ONE_DATABASE
def test_what_an_attempt_left_can_be_read_and_judged_again(
    ratchet: Ratchet, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_shop(tmp_path, home).place)
    told = wish("Nothing to do.", "Write a.\nwrite a.txt bad")
    assert ratchet("protocol", "new", told, "--run", "--json").code == 1
    shown = ratchet("step", "show", "2/01").out
    assert "review: The change has the word bad in it." in shown
    assert "author author, reviewer reviewer" in shown
    assert "+bad" in ratchet("step", "show", "2/01", "--print", "diff").out
    assert "write a.txt bad" in ratchet("step", "show", "2/01", "--print", "prompt").out
    report = ratchet("step", "show", "2/01", "--print", "report", "--attempt", "1", "--json").json
    assert (report["attempt"], "## review: failed" in report["report"]) == (1, True)
    settings = home / "ratchet.toml"
    settings.write_text(settings.read_text().replace('reviewer = "reviewer"', 'reviewer = "lenient"'))
    judged = ratchet("step", "qa", "2/01", "--json")
    assert (judged.code, judged.json["status"]) == (0, "completed"), judged.err
