"""report.sh against a real server: what it sends is valid, signed, and read as it was meant."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ratchet.forges.forge import CheckState
from ratchet.forges.webhooks import Delivery
from tests.projects.assets.conftest import run_script
from tests.workspaces.conftest import git

SECRET = "a secret with 'quotes', \\ and €"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HOSTILE = """feat/"quo'te"$(touch pwned)`id`\\n\N{SNOWMAN}{};&|<>"""


class Inbox(ThreadingHTTPServer):
    """Takes what is posted to it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, Delivery]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Inbox

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        provider = "gitlab" if "gitlab" in self.path else "github"
        self.server.requests.append((self.path, Delivery.of(provider, dict(self.headers), body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with Inbox() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ci(inbox: Inbox, **more: str) -> dict[str, str]:
    return {
        "RATCHET_URL": inbox.url + "/",
        "RATCHET_WEBHOOK_SECRET": SECRET,
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_SHA": COMMIT,
        "GITHUB_REF_NAME": HOSTILE,
        "GITHUB_JOB": "test",
        **more,
    }


def test_a_success_is_signed_and_names_check_commit_branch_and_repository(
    written: Path, inbox: Inbox
) -> None:
    done = run_script(written, "report", "success", **ci(inbox))
    assert done.returncode == 0, done.stderr
    [(path, delivery)] = inbox.requests
    event = delivery.read()
    assert path == "/webhooks/github"
    assert delivery.is_signed_with(SECRET)
    assert not delivery.is_signed_with(SECRET + "x")
    assert (event.check, event.state, event.commit) == ("test", CheckState.PASSED, COMMIT)
    assert event.branches == (HOSTILE,)
    assert event.repository == "https://github.com/owner/name.git"
    assert "authorization" not in delivery.headers
    assert not (written / "pwned").exists()


def test_gitlab_gets_the_shape_and_the_token_of_gitlab(written: Path, inbox: Inbox) -> None:
    done = run_script(
        written,
        "report",
        "failed",
        "test",
        RATCHET_URL=inbox.url,
        RATCHET_WEBHOOK_SECRET="plain-secret",
        GITLAB_CI="true",
        CI_COMMIT_SHA=COMMIT,
        CI_COMMIT_REF_NAME=HOSTILE,
        RATCHET_CI_REPOSITORY="https://gitlab-ci-token:hush@gitlab.example.org/g/p.git",
    )
    assert done.returncode == 0, done.stderr
    [(path, delivery)] = inbox.requests
    event = delivery.read()
    assert path == "/webhooks/gitlab"
    assert delivery.is_signed_with("plain-secret")
    assert (event.check, event.state, event.commit) == ("test", CheckState.FAILED, COMMIT)
    assert event.branches == (HOSTILE,)
    assert event.repository == "https://gitlab.example.org/g/p.git"
    assert b"hush" not in delivery.body


@pytest.mark.parametrize("secret", ["s", "-x", "k" * 64, "k" * 65, "k" * 200, "%d\\x41 \u20ac"])
def test_any_secret_signs_as_hmac_does(written: Path, inbox: Inbox, secret: str) -> None:
    run_script(written, "report", "success", **ci(inbox, RATCHET_WEBHOOK_SECRET=secret))
    assert inbox.requests[0][1].is_signed_with(secret)


def test_python_signs_where_there_is_no_openssl(written: Path, inbox: Inbox, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    for name in ["bash", "cat", "curl", "date", "dirname", "git", "iconv", "od", "sed", "tail", "tr", "awk"]:
        found = shutil.which(name)
        assert found is not None, name
        (programs / name).symlink_to(found)
    done = run_script(written, "report", "success", **ci(inbox, PATH=str(programs)))
    assert done.returncode == 0, done.stderr
    assert inbox.requests[0][1].is_signed_with(SECRET)


@pytest.mark.parametrize("provider", ["github", "gitlab"])
def test_a_failure_brings_the_end_of_what_the_scripts_printed(
    written: Path, inbox: Inbox, provider: str
) -> None:
    (written / ".git").mkdir()
    log = "x" * 9000 + '\n\x1b[31mE  assert "a\\b" == 1\x1b[0m\tred\n\x00\x07last \xff line\n'
    (written / ".git" / "ratchet-ci.log").write_bytes(log.encode("latin-1"))
    run_script(written, "report", "failure", **ci(inbox, RATCHET_CI_PROVIDER=provider))
    told = inbox.requests[0][1].read().trouble.log_tail
    assert told is not None
    assert told.endswith('\nE  assert "a\\b" == 1 red\nlast  line')
    assert len(told) < 6001


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("success", CheckState.PASSED),
        ("failure", CheckState.FAILED),
        ("cancelled", CheckState.FAILED),
        ("", CheckState.FAILED),
        ("Success!", CheckState.FAILED),
        ("running", CheckState.PENDING),
    ],
)
def test_only_success_is_a_success(written: Path, inbox: Inbox, said: str, state: CheckState) -> None:
    run_script(written, "report", said, **ci(inbox))
    assert inbox.requests[0][1].read().state is state


def test_each_delivery_has_an_id_of_its_own(written: Path, inbox: Inbox) -> None:
    for _ in range(2):
        run_script(written, "report", "success", **ci(inbox))
    one, other = (delivery.read().delivery for _, delivery in inbox.requests)
    assert one != other


def test_the_old_names_of_the_variables_work_and_a_run_can_be_named(written: Path, inbox: Inbox) -> None:
    old = {
        "RATCHET_URL": "",
        "RATCHET_WEBHOOK_SECRET": "",
        "TASKSGODZILLA_API_BASE": inbox.url,
        "TASKSGODZILLA_WEBHOOK_TOKEN": SECRET,
        "TASKSGODZILLA_PROTOCOL_RUN_ID": "7",
        "TASKSGODZILLA_BRANCH": "0007-add-login",
    }
    run_script(written, "report", "success", **ci(inbox, **old))
    [(path, delivery)] = inbox.requests
    assert path == "/webhooks/github?protocol_run_id=7"
    assert delivery.is_signed_with(SECRET)
    assert delivery.read().branches == ("0007-add-login",)


def test_a_branch_that_is_no_utf_8_still_makes_json(written: Path, inbox: Inbox) -> None:
    run_script(written, "report", "success", **ci(inbox, GITHUB_REF_NAME="caf\udce9\x01\n-x"))
    assert json.loads(inbox.requests[0][1].body)["branches"][0]["name"] == "caf\n-x"


@pytest.mark.parametrize(
    "broken",
    [
        {"RATCHET_URL": ""},
        {"RATCHET_WEBHOOK_SECRET": ""},
        {"RATCHET_URL": "file:///etc/passwd"},
        {"RATCHET_URL": "http://127.0.0.1:1"},
    ],
)
def test_what_cannot_be_reported_never_fails_the_build(
    written: Path, inbox: Inbox, broken: dict[str, str]
) -> None:
    done = run_script(written, "report", "success", **ci(inbox, **broken))
    assert done.returncode == 0
    assert done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert inbox.requests == []


def test_a_server_that_refuses_never_fails_the_build(written: Path, inbox: Inbox) -> None:
    inbox.status = 401
    done = run_script(written, "report", "success", **ci(inbox))
    assert done.returncode == 0
    assert "could not be reported" in done.stderr


def test_without_a_status_nothing_is_said(written: Path, inbox: Inbox) -> None:
    assert run_script(written, "report", **ci(inbox)).returncode == 0
    assert inbox.requests == []


def test_the_commit_and_branch_of_the_checkout_serve_outside_of_ci(written: Path, inbox: Inbox) -> None:
    git(written, "init", "--quiet", "--initial-branch=0001-it", ".")
    git(written, "remote", "add", "origin", "git@github.com:owner/name.git")
    git(written, "commit", "--quiet", "--allow-empty", "--message=first")
    run_script(written, "report", "success", "test", RATCHET_URL=inbox.url, RATCHET_WEBHOOK_SECRET=SECRET)
    event = inbox.requests[0][1].read()
    assert event.commit == git(written, "rev-parse", "HEAD")
    assert event.branches == ("0001-it",)
    assert event.repository == "git@github.com:owner/name.git"
