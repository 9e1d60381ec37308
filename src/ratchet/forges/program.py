"""The way to a forge by its own program, `gh` or `glab`, in the name of whoever is logged in there.

Both have a command `api` that sends one request as it is given; with `--include` it shows the answer as it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from ratchet.config.database_url import mask_text
from ratchet.forges.api import MOST_BYTES, SECONDS, Answer, Unauthenticated, Unreachable
from ratchet.forges.forge import Provider

PROGRAMS: Mapping[Provider, str] = {"github": "gh", "gitlab": "glab"}
_LOGIN_SECONDS = 20.0
# Where the program keeps who is logged in, and how it reaches the network. Nothing else of the environment is its own.
_KEPT = (
    "HOME",
    "PATH",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "GH_CONFIG_DIR",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
    "GLAB_CONFIG_DIR",
    "GITLAB_TOKEN",
    "GITLAB_ACCESS_TOKEN",
    "OAUTH_TOKEN",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
_QUIET = {
    "LC_ALL": "C",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GH_PAGER": "cat",
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "NO_PROMPT": "1",
    "GLAB_NO_PROMPT": "1",
    "GLAB_CHECK_UPDATE": "false",
    "GLAB_SEND_TELEMETRY": "false",
}
# The exit code of `gh` when somebody has to log in first.
_LOGIN_NEEDED = 4


class ProgramApi:
    """Asks through `program`, as whoever is logged in to `host`."""

    def __init__(
        self,
        provider: Provider,
        program: str,
        host: str,
        environment: Mapping[str, str],
        *,
        seconds: float = SECONDS,
    ) -> None:
        self._provider = provider
        self._program = program
        self._host = host
        self._seconds = seconds
        self._environment = _scrubbed(environment)
        self.login = f"{PROGRAMS[provider]} auth login --hostname {host}"

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        words = ["api", "--include", "--hostname", self._host, "--method", method]
        if body is not None:
            words += ["--header", "Content-Type: application/json", "--input", "-"]
        code, said, complaint = await self._run(
            [*words, path], None if body is None else json.dumps(body).encode()
        )
        answer = _answer(said)
        if answer is not None:
            return answer
        if code == _LOGIN_NEEDED:
            raise Unauthenticated(f"nobody is logged in to {self._host}", hint=self.login)
        first = next(iter(complaint.decode(errors="replace").strip().splitlines()), "it said nothing")
        raise Unreachable(
            f"{PROGRAMS[self._provider]} got no answer from {self._host}: {self.hide(first)[:300]}",
            hint=f"try `{PROGRAMS[self._provider]} auth status --hostname {self._host}`",
        )

    def hide(self, text: str) -> str:
        return mask_text(text)

    async def _run(self, words: list[str], given: bytes | None) -> tuple[int, bytes, bytes]:
        """Its exit code and what it said. Whatever happens, nothing of it is left running."""
        process = self._start(words, with_input=given is not None)
        talk = asyncio.create_task(asyncio.to_thread(process.communicate, given))
        try:
            await asyncio.wait({talk}, timeout=self._seconds)
        finally:
            ended = talk.done()
            if not ended:
                # Its leader is not waited for before all pipes are closed, so the number still belongs to this group.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.wait({talk})
        if not ended:
            raise Unreachable(
                f"{PROGRAMS[self._provider]} did not end within {self._seconds:g} s", hint="try again later"
            )
        said, complaint = talk.result()
        if len(said) > MOST_BYTES:
            raise Unreachable(f"the answer has more than {MOST_BYTES} bytes")
        return process.returncode, said, complaint

    def _start(self, words: list[str], *, with_input: bool) -> subprocess.Popen[bytes]:
        """Not by asyncio: what is cancelled while it starts a program there leaves that program's children behind."""
        try:
            return subprocess.Popen(
                [self._program, *words],
                stdin=subprocess.PIPE if with_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(
                f"{self._program} cannot be run: {error.strerror}", hint="install it anew"
            ) from error


def find_program(provider: Provider, host: str, environment: Mapping[str, str]) -> ProgramApi | None:
    """The way through the forge's program, where that is installed and somebody is logged in to `host`."""
    program = shutil.which(PROGRAMS[provider], path=environment.get("PATH", os.defpath))
    if program is None:
        return None
    # `gh auth token` looks only at what is stored here. What it prints is a secret, and thrown away.
    words = ["auth", "token" if provider == "github" else "status", "--hostname", host]
    try:
        asked = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=_scrubbed(environment),
            timeout=_LOGIN_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ProgramApi(provider, program, host, environment) if asked.returncode == 0 else None


def _scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    return {**{name: environment[name] for name in _KEPT if name in environment}, **_QUIET}


def _answer(said: bytes) -> Answer | None:
    """The answer in what `--include` shows: a line with the status, headers, an empty line, the content."""
    if not said.startswith(b"HTTP/"):
        return None
    head, _, content = said.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").splitlines()
    status = first.split(" ")[1:2]
    if not status or not status[0].isdecimal():
        return None
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return Answer(int(status[0]), {name.lower(): value for name, value in headers.items()}, content)
