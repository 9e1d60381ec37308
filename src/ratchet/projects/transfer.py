"""Git with a remote: everything that goes over a wire.

A session may have written into the configuration of a clone, where a remote, a proxy or a helper can be a command. So
git runs here in a directory of our own, with our configuration, and only borrows the objects of the clone. Nobody is
asked for a password: a project has a token, or the user's SSH agent has a key.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import Misuse
from ratchet.observe.redaction import hide_known, remember_secret
from ratchet.projects.address import Address, read_address
from ratchet.projects.errors import RemoteFailed
from ratchet.projects.git_process import Ended, GitProcesses
from ratchet.workspaces import find_git
from ratchet.workspaces.claims import Claim, dead_claims
from ratchet.workspaces.discovery import Found
from ratchet.workspaces.ground import writing

_BORROWED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "TMPDIR", "LD_LIBRARY_PATH"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"),
)
_SSH = "ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=15 -oServerAliveCountMax=4"
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_SSH_COMMAND": _SSH,
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:file",
}
_CONFIGURATION = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
    "submodule.recurse": "false",
    # One pack instead of loose objects: a fetch that is killed leaves nothing that looks whole and is not.
    "transfer.unpackLimit": "1",
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "60",
}
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# So many branches tell a remote well enough what is here.
_KNOWN_REFS = 2000
_FORBIDDEN = (
    "Authentication failed",
    "could not read Username",
    "Permission denied",
    "terminal prompts disabled",
    "returned error: 401",
    "returned error: 403",
    "Host key verification failed",
)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Git for one remote. `corner` is a directory for what is under way; what dead processes left there is removed."""

    address: Address
    corner: Path
    processes: GitProcesses
    token: str | None = None

    @classmethod
    def to(cls, url: str, corner: Path, *, seconds: float, token: str | None = None) -> Transfer:
        """Raises `Misuse` for an address that is not used, or over which the token would go in the clear."""
        address = read_address(url)
        if token is not None and address.transport == "http" and address.host not in _LOOPBACK:
            raise Misuse(
                f"the git_token would go to {address.host} unencrypted", hint="use the https address, or SSH"
            )
        return cls(address, corner, GitProcesses(seconds), token)

    def stop(self) -> None:
        self.processes.stop()

    def branches(self, *names: str) -> dict[str, str]:
        """The branches that the remote has, or those of them that are named, with their commits."""
        patterns = [f"refs/heads/{name}" for name in names]
        with self.claimed() as place:
            said = self._said(place, {}, "ls-remote", "--heads", "--", self.address.text, *patterns)
        pairs = (line.split("\t", 1) for line in said.decode(errors="replace").splitlines() if "\t" in line)
        found = {
            ref.removeprefix("refs/heads/"): number for number, ref in pairs if ref.startswith("refs/heads/")
        }
        # A pattern of git's also matches what only ends like it.
        return {name: found[name] for name in names if name in found} if names else found

    def clone(self, place: Path, *, into: str) -> Path:
        """A whole clone in the claimed `place`, checked out."""
        target = place / into
        words = (
            "--quiet",
            "--no-local",
            "--template=",
            "--origin",
            "origin",
            "--no-recurse-submodules",
            "--",
        )
        self._said(place, {}, "clone", *words, self.address.text, str(target))
        return target

    def fetch(self, found: Found, branch: str) -> str:
        """Bring a branch into the object store of a clone; the commit that it is at. No ref of the clone moves."""
        with self._borrowing(found) as (place, more):
            refspec = f"+refs/heads/{branch}:refs/fetched/tip"
            words = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
            self._said(place, more, "fetch", *words, "--", self.address.text, refspec)
            return (Path(more["GIT_DIR"]) / "refs" / "fetched" / "tip").read_text().strip()

    def push(self, found: Found, refspec: str) -> Ended:
        """Try to move a branch of the remote, never by force. How that ended is for the caller to judge."""
        with self._borrowing(found) as (place, more):
            return self._run(
                place, more, "push", "--porcelain", "--no-verify", "--", self.address.text, refspec
            )

    @contextlib.contextmanager
    def claimed(self) -> Iterator[Path]:
        """A directory of this process, gone afterwards however this ends."""
        for _ in dead_claims(self.corner):
            pass
        claim = Claim.take(self.corner, self.corner)
        try:
            with writing(claim.directory):
                yield claim.directory
        finally:
            claim.release()

    def failure(self, ended: Ended, command: str) -> RemoteFailed:
        """What is to be raised when git ended badly, without anything secret in it."""
        said = hide_known(ended.complaint).strip()
        lines = [line for line in said.splitlines() if line.strip()]
        first = next((line for line in lines if line.startswith(("fatal: ", "error: ", "ERROR: "))), "")
        told = first or (lines[-1] if lines else "git said nothing")
        hint = "see whether the address is right and the remote can be reached"
        if any(word in said for word in _FORBIDDEN):
            hint = (
                "load a key that the remote accepts into the SSH agent, and its host key into known_hosts"
                if self.address.transport == "ssh"
                else "give the project a git_token that the remote accepts"
            )
        return RemoteFailed(f"git {command} with {self.address.text} failed: {told[:500]}", hint=hint)

    @contextlib.contextmanager
    def _borrowing(self, found: Found) -> Iterator[tuple[Path, dict[str, str]]]:
        """An empty repository of our own whose objects and branches are those of a clone."""
        with self.claimed() as place:
            directory = place / "transfer.git"
            (directory / "refs").mkdir(parents=True)
            (directory / "HEAD").write_text("ref: refs/heads/none\n")
            extension = "[extensions]\n\tobjectFormat = sha256\n" if found.algorithm == "sha256" else ""
            version = 1 if extension else 0
            (directory / "config").write_text(
                f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = true\n{extension}"
            )
            known = found.git.run(
                "for-each-ref",
                f"--count={_KNOWN_REFS}",
                "--format=%(objectname) %(refname)",
                "refs/heads",
                "refs/remotes",
            )
            (directory / "packed-refs").write_bytes(b"# pack-refs with: \n" + known)
            shallow = found.git.directory / "shallow"
            if shallow.exists():
                (directory / "shallow").write_bytes(shallow.read_bytes())
            yield place, {"GIT_DIR": str(directory), "GIT_OBJECT_DIRECTORY": str(found.objects)}

    def _said(self, place: Path, more: Mapping[str, str], command: str, *words: str) -> bytes:
        ended = self._run(place, more, command, *words)
        if ended.code:
            raise self.failure(ended, command)
        return ended.output

    def _run(self, place: Path, more: Mapping[str, str], command: str, *words: str) -> Ended:
        # The home may lie inside of somebody's repository, whose configuration is none of ours.
        alone = {"GIT_CEILING_DIRECTORIES": str(place.resolve().parent)}
        environment = {**self._environment(), **alone, **more}
        return self.processes.run([find_git(), command, *words], cwd=place, environment=environment)

    def _environment(self) -> dict[str, str]:
        configuration = dict(_CONFIGURATION)
        if self.token is not None and self.address.transport in ("https", "http"):
            credentials = base64.b64encode(f"x-access-token:{self.token}".encode()).decode()
            remember_secret(credentials)
            # Only for this server; and nowhere else when it sends git on to another one.
            configuration[f"http.{self.address.base}.extraHeader"] = f"Authorization: Basic {credentials}"
            configuration["http.followRedirects"] = "false"
        settings = list(configuration.items())
        return {
            **{name: os.environ[name] for name in _BORROWED if name in os.environ},
            **_ENVIRONMENT,
            "GIT_CONFIG_COUNT": str(len(settings)),
            **{f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(settings)},
            **{f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(settings)},
        }
