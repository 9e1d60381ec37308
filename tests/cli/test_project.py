"""`ratchet project …`: real git with a real remote."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ratchet.cli.protocol_pages import print_setup
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger.events import latest
from ratchet.ledger.projects import add_project
from ratchet.projects.clarifications import ask
from tests.cli.conftest import Ratchet
from tests.cli.protocol_world import Shop, make_shop
from tests.protocols.codemachine.workspaces import PLAIN
from tests.protocols.world import git

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def shop(tmp_path: Path, home: Path) -> Shop:
    return make_shop(tmp_path, home)


@pytest.mark.soak
def test_a_project_is_registered_by_its_address_cloned_and_shown(
    ratchet: Ratchet, shop: Shop, home: Path
) -> None:
    added = ratchet("project", "add", str(shop.remote), "--model", "exec=m-1")
    assert added.code == 0, added.err
    assert added.out.startswith("Project 1, remote, is set up: python;")
    assert "cloned to" in added.err
    found = ratchet("project", "show", "remote", "--json").json
    assert Path(found["local_path"]) == home / "projects" / "1" / "remote"
    assert (found["default_models"], found["onboarding"]["status"]) == ({"exec": "m-1"}, "completed")
    shown = ratchet("project", "show", "1").out
    assert ("remote.git" in shown, "onboarding      completed" in shown) == (True, True)
    assert [each["name"] for each in ratchet("project", "list", "--json").json] == ["remote"]

    git(shop.place, "push", "-q", "origin", "main:refs/heads/old")
    assert ratchet("project", "branches", "1").out.splitlines() == ["main", "old"]
    assert ratchet("project", "delete-branch", "1", "old").code == 2
    assert ratchet("project", "delete-branch", "1", "main", "--yes").code == 1
    assert ratchet("project", "delete-branch", "1", "old", "--yes", "--json").json == {
        "deleted": True,
        "branch": "old",
    }
    assert ratchet("project", "branches", "1", "--json").json == {"branches": ["main"]}
    assert ratchet("project", "onboard", "remote", "--json").json["onboarding"]["status"] == "completed"


def test_the_commands_of_an_environment_have_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    install = ["python3", "-m", "pip", "install", "-e", "."]
    print_setup(
        {
            "id": 1,
            "name": "shop",
            "onboarding": {"status": "completed", "reason": None, "stages": []},
            "facts": {"stack": ["python"], "checks": [], "setup": [install, ["make", "setup"]]},
        }
    )
    assert "made by:\n  python3 -m pip install -e .\n  make setup\n" in capsys.readouterr().out


@pytest.mark.soak
@ONE_DATABASE
def test_the_repository_here_is_worked_on_where_it_is_and_keeps_its_base(
    ratchet: Ratchet, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(shop.place, "branch", "-m", "main", "trunk")
    git(shop.place, "remote", "remove", "origin")
    (shop.place / "src").mkdir()
    monkeypatch.chdir(shop.place / "src")
    added = ratchet("project", "add", "--json")
    assert added.code == 0, added.err
    assert (added.json["name"], added.json["local_path"], added.json["base_branch"]) == (
        "shop",
        str(shop.place),
        "trunk",
    )
    again = ratchet("project", "add", str(shop.place), "--name", "second", "--detach")
    assert again.out == "Project 2, second, is registered; its onboarding waits for a worker.\n"
    assert "No worker runs on this ledger now" in again.err


@pytest.mark.soak
@ONE_DATABASE
def test_what_cannot_be_registered_is_refused(ratchet: Ratchet, shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for given, said in (
        ([str(tmp_path / "plain")], "is not the top of a git repository"),
        (["not an address"], "is not the address of a git repository"),
        ([str(shop.remote), "--model", "exec"], "names no model for a phase"),
        ([str(shop.remote), "--model", "sing=m"], "default_models names a model for each phase"),
        ([str(shop.remote), "--ci-provider", "hub"], "is not one of"),
        ([str(shop.remote), "--name", " "], "cannot be the name of a project"),
    ):
        done = ratchet("project", "add", *given)
        assert (done.code, said in done.err) == (2, True), (given, done.err)
    assert ratchet("project", "list", "--json").json == []
    blocked = ratchet("project", "add", (tmp_path / "gone.git").as_uri(), "--name", "gone")
    assert blocked.code == 1
    assert "ratchet project onboard 1" in blocked.err
    unknown = ratchet("project", "show", "nobody")
    assert (unknown.code, unknown.err.splitlines()[0]) == (1, "error: project 'nobody' does not exist")


@pytest.mark.soak
def test_questions_block_an_onboarding_until_they_are_answered(
    ratchet: Ratchet, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_PROJECTS__REQUIRE_CLARIFICATIONS", "true")
    added = ratchet("project", "add", str(shop.remote), "--name", "shop")
    assert added.code == 1
    assert "ratchet project answer 1 --recommended" in added.err
    refused = ratchet("protocol", "new", "A change.", "--project", "shop", "--run")
    assert (refused.code, "is not set up" in refused.err) == (1, True)
    asked = ratchet("project", "questions", "shop", "--json").json
    assert (len(asked), {each["blocking"] for each in asked}) == (9, {True})

    assert ratchet("project", "answer", "shop", "ci_provider", "sourcehut").code == 2
    assert ratchet("project", "answer", "shop", "required_checks", "lint").code == 2
    assert (
        ratchet("project", "answer", "shop", "required_checks", '["lint"]').out
        == 'required_checks: ["lint"]\n'
    )
    assert (
        ratchet("project", "answer", "shop", "prefer_ssh", "true", "--by", "Ada").out == "prefer_ssh: true\n"
    )
    assert ratchet("project", "answer", "shop", "prefer_ssh", "false").code == 1
    assert ratchet("project", "answer", "shop").code == 2
    said = ratchet("project", "answer", "shop", "--recommended")
    assert (said.code, len(said.out.splitlines())) == (0, 7)
    assert "No worker runs on this ledger now" in said.err
    assert ratchet("project", "questions", "shop").err == "Nothing is asked about shop.\n"
    [ssh] = [
        each
        for each in ratchet("project", "questions", "shop", "--all", "--json").json
        if each["key"] == "prefer_ssh"
    ]
    assert (ssh["answer"], ssh["answered_by"]) == (True, "Ada")
    assert ratchet("project", "onboard", "shop").code == 0


@ONE_DATABASE
def test_secrets_are_read_from_the_standard_input_and_never_shown(
    ratchet: Ratchet, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger.write(actor="test") as tx:
        add_project(tx, "shop")
    monkeypatch.setattr("sys.stdin", io.StringIO("hush-hush\n"))
    kept = ratchet("project", "secrets", "shop", "--set", "git_token")
    assert (kept.code, kept.out) == (0, "git_token\n")
    assert ratchet("project", "secrets", "shop", "--set", "git_token").code == 2
    assert ratchet("project", "show", "shop", "--json").json["secret_names"] == ["git_token"]
    assert ratchet("project", "secrets", "shop", "--set", "password").code == 2
    assert ratchet("project", "secrets", "shop", "--remove", "git_token", "--json").json == {
        "secret_names": []
    }
    with ledger.read() as tx:
        told = latest(tx.connection, where=EventFilter(project_id=1), limit=100)
    assert not any("hush-hush" in f"{event.message} {event.data}" for event in told)


@ONE_DATABASE
def test_a_question_that_is_asked_twice_is_answered_by_its_number(ratchet: Ratchet, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        shop = add_project(tx, "shop")
        mill = add_project(tx, "mill")
        first = ask(tx, shop, "colour", "Which colour?", applies_to="planning")
        ask(tx, mill, "colour", "Which colour?", applies_to="planning")
    assert ratchet("project", "answer", "shop", str(first.id), "blue", "--json").json[0]["answer"] == "blue"
    assert "was answered already" in ratchet("project", "answer", "shop", "colour", "red").err
    assert ratchet("project", "answer", "shop", str(first.id + 1), "red").code == 1
    assert (
        "nothing is recommended for colour"
        in ratchet("project", "answer", "mill", "colour", "--recommended").err
    )


@ONE_DATABASE
def test_an_archived_project_takes_no_protocols_until_it_is_back(ratchet: Ratchet, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        add_project(tx, "shop")
    archived = ratchet("project", "archive", "shop", "--json").json["archived_at"]
    assert archived is not None
    assert ratchet("project", "list", "--json").json == []
    assert [each["name"] for each in ratchet("project", "list", "--archived", "--json").json] == ["shop"]
    refused = ratchet("protocol", "new", "A change.", "--project", "shop", "--name", "0001-a")
    assert "project 1 is archived" in refused.err
    assert (
        ratchet("project", "archive", "shop", "--undo").out
        == "Project 1, shop, is out of the archive again.\n"
    )
    assert ratchet("protocol", "new", "A change.", "--project", "shop", "--name", "0001-a").code == 0


@pytest.mark.soak
@ONE_DATABASE
def test_a_codemachine_workspace_becomes_a_protocol_or_nothing(
    ratchet: Ratchet, shop: Shop, tmp_path: Path
) -> None:
    for name, text in PLAIN.items():
        path = tmp_path / "flows" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert ratchet("project", "add", str(shop.remote), "--name", "shop").code == 0
    made = ratchet("project", "import-codemachine", "shop", str(tmp_path / "flows"), "--json")
    assert made.code == 0, made.err
    assert (made.json["protocol_name"], made.json["status"]) == ("0001-flows", "planned")
    steps = ratchet("step", "list", "0001-flows", "--json").json
    assert [step["step_name"] for step in steps] == ["00-plan", "01-build"]
    nothing = ratchet("project", "import-codemachine", "shop", str(shop.place))
    assert nothing.code != 0
    assert len(ratchet("protocol", "list", "--json").json) == 1


def test_a_repository_that_is_a_project_is_not_added_a_second_time_unless_it_is_named(
    ratchet: Ratchet, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop(tmp_path, home)
    monkeypatch.chdir(shop.place)
    assert ratchet("project", "add").code == 0
    again = ratchet("project", "add")
    assert (again.code, "is project 1, " in again.err, "ratchet project onboard 1" in again.err) == (
        1,
        True,
        True,
    )
    assert ratchet("project", "add", "--name", "second").code == 0
    lost = ratchet("project", "checks")
    assert (lost.code, "name one of them: " in lost.err) == (2, True)
