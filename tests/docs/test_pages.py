"""Everything that a page tells its reader to type works as it is written."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ratchet.modelserver import ModelServer
from tests.docs.markdown import DOCS, name, pages
from tests.docs.playing import is_played, play
from tests.docs.readme import README, play_readme
from tests.modelserver.fixtures import model_server
from tests.postgres import PostgresServer
from tests.s3 import KEYS, S3Server

__all__ = ["model_server"]

FLEET = DOCS / "howto" / "one-machine-to-many.md"
CLUSTERS = DOCS / "howto" / "clusters.md"
PLAYED = [page for page in pages() if page not in (README, FLEET, CLUSTERS) and is_played(page.read_text())]


def test_the_readme_works_with_one_key(tmp_path: Path, model_server: ModelServer) -> None:
    """All four flows give their first result; the model behind the key is scripted, and nothing else."""
    play_readme(tmp_path, model_server)


@pytest.mark.soak
@pytest.mark.parametrize("page", PLAYED, ids=name)
def test_what_the_page_tells_works(page: Path, tmp_path: Path) -> None:
    play(page.read_text(), tmp_path)


@pytest.mark.soak
def test_going_from_one_machine_to_many_works_as_it_is_told(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    postgres_server.start()
    url = postgres_server.create_database()
    try:
        stand_ins = {FLEET_DATABASE: url, "8484": free_port(), "8485": free_port()}
        play(FLEET.read_text(), tmp_path, stand_ins, {"RATCHET_AGENTS__PORT": "0"})
    finally:
        postgres_server.drop_database(url)


@pytest.mark.soak
def test_machines_without_a_shared_disk_work_as_it_is_told(
    tmp_path: Path, postgres_server: PostgresServer, s3: S3Server
) -> None:
    postgres_server.start()
    url = postgres_server.create_database()
    try:
        store = "s3://ratchet/team?endpoint=https://s3.example.org"
        play(CLUSTERS.read_text(), tmp_path, {FLEET_DATABASE: url, store: s3.new_bucket()}, KEYS)
    finally:
        postgres_server.drop_database(url)


def test_the_readme_the_tutorials_and_the_how_tos_are_among_them() -> None:
    wanted = [*(DOCS / "tutorials").glob("*.md"), *(DOCS / "howto").glob("*.md"), DOCS / "tour.md"]
    assert len(wanted) >= 9
    assert set(wanted) <= {*PLAYED, FLEET, CLUSTERS}
    assert is_played(README.read_text())


FLEET_DATABASE = "postgresql://ratchet:secret@db.example.org/ratchet"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])
