"""Which forge a repository is on, and by which way it is asked."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import Settings, load_settings
from ratchet.forges import (
    NoForge,
    PullRequestState,
    RateLimited,
    Unauthenticated,
    Unreachable,
    open_forge,
    provider_of,
)
from ratchet.forges.api import ProgramApi
from ratchet.forges.webhooks import _graphql
from tests.forges.asking import Asking
from tests.waiting import eventually

# Answers as `gh api --include` and `glab api --include` do, and writes down what it was asked.
PROGRAM = """\
#!/usr/bin/env python3
import json, os, sys
from pathlib import Path

place = Path(__file__).parent
words = sys.argv[1:]
given = sys.stdin.read() if "-" in words else ""
with (place / "asked.jsonl").open("a") as log:
    log.write(json.dumps({"words": words, "given": given, "environment": dict(os.environ), "cwd": os.getcwd()}) + "\\n")
if words[0] == "auth":
    print("a-secret-token")
    sys.exit(int((place / "login").read_text()))
status, value = json.loads((place / "answers").read_text()).pop(0) if (place / "answers").exists() else (200, [])
if status == 0:
    print("error connecting to github.com", file=sys.stderr)
    sys.exit(1)
if status == 4:
    sys.exit(4)
sys.stdout.write(f"HTTP/2.0 {status} Whatever\\n")
sys.stdout.write("Content-Type: application/json\\r\\nRetry-After: 11\\r\\n\\r\\n" + json.dumps(value))
sys.exit(0 if status < 300 else 1)
"""


def settings(**values: object) -> Settings:
    return load_settings(values, env={}).settings


class Program:
    """A `gh` or `glab` of the test."""

    def __init__(self, place: Path, name: str) -> None:
        self.place = place
        file = place / name
        file.write_text(PROGRAM)
        file.chmod(0o755)
        self.log_in()

    def log_in(self, code: int = 0) -> None:
        (self.place / "login").write_text(str(code))

    def answer(self, status: int, value: object) -> None:
        (self.place / "answers").write_text(json.dumps([[status, value]]))

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.place / "asked.jsonl").read_text().splitlines()]

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.place}:{os.environ['PATH']}", "RATCHET_SERVER_TOKEN": "not for others"}


PULL = {
    "number": 3,
    "html_url": "https://github.com/acme/demo/pull/3",
    "state": "open",
    "draft": True,
    "head": {"ref": "b", "repo": {"full_name": "acme/demo"}},
    "base": {"ref": "main"},
    "title": "t",
}


def test_without_a_token_the_program_of_the_forge_is_asked(tmp_path: Path) -> None:
    gh = Program(tmp_path, "gh")
    gh.answer(200, [PULL])
    forge = Asking(open_forge(settings(), "github", "github.com/acme/demo", None, environment=gh.environment))
    found = forge.find("b")
    assert found is not None
    assert (found.number, found.state) == (3, PullRequestState.OPEN)
    login, request = gh.asked
    assert login["words"] == ["auth", "token", "--hostname", "github.com"]
    assert request["words"][:6] == ["api", "--include", "--hostname", "github.com", "--method", "GET"]
    assert request["words"][6].startswith("repos/acme/demo/pulls?head=acme%3Ab&state=all")
    assert request["cwd"] == "/"


def test_what_is_sent_goes_over_the_input_and_nobody_is_asked_anything(tmp_path: Path) -> None:
    gh = Program(tmp_path, "gh")
    gh.answer(200, PULL)
    forge = Asking(open_forge(settings(), "github", "github.com/acme/demo", None, environment=gh.environment))
    forge.update(3, title="--not-an-option; $(rm)")
    request = gh.asked[-1]
    assert request["words"][4:] == [
        "--method",
        "PATCH",
        "--header",
        "Content-Type: application/json",
        "--input",
        "-",
        "repos/acme/demo/pulls/3",
    ]
    assert json.loads(request["given"]) == {"title": "--not-an-option; $(rm)"}
    assert request["environment"]["GH_PROMPT_DISABLED"] == "1"
    assert "RATCHET_SERVER_TOKEN" not in request["environment"]


def test_the_program_of_gitlab_is_asked_for_its_own_host(tmp_path: Path) -> None:
    glab = Program(tmp_path, "glab")
    where = settings(**{"protocols.gitlab_url": "https://gitlab.example.org/api/v4"})
    key = "gitlab.example.org/group/sub/demo"
    forge = Asking(open_forge(where, "gitlab", key, None, environment=glab.environment))
    assert forge.find("b") is None
    login, request = glab.asked
    assert login["words"] == ["auth", "status", "--hostname", "gitlab.example.org"]
    assert request["words"][6].startswith("projects/group%2Fsub%2Fdemo/merge_requests?source_branch=b")
    assert request["environment"]["NO_PROMPT"] == "1"


@pytest.mark.parametrize(
    ("status", "error"), [(0, Unreachable), (4, Unauthenticated), (401, Unauthenticated)]
)
def test_a_program_without_an_answer_says_what_to_do(
    tmp_path: Path, status: int, error: type[Exception]
) -> None:
    gh = Program(tmp_path, "gh")
    gh.answer(status, {"message": "Bad credentials"})
    forge = Asking(open_forge(settings(), None, "github.com/acme/demo", None, environment=gh.environment))
    with pytest.raises(error) as told:
        forge.find("b")
    assert "gh auth" in str(told.value.hint)  # type: ignore[attr-defined]


def test_headers_of_an_answer_are_read_from_what_the_program_shows(tmp_path: Path) -> None:
    gh = Program(tmp_path, "gh")
    gh.answer(429, {})
    forge = Asking(open_forge(settings(), None, "github.com/acme/demo", None, environment=gh.environment))
    with pytest.raises(RateLimited) as told:
        forge.find("b")
    assert told.value.seconds == 11


def test_nobody_being_logged_in_is_told_with_both_ways_out(tmp_path: Path) -> None:
    gh = Program(tmp_path, "gh")
    gh.log_in(1)
    with pytest.raises(Unauthenticated) as told:
        open_forge(settings(), "github", "github.com/acme/demo", None, environment=gh.environment)
    assert "forge_token" in str(told.value.hint)
    assert "gh auth login --hostname github.com" in str(told.value.hint)


def test_a_token_of_the_project_goes_before_whoever_is_logged_in(tmp_path: Path) -> None:
    gh = Program(tmp_path, "gh")
    open_forge(settings(), "github", "github.com/acme/demo", "token", environment=gh.environment)
    assert not (tmp_path / "asked.jsonl").exists()


def test_a_login_at_the_forge_is_not_used_for_another_address(tmp_path: Path) -> None:
    gh = Program(tmp_path, "gh")
    elsewhere = settings(**{"protocols.github_url": "http://127.0.0.1:9"})
    with pytest.raises(Unauthenticated):
        open_forge(elsewhere, "github", "github.com/acme/demo", None, environment=gh.environment)
    assert not (tmp_path / "asked.jsonl").exists()


@pytest.mark.parametrize("provider", ["github", "gitlab"])
def test_a_token_of_one_forge_is_not_sent_to_another(provider: str) -> None:
    with pytest.raises(NoForge, match=r"git\.example\.org") as told:
        open_forge(settings(), provider, "git.example.org/acme/demo", "token", environment={})
    assert f"protocols.{provider}_url" in str(told.value.hint)


@pytest.mark.parametrize("key", [None, "", "/srv/git/demo", "github.com", "github.com/demo"])
def test_what_is_on_no_forge_has_none(key: str | None) -> None:
    with pytest.raises(NoForge):
        open_forge(settings(), "github", key, "token", environment={})


@pytest.mark.parametrize("provider", [None, "bitbucket"])
def test_a_forge_that_is_not_known_is_told(provider: str | None) -> None:
    with pytest.raises(NoForge) as told:
        open_forge(settings(), provider, "git.example.org/acme/demo", "token", environment={})
    assert "ci_provider" in str(told.value.hint)


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("github.com", "github"),
        ("gitlab.com", "gitlab"),
        ("gitlab.example.org:8443", "gitlab"),
        ("git.io", None),
    ],
)
def test_hosts_tell_what_they_are(host: str, provider: str | None) -> None:
    assert provider_of(host) == provider


def test_graphql_is_beside_the_rest_interface_of_a_server_of_ones_own() -> None:
    assert _graphql("https://api.github.com") == "https://api.github.com/graphql"
    assert _graphql("https://git.example.org/api/v3/") == "https://git.example.org/api/graphql"


HANGING = """\
#!/bin/sh
sleep 1000 &
echo $$ $! > "$PLACE"
wait
"""


def hanging(place: Path) -> tuple[str, Path]:
    program = place / "gh"
    program.write_text(HANGING.replace("$PLACE", str(place / "pids")))
    program.chmod(0o755)
    return str(program), place / "pids"


def test_a_program_that_hangs_is_given_up(tmp_path: Path) -> None:
    program, _ = hanging(tmp_path)
    api = ProgramApi("github", program, "github.com", {}, seconds=0.1)
    with pytest.raises(Unreachable, match="did not end"):
        asyncio.run(api.ask("GET", "user"))


def test_a_program_is_killed_with_its_children_when_nobody_wants_its_answer(tmp_path: Path) -> None:
    program, pids = hanging(tmp_path)

    async def scenario() -> None:
        asked = asyncio.create_task(ProgramApi("github", program, "github.com", {}).ask("GET", "user"))
        await asyncio.to_thread(eventually, lambda: pids.exists() and pids.read_text().endswith("\n"))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(scenario())
    for pid in pids.read_text().split():
        eventually(lambda pid=pid: gone(int(pid)))  # type: ignore[misc]


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for has, too."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
