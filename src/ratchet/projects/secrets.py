"""The secrets of a project: written, used, and never shown again.

What the database holds is encrypted, and says whose secret it is: a row that is moved to another project opens nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from ratchet.config.redaction import remember_secret
from ratchet.kernel import Misuse
from ratchet.ledger import Transaction
from ratchet.ledger.projects import (
    change_project,
    get_ciphertext,
    names_of_secrets,
    put_ciphertext,
    remove_ciphertext,
)
from ratchet.projects.address import SecretsUnreadable
from ratchet.runtime import Runtime

FILE_NAME = "secret.key"
_MAKE = "make one with `python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'`"


def find_key(runtime: Runtime) -> Fernet:
    """The key in force. Processes that start at once on one home agree on one. Raises `SecretsUnreadable`."""
    configured = runtime.settings.projects.secret_key
    if configured is not None:
        return _fernet(configured.get_secret_value(), "projects.secret_key", _MAKE)
    path = runtime.home / FILE_NAME
    try:
        if not path.exists():
            _create(path)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SecretsUnreadable(
            f"the key for secrets cannot be kept in {path}: {error}",
            hint="make it readable and writable for this user, or set projects.secret_key",
        ) from error
    return _fernet(
        text, str(path), "restore the file from a backup; without it the secrets must be given again"
    )


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=".secret-"
    )  # readable by its owner alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(Fernet.generate_key() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(temporary)
    except FileExistsError:
        pass  # another process was first: its key counts
    finally:
        Path(temporary).unlink()


def _fernet(text: str, where: str, fix: str) -> Fernet:
    try:
        return Fernet(text.encode())
    except ValueError as error:
        raise SecretsUnreadable(f"{where} is not a Fernet key", hint=fix) from error


API_TOKEN, WEBHOOK_SECRET, GIT_TOKEN, FORGE_TOKEN = "api_token", "webhook_secret", "git_token", "forge_token"
NAMES = (API_TOKEN, WEBHOOK_SECRET, GIT_TOKEN, FORGE_TOKEN)
_LONGEST = 4096


def put_secrets(
    tx: Transaction, runtime: Runtime, project_id: int, secrets: Mapping[str, str | None]
) -> None:
    """Keep secrets of a project by their names; `None` forgets one. Raises `Misuse`, which repeats no value."""
    if not secrets:
        return
    for name, value in secrets.items():
        _check(name, value)
    key = find_key(runtime)
    for name, value in secrets.items():
        if value is None:
            remove_ciphertext(tx, project_id, name)
            continue
        remember_secret(value)
        sealed = json.dumps({"project": project_id, "name": name, "value": value})
        put_ciphertext(tx, project_id, name, key.encrypt(sealed.encode()).decode())
    if API_TOKEN in secrets:
        token = secrets[API_TOKEN]
        change_project(tx, project_id, token_hash=None if token is None else token_hash(token))
    given = {name: "set" if value is not None else "removed" for name, value in sorted(secrets.items())}
    tx.event(
        "project.secrets_changed", project_id=project_id, message=", ".join(given), data={"names": given}
    )


def read_secret(tx: Transaction, runtime: Runtime, project_id: int, name: str) -> str | None:
    """A secret in the clear, for whoever uses it; `None` without one. Raises `SecretsUnreadable`."""
    sealed = get_ciphertext(tx, project_id, name)
    if sealed is None:
        return None
    try:
        opened = json.loads(find_key(runtime).decrypt(sealed.encode()))
    except InvalidToken as error:
        raise SecretsUnreadable(
            f"the secret {name} of project {project_id} was kept with another key",
            hint="give every machine the same projects.secret_key, or give the secret to the project again",
        ) from error
    if (opened["project"], opened["name"]) != (project_id, name):
        raise SecretsUnreadable(
            f"what is kept as the secret {name} of project {project_id} belongs to another one",
            hint="give the secret to the project again, and see who writes to the database",
        )
    value: str = opened["value"]
    remember_secret(value)
    return value


def secret_names(tx: Transaction, project_id: int) -> list[str]:
    """Which secrets a project has. Their values are for those who use them."""
    return names_of_secrets(tx, project_id)


def token_hash(token: str) -> str:
    """What `Project.token_hash` is compared with: a request is checked without the key."""
    return hashlib.sha256(token.encode()).hexdigest()


def _check(name: str, value: str | None) -> None:
    if name not in NAMES:
        raise Misuse(f"a project has no secret called {name[:80]!r}", hint=f"there are: {', '.join(NAMES)}")
    if value is None:
        return
    if not value.strip() or len(value) > _LONGEST or not value.isprintable():
        raise Misuse(
            f"the secret {name} is empty, longer than {_LONGEST} characters, or has control characters in it",
            hint="give it as it was handed out, on one line",
        )
