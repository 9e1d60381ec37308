"""Git with a remote: everything that goes over a wire.

A session may have written into the configuration of a clone, where a remote, a proxy or a helper can be a command. So
git runs here in a directory of our own, with our configuration, and only borrows the objects of the clone. Nobody is
asked for a password: a project has a token, or the user's SSH agent has a key.
"""

from __future__ import annotations

import base64
import contextlib
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ratchet.config.redaction import hide_known, remember_secret
from ratchet.kernel import Missing, Misuse, decoded
from ratchet.ledger.projects import Project
from ratchet.programs import PIPE, Process, TookTooLong, start_program
from ratchet.projects.address import GitAddress, RemoteFailed, corner_of, over_ssh, read_address
from ratchet.projects.secrets import GIT_TOKEN, read_secret
from ratchet.runtime import Runtime
from ratchet.workspaces import find_git
from ratchet.workspaces.directories import Claim, dead_claims
from ratchet.workspaces.repository import FoundRepository
from ratchet.workspaces.workspace import writing

_OUTPUT = 32 * 1024 * 1024
# Only the end of what it complains about is of interest, however much a server has to say.
_COMPLAINT = 64 * 1024
_CHUNK = 64 * 1024
_LOOK_SECONDS = 0.25
# A git that is asked to end removes its locks, which takes a while on a machine that is busy.
_GRACE_SECONDS = 20.0
# Every process of the group holds the end of a pipe: when that is closed, the last of them has ended.
_WATCHER = f"""
import os, select, signal, sys
alive, held = os.pipe()
child = os.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.set_inheritable(held, True)
    os.execv(sys.argv[1], sys.argv[1:])
os.close(held)
ended = os.pidfd_open(child)
if ended not in select.select([0, ended], [], [])[0]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    select.select([alive], [], [], {_GRACE_SECONDS})
    os.killpg(0, signal.SIGKILL)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
"""


@dataclass(frozen=True, slots=True)
class GitResult:
    code: int
    output: bytes
    complaint: str


class GitProcesses:
    """Runs them, from any thread, until `stop`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Kill what runs, and run nothing more."""
        self._stopped.set()

    def pause(self, seconds: float) -> None:
        """Wait before another try. Raises `RemoteFailed` when it is stopped meanwhile."""
        if self._stopped.wait(seconds):
            raise RemoteFailed("git was stopped", hint="start the work again")

    def run(self, argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> GitResult:
        """Run to the end. Raises `RemoteFailed` when it was stopped, takes too long or says too much."""
        what = f"git {argv[1]}"
        watched = [sys.executable, "-I", "-S", "-c", _WATCHER, *argv]
        try:
            process = start_program(watched, input=PIPE, cwd=cwd, environment=environment)
        except OSError as error:
            raise Missing(f"{what} cannot be started in {cwd}: {error.strerror}") from error
        try:
            output, complaint = self._read(process, what)
            code = process.wait(timeout=_LOOK_SECONDS * 40)
        except TookTooLong:
            raise RemoteFailed(f"{what} closed its output and did not end") from None
        finally:
            _end(process)
        return GitResult(code, output, decoded(complaint))

    def _read(self, process: Process, what: str) -> tuple[bytes, bytes]:
        assert process.stdout is not None
        assert process.stderr is not None
        output, complaint = bytearray(), bytearray()
        deadline = time.monotonic() + self._seconds
        with selectors.DefaultSelector() as both:
            both.register(process.stdout, selectors.EVENT_READ, output)
            both.register(process.stderr, selectors.EVENT_READ, complaint)
            while both.get_map():
                if self._stopped.is_set():
                    raise RemoteFailed(f"{what} was stopped", hint="start the work again")
                if time.monotonic() > deadline:
                    raise RemoteFailed(
                        f"{what} did not end within {self._seconds:g} s",
                        hint="see whether the remote answers, or raise projects.remote_seconds",
                    )
                for key, _ in both.select(_LOOK_SECONDS):
                    if not _take(key.fileobj, key.data):  # type: ignore[arg-type]
                        both.unregister(key.fileobj)
                del complaint[:-_COMPLAINT]
                if len(output) > _OUTPUT:
                    raise RemoteFailed(f"{what} was sent more than {_OUTPUT // 1024**2} MiB by the remote")
        return bytes(output), bytes(complaint)


def _take(source: IO[bytes], into: bytearray) -> bool:
    """Add what there is to read; whether more may come."""
    read = os.read(source.fileno(), _CHUNK)
    into += read
    return bool(read)


def _end(process: Process) -> None:
    """End what is left of the group: helpers outlive a git that was killed."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(TookTooLong):
        process.wait(timeout=2 * _GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


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

    address: GitAddress
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
        pairs = (line.split("\t", 1) for line in decoded(said).splitlines() if "\t" in line)
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

    def fetch(self, found: FoundRepository, branch: str) -> str:
        """Bring a branch into the object store of a clone; the commit that it is at. No ref of the clone moves."""
        with self._borrowing(found) as (place, more):
            refspec = f"+refs/heads/{branch}:refs/fetched/tip"
            words = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
            self._said(place, more, "fetch", *words, "--", self.address.text, refspec)
            return (Path(more["GIT_DIR"]) / "refs" / "fetched" / "tip").read_text().strip()

    def push(self, found: FoundRepository, refspec: str) -> GitResult:
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

    def failure(self, ended: GitResult, command: str) -> RemoteFailed:
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
    def _borrowing(self, found: FoundRepository) -> Iterator[tuple[Path, dict[str, str]]]:
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

    def _run(self, place: Path, more: Mapping[str, str], command: str, *words: str) -> GitResult:
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


def origin_of(runtime: Runtime, project: Project) -> str | None:
    """The address that is fetched from and pushed to; `None` for a repository without a remote."""
    if project.git_url is None:
        return None
    return over_ssh(project.git_url) if prefers_ssh(runtime, project) else project.git_url


def prefers_ssh(runtime: Runtime, project: Project) -> bool:
    """Whether GitHub is spoken to over SSH: as a person has answered, else as it is configured."""
    answered = project.facts.get("prefer_ssh")
    return runtime.settings.projects.github_ssh if answered is None else bool(answered)


def transfer_for(runtime: Runtime, project: Project) -> Transfer | None:
    """Git for the project's remote; `None` without one."""
    origin = origin_of(runtime, project)
    if origin is None:
        return None
    with runtime.ledger.read() as tx:
        token = read_secret(tx, runtime, project.id, GIT_TOKEN)
    return Transfer.to(
        origin,
        corner_of(runtime, project.id),
        seconds=runtime.settings.projects.remote_seconds,
        token=token,
    )
