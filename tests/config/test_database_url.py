from __future__ import annotations

import pytest

from ratchet.config import DatabaseUrl
from ratchet.kernel import ConfigError
from tests.config.conftest import Place


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_postgresql_is_accepted_under_both_names(scheme: str) -> None:
    url = DatabaseUrl.parse(f"{scheme}://u@h:5432/db")
    assert (url.reveal(), url.dialect, url.path) == ("postgresql://u@h:5432/db", "postgresql", None)


def test_a_relative_sqlite_path_starts_at_the_home(place: Place) -> None:
    url = place.load("database_url = 'sqlite:///other.db'").settings.database_url
    assert (url.dialect, url.path) == ("sqlite", place.home / "other.db")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mysql://u:hidden@h/db", "has the scheme 'mysql'"),
        ("postgresql+asyncpg://u:hidden@h/db", "Ratchet chooses the driver itself"),
        ("ledger.db", "is not a URL"),
        ("sqlite://", "three slashes"),
        ("sqlite://ledger.db", "three slashes"),
        ("sqlite:///:memory:", "would be lost with the process"),
        ("sqlite:///", "would be lost with the process"),
        ("postgresql://u:hid/den@h/db", "a port that is not a number"),
    ],
)
def test_another_address_is_refused_with_the_reason_and_without_the_password(
    place: Place, text: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load(env={"RATCHET_DATABASE_URL": text})
    assert str(caught.value).startswith("RATCHET_DATABASE_URL ")
    assert reason in str(caught.value)
    assert "hid" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:hidden@h/db",
        "postgresql://u:hid@den@h/db",
        "postgresql://h/db?user=u&password=hidden",
        "postgresql://:hidden@/db",
    ],
)
def test_the_password_is_never_printed(text: str) -> None:
    url = DatabaseUrl.parse(text)
    assert url.reveal() == text
    assert "********" in str(url)
    assert all("hid" not in shown for shown in (str(url), repr(url), f"{url}"))


@pytest.mark.parametrize("name", ["password", "sslpassword", "passw%6Frd", "PASSWORD"])
def test_a_password_in_the_query_is_not_shown(name: str) -> None:
    url = DatabaseUrl.parse(f"postgresql://u@h/db?{name}=hidden&application_name=shop")
    assert ("hidden" in str(url), "hidden" in repr(url)) == (False, False)
    assert (str(url).endswith("application_name=shop"), "hidden" in url.reveal()) == (True, True)
