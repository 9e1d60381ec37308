"""A bucket of an S3-compatible store: artifacts under their hashes, for machines that share no disk.

Nothing that is read from it is used before its hash is known to be right. A store that is away, slow or broken is
`LedgerUnavailable`, so that the work which needs it is put off and done later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ratchet.extras import missing
from ratchet.files import sync
from ratchet.kernel import LedgerCorrupt, LedgerUnavailable, NotFound

if TYPE_CHECKING:
    from obstore.store import S3Store

_TRIES = 3
_PAUSE_SECONDS = 0.2
_FOLDER = "sha256/"


class StoredObject(NamedTuple):
    sha256: str
    size: int
    modified: datetime


class Bucket:
    """The part of a bucket below the prefix in `url`: s3://BUCKET/PREFIX?endpoint=…&region=….

    Keys, and whatever the address leaves out, come from the `AWS_…` variables or from the machine, as S3 has it. One
    call tries for about `patience_seconds`.
    """

    def __init__(self, url: str, *, patience_seconds: float = 20) -> None:
        self.url = url
        self._patience = timedelta(seconds=patience_seconds)

    @cached_property
    def _store(self) -> S3Store:
        # Imported here: who keeps artifacts in a directory needs no client.
        try:
            from obstore.store import S3Store
        except ModuleNotFoundError:
            raise missing("s3", "an artifact store in a bucket") from None
        parts = urlsplit(self.url)
        given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        endpoint = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL")
        region = given.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        options: dict[str, Any] = {"endpoint": endpoint, "region": region or "us-east-1"}
        return S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={
                "allow_http": bool(endpoint and endpoint.startswith("http://")),
                "connect_timeout": self._patience / 4,
                # Between two bytes: how long all of it takes depends on how much it is.
                "read_timeout": self._patience / 2,
                "timeout": timedelta(hours=6),
            },
            retry_config={"max_retries": 5, "retry_timeout": self._patience},
            **{name: value for name, value in options.items() if value is not None},
        )

    def put(self, sha256: str, file: Path, size: int, *, renew: bool = False) -> None:
        """Keep the content of `file` under its hash. It is not sent again if it is there, unless `renew` is given."""
        import obstore

        with self._translated(sha256):
            if renew or self._size(sha256) != size:
                obstore.put(self._store, _key(sha256), file)

    def fetch(self, sha256: str, into: Path) -> None:
        """Write a content to the file `into`, which is on disk then. Raises `NotFound`, or `LedgerCorrupt`.

        What arrives cut short or otherwise wrong is asked for again before it counts as damaged.
        """
        for number in range(_TRIES):
            time.sleep(_PAUSE_SECONDS * number)
            with into.open("wb") as out:
                digest = self.digest(sha256, out.write)[0]
            if digest == sha256:
                sync(into)
                return
        raise LedgerCorrupt(
            f"artifact {sha256} in {self.url} does not match its hash",
            hint="restore it from a backup: `ratchet ledger restore`",
        )

    def digest(self, sha256: str, take: Any = None) -> tuple[str, int]:
        """The hash and the size of what is there, each part of which `take` is given. Raises `NotFound`."""
        import obstore

        found, size = hashlib.sha256(), 0
        with self._translated(sha256):
            for part in obstore.get(self._store, _key(sha256)).stream():
                chunk = bytes(part)
                found.update(chunk)
                size += len(chunk)
                if take is not None:
                    take(chunk)
        return found.hexdigest(), size

    def objects(self) -> Iterator[StoredObject]:
        import obstore

        with self._translated(None):
            for batch in obstore.list(self._store, prefix=_FOLDER):
                for each in batch:
                    sha256 = each["path"].removeprefix(_FOLDER).replace("/", "")
                    yield StoredObject(sha256, each["size"], each["last_modified"])

    def remove(self, sha256: str) -> None:
        import obstore

        with self._translated(sha256):
            obstore.delete(self._store, _key(sha256))

    def probe(self) -> float:
        """Keep something, get it back and remove it; the milliseconds that this took. Raises `RatchetError`."""
        content = os.urandom(32)
        sha256 = hashlib.sha256(content).hexdigest()
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            began = time.perf_counter()
            self.put(sha256, Path(file.name), len(content), renew=True)
            self.fetch(sha256, Path(file.name))
            took = time.perf_counter() - began
        self.remove(sha256)
        return took * 1000

    def _size(self, sha256: str) -> int | None:
        import obstore

        with contextlib.suppress(FileNotFoundError):
            return obstore.head(self._store, _key(sha256))["size"]
        return None

    @contextlib.contextmanager
    def _translated(self, sha256: str | None) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if sha256 is None or "NoSuchBucket" in str(error):
                raise self._away(error) from error
            raise NotFound("artifact", sha256) from None
        except (BaseError, OSError) as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> LedgerUnavailable:
        reason = str(error).partition("\n")[0].strip()
        return LedgerUnavailable(
            f"the artifact store {self.url} cannot be used: {reason}",
            hint="see whether it runs, and whether artifacts.url and the AWS_… variables are right",
        )


def _key(sha256: str) -> str:
    return f"{_FOLDER}{sha256[:2]}/{sha256[2:]}"
