"""The numbers of versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.kernel import Misuse
from ratchet.kernel.semver import Bump, Semver, bumped, is_semver, parse

NUMBERS = st.integers(0, 10_000)


@pytest.mark.parametrize(
    ("bump", "after"), [(Bump.PATCH, "1.2.4"), (Bump.MINOR, "1.3.0"), (Bump.MAJOR, "2.0.0")]
)
def test_a_bump_resets_what_is_below_it(bump: Bump, after: str) -> None:
    assert bumped("1.2.3", bump) == after


def test_bumps_are_read_from_words_and_ordered_by_size() -> None:
    assert [Bump(word) for word in ("patch", "minor", "major")] == sorted(Bump)
    assert max(Bump.MINOR, Bump.MAJOR, Bump.PATCH) is Bump.MAJOR
    assert f"{Bump.MINOR}" == "minor"


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(Bump))
def test_the_next_version_is_greater(major: int, minor: int, patch: int, bump: Bump) -> None:
    version = Semver(major, minor, patch)
    assert parse(str(version)) == version
    assert parse(bumped(str(version), bump)) > version


def test_versions_are_ordered_as_numbers() -> None:
    assert parse("0.10.0") > parse("0.9.9")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "1.2.3.4",
        "v1.2.3",
        "01.2.3",
        "1.2.3-rc1",
        "1.2.3\n",
        "-1.0.0",
        "1.2.٣",
        "9" * 5000 + ".0.0",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    assert not is_semver(text)
    with pytest.raises(Misuse) as raised:
        parse(text)
    assert len(str(raised.value)) < 200
