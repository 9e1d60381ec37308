"""The bearer token of the API: the configured one, or one that is made at the first start and kept in the home."""

from __future__ import annotations

import os
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from ratchet.config import Loaded
from ratchet.kernel import ConfigError
from ratchet.observe.logs import logger

FILE_NAME = "token"
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Token:
    """The token, and the file that keeps it; no file when it was configured."""

    value: str = field(repr=False)
    path: Path | None = None

    @property
    def configured(self) -> bool:
        return self.path is None

    def link(self, url: str) -> str:
        """What lets a person into the console of the server at `url`; as secret as the token."""
        return f"{url}/console/enter?token={quote(self.value, safe='')}"


def find_token(loaded: Loaded) -> Token:
    """The token in force. Servers that start at once on one home agree on one. Raises `ConfigError`."""
    configured = loaded.settings.server.token
    if configured is not None:
        return Token(configured.get_secret_value())
    path = loaded.home / FILE_NAME
    try:
        if not path.exists():
            _create(path)
        return Token(_read(path), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the API token cannot be kept in {path}: {error}",
            hint="make it readable and writable for this user, or set server.token",
        ) from error


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".token-")  # readable by its owner alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        pass  # another server was first: its token counts
    finally:
        Path(temporary).unlink()


def _read(path: Path) -> str:
    value = path.read_text().strip()
    if not value:
        raise ConfigError(f"{path} holds no token", hint="remove the file: the next start makes a new one")
    if path.stat().st_mode & 0o077:
        _log.warning("others could read the API token; its file is private now", path=str(path))
        path.chmod(0o600)
    return value
