"""Artifacts come as downloads, whatever is in them."""

from __future__ import annotations

import hashlib

import pytest
from fastapi.testclient import TestClient

from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger import Artifact, Ledger, change_run, change_step
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt


def keep(ledger: Ledger, content: bytes = b"content", **options: object) -> Artifact:
    with ledger.write() as tx:
        return ledger.artifacts.put(tx, content, **{"name": "file", **options})  # type: ignore[arg-type]


def test_the_content_comes_with_its_type_and_as_a_download(api: TestClient, ledger: Ledger) -> None:
    page = b"<script>alert(1)</script>"
    artifact = keep(ledger, page, name="report.html", media_type="text/html")
    answer = api.get(f"/artifacts/{artifact.sha256}")
    assert answer.content == page
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-disposition"] == 'attachment; filename="report.html"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["etag"] == f'"{hashlib.sha256(page).hexdigest()}"'


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("../../etc/passwd", 'filename="passwd"'),
        ("..\\..\\boot.ini", 'filename="boot.ini"'),
        ("/", "filename="),
        ("..", "filename="),
        ("", "filename="),
        ('a"; evil="b', "filename*=utf-8''a%22%3B%20evil%3D%22b"),
        ("new\r\nSet-Cookie: a=b", "filename*=utf-8''new%0D%0ASet-Cookie%3A%20a%3Db"),
        ("nul\x00", "filename*=utf-8''nul%EF%BF%BD"),
        ("größe.txt", "filename*=utf-8''gr%C3%B6%C3%9Fe.txt"),
    ],
)
def test_a_name_leads_nowhere(api: TestClient, ledger: Ledger, name: str, told: str) -> None:
    artifact = keep(ledger, name=name)
    answer = api.get(f"/artifacts/{artifact.sha256}")
    assert answer.content == b"content"
    assert answer.headers["content-disposition"].startswith(f"attachment; {told}")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("media_type", ["", "nonsense", "text/html\r\nSet-Cookie: a=b", "a/b; c=\x00", "ä/b"])
def test_a_type_that_is_none_is_left_out(api: TestClient, ledger: Ledger, media_type: str) -> None:
    artifact = keep(ledger, media_type=media_type)
    answer = api.get(f"/artifacts/{artifact.sha256}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")


@pytest.mark.parametrize("times", [1, 10_000])
def test_a_part_can_be_asked_for(api: TestClient, ledger: Ledger, times: int) -> None:
    artifact = keep(ledger, b"0123456789" * times)
    answer = api.get(f"/artifacts/{artifact.sha256}", headers={"Range": "bytes=2-4"})
    assert (answer.status_code, answer.content) == (206, b"234")


def test_only_a_hash_of_something_kept_is_found(api: TestClient, ledger: Ledger) -> None:
    kept = keep(ledger, b"large" * 20_000)
    for name in ("0" * 64, kept.sha256.upper(), kept.sha256[:63], kept.sha256 + "0", "..%2f..%2fledger.db"):
        assert api.get(f"/artifacts/{name}").status_code == 404
    ledger.artifacts.path(kept.sha256).unlink()
    assert api.get(f"/artifacts/{kept.sha256}").status_code == 404


def test_artifacts_are_listed_per_run_and_attempt(api: TestClient, ledger: Ledger) -> None:
    with ledger.write() as tx:
        run_id = create_run(tx, "workflow", "w")
        change_run(tx, run_id, RunStatus.RUNNING)
        [step_id] = create_steps(tx, run_id, [("one", {})])
        change_step(tx, step_id, StepStatus.RUNNING)
        attempt_id = open_attempt(tx, get_step(tx, step_id))
    for index in range(3):
        keep(ledger, b"%d" % index, name=f"f{index}", run_id=run_id, attempt_id=attempt_id)
    keep(ledger, name="of-run-only", run_id=run_id)
    of_attempt = api.get(f"/attempts/{attempt_id}/artifacts?limit=2").json()
    assert [each["name"] for each in of_attempt["items"]] == ["f2", "f1"]
    rest = api.get(f"/attempts/{attempt_id}/artifacts", params={"before": of_attempt["next"]}).json()
    assert ([each["name"] for each in rest["items"]], rest["next"]) == (["f0"], None)
    assert len(api.get(f"/runs/{run_id}/artifacts").json()["items"]) == 4
