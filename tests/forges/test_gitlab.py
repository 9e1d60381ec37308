"""GitLab, asked by REST: a stand-in answers on this machine."""

from __future__ import annotations

import pytest

from ratchet.config import load_settings
from ratchet.forges import (
    CheckState,
    ForgeCheck,
    ForgeRefused,
    NotThere,
    PullRequestState,
    Unauthenticated,
    open_forge,
)
from tests.forges.asking import Asking
from tests.forges.gitlab_stand_in import GitLabStandIn

COMMIT = "b" * 40


def forge_at(stand_in: GitLabStandIn, token: str = GitLabStandIn.token) -> Asking:
    settings = load_settings({"protocols.gitlab_url": stand_in.api}, env={}).settings
    return Asking(open_forge(settings, "gitlab", f"gitlab.com/{stand_in.repository}", token, environment={}))


def test_a_draft_is_opened_once(gitlab: GitLabStandIn) -> None:
    forge = forge_at(gitlab)
    wanted = {"branch": "0007-login", "base": "main", "title": "Login", "body": "words"}
    first = forge.open(**wanted)
    assert (first.number, first.draft, first.title) == (1, True, "Draft: Login")
    assert first.provider == "gitlab"
    assert forge.open(**wanted) == first
    assert len(gitlab.asked("POST")) == 1


def test_two_who_open_at_once_make_one_merge_request(gitlab: GitLabStandIn) -> None:
    forge = forge_at(gitlab)
    first, second = forge.open_twice_at_once()
    assert first == second


def test_a_conflict_counts_as_success_only_when_the_merge_request_is_there(
    gitlab: GitLabStandIn,
) -> None:
    forge = forge_at(gitlab)
    gitlab.say_next(200, [])
    gitlab.say_next(409, {"message": ["Another open merge request already exists"]})
    with pytest.raises(ForgeRefused, match="409"):
        forge.open(branch="b", base="main", title="t", body="")


def test_the_merge_request_of_a_fork_is_not_that_of_the_branch(gitlab: GitLabStandIn) -> None:
    gitlab.add_merge_request("0007-login", source_project_id=6)
    assert forge_at(gitlab).find("0007-login") is None


def test_a_draft_keeps_being_one_until_it_is_ready(gitlab: GitLabStandIn) -> None:
    forge = forge_at(gitlab)
    gitlab.add_merge_request("0007-login", title="[Draft] Login")
    changed = forge.update(1, title="Sign in", body="more")
    assert (changed.title, changed.draft) == ("Draft: Sign in", True)
    ready = forge.mark_ready(1)
    assert (ready.title, ready.draft) == ("Sign in", False)
    assert forge.mark_ready(1) == ready
    assert gitlab.merge_requests[1]["description"] == "more"


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("merged", PullRequestState.MERGED),
        ("closed", PullRequestState.CLOSED),
        ("locked", PullRequestState.OPEN),
    ],
)
def test_states_are_read(gitlab: GitLabStandIn, word: str, state: PullRequestState) -> None:
    gitlab.add_merge_request("b", state=word)
    found = forge_at(gitlab).find("b")
    assert found is not None
    assert found.state is state


def test_statuses_of_a_commit_are_read(gitlab: GitLabStandIn) -> None:
    gitlab.statuses += [
        {"sha": COMMIT, "name": "test", "status": "failed", "target_url": "https://gitlab.com/1"},
        {"sha": COMMIT, "name": "flaky", "status": "failed", "allow_failure": True},
        {"sha": COMMIT, "name": "deploy", "status": "manual"},
    ]
    assert forge_at(gitlab).checks(COMMIT) == (
        ForgeCheck("test", CheckState.FAILED, "https://gitlab.com/1"),
        ForgeCheck("flaky", CheckState.NEUTRAL, None),
        ForgeCheck("deploy", CheckState.PENDING, None),
    )


def test_a_wrong_token_and_a_missing_one_are_told_apart_from_what_is_not_there(
    gitlab: GitLabStandIn,
) -> None:
    with pytest.raises(Unauthenticated):
        forge_at(gitlab, "wrong").find("b")
    with pytest.raises(NotThere):
        forge_at(gitlab).update(9, title="t")
