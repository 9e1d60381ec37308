"""Forges that run on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.forges.github_stand_in import GitHubStandIn
from tests.forges.gitlab_stand_in import GitLabStandIn


@pytest.fixture
def github() -> Iterator[GitHubStandIn]:
    with GitHubStandIn() as started:
        yield started


@pytest.fixture
def gitlab() -> Iterator[GitLabStandIn]:
    with GitLabStandIn() as started:
        yield started
