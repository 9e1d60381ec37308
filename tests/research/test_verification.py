"""Certificates that can be checked by others: signed, bound to the ledger, and measured again."""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import load_settings
from ratchet.kernel import Misuse, NotFound, RunStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import kept_trials
from ratchet.ledger.trials import Trial
from ratchet.operations import record
from ratchet.research.campaign import research_directory
from ratchet.research.decision import KEY_FILE, CertificateKey, check_certificate, is_signed, read_certificate
from ratchet.research.decision._certificate import content_hash
from ratchet.research.operations import remeasure as remeasure_operation
from ratchet.research.operations import verify as verify_operation
from ratchet.research.verification import (
    find_certificate,
    remeasure,
    typed_certificate,
    verify_certificate,
)
from ratchet.research.views import evidence_of
from ratchet.runtime import Runtime, Worker
from ratchet.server.service import Access, Caller, Service
from tests.research.test_run import ended, start


@pytest.fixture
def call(runtime: Runtime) -> Access:
    return Access(Service(runtime, load_settings({"home": str(runtime.home)}, env={})), "a-request", Caller())


def kept(ledger: Ledger, run_id: int) -> Trial:
    with ledger.read() as tx:
        return next(each for each in kept_trials(tx, run_id) if each.status is TrialStatus.KEEP)


def resealed(content: dict[str, Any], key: CertificateKey | None, **other: Any) -> dict[str, Any]:
    """A certificate with something else in it, hashed again, and signed again with `key`."""
    forged = {**copy.deepcopy(content), **other}
    if key is not None:
        forged["signed_by"] = key.public
    forged["sha256"] = content_hash(forged)
    return forged if key is None else {**forged, "signature": key.sign(forged["sha256"])}


def test_a_certificate_is_signed_bound_to_its_row_and_holds_when_it_is_measured_again(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path, tmp_path: Path
) -> None:
    run_id = start(runtime, hill, trials=8)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    trial, home = kept(ledger, run_id), runtime.home
    content = dict(find_certificate(ledger, f"{run_id}/{trial.exp_id}"))
    found = verify_certificate(ledger, home, content)
    assert (found.problems, found.run, found.exp_id) == ([], run_id, trial.exp_id)
    assert found.signed_by == CertificateKey(home).public
    assert (home / KEY_FILE).stat().st_mode & 0o077 == 0
    again = asyncio.run(remeasure(ledger, home, content, found))
    assert (again.problems, "is better than" in (again.again or "")) == ([], True)

    # An evaluator that was changed and hashed again.
    other = resealed(content, None, evaluator="0" * 64)
    assert check_certificate(other) == ["the signature is not that of the key it names"]
    # Signed with another key.
    foreign = resealed(content, CertificateKey(tmp_path / "elsewhere"), evaluator="0" * 64)
    assert check_certificate(foreign) == []
    problems = verify_certificate(ledger, home, foreign).problems
    assert any("not the key of this home" in each for each in problems)
    assert any(each.startswith("evaluator is") for each in problems)
    assert any("another certificate" in each for each in problems)
    # By this home itself, in the place of the one that it wrote.
    own = resealed(content, CertificateKey(home), environment={"python": "4"})
    assert (
        "the environment is not the one that the ledger has" in verify_certificate(ledger, home, own).problems
    )
    # Without a signature, as earlier ones are.
    plain = {name: value for name, value in content.items() if name not in ("signature", "signed_by")}
    unsigned = resealed(plain, None, format="ratchet improvement certificate 1")
    assert "it is not signed" in verify_certificate(ledger, home, unsigned).problems
    assert evidence_of(ledger, trial)["certificate_problems"] == []


def test_a_forged_certificate_is_answered_with_what_is_wrong_and_not_measured_again(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    run_id = start(runtime, hill, trials=8)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    content = dict(find_certificate(ledger, f"{run_id}/{kept(ledger, run_id).exp_id}"))
    forgeries: list[tuple[dict[str, Any], str]] = [
        ({"champion": 3}, "cannot be read: champion: Input should be an object"),
        ({"rule": {**content["rule"], "alpha": 0.9}}, "alpha must lie between"),
        ({"run": {**content["run"], "keeps": -99, "planned": -3}}, "run.planned: Input should be greater"),
        (
            {"run": {**content["run"], "keeps": 10**400, "planned": 10**400}},
            "run.keeps: Input should be less",
        ),
        ({"commit": "--output=file"}, "was measured, not --output=file"),
    ]
    for change, reason in forgeries:
        forged = resealed(content, CertificateKey(runtime.home), **change)
        found = verify_certificate(ledger, runtime.home, forged)
        assert any(reason in each for each in found.problems), found.problems
        assert asyncio.run(remeasure(ledger, runtime.home, forged, found)) == found


@pytest.mark.parametrize("numbers", [(10**30, 1), (1, 10**30), (1, -1)])
def test_a_certificate_of_numbers_that_no_row_can_have_is_of_no_trial(
    ledger: Ledger, tmp_path: Path, numbers: tuple[int, int]
) -> None:
    run_id, trial = numbers
    found = verify_certificate(ledger, tmp_path, {"run": {"id": run_id}, "trial": trial})
    assert "this home has no such trial" in found.problems


def test_measuring_again_is_a_run_whose_result_is_what_verifying_answers(
    call: Access, runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    run_id = start(runtime, hill, trials=8)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    named = f"{run_id}/{kept(ledger, run_id).exp_id}"
    again = remeasure_operation(call, named)
    assert (again.kind, again.status) == ("verification", RunStatus.PENDING)
    assert ended(ledger, again.id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        result = get_run(tx, again.id).result
    assert result["holds"], result
    assert "is better than" in result["again"]
    plain = record(verify_operation(call, named))
    assert plain == {**result, "again": None}

    # Without what it was measured in, nothing is called verified.
    shutil.rmtree(research_directory(runtime.home, run_id) / "repo.git")
    lost = remeasure_operation(call, named)
    assert ended(ledger, lost.id) is RunStatus.FAILED


def test_over_http_a_certificate_is_never_a_file(call: Access, tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps({"format": "none"}))
    assert verify_operation(call, json.loads(file.read_text())).problems
    with pytest.raises(NotFound, match="research run"):
        verify_operation(call, str(file))
    with pytest.raises(NotFound, match="certificate"):
        verify_operation(call, "1/\0")


@pytest.mark.parametrize("content", [b"[1,2", b"\xff\xfe\x00", b"[" * 100_000], ids=["cut", "bytes", "deep"])
def test_a_file_that_is_no_json_is_no_certificate(call: Access, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "certificate.json").write_bytes(content)
    with pytest.raises(Misuse, match=r"certificate\.json is no certificate"):
        typed_certificate(call, str(tmp_path / "certificate.json"))


def test_a_person_may_type_the_file_of_a_certificate(call: Access, tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_text(json.dumps({"format": "none"}))
    found = typed_certificate(call, str(tmp_path / "certificate.json"))
    assert verify_operation(call, found).problems
    # As a trial is shown.
    (tmp_path / "trial.json").write_text(json.dumps({"exp_id": "001", "certificate_content": found}))
    trial = typed_certificate(call, str(tmp_path / "trial.json"))
    assert find_certificate(call.ledger, trial) == found
    with pytest.raises(NotFound):
        verify_operation(call, typed_certificate(call, "nothing.json"))


def test_a_key_is_made_once_and_signs(tmp_path: Path) -> None:
    one, again = CertificateKey(tmp_path / "home"), CertificateKey(tmp_path / "home")
    assert one.public == again.public
    signature = one.sign("a text")
    assert is_signed("a text", signature, one.public)
    for text, signed, public in (
        ("another", signature, one.public),
        ("a text", "00" * 64, one.public),
        ("a text", signature, "00" * 32),
        ("a text", None, 3),
        ("a text", "zz", "zz"),
    ):
        assert not is_signed(text, signed, public)


def test_what_is_no_certificate_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="StoredCertificate"):
        read_certificate({"trial": 1})
