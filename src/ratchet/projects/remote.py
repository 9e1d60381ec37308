"""What the addresses of one repository have in common, and how one is made from another."""

from __future__ import annotations

from ratchet.kernel import Misuse
from ratchet.projects.address import read_address


def remote_key(git_url: str) -> str | None:
    """`host/owner/name` for every address of a repository on a server, the path of one on this machine.

    All in small letters, as the forges see them. `None` for what is no address.
    """
    try:
        address = read_address(git_url)
    except Misuse:
        return None
    if address.transport == "file":
        return address.path
    return f"{address.host}/{address.path.removesuffix('.git')}".lower()


def over_ssh(git_url: str) -> str:
    """The SSH address of a repository on GitHub that is reached by https; any other address as it is."""
    address = read_address(git_url)
    if address.transport not in ("https", "http") or address.host not in ("github.com", "www.github.com"):
        return git_url
    return f"git@github.com:{address.path.removesuffix('.git')}.git"
