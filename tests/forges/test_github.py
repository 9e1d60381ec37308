"""GitHub, asked by REST: a stand-in answers on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate

import pytest

from ratchet.config import load_settings
from ratchet.forges import (
    CheckState,
    ForgeCheck,
    ForgeError,
    ForgeForbidden,
    ForgeRefused,
    NotThere,
    PullRequestState,
    RateLimited,
    Unauthenticated,
    Unreachable,
    open_forge,
)
from tests.forges.asking import Asking
from tests.forges.github_stand_in import GitHubStandIn

COMMIT = "a" * 40


def forge_at(url: str, repository: str = "acme/demo", token: str = GitHubStandIn.token) -> Asking:
    settings = load_settings({"protocols.github_url": url}, env={}).settings
    return Asking(open_forge(settings, "github", f"github.com/{repository}", token, environment={}))


def test_a_draft_is_opened_for_a_branch(github: GitHubStandIn) -> None:
    made = forge_at(github.url).open(branch="0007-login", base="develop", title="Login", body="words")
    assert (made.number, made.draft, made.state, made.base) == (1, True, PullRequestState.OPEN, "develop")
    assert made.as_json()["url"] == "https://github.com/acme/demo/pull/1"
    assert github.pulls[1]["body"] == "words"


def test_a_branch_that_has_a_pull_request_gets_no_second_one(github: GitHubStandIn) -> None:
    forge = forge_at(github.url)
    assert forge.open() == forge.open()
    assert len(github.asked("POST")) == 1


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"state": "closed"}, PullRequestState.CLOSED),
        ({"state": "closed", "merged_at": "2025-01-01T00:00:00Z"}, PullRequestState.MERGED),
    ],
)
def test_a_pull_request_that_was_dealt_with_is_shown_and_not_opened_anew(
    github: GitHubStandIn, change: dict[str, str], state: PullRequestState
) -> None:
    github.add_pull("0007-login", **change)
    found = forge_at(github.url).open(branch="0007-login", base="main", title="Login", body="")
    assert (found.number, found.state) == (1, state)
    assert github.asked("POST") == []


def test_an_open_pull_request_goes_before_a_newer_closed_one(github: GitHubStandIn) -> None:
    github.add_pull("0007-login")
    github.add_pull("0007-login", state="closed")
    found = forge_at(github.url).find("0007-login")
    assert found is not None
    assert found.number == 1


def test_the_pull_request_of_a_fork_is_not_that_of_the_branch(github: GitHubStandIn) -> None:
    github.add_pull("0007-login", fork="stranger/demo")
    assert forge_at(github.url).find("0007-login") is None


def test_a_filter_that_is_ignored_does_not_find_another_branch(github: GitHubStandIn) -> None:
    github.say_next(200, [github.add_pull("0001-other")])
    assert forge_at(github.url).find("0007-login") is None


def test_a_refusal_counts_as_success_only_when_the_pull_request_is_there(github: GitHubStandIn) -> None:
    forge = forge_at(github.url)
    # Nothing is found at first; somebody else opens it before this one asks.
    github.say_next(200, [])
    github.add_pull("0007-login", title="by somebody else")
    found = forge.open(branch="0007-login", base="main", title="Login", body="")
    assert found.title == "by somebody else"
    github.pulls.clear()
    github.branches = lambda: ["main"]
    with pytest.raises(ForgeRefused, match="422"):
        forge.open()


def test_two_who_open_at_once_make_one_pull_request(github: GitHubStandIn) -> None:
    forge = forge_at(github.url)
    first, second = forge.open_twice_at_once()
    assert first == second
    assert len(github.pulls) == 1


def test_where_there_are_no_drafts_a_plain_one_is_opened(github: GitHubStandIn) -> None:
    github.drafts = False
    made = forge_at(github.url).open(branch="b", base="main", title="t", body="")
    assert made.draft is False
    assert len(github.pulls) == 1


def test_words_are_changed_and_a_draft_becomes_ready(github: GitHubStandIn) -> None:
    forge = forge_at(github.url)
    github.add_pull("0007-login", draft=True, body="old")
    changed = forge.update(1, title="New", body="new")
    assert (changed.title, changed.draft, github.pulls[1]["body"]) == ("New", True, "new")
    assert (forge.mark_ready(1)).draft is False
    assert github.pulls[1]["draft"] is False
    # What is ready needs no further word.
    asked = len(github.asked("POST", "/graphql"))
    forge.mark_ready(1)
    assert len(github.asked("POST", "/graphql")) == asked


def test_a_draft_that_stays_one_is_an_error(github: GitHubStandIn) -> None:
    github.add_pull("0007-login", draft=True, node_id="unknown")
    github.say_next(200, {**github.pulls[1], "node_id": "PR_99"})
    with pytest.raises(ForgeRefused, match="Could not resolve"):
        forge_at(github.url).mark_ready(1)


def test_check_runs_and_statuses_of_a_commit_are_read(github: GitHubStandIn) -> None:
    github.check_runs += [
        {"name": "test", "head_sha": COMMIT, "status": "completed", "conclusion": "failure", "html_url": "u"},
        {"name": "lint", "head_sha": COMMIT, "status": "in_progress", "conclusion": None},
        {"name": "docs", "head_sha": COMMIT, "status": "completed", "conclusion": "skipped"},
    ]
    github.statuses.append({"context": "legacy", "state": "success", "target_url": None})
    assert forge_at(github.url).checks(COMMIT) == (
        ForgeCheck("test", CheckState.FAILED, "u"),
        ForgeCheck("lint", CheckState.PENDING, None),
        ForgeCheck("docs", CheckState.NEUTRAL, None),
        ForgeCheck("legacy", CheckState.PASSED, None),
    )


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (401, {}, Unauthenticated),
        (403, {}, ForgeForbidden),
        (403, {"x_ratelimit_remaining": "0"}, RateLimited),
        (403, {"retry_after": "7"}, RateLimited),
        (429, {}, RateLimited),
        (404, {}, NotThere),
        (301, {"location": "http://127.0.0.1:1/elsewhere"}, NotThere),
        (500, {}, Unreachable),
        (400, {}, ForgeRefused),
    ],
)
def test_each_refusal_has_a_type_and_says_what_to_do(
    github: GitHubStandIn, status: int, headers: dict[str, str], error: type[ForgeError]
) -> None:
    github.say_next(status, {"message": f"no, {github.token} is not enough"}, **headers)
    with pytest.raises(error) as told:
        forge_at(github.url).open()
    assert type(told.value) is error
    assert told.value.hint or error is ForgeRefused
    assert github.token not in str(told.value)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        (lambda: {"retry_after": "7"}, 7, 7),
        (lambda: {"retry_after": formatdate(time.time() + 3000, usegmt=True)}, 2000, 3000),
        (lambda: {"x_ratelimit_reset": str(int(time.time()) + 3000)}, 2000, 3000),
        (lambda: {"retry_after": "soon"}, 60, 60),
        (dict, 60, 60),
    ],
    ids=["seconds", "date", "reset", "unclear", "unsaid"],
)
def test_a_limit_says_when_to_ask_again(
    github: GitHubStandIn, headers: Callable[[], dict[str, str]], least: float, most: float
) -> None:
    github.say_next(429, None, **headers())
    with pytest.raises(RateLimited) as told:
        forge_at(github.url).find("b")
    assert least <= told.value.seconds <= most


def test_the_token_goes_to_the_forge_alone(github: GitHubStandIn, gitlab: object) -> None:
    with GitHubStandIn() as other:
        github.say_next(307, None, location=f"{other.url}/repos/acme/demo/pulls")
        with pytest.raises(NotThere, match="moved"):
            forge_at(github.url).open()
        assert other.requests == []


def test_a_forge_that_is_gone_is_unreachable() -> None:
    with GitHubStandIn() as gone:
        url = gone.url
    with pytest.raises(Unreachable, match="cannot be reached"):
        forge_at(url).open()


@pytest.mark.parametrize(
    "value", [None, [], {}, "text", [1], {"number": "1", "html_url": 3}, {"number": True}]
)
def test_an_answer_that_is_no_pull_request_is_an_error(github: GitHubStandIn, value: object) -> None:
    github.say_next(200, value)
    with pytest.raises(Unreachable):
        forge_at(github.url).update(1, title="t")


def test_a_repository_that_is_not_shown_is_not_there(github: GitHubStandIn) -> None:
    with pytest.raises(NotThere, match="acme/hidden"):
        forge_at(github.url, "acme/hidden").open()
