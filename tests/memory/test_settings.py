from __future__ import annotations

import pytest
from pydantic import ValidationError

from ratchet.config.workflow_settings import MemorySettings, Qdrant


def test_by_default_the_memory_is_a_file() -> None:
    assert MemorySettings().store == "sqlite"


def test_qdrant_needs_an_address() -> None:
    with pytest.raises(ValidationError, match=r"qdrant\.url is not set"):
        MemorySettings(store="qdrant")


@pytest.mark.parametrize("url", ["127.0.0.1:6333", "ftp://host", "http://me:hush@host"])
def test_an_address_must_be_http_and_carry_no_password(url: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Qdrant(url=url)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("collection", ["", "..", "a/b", "a b", "x" * 201, "é"])
def test_a_collection_has_a_plain_name(collection: str) -> None:
    with pytest.raises(ValidationError):
        Qdrant(collection=collection)
