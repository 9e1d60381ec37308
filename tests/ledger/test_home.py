"""Backups of a whole home: rows, files and refs of one moment, restored elsewhere, and what a check finds missing."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from ratchet.kernel import Conflict, Direction, LedgerCorrupt
from ratchet.ledger import Ledger
from ratchet.ledger.agents import add_version, create_agent
from ratchet.ledger.backup import backup, backup_into
from ratchet.ledger.check import check
from ratchet.ledger.projects import add_project, put_ciphertext
from ratchet.ledger.research import open_research
from ratchet.ledger.restore import restore
from ratchet.ledger.runs import create_run
from ratchet.ledger.tables import projects, research, trials
from ratchet.ledger.trials import Submission, open_trial
from ratchet.memory import open_memory
from tests.ledger.conftest import MakeLedger
from tests.ledger.test_hostile_backups import Archive, Member
from tests.runtime.worker_process import load

pytestmark = pytest.mark.postgresql_in_soak

BEST = "refs/heads/best"
SECRET_KEY = Fernet.generate_key().decode()


def git(repository: Path, *words: str, given: str = "") -> str:
    done = subprocess.run(
        ["git", f"--git-dir={repository}", "-c", "user.name=a", "-c", "user.email=b", *words],
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def make_repository(path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)


def commit(repository: Path, text: str, ref: str) -> str:
    blob = git(repository, "hash-object", "-w", "--stdin", given=text)
    tree = git(repository, "mktree", given=f"100644 blob {blob}\tfile\n")
    made = git(repository, "commit-tree", tree, "-m", text)
    git(repository, "update-ref", ref, made)
    return made


def home_of(ledger: Ledger) -> Path:
    return ledger.artifacts.root.parent


def fill(ledger: Ledger) -> tuple[int, Path]:
    """A research run, an agent and a secret, with what they need in the home; the run and its repository."""
    home = home_of(ledger)
    with ledger.write() as tx:
        run = create_run(tx, "research", "one")
        open_research(tx, run, task="t", score_field="s", direction=Direction.MIN, keep_policy="strict")
        agent = create_agent(tx, "greeter", "greets")
        sealed = Fernet(SECRET_KEY).encrypt(b"value").decode()
        put_ciphertext(tx, add_project(tx, "work"), "TOKEN", sealed)
    repository = home / "research" / str(run) / "repo.git"
    make_repository(repository)
    add_trial(ledger, run, repository, 0)
    git(repository, "pack-refs", "--all")
    made = home / "agents" / "greeter"
    make_repository(made / "repo.git")
    version = commit(made / "repo.git", "agent", "refs/heads/main")
    git(made / "repo.git", "gc", "-q")
    with ledger.write() as tx:
        add_version(tx, agent, version, "0.0.0", parent=None, summary="", tools=[], run_id=None)
    (made / version).mkdir()
    (made / version / "runner.py").write_text("print('hello')")
    (made / version / "runner.py").chmod(0o755)
    (made / version / "empty").mkdir()
    (made / "live").symlink_to(version)
    (made / "elsewhere").symlink_to("/etc")
    (made / f"{version}-staging").mkdir()
    (home / "secret.key").write_text(SECRET_KEY)
    (home / "ratchet.toml").write_text("# settings")
    return run, repository


def add_trial(ledger: Ledger, run: int, repository: Path, number: int) -> str:
    """As research does: the commit, then its refs, then the row."""
    made = commit(repository, str(number), f"refs/trials/{number}")
    git(repository, "update-ref", BEST, made)
    with ledger.write() as tx:
        open_trial(tx, run, Submission(specialist="a", hypothesis="b", commit=made, parent=None))
    return made


def found(ledger: Ledger) -> list[str]:
    return [each.what for each in check(ledger, home=True).findings]


def tree(home: Path, *names: str) -> dict[str, object]:
    """Every file and link below some names."""
    paths = [path for name in names for path in (home / name, *(home / name).rglob("*"))]
    return {
        str(path.relative_to(home)): path.readlink()
        if path.is_symlink()
        else (path.read_bytes(), path.stat().st_mode & 0o100)
        for path in paths
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("kinds", [("sqlite", "postgresql"), ("postgresql", "sqlite")], ids="-".join)
def test_a_whole_home_is_restored_elsewhere(make_ledger: MakeLedger, tmp_path: Path, kinds) -> None:
    source, target = map(make_ledger, kinds)
    fill(source)
    assert found(source) == []
    taken = backup(source, tmp_path / "b", home=True, keys=True)
    assert taken.files_left_out == ("agents/greeter/elsewhere",)
    restored = restore(target, tmp_path / "b")
    assert found(target) == []
    assert restored.home == ("agents", "ratchet.toml", "research", "secret.key")
    (home_of(source) / "agents/greeter/elsewhere").unlink()
    for staging in home_of(source).glob("agents/greeter/*-staging"):
        staging.rmdir()
    names = ("agents", "research", "secret.key", "ratchet.toml")
    assert tree(home_of(target), *names) == tree(home_of(source), *names)
    assert list(home_of(target).glob("agents/greeter/*/empty"))
    assert not list(home_of(target).glob("restore-*"))


def test_a_home_without_its_repositories_or_its_key_is_damaged(
    make_ledger: MakeLedger, ledger: Ledger, tmp_path: Path
) -> None:
    source = make_ledger("sqlite")
    fill(source)
    backup(source, tmp_path / "ledger")
    backup(source, tmp_path / "home", home=True)
    restore(ledger, tmp_path / "ledger")
    [repository, agent, version, key] = found(ledger)
    assert "research run 1 has no repository" in repository
    assert "agent greeter has no repository" in agent
    assert "of agent greeter has no directory" in version
    assert "1 secrets cannot be read" in key
    assert not check(ledger, home=True).ok
    restore(ledger, tmp_path / "home", force=True)
    assert found(ledger) == [key]
    assert check(ledger, home=True, secret_key=lambda: SECRET_KEY).findings == ()


def test_lost_commits_and_refs_to_nothing_are_found(ledger: Ledger) -> None:
    run, repository = fill(ledger)
    lost = add_trial(ledger, run, repository, 1)
    (repository / "objects" / lost[:2] / lost[2:]).unlink()
    commits, refs = found(ledger)
    assert f"does not have 1 commits that rows name: {lost}" in commits
    assert f"has refs to nothing: {BEST}" in refs


def test_a_ref_that_is_gone_is_found_and_put_back_by_what_the_check_says(ledger: Ledger) -> None:
    run, repository = fill(ledger)
    loose = add_trial(ledger, run, repository, 1)
    with ledger.write() as tx:
        tx.connection.execute(sa.update(research).values(best=1, best_commit=loose))
    for ref in (BEST, "refs/trials/1"):
        git(repository, "update-ref", "-d", ref)
    findings = check(ledger, home=True).findings
    assert f"has no {BEST}" in findings[0].what
    assert f"leads to 1 commits that rows name, and git may remove them: {loose}" in findings[1].what
    for finding in findings:
        subprocess.run(finding.fix.split("`")[1], shell=True, check=True)
    assert found(ledger) == []
    assert git(repository, "rev-parse", BEST) == loose


def test_a_clone_that_is_gone_is_found_before_its_first_commit(ledger: Ledger) -> None:
    with ledger.write() as tx:
        mine = add_project(tx, "of the user", local_path="/nowhere/repository")
        cloned = add_project(tx, "cloned", facts={"cloned": True})
        place = home_of(ledger) / "projects" / str(cloned) / "repository"
        tx.connection.execute(
            sa.update(projects).where(projects.c.id == cloned).values(local_path=str(place))
        )
    make_repository(place)
    assert mine != cloned
    assert found(ledger) == []
    shutil.rmtree(place)
    [lost] = found(ledger)
    assert f"project {cloned} has no repository" in lost


def test_a_backup_leaves_out_links_that_lead_out_of_the_home_by_way_of_others(
    make_ledger: MakeLedger, tmp_path: Path
) -> None:
    source, target = make_ledger("sqlite"), make_ledger("sqlite")
    fill(source)
    made = home_of(source) / "agents" / "greeter"
    (made / "p" / "q").mkdir(parents=True)
    (made / "p" / "q" / "r").symlink_to("../..")
    (made / "out").symlink_to("p/q/r/../../..")
    taken = backup(source, tmp_path / "b", home=True)
    assert set(taken.files_left_out) == {"agents/greeter/elsewhere", "agents/greeter/out"}
    restore(target, tmp_path / "b")
    assert (home_of(target) / "agents/greeter/p/q/r").readlink() == Path("../..")


def test_a_version_of_an_agent_without_its_directory_is_found(ledger: Ledger) -> None:
    fill(ledger)
    version = (home_of(ledger) / "agents/greeter/live").resolve()
    shutil.rmtree(version)
    [what] = found(ledger)
    assert what.startswith(f"version {version.name} of agent greeter has no directory")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (
            Fernet.generate_key().decode(),
            "is another key than the one that secrets were kept with: TOKEN of project 1",
        ),
        ("nonsense", "is not a key"),
        (None, "is missing"),
    ],
    ids=["another", "nonsense", "none"],
)
def test_a_key_that_does_not_open_secrets_is_found(ledger: Ledger, key: str | None, says: str) -> None:
    fill(ledger)
    file = home_of(ledger) / "secret.key"
    file.unlink() if key is None else file.write_text(key)
    [finding] = check(ledger, home=True).findings
    assert says in finding.what
    assert "--with-keys" in finding.fix
    assert SECRET_KEY not in finding.what
    assert check(ledger, home=True, secret_key=lambda: SECRET_KEY).findings == ()
    [configured] = check(ledger, home=True, secret_key=lambda: Fernet.generate_key().decode()).findings
    assert configured.what.startswith("projects.secret_key is another key")


def test_a_backup_taken_while_others_work_has_refs_and_rows_of_one_moment(
    ledger: Ledger, make_ledger: MakeLedger, tmp_path: Path
) -> None:
    run, repository = fill(ledger)
    stop = threading.Event()

    def work() -> None:
        number = 1
        while not stop.is_set():
            add_trial(ledger, run, repository, number)
            if number % 5 == 0:
                git(repository, "gc", "-q", "--prune=now")
            number += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for number in range(3):
            backup(ledger, tmp_path / str(number), home=True, keys=True)
    finally:
        stop.set()
        worker.join()
    for number in range(3):
        target = make_ledger("sqlite")
        restore(target, tmp_path / str(number))
        with target.read() as tx:
            newest = tx.connection.execute(sa.select(sa.func.count()).select_from(trials)).scalar_one() - 1
        copied = home_of(target) / "research" / str(run) / "repo.git"
        # At most what a worker does that is killed between the ref and its row.
        assert int(git(copied, "log", "-1", "--format=%s", BEST)) - newest in (0, 1)
        assert git(copied, "fsck", "--connectivity-only", "--no-dangling") == ""


def test_the_state_of_an_agent_that_is_being_written_is_whole(
    make_ledger: MakeLedger, tmp_path: Path
) -> None:
    ledger, target = make_ledger("sqlite"), make_ledger("sqlite")
    fill(ledger)
    state = home_of(ledger) / "agents/greeter/live/state.db"

    def values(home: Path) -> list[int]:
        with contextlib.closing(sqlite3.connect(home / "agents/greeter/live/state.db")) as copy:
            return [value for (value,) in copy.execute("SELECT value FROM state")]

    with contextlib.closing(sqlite3.connect(state, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE state (value)")
        writer.execute("INSERT INTO state VALUES (1)")
        writer.execute("BEGIN")
        writer.execute("INSERT INTO state VALUES (2)")
        backup_into(ledger, tmp_path / "b")
        writer.execute("COMMIT")
        assert state.with_name("state.db-wal").stat().st_size
        backup_into(ledger, tmp_path / "b")
        for number, wanted in ((1, [1]), (2, [1, 2])):
            restore(target, tmp_path / "b", force=True, number=number)
            assert values(home_of(target)) == wanted
            assert not list(home_of(target).glob("agents/greeter/live/state.db-*"))
        # What is only beside the file is of later, too.
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        backup_into(ledger, tmp_path / "b")
        writer.execute("INSERT INTO state VALUES (3)")
        restore(ledger, tmp_path / "b", force=True)
    assert values(home_of(ledger)) == [1, 2]


def test_tools_memory_and_what_was_said_are_of_the_home(make_ledger: MakeLedger, tmp_path: Path) -> None:
    source, target = make_ledger("sqlite"), make_ledger("sqlite")
    with contextlib.ExitStack() as stack:
        # Both are open: much of them is in the files beside them, also what of the old one must not come back.
        for ledger, lesson in ((source, "freeze the clock"), (target, "of the old world")):
            settings = load(home_of(ledger), ledger.url).settings
            memory = stack.enter_context(contextlib.closing(open_memory(settings.memory, home_of(ledger))))
            memory.store(kind="lesson", text=lesson)
            for name in ("tools/shout.yaml", "chat/session.json"):
                (home_of(ledger) / name).parent.mkdir()
                (home_of(ledger) / name).write_text(lesson)
        backup_into(source, tmp_path / "b")
        with pytest.raises(Conflict, match=r"in chat, memory.db, tools"):
            restore(target, tmp_path / "b")
        assert restore(target, tmp_path / "b", force=True).home == ("chat", "memory.db", "tools")
    with contextlib.closing(open_memory(settings.memory, home_of(target))) as memory:
        assert [each.text for each in memory.entries()] == ["freeze the clock"]
    assert tree(home_of(target), "chat", "tools") == tree(home_of(source), "chat", "tools")


def test_files_of_the_home_are_replaced_only_by_force_and_left_where_they_are_the_same(
    ledger: Ledger, make_ledger: MakeLedger, tmp_path: Path
) -> None:
    source = make_ledger("sqlite")
    fill(source)
    backup(source, tmp_path / "b", home=True)
    shutil.copytree(home_of(source) / "research", home_of(ledger) / "research")
    (home_of(ledger) / "ratchet.toml").write_text("# mine")
    other = home_of(ledger) / "research" / "1" / "repo.git" / "description"
    as_backed_up = other.read_text()
    other.write_text("mine")
    with pytest.raises(Conflict, match="has other files than the backup in research"):
        restore(ledger, tmp_path / "b")
    assert not (home_of(ledger) / "agents").exists()
    other.write_text(as_backed_up)
    assert restore(ledger, tmp_path / "b").home == ("agents",)
    assert (home_of(ledger) / "ratchet.toml").read_text() == "# mine"
    other.write_text("mine")
    restore(ledger, tmp_path / "b", force=True, ledger_only=True)
    assert other.read_text() == "mine"
    restore(ledger, tmp_path / "b", force=True)
    assert other.read_text() == as_backed_up


def test_a_whole_home_of_the_schema_before_is_restored(make_ledger: MakeLedger, tmp_path: Path) -> None:
    source, target = make_ledger("sqlite"), make_ledger("sqlite")
    fill(source)
    backup(source, tmp_path / "new", home=True, keys=True)
    archive = Archive(tmp_path / "new")
    archive.go_back()
    archive.put_json("manifest.json", {**archive.json("manifest.json"), "format": 2})
    restore(target, archive.write(tmp_path / "old"))
    assert found(target) == []


def first_file(archive: Archive) -> Member:
    return next(each for each in archive.members if each.name.endswith("runner.py"))


def rename(name: str) -> Callable[[Archive], None]:
    return lambda archive: setattr(first_file(archive), "name", name)


def link(path: str, target: str, **others: str) -> Callable[[Archive], None]:
    """A link in the place of those that there are, and others by the last part of their path below agents/."""

    def change(archive: Archive) -> None:
        contents = archive.json("contents.json")
        links = {path: target, **{f"agents/{name}": to for name, to in others.items()}}
        archive.put_json("contents.json", {**contents, "links": links})

    return change


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (rename("files/../escaped"), "not a file of a home"),
        (rename("files/agents/../../escaped"), "not a file of a home"),
        (rename("files//etc/escaped"), "not a file of a home"),
        (rename("files/ledger.db"), "not a file of a home"),
        (lambda archive: setattr(first_file(archive), "content", b"other"), "not those that were written"),
        (lambda archive: archive.members.remove(first_file(archive)), "not those that were written"),
        (link("agents/x", "../../outside"), "leads out of the home"),
        (link("agents/x", "/etc"), "leads out of the home"),
        (link("x", "agents"), "leads out of the home"),
        (link("agents/p/q/r", "../..", x="p/q/r/../.."), "leads out of the home by way of others"),
        (link("agents/p/q/r", "../..", x="p/q/r/../../etc"), "leads out of the home by way of others"),
        (link("agents/p/q/r", "../..", y="p/q/r/..", x="y/.."), "leads out of the home by way of others"),
        (link("agents/x", "y", y="x"), "leads out of the home by way of others"),
        (link("agents/d", "greeter", **{"d/inner": "repo.git"}), "is where something else is"),
        (link("agents/greeter", "elsewhere"), "is where something else is"),
    ],
)
def test_a_hostile_home_is_refused_and_nothing_is_written(
    make_ledger: MakeLedger, tmp_path: Path, spoil: Callable[[Archive], None], says: str
) -> None:
    source, target = make_ledger("sqlite"), make_ledger("sqlite")
    fill(source)
    backup(source, tmp_path / "good", home=True)
    archive = Archive(tmp_path / "good")
    spoil(archive)
    before = sorted(path.name for path in home_of(target).iterdir())
    with pytest.raises(LedgerCorrupt, match=says):
        restore(target, archive.write(tmp_path / "bad"))
    assert sorted(path.name for path in home_of(target).iterdir()) == before
