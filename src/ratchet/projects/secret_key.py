"""The key that the secrets of projects are kept with: the configured one, or one that is made and kept in the home."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cryptography.fernet import Fernet

from ratchet.projects.errors import SecretsUnreadable
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
        text, str(path), "restore the file from a backup; without it the secrets must be given anew"
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


def _fernet(text: str, where: str, mend: str) -> Fernet:
    try:
        return Fernet(text.encode())
    except ValueError as error:
        raise SecretsUnreadable(f"{where} is not a Fernet key", hint=mend) from error
