"""Commits that were made to break out of a checkout, as raw objects that git itself would not write."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pytest

from ratchet.workspaces import Repository, RepositoryCorrupt, TooLarge, TreeBounds, UnsafePath, WorkspaceKind

_FILE, _LINK, _TREE = b"100644", b"120000", b"40000"


class Forge:
    """Writes any bytes as objects."""

    def __init__(self, repository: Repository) -> None:
        self._objects = repository.path / "objects"

    def add(self, kind: str, content: bytes) -> bytes:
        whole = f"{kind} {len(content)}\0".encode() + content
        number = hashlib.sha1(whole).hexdigest()
        path = self._objects / number[:2] / number[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(whole))
        return bytes.fromhex(number)

    def tree(self, *entries: tuple[bytes, bytes, bytes]) -> bytes:
        return self.add("tree", b"".join(b"%s %s\0%s" % entry for entry in entries))

    def commit(self, tree: bytes) -> str:
        person = b"Eve <eve@example.org> 1 +0000"
        content = b"tree %s\nauthor %s\ncommitter %s\n\nhostile\n" % (tree.hex().encode(), person, person)
        return self.add("commit", content).hex()


@pytest.fixture
def forge(repository: Repository) -> Forge:
    return Forge(repository)


@pytest.mark.parametrize(
    "name",
    [
        b".git",
        b".GIT",
        b".git ",
        b"git~1",
        b"..",
        b".",
        b"",
        b"/etc",
        b"a/../../b",
        b".g\xe2\x80\x8cit",
        b"\xff",
    ],
)
def test_a_name_that_could_lead_outside_is_refused(
    repository: Repository, forge: Forge, kind: WorkspaceKind, name: bytes, tmp_path: Path
) -> None:
    inner = forge.tree((_FILE, b"config", forge.add("blob", b"evil")))
    commit = forge.commit(forge.tree((_TREE, b"sub", forge.tree((_TREE, name, inner)))))
    with pytest.raises(UnsafePath):
        repository.workspace(commit, kind=kind)
    assert not [path for path in tmp_path.rglob("config") if path.read_bytes() == b"evil"]


def test_a_link_and_a_directory_of_one_name_are_refused(
    repository: Repository, forge: Forge, kind: WorkspaceKind, tmp_path: Path
) -> None:
    """A checkout that makes the link first would write the file through it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    link = (_LINK, b"a", forge.add("blob", str(outside).encode()))
    below = (_TREE, b"a", forge.tree((_FILE, b"evil", forge.add("blob", b"evil"))))
    for tree in (forge.tree(link, below), forge.tree(below, link)):
        with pytest.raises(UnsafePath, match="'a' is in its directory twice"):
            repository.workspace(forge.commit(tree), kind=kind)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("target", [b"/etc/passwd", b"../../x", b"sub/../../x", b".git/hooks"])
def test_a_link_that_leads_outside_is_refused(
    repository: Repository, forge: Forge, kind: WorkspaceKind, target: bytes
) -> None:
    commit = forge.commit(forge.tree((_LINK, b"link", forge.add("blob", target))))
    with pytest.raises(UnsafePath, match="'link' is a symbolic link"):
        repository.workspace(commit, kind=kind)


def test_a_small_object_that_stands_for_billions_of_files_is_refused(
    repository: Repository, forge: Forge, kind: WorkspaceKind
) -> None:
    tree = forge.tree((_FILE, b"f", forge.add("blob", b"boom")))
    for _ in range(12):
        tree = forge.tree(*((_TREE, b"%d" % number, tree) for number in range(10)))
    with pytest.raises(TooLarge, match="more than 200000 files"):
        repository.workspace(forge.commit(tree), kind=kind)


def test_a_nesting_without_end_is_refused(repository: Repository, forge: Forge, kind: WorkspaceKind) -> None:
    tree = forge.tree((_FILE, b"f", forge.add("blob", b"deep")))
    for _ in range(3000):
        tree = forge.tree((_TREE, b"d", tree))
    with pytest.raises(TooLarge, match="directories deep"):
        repository.workspace(forge.commit(tree), kind=kind)


def test_a_file_beyond_the_bounds_is_not_read_into_memory(
    repository: Repository, forge: Forge, tmp_path: Path
) -> None:
    blob = forge.add("blob", bytes(10_000_000))
    with Repository.open(
        repository.path, workspaces=tmp_path / "w", bounds=TreeBounds(file_bytes=1000)
    ) as bounded:
        with pytest.raises(TooLarge, match="10000000 bytes"):
            bounded.workspace(forge.commit(forge.tree((_FILE, b"f", blob))))
        assert bounded.resolve("best")


@pytest.mark.parametrize(
    "content", [b"100644 f", b"100644 f\0short", b"no tree at all", b"7 f\0" + bytes(20)]
)
def test_a_tree_that_is_none_is_refused(
    repository: Repository, forge: Forge, kind: WorkspaceKind, content: bytes
) -> None:
    with pytest.raises(UnsafePath):
        repository.workspace(forge.commit(forge.add("tree", content)), kind=kind)


def test_a_tree_that_names_a_blob_as_directory_is_corrupt(
    repository: Repository, forge: Forge, kind: WorkspaceKind
) -> None:
    commit = forge.commit(forge.tree((_TREE, b"d", forge.add("blob", b"no tree"))))
    with pytest.raises(RepositoryCorrupt, match="should be a tree"):
        repository.workspace(commit, kind=kind)


def test_a_submodule_is_an_empty_directory_and_stays_what_it_is(
    repository: Repository, forge: Forge, kind: WorkspaceKind
) -> None:
    file = (_FILE, b"f", forge.add("blob", b"text\n"))
    commit = forge.commit(forge.tree(file, (b"160000", b"module", bytes(range(20)))))
    workspace = repository.workspace(commit, kind=kind)
    assert list((workspace.path / "module").iterdir()) == []
    assert not workspace.commit("nothing").changed
    (workspace.path / "module/inside").touch()
    with pytest.raises(UnsafePath, match="'module' is a submodule"):
        workspace.commit("something")
