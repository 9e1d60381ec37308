"""Real packages from their registries get from a download to a first protocol with no file edited by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.package_walk import Unreachable, Walk, walk

PACKAGES = ["itsdangerous", "click", "tomlkit", "toolz", "npm:qs"]


def test_each_stage_is_booked_with_the_time_that_it_took() -> None:
    told = Walk("click", began=100.0)
    told.passed("baseline", at=103.0)
    told.passed("protocol", at=110.5)
    assert told.seconds == {"baseline": 3.0, "protocol": 7.5}


@pytest.mark.soak
@pytest.mark.parametrize("package", PACKAGES)
def test_a_real_package_is_set_up_checked_as_it_is_and_changed(package: str, tmp_path: Path) -> None:
    try:
        told = walk(package, tmp_path)
    except Unreachable as error:
        pytest.skip(str(error))
    assert told.through, told
