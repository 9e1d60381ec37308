"""The branch of an imported protocol: one commit with its pages and prompts, on top of the base as it is now."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.kernel import Conflict, StateChanged
from ratchet.ledger.projects import Project
from ratchet.projects.clone import Clone
from ratchet.protocols.authorship import author_of


def make_branch(
    clone: Clone, project: Project, name: str, base: str, files: Mapping[str, bytes]
) -> tuple[str, bool]:
    """The commit that the branch `name` is at now, and whether this call put it there.

    A branch that an import with the same content left, because its process died, is taken over. Raises `Conflict` for
    any other branch of that name, here or at the remote, and when the base has the protocol's folder already.
    """
    _require_room(clone, base, files)
    here = clone.repository.ref(_ref(name))
    if here is not None and not _holds(clone, here, files):
        raise Conflict(
            f"the branch {name} in {clone.path} exists already, at {here[:12]}",
            hint="rename or delete it, or import under another name",
        )
    if here is not None and clone.repository.log(here, limit=1)[0].parents == (base,):
        return here, False
    if clone.origin is not None and name in clone.remote_branches():
        raise Conflict(
            f"the branch {name} exists already at {clone.origin}",
            hint="delete it there if nobody needs it, or import under another name",
        )
    commit = clone.repository.commit_files(
        files,
        parent=base,
        message=f"feat(protocol): add plan for {name} [protocol-{name.partition('-')[0]}/00]",
        author=author_of(project),
    )
    try:
        clone.repository.advance(_ref(name), commit, expected=here)
    except StateChanged as changed:
        raise Conflict(
            f"the branch {name} in {clone.path} was made meanwhile",
            hint="somebody else imports the same; look at what came of it",
        ) from changed
    return commit, True


def remove_branch(clone: Clone, name: str, commit: str) -> None:
    """Take back a branch that nobody has moved since."""
    if clone.repository.ref(_ref(name)) == commit:
        clone.repository.restore({_ref(name): (None, commit)})


def is_at(clone: Clone, name: str, commit: str) -> bool:
    return clone.repository.ref(_ref(name)) == commit


def _ref(name: str) -> str:
    return f"refs/heads/{name}"


def _require_room(clone: Clone, base: str, files: Mapping[str, bytes]) -> None:
    """What is imported is never mixed with what another plan said."""
    folders = {"/".join(path.split("/")[:2]) for path in files}
    for path in clone.repository.list_files(base):
        if "/".join(path.split("/")[:2]) in folders:
            raise Conflict(
                f"the base branch has {path} already",
                hint="import under another name, or remove it from the base",
            )


def _holds(clone: Clone, commit: str, files: Mapping[str, bytes]) -> bool:
    """Whether a commit adds exactly these files to the one before it."""
    repository = clone.repository
    parents = repository.log(commit, limit=1)[0].parents
    if len(parents) != 1 or {change.path for change in repository.changes(parents[0], commit)} != set(files):
        return False
    return all(repository.read_file(commit, path) == content for path, content in files.items())
