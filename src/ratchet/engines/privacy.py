"""What an agent must not see although it sees the machine: Ratchet's own files, and the keys of whoever runs it.

An agent with a network could use the token of the API to approve its own work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ratchet.kernel import Misuse

_SECRETS = (
    *(
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".netrc",
        ".git-credentials",
        ".npmrc",
        ".pypirc",
    ),
    *(".codex", ".claude", ".claude.json", ".gemini", ".config/gh", ".config/gcloud"),
    *(".local/share/opencode/auth.json", ".local/share/keyrings"),
)
_LOGIN_HOMES = ("CODEX_HOME", "CLAUDE_CONFIG_DIR")
# Each costs a mount. What lies deeper, or beside many others, is workspaces rather than secrets.
_MOST = 64


def private_places(
    home: Path, environment: Mapping[str, str], shown: Sequence[Path], hidden: Sequence[Path] = ()
) -> tuple[Path, ...]:
    """Paths to hide from a session that needs only `shown` of Ratchet's `home`: those `hidden` by whom it is for first.

    Raises `Misuse` when something would be both.
    """
    needed = [path.resolve() for path in shown]
    asked = [path.resolve() for path in hidden if path.exists()]
    for place in asked:
        if any(path.is_relative_to(place) for path in needed):
            raise Misuse(f"{place} cannot be hidden from a session that needs something in it")
    user = environment.get("HOME")
    secrets = [Path(user, name) for name in _SECRETS] if user and Path(user).is_absolute() else []
    # Where agent programs keep their logins, if not in the usual place.
    moved = [Path(environment[name]) for name in _LOGIN_HOMES if environment.get(name)]
    secrets += [path for path in moved if path.is_absolute()]
    there = [path for path in secrets if path.exists() and not _leads_through_link(path, Path(user or "/"))]
    return (*asked, *(*there, *_beside(home.resolve(), needed))[:_MOST])


def _beside(directory: Path, shown: Sequence[Path]) -> Iterator[Path]:
    """Everything in `directory` that is not on the way to what is shown, the nearest first."""
    on_the_way = []
    for child in sorted(directory.iterdir()):
        if child.is_symlink() or child in shown:
            continue
        if any(path.is_relative_to(child) for path in shown):
            on_the_way.append(child)
        else:
            yield child
    for child in on_the_way:
        yield from _beside(child, shown)


def _leads_through_link(path: Path, top: Path) -> bool:
    return any(
        each.is_symlink() for each in (path, *path.parents) if each != top and each.is_relative_to(top)
    )
