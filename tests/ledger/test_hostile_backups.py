"""Backups that were cut off, damaged, or made by somebody who means ill: refused, and nothing is changed."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratchet.kernel import LedgerCorrupt, LedgerTooNew, RatchetError
from ratchet.ledger import Ledger
from ratchet.ledger.backup import backup
from ratchet.ledger.restore import restore
from ratchet.ledger.runs import create_run, create_steps
from tests.ledger.conftest import MakeLedger

pytestmark = pytest.mark.postgresql_in_soak

# What the schema before did not have.
LATER = (
    "triggers",
    *("agent_evals", "agent_calls", "agent_call_totals", "agent_incidents", "agent_feedback"),
    "agent_traffic",
    "agent_keys",
    "agent_secrets",
)


@dataclass
class Member:
    name: str
    content: bytes
    type: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o600


class Archive:
    """A backup taken apart, to be put together otherwise."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.members = [Member(each.name, tar.extractfile(each).read(), mode=each.mode) for each in tar]

    def __getitem__(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)

    def json(self, name: str) -> Any:
        return json.loads(self[name].content)

    def put_json(self, name: str, value: Any) -> None:
        self[name].content = json.dumps(value).encode()

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self[f"tables/{table}.0"].content.splitlines()]

    def put_rows(self, table: str, rows: list[Any]) -> None:
        """Change rows as one who knows the format would: the hashes fit."""
        content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        self[f"tables/{table}.0"].content = content
        contents = self.json("contents.json")
        [part] = [part for part in contents["parts"] if part["table"] == table]
        part |= {"rows": len(rows), "sha256": hashlib.sha256(content).hexdigest()}
        self.put_json("contents.json", contents)

    def go_back(self) -> None:
        """Make it one of the schema before, which had less."""
        manifest, contents = self.json("manifest.json"), self.json("contents.json")
        manifest["schema_revision"] = "0011"
        for table in LATER:
            manifest["counters"].pop(table, None)
            contents["parts"] = [part for part in contents["parts"] if part["table"] != table]
            self.members = [each for each in self.members if not each.name.startswith(f"tables/{table}.")]
        self.put_json("manifest.json", manifest)
        self.put_json("contents.json", contents)
        for table, columns in (
            ("agents", ("approval", "learning", "egress")),
            ("agent_versions", ("offers", "certificate")),
            ("tool_versions", ("examples_failed",)),
            ("approvals", ("answer",)),
            ("trials", ("origin",)),
            ("processes", ("asked", "facts")),
        ):
            if not any(part["table"] == table for part in contents["parts"]):
                continue
            old = [
                {name: value for name, value in row.items() if name not in columns}
                for row in self.rows(table)
            ]
            self.put_rows(table, old)

    def write(self, path: Path) -> Path:
        with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as tar:
            for member in self.members:
                info = tarfile.TarInfo(member.name)
                info.type, info.linkname, info.mode = member.type, member.link, member.mode
                info.size = len(member.content) if member.type == tarfile.REGTYPE else 0
                tar.addfile(info, io.BytesIO(member.content))
        return path


@pytest.fixture
def good(make_ledger: MakeLedger, tmp_path: Path) -> Path:
    ledger = make_ledger("sqlite")
    with ledger.write() as tx:
        run = create_run(tx, "demo", "one")
        create_steps(tx, run, [("a", {}), ("b", {})])
        for text in (b"first", b"second"):
            ledger.artifacts.put(tx, text, name="out", run_id=run)
    backup(ledger, tmp_path / "good")
    return tmp_path / "good"


@pytest.fixture
def target(make_ledger: MakeLedger) -> Ledger:
    return make_ledger("sqlite")


def refused(target: Ledger, path: Path, error: type[RatchetError] = LedgerCorrupt) -> str:
    before = files(path.parent), dump(target)
    with pytest.raises(error) as raised:
        restore(target, path, force=True)
    assert (files(path.parent), dump(target)) == before
    assert raised.value.hint
    return str(raised.value)


def dump(ledger: Ledger) -> list[str]:
    with ledger.engine.connect() as connection:
        return list(connection.connection.driver_connection.iterdump())


def files(directory: Path) -> set[Path]:
    """Every file, apart from those that opening and locking make."""
    passing = ("-wal", "-shm", "lock")
    return {path for path in directory.rglob("*") if path.is_file() and not path.name.endswith(passing)}


def first_artifact(archive: Archive) -> Member:
    return next(member for member in archive.members if member.name.startswith("artifacts/"))


def change(name: str, value: Any) -> Callable[[Archive], None]:
    return lambda archive: archive.put_json("manifest.json", {**archive.json("manifest.json"), name: value})


def change_contents(name: str, value: Any) -> Callable[[Archive], None]:
    return lambda archive: archive.put_json("contents.json", {**archive.json("contents.json"), name: value})


def change_row(table: str, column: str, value: Any) -> Callable[[Archive], None]:
    def act(archive: Archive) -> None:
        rows = archive.rows(table)
        rows[0][column] = value
        archive.put_rows(table, rows)

    return act


def insert(
    name: str, at: int, content: bytes = b"evil", type_: bytes = tarfile.REGTYPE, link: str = ""
) -> Any:
    return lambda archive: archive.members.insert(at, Member(name, content, type_, link))


def drop(prefix: str) -> Callable[[Archive], None]:
    return lambda archive: archive.members.remove(
        next(each for each in archive.members if each.name.startswith(prefix))
    )


def twice(prefix: str) -> Callable[[Archive], None]:
    def act(archive: Archive) -> None:
        index = next(i for i, each in enumerate(archive.members) if each.name.startswith(prefix))
        archive.members.insert(index, copy.copy(archive.members[index]))

    return act


def damage_artifact(archive: Archive) -> None:
    first_artifact(archive).content = b"something else"


def damage_rows(archive: Archive) -> None:
    archive["tables/runs.0"].content = archive["tables/runs.0"].content.replace(b"one", b"two")


def odd_artifact_name(archive: Archive) -> None:
    first_artifact(archive).name = "artifacts/../../../../../tmp/owned"


def name_another_artifact(archive: Archive) -> None:
    rows = archive.rows("artifacts")
    rows[0]["sha256"] = "0" * 64
    archive.put_rows("artifacts", rows)


def same_run_twice(archive: Archive) -> None:
    archive.put_rows("runs", archive.rows("runs") * 2)


END = 10**6
BAD: dict[str, tuple[Callable[[Archive], None], str]] = {
    "no manifest": (drop("manifest"), "where manifest.json should be"),
    "no contents": (drop("contents"), "where contents.json should be"),
    "no rows": (drop("tables/steps"), "not those that were written"),
    "no artifact": (drop("artifacts/"), "not those that were written"),
    "rows twice": (twice("tables/runs"), "where contents.json should be"),
    "artifact twice": (twice("artifacts/"), "comes twice or out of order"),
    "contents twice": (twice("contents"), "one too many"),
    "path upwards": (insert("../../evil", 1), "where contents.json should be"),
    "absolute path": (insert("/tmp/evil", END), "one too many"),
    "artifact with a path": (odd_artifact_name, "artifact"),
    "unknown table": (insert("tables/users.0", 1), "where contents.json should be"),
    "table of the database": (insert("tables/alembic_version.0", 1), "where contents.json should be"),
    "symbolic link": (insert("artifacts/x", END, b"", tarfile.SYMTYPE, "/etc/passwd"), "not a plain file"),
    "hard link": (insert("artifacts/x", END, b"", tarfile.LNKTYPE, "manifest.json"), "not a plain file"),
    "directory": (insert("tables/", 1, b"", tarfile.DIRTYPE), "not a plain file"),
    "device": (insert("tables/dev", 1, b"", tarfile.CHRTYPE), "not a plain file"),
    "damaged artifact": (damage_artifact, "does not match its hash"),
    "damaged rows": (damage_rows, "not those that were written"),
    "manifest is a list": (lambda archive: archive.put_json("manifest.json", []), "does not say what it is"),
    "manifest with more": (change("more", 1), "manifest.json has a wrong more"),
    "time is a text": (change("taken_at", "now"), "manifest.json has a wrong taken_at"),
    "counters of others": (change("counters", {"users": 1}), "does not have the counters"),
    "counts from the end": (change("counters", {"events": 2**63}), "wrong counters.events"),
    "other counts": (change_contents("artifacts", 7), "not those that were written"),
    "negative counts": (change_contents("artifacts", -1), "contents.json has a wrong artifacts"),
    "odd hashes left out": (change_contents("left_out", ["../x"]), "contents.json has a wrong left_out"),
    "number is a text": (change_row("runs", "id", "1"), "a row of runs has a wrong id"),
    "number is none": (change_row("runs", "id", None), "a row of runs has a wrong id"),
    "number is huge": (change_row("runs", "id", 2**63 - 1), "a row of runs has a wrong id"),
    "number is a truth": (change_row("runs", "created_at", True), "a row of runs has a wrong created_at"),
    "name is a list": (change_row("runs", "name", ["one"]), "a row of runs has a wrong name"),
    "name is none": (change_row("runs", "name", None), "a row of runs has a wrong name"),
    "more columns": (change_row("runs", "admin", True), "does not have its columns"),
    "not a number": (change_row("runs", "spec", float("nan")), "is not JSON"),
    "long position": (change_row("steps", "position", 2**40), "a row of steps has a wrong position"),
    "hash is a path": (change_row("artifacts", "sha256", "../" * 30), "wrong sha256"),
    "run not there": (change_row("steps", "run_id", 77), "contradicts itself in steps"),
    "run twice": (same_run_twice, "contradicts itself in runs"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_backup_that_is_not_as_it_was_written_is_refused(
    good: Path, target: Ledger, tmp_path, what
) -> None:
    spoil, says = BAD[what]
    archive = Archive(good)
    spoil(archive)
    assert says in refused(target, archive.write(tmp_path / "bad"))
    assert not Path("/tmp/owned").exists()


def test_an_artifact_that_is_named_and_not_there_takes_all_rows_back(
    good: Path, target: Ledger, tmp_path
) -> None:
    archive = Archive(good)
    name_another_artifact(archive)
    before = dump(target)
    with pytest.raises(LedgerCorrupt, match="is named but not in it"):
        restore(target, archive.write(tmp_path / "bad"))
    assert dump(target) == before


def test_taking_it_apart_and_putting_it_together_changes_nothing(
    good: Path, target: Ledger, tmp_path: Path
) -> None:
    assert restore(target, Archive(good).write(tmp_path / "again")).rows["steps"] == 2


@pytest.mark.parametrize(("name", "value"), [("schema_revision", "9999"), ("format", 4)])
def test_a_backup_of_a_newer_ratchet_is_refused_with_its_version(good, target, tmp_path, name, value) -> None:
    archive = Archive(good)
    change(name, value)(archive)
    change("ratchet_version", "7.0")(archive)
    archive.members.insert(1, Member("something/new", b"?"))
    said = refused(target, archive.write(tmp_path / "bad"), LedgerTooNew)
    assert "written by Ratchet 7.0" in said


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        gzip.compress(b""),
        gzip.compress(b"not a tar" * 1000),
        gzip.compress(b"\0" * 10240),
        b"\x1f\x8b" + b"\0" * 50,
    ],
    ids=["empty", "text", "empty gzip", "gzip of text", "empty tar", "broken gzip"],
)
def test_a_file_that_is_no_backup_is_refused(target: Ledger, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad").write_bytes(content)
    assert "is not a usable backup" in refused(target, tmp_path / "bad")


def test_a_backup_cut_off_anywhere_is_refused(good: Path, target: Ledger, tmp_path: Path) -> None:
    whole = good.read_bytes()
    for end in {1, 2, 10, *range(20, len(whole), max(1, len(whole) // 25)), len(whole) - 8, len(whole) - 1}:
        (tmp_path / "bad").write_bytes(whole[:end])
        refused(target, tmp_path / "bad")


@pytest.mark.soak
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_a_backup_with_any_byte_changed_is_refused_or_is_the_same(good, target, tmp_path, data) -> None:
    whole = bytearray(good.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    (tmp_path / "bad").write_bytes(whole)
    try:
        restore(target, tmp_path / "bad", force=True)
    except LedgerCorrupt:
        return
    # Some bits mean nothing, or the same said otherwise.
    assert gzip.decompress(whole) == gzip.decompress(good.read_bytes())


def test_something_after_the_end_is_refused(good: Path, target: Ledger, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(good.read_bytes() + gzip.compress(b"evil" * 100))
    assert "something after its end" in refused(target, tmp_path / "bad")


@pytest.mark.parametrize("type_", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_claims_to_be_huge_costs_no_memory(
    target: Ledger, tmp_path: Path, type_: bytes
) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = type_, 10**12
    with gzip.open(tmp_path / "bad", "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.write(b"\0" * 1_000_000)
    assert "claims" in refused(target, tmp_path / "bad")


def test_a_page_that_is_huge_is_refused_without_being_read(
    good: Path, target: Ledger, tmp_path: Path
) -> None:
    archive = Archive(good)
    archive["manifest.json"].content = b" " * (65 * 1024 * 1024)
    assert "manifest.json is too large" in refused(target, archive.write(tmp_path / "bad"))
