from __future__ import annotations

import getpass

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger, change_run
from ratchet.ledger.questions import request_approval
from ratchet.ledger.runs import get_run
from ratchet.runtime import Runtime, start_run
from tests.cli.conftest import Ratchet

SHOWN = {
    "diff": "+print(1)\n",
    "verdicts": [{"judge": "tests", "outcome": "passed", "reason": "it exited with 0"}],
}


def ask(ledger: Ledger, once: str = "once", run_id: int | None = None) -> str:
    with ledger.write() as tx:
        approval = request_approval(
            tx, once, subject="commit c0ffee", question="Ship it?", data=SHOWN, run_id=run_id
        )
    return str(approval.id)


def blocked(runtime: Runtime) -> int:
    with runtime.ledger.write() as tx:
        run_id = start_run(tx, runtime, "demo.primes", kind="workflow", name="w")
        change_run(tx, run_id, RunStatus.BLOCKED)
    return run_id


def test_no_approvals_say_what_they_are_for(ratchet: Ratchet, ledger: Ledger) -> None:
    done = ratchet("approval", "list")
    assert (done.code, done.out) == (0, "")
    assert "is blocked until it is decided" in done.err
    assert ratchet("approval", "list", "--json").json == []


def test_what_waits_is_listed_and_the_rest_on_demand(ratchet: Ratchet, ledger: Ledger) -> None:
    first, second = ask(ledger, "1"), ask(ledger, "2")
    ratchet("approval", "approve", first)

    def found(*options: str) -> list[str]:
        return [str(each["id"]) for each in ratchet("approval", "list", "--json", *options).json]

    assert found() == [second]
    assert found("--status", "approved") == [first]
    assert found("--status", "any") == [second, first]
    assert found("--status", "any", "--before", second) == [first]
    assert found("--run", "7") == []
    assert "Ship it?" in ratchet("approval", "list").out


def test_a_decision_says_if_no_worker_is_there_for_the_rest_of_the_run(
    ratchet: Ratchet, ledger: Ledger, runtime: Runtime
) -> None:
    note = "No worker runs on this ledger now"
    for number, verb in enumerate(("approve", "refuse")):
        of_a_run = ask(ledger, f"run {number}", blocked(runtime))
        assert note in ratchet("approval", verb, of_a_run).err
        assert note not in ratchet("approval", verb, ask(ledger, f"alone {number}")).err


def test_what_is_asked_for_and_answered_is_shown_as_json(ratchet: Ratchet, ledger: Ledger) -> None:
    data = {"answer_schema": {"type": "object"}, "values": {"letter": "Dear Ann"}}
    with ledger.write() as tx:
        asked = request_approval(tx, "once", subject="size", question="How large?", data=data)
    ratchet("approval", "approve", str(asked.id), "--answer", '{"width": 640}')
    shown = ratchet("approval", "show", str(asked.id)).out
    assert '{"type": "object"}' in shown
    assert '{"letter": "Dear Ann"}' in shown
    assert '{"width": 640}' in shown


def test_an_approval_is_shown_with_the_change_and_the_verdicts(ratchet: Ratchet, ledger: Ledger) -> None:
    shown = ratchet("approval", "show", ask(ledger)).out
    for text in ("pending", "commit c0ffee", "Ship it?", "+print(1)", "tests: passed: it exited with 0"):
        assert text in shown


def test_an_answer_lets_the_run_go_on(ratchet: Ratchet, runtime: Runtime) -> None:
    run_id = blocked(runtime)
    done = ratchet("approval", "approve", ask(runtime.ledger, run_id=run_id), "--comment", "fine", "--json")
    assert done.code == 0, done.err
    told = (done.json["status"], done.json["comment"], done.json["decided_by"])
    assert told == ("approved", "fine", getpass.getuser())
    with runtime.ledger.read() as tx:
        assert get_run(tx, run_id).status is RunStatus.RUNNING


def test_a_refusal_names_who_refused(ratchet: Ratchet, ledger: Ledger) -> None:
    approval = ask(ledger)
    done = ratchet("approval", "refuse", approval, "--by", "ada")
    assert (done.code, done.out) == (0, f"Approval {approval} is refused.\n")
    again = ratchet("approval", "approve", approval)
    assert again.code == 1
    assert f"approval {approval} is refused by ada; only a pending approval can be decided" in again.err


def test_an_approval_that_does_not_exist_is_a_failure(ratchet: Ratchet, ledger: Ledger) -> None:
    for verb in ("show", "approve", "refuse"):
        assert ratchet("approval", verb, "77").err.startswith("error: approval 77 does not exist\nhint: ")
    assert ratchet("approval", "list", "--status", "lost").code == 2
