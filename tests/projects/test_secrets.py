import io
import stat
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from ratchet.kernel import Misuse
from ratchet.ledger.projects import add_project
from ratchet.ledger.tables import project_secrets
from ratchet.observe import logs
from ratchet.projects.address import SecretsUnreadable
from ratchet.projects.secrets import find_key, put_secrets, read_secret, secret_names, token_hash
from ratchet.runtime import Runtime
from tests.projects.conftest import MakeRuntime, sqlite_only
from tests.projects.jobs import project_of, told

SECRETS = {"api_token": "api-token-7f3a", "git_token": "git-token-91bc", "webhook_secret": "höok-secret"}


def give(runtime: Runtime, project_id: int, **secrets: str | None) -> None:
    with runtime.ledger.write() as tx:
        put_secrets(tx, runtime, project_id, secrets)


def read(runtime: Runtime, project_id: int, name: str) -> str | None:
    with runtime.ledger.read() as tx:
        return read_secret(tx, runtime, project_id, name)


@pytest.fixture
def project(runtime: Runtime) -> int:
    with runtime.ledger.write() as tx:
        return add_project(tx, "demo")


def test_secrets_are_read_by_who_has_the_key_and_kept_as_ciphertexts(runtime: Runtime, project: int) -> None:
    give(runtime, project, **SECRETS)
    give(runtime, project, git_token="git-token-new1")
    assert {name: read(runtime, project, name) for name in SECRETS} == {
        **SECRETS,
        "git_token": "git-token-new1",
    }
    assert read(runtime, project, "forge_token") is None
    with runtime.ledger.read() as tx:
        assert secret_names(tx, project) == sorted(SECRETS)
        kept = str(tx.connection.execute(sa.select(project_secrets)).all())
    assert not any(value in kept for value in (*SECRETS.values(), "git-token-new1"))
    assert not any(value in str(told(runtime, project)) for value in SECRETS.values())


@sqlite_only
def test_the_api_token_is_checked_by_its_hash_alone(runtime: Runtime, project: int) -> None:
    give(runtime, project, api_token=SECRETS["api_token"])
    assert project_of(runtime, project).token_hash == token_hash(SECRETS["api_token"])
    give(runtime, project, api_token=None)
    assert project_of(runtime, project).token_hash is None
    assert read(runtime, project, "api_token") is None


@sqlite_only
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", "hunter2-hunter2"),
        ("git_token", ""),
        ("git_token", "  "),
        ("git_token", "hunter2-hunter2\r\nX-Other: 1"),
        ("git_token", "hunter2-hunter2" * 1000),
    ],
)
def test_what_cannot_be_a_secret_is_refused_without_repeating_it(
    runtime: Runtime, project: int, name: str, value: str
) -> None:
    with pytest.raises(Misuse) as refused:
        give(runtime, project, **{name: value})
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    with runtime.ledger.read() as tx:
        assert secret_names(tx, project) == []


@sqlite_only
def test_another_key_opens_nothing_and_says_what_to_do(
    runtime: Runtime, project: int, make_runtime: MakeRuntime
) -> None:
    give(runtime, project, git_token=SECRETS["git_token"])
    other = make_runtime(projects__secret_key=Fernet.generate_key().decode())
    with pytest.raises(SecretsUnreadable, match="another key") as unreadable:
        read(other, project, "git_token")
    assert "projects.secret_key" in (unreadable.value.hint or "")
    broken = make_runtime(projects__secret_key="hunter2-is-no-key")
    with pytest.raises(SecretsUnreadable) as no_key:
        give(broken, project, git_token="git-token-91bc")
    assert "hunter2" not in f"{no_key.value} {no_key.value.hint}"


@sqlite_only
def test_processes_with_the_same_configured_key_read_each_other(make_runtime: MakeRuntime) -> None:
    key = Fernet.generate_key().decode()
    one, other = make_runtime(projects__secret_key=key), make_runtime(projects__secret_key=key)
    with one.ledger.write() as tx:
        project = add_project(tx, "demo")
    give(one, project, git_token=SECRETS["git_token"])
    assert read(other, project, "git_token") == SECRETS["git_token"]
    assert not (one.home / "secret.key").exists()


@sqlite_only
def test_a_row_that_is_moved_to_another_project_opens_nothing(runtime: Runtime, project: int) -> None:
    give(runtime, project, git_token=SECRETS["git_token"])
    with runtime.ledger.write() as tx:
        other = add_project(tx, "other")
        tx.connection.execute(sa.update(project_secrets).values(project_id=other))
    with pytest.raises(SecretsUnreadable, match="belongs to another"):
        read(runtime, other, "git_token")


@sqlite_only
def test_the_key_in_the_home_is_private_and_all_who_start_at_once_agree_on_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    sealed: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: sealed.append(find_key(runtime).encrypt(b"x"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    key = find_key(runtime)
    assert [key.decrypt(each) for each in sealed] == [b"x"] * 8
    file = tmp_path / "secret.key"
    file.chmod(0o644)
    find_key(runtime)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".secret-*"))


@sqlite_only
def test_a_known_secret_is_hidden_wherever_it_turns_up_in_a_log(runtime: Runtime, project: int) -> None:
    give(runtime, project, git_token="git-token-of-logs")
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    try:
        logger = logs.logger("test")
        logger.info("it was git-token-of-logs", nested={"deep": ["git-token-of-logs"]})
        try:
            raise ValueError("git-token-of-logs")
        except ValueError:
            logger.exception("failed")
    finally:
        logs.configure()
    assert "failed" in stream.getvalue()
    assert "git-token-of-logs" not in stream.getvalue()
