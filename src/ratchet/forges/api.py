"""Requests to a forge's REST interface: over HTTP with a token or by its own program, and what a refusal means."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import shutil
import signal
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode, urlsplit

from ratchet.config.redaction import MASK, mask_text
from ratchet.forges.forge import Provider
from ratchet.kernel import RatchetError, decoded, first_line
from ratchet.programs import DEVNULL, PIPE, Process, TookTooLong, run_program, start_program

if TYPE_CHECKING:
    import httpx2


_CONNECT_SECONDS = 10.0
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


class RestApi:
    """Sends the token to one address and to no other: redirects are not followed."""

    login = "give the project a new secret `forge_token`"

    def __init__(
        self, url: str, token: str, headers: Mapping[str, str], *, elsewhere: Mapping[str, str] | None = None
    ) -> None:
        """`elsewhere` are paths that are not below `url`."""
        self._url = url.rstrip("/")
        self._token = token
        self._elsewhere = dict(elsewhere or {})
        self._headers = {
            **headers,
            "authorization": f"Bearer {token}",
            # A little that is compressed may unfold to a lot.
            "accept-encoding": "identity",
            "user-agent": "ratchet",
        }

    async def ask(self, method: str, path: str, body: Any = None) -> ForgeResponse:
        import httpx2

        url = self._elsewhere.get(path, f"{self._url}/{path}")
        content = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **({} if body is None else {"content-type": "application/json"})}
        try:
            async with (
                self._client() as client,
                client.stream(method, url, headers=headers, content=content) as response,
            ):
                return ForgeResponse(response.status_code, _lower(response.headers), await _read(response))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            told = self.hide(str(error)) or type(error).__name__
            raise Unreachable(
                f"{self._url} cannot be reached: {told}",
                hint="check the network, and the address in protocols.github_url or protocols.gitlab_url",
            ) from None

    def hide(self, text: str) -> str:
        return text.replace(self._token, MASK)

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        parts = urlsplit(self._url)
        return httpx2.AsyncClient(
            # Certificates take long to load, and are of no use without https.
            verify=_certificates() if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            timeout=httpx2.Timeout(SECONDS, connect=_CONNECT_SECONDS),
            follow_redirects=False,
            # A proxy is for other machines.
            trust_env=parts.hostname not in _HERE,
        )


@functools.cache
def _certificates() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _read(response: httpx2.Response) -> bytes:
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MOST_BYTES:
            raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
    return bytes(content)


_SHOWN = 300
_MINUTE = 60.0
_LONGEST_WAIT = 24 * 3600.0


def refusal(answer: ForgeResponse, api: Api, what: str) -> ForgeError:
    """The error for an answer; `what` names what was asked for."""
    said = api.hide(complaint(answer))
    status = answer.status
    if status == 429 or (status == 403 and _exhausted(answer)):
        return RateLimited(f"{what}: the forge wants no more requests for now: {said}", seconds=_wait(answer))
    if status == 401:
        return Unauthenticated(f"{what}: the forge does not accept the login: {said}", hint=api.login)
    if status == 403:
        return ForgeForbidden(
            f"{what}: the forge forbids it: {said}",
            hint="the token needs the right to write pull requests of this repository, and to read its checks",
        )
    if status in (404, 410):
        return NotThere(
            f"{what}: the forge has no such thing, or does not show it: {said}",
            hint="check the git_url of the project, and that the token may see the repository",
        )
    if 300 <= status < 400:
        return NotThere(
            f"{what}: the repository has moved (HTTP {status})",
            hint="give the project the new git_url",
        )
    if status >= 500:
        return Unreachable(f"{what}: the forge failed (HTTP {status}): {said}", hint="try again later")
    return ForgeRefused(f"{what}: the forge refused (HTTP {status}): {said}")


def complaint(answer: ForgeResponse) -> str:
    """What the forge says in an answer that is no success, in one line."""
    value = answer.value if answer.content else None
    found: list[str] = []
    if isinstance(value, dict):
        parts = [value.get("message"), value.get("error"), value.get("errors")]
        found = [text for part in parts for text in _texts(part)]
    return " ".join("; ".join(found).split())[:_SHOWN] or f"HTTP {answer.status} without a reason"


def _texts(value: object, depth: int = 3) -> list[str]:
    if isinstance(value, str):
        return [value]
    if depth and isinstance(value, list):
        return [text for each in value[:10] for text in _texts(each, depth - 1)]
    if depth and isinstance(value, dict):
        named = value.get("message")
        return (
            [named]
            if isinstance(named, str)
            else [text for each in list(value.values())[:10] for text in _texts(each, depth - 1)]
        )
    return []


def _exhausted(answer: ForgeResponse) -> bool:
    return answer.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in answer.headers


def _wait(answer: ForgeResponse) -> float:
    """The seconds until it is worth asking again: what the forge says, within reason, else a minute."""
    after = answer.headers.get("retry-after", "")
    reset = answer.headers.get("x-ratelimit-reset") or answer.headers.get("ratelimit-reset") or ""
    if after.isdecimal():
        seconds = float(after)
    elif after:
        seconds = _until(after)
    elif reset.isdecimal():
        seconds = float(reset) - time.time()
    else:
        seconds = _MINUTE
    return min(max(1.0, seconds), _LONGEST_WAIT)


def _until(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return _MINUTE


class ForgeError(RatchetError):
    """A forge cannot be asked, or did not do what it was asked."""

    http_status = 502


class NoForge(ForgeError):
    """The repository is on no forge that can be spoken to."""

    http_status = 409


class Unauthenticated(ForgeError):
    """There is no token, or the forge does not accept it."""


class ForgeForbidden(ForgeError):
    """The token is good, but not for this."""


class RateLimited(ForgeError):
    """Too much was asked. `seconds` is when to ask again."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message, hint=f"ask again in {seconds:.0f} seconds")
        self.seconds = seconds


class NotThere(ForgeError):
    """The forge has no such repository or pull request, or does not show it to this token."""


class Unreachable(ForgeError):
    """The forge did not answer, or answered with an error of its own."""


class ForgeRefused(ForgeError):
    """The forge understood and said no."""


MOST_BYTES = 16 * 1024 * 1024
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ForgeResponse:
    """What came back. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def value(self) -> Any:
        """The JSON in it; nothing where there is none."""
        if not self.content.strip():
            return None
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            if self.ok:
                raise Unreachable(
                    f"the forge answered {self.status} with something that is no JSON",
                    hint="check that protocols.github_url or protocols.gitlab_url is the address of its REST interface",
                ) from None
            return None


class Api(Protocol):
    """A way to a forge's REST interface that knows who asks."""

    login: str
    """What a person does when the forge does not accept who asks."""

    async def ask(self, method: str, path: str, body: Any = None) -> ForgeResponse:
        """Send one request; `path` is relative and escaped. Raises `Unreachable` or `Unauthenticated`."""
        ...

    def hide(self, text: str) -> str:
        """The text without any secret that this way knows."""
        ...


def with_query(path: str, **query: str | int) -> str:
    return f"{path}?{urlencode(query)}"


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

    async def ask(self, method: str, path: str, body: Any = None) -> ForgeResponse:
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
            raise Unauthenticated(f"no one is logged in to {self._host}", hint=self.login)
        first = first_line(decoded(complaint)) or "it said nothing"
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

    def _start(self, words: list[str], *, with_input: bool) -> Process:
        """Not by asyncio: what is cancelled while it starts a program there leaves that program's children behind."""
        try:
            return start_program(
                [self._program, *words],
                input=PIPE if with_input else DEVNULL,
                cwd="/",
                environment=self._environment,
            )
        except OSError as error:
            raise Unreachable(
                f"{self._program} cannot be run: {error.strerror}", hint="reinstall it"
            ) from error


def find_program(provider: Provider, host: str, environment: Mapping[str, str]) -> ProgramApi | None:
    """The way through the forge's program, where that is installed and somebody is logged in to `host`."""
    program = shutil.which(PROGRAMS[provider], path=environment.get("PATH", os.defpath))
    if program is None:
        return None
    # `gh auth token` looks only at what is stored here. What it prints is a secret, and thrown away.
    words = ["auth", "token" if provider == "github" else "status", "--hostname", host]
    try:
        asked = run_program(
            [program, *words], cwd="/", environment=_scrubbed(environment), seconds=_LOGIN_SECONDS
        )
    except (OSError, TookTooLong):
        return None
    return ProgramApi(provider, program, host, environment) if asked.returncode == 0 else None


def _scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    return {**{name: environment[name] for name in _KEPT if name in environment}, **_QUIET}


def _answer(said: bytes) -> ForgeResponse | None:
    """The answer in what `--include` shows: a line with the status, headers, an empty line, the content."""
    if not said.startswith(b"HTTP/"):
        return None
    head, _, content = said.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").splitlines()
    status = first.split(" ")[1:2]
    if not status or not status[0].isdecimal():
        return None
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return ForgeResponse(int(status[0]), {name.lower(): value for name, value in headers.items()}, content)
