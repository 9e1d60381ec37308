"""The artifact store is tried for real."""

from __future__ import annotations

from pathlib import Path

from ratchet.config import Loaded, load_settings
from ratchet.doctor import artifact_store
from ratchet.ledger.bucket import Bucket
from tests.s3 import S3Server


def loaded(home: Path, url: str | None) -> Loaded:
    return load_settings({"home": str(home), "artifacts.url": url}, env={})


def test_without_a_store_nothing_is_said(tmp_path: Path) -> None:
    assert artifact_store(loaded(tmp_path, None)) == []


def test_a_store_that_works_keeps_a_probe_and_is_left_empty(tmp_path: Path, s3: S3Server) -> None:
    url = s3.new_bucket()
    [found] = artifact_store(loaded(tmp_path, url))
    assert (found.name, found.status) == ("artifact store", "ok")
    assert list(Bucket(url).objects()) == []


def test_a_bucket_that_is_not_there_is_named(tmp_path: Path, s3: S3Server) -> None:
    url = s3.new_bucket().replace("s3://", "s3://no-")
    [found] = artifact_store(loaded(tmp_path, url))
    assert found.status == "fail"
    assert url in found.detail
    assert "artifacts.url" in (found.fix or "")
