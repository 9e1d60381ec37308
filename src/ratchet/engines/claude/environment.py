"""What a session of the Claude CLI gets: settings, model, key, kept conversation, servers and variables."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.config.engine_settings import Claude, Prices
from ratchet.engines.endpoint import HiddenKeys, SettingNames
from ratchet.engines.engine import Failure, Fault, McpServer, Request
from ratchet.engines.program import past_the_proxy, seconds_for
from ratchet.engines.providers import read_key
from ratchet.engines.registry import agent_model, claude_login
from ratchet.engines.session_home import ForeignFile, KeptSessions
from ratchet.kernel import Misuse, decoded

if TYPE_CHECKING:
    from ratchet.engines.registry import EngineContext


TOKEN_VARIABLE = "CLAUDE_CODE_OAUTH_TOKEN"
"""Where Claude Code itself looks for what `claude setup-token` gives."""


@dataclass(frozen=True, slots=True)
class Terms:
    settings: Claude
    model: str | None
    environment: Mapping[str, str]
    """Of the process around, to choose from."""
    home: Path
    """Of Ratchet."""
    key: str
    secrets: HiddenKeys
    kept: ClaudeConversations
    prices: Mapping[str, Prices]
    names: SettingNames
    description: str = ""
    """With what it goes to whom."""
    readable: tuple[Path, ...] = ()
    """What a session may read beside what it needs, by the settings."""


def find_terms(named: str | None, around: EngineContext, kept: ClaudeConversations) -> Terms:
    """Raises `Fault` when there is no key and no login, and `Misuse` for a model that Claude cannot ask."""
    settings = around.settings.engines.claude
    found = agent_model(named, "claude", settings, around)
    held = settings.model_copy(update={"base_url": found.base_url, "key_variable": found.key_variable})
    key = read_key(around.environment, found.key_variable)
    description = f"with the key in {found.key_variable}" if key else f"without a key at {found.base_url}"
    if not key and found.key_variable and settings.base_url is None:
        key, description = _login(around.environment)
        held = held.model_copy(update={"key_kind": "oauth_token"}) if key else held
    if held.base_url is None and not key:
        raise Fault(
            Failure.MISSING,
            f"{held.key_variable} is not set, Claude is not logged in, and Anthropic needs a key",
            hint=f"run `ratchet setup`; or put a key into {held.key_variable}, run `ratchet engine login claude`, or "
            "set engines.claude.base_url to an endpoint that needs none",
        )
    secrets = HiddenKeys((key, json.dumps(key)[1:-1]))
    home = around.home.absolute()
    prices = around.settings.llm.prices
    return Terms(
        held,
        found.model,
        around.environment,
        home,
        key,
        secrets,
        kept,
        prices,
        found.names,
        description,
        around.readable,
    )


def _login(environment: Mapping[str, str]) -> tuple[str, str]:
    """The token of an account and where it is from; nothing without a login. Raises `Fault` for an expired one."""
    if token := read_key(environment, TOKEN_VARIABLE):
        return token, f"with the token in {TOKEN_VARIABLE}"
    login = claude_login(environment)
    if login is None:
        return "", ""
    if login.expired:
        raise Fault(
            Failure.MISSING,
            f"the login of Claude in {login.file} has expired",
            hint="run `ratchet engine login claude`, which renews it, or put what `claude setup-token` gives into "
            f"{TOKEN_VARIABLE}",
        )
    return login.token, f"with the login in {login.file}"


PROJECT = "session"
"""The program keeps conversations by project. Ours is always this one, so that another workspace can resume it."""


class ClaudeConversations:
    def __init__(self, kept: KeptSessions) -> None:
        self._kept = kept

    def keep(self, token: str, home: Path, hide: Callable[[str], str]) -> bool:
        """Keep the conversation of the session whose home is `home`; false if nothing was said in it."""
        try:
            content = b"".join(_belonging(ForeignFile(home, home / _place(token)).read()))
            if not content:
                return False
            self._kept.put(token, hide(decoded(content)).encode())
        except (OSError, ValueError):
            # A session that ended well did so even if there is no room to resume it.
            return False
        return True

    def bring_back(self, token: str, home: Path) -> bool:
        """Put a conversation where the program with this home looks for it; false if it is not kept any more."""
        return self._kept.restore(token, home / _place(token))


def _place(token: str) -> Path:
    return Path("projects", PROJECT, f"{token}.jsonl")


def _belonging(content: bytes) -> Iterator[bytes]:
    """The lines of the conversation itself that are whole.

    The cost so far is left out: with it the program would count the money of the old session into the bill and the
    budget of the one that resumes it.
    """
    for line in content.splitlines(keepends=True):
        try:
            if json.loads(line)["type"] != "cost-state":
                yield line
        except (ValueError, KeyError, TypeError):
            continue


OURS = "ratchet"
"""The server that offers the tools of this process."""

_NAME = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")


def server_names(request: Request) -> tuple[str, ...]:
    """All of them, ours included if it has anything to offer."""
    return (*(server.name for server in request.mcp_servers), *((OURS,) if request.tools else ()))


def check_names(request: Request) -> None:
    """Raises `Misuse` for names that the program would change or could not tell apart."""
    names = server_names(request)
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            raise Misuse(
                f"the MCP server name {name!r} cannot be used",
                hint=f"take letters, digits, '-' and single '_', each name once, and not {OURS!r}",
            )


def write_servers(request: Request, path: Path) -> None:
    """Describe the servers outside this process in a file: a command line would show their secrets to everybody."""
    path.touch(mode=0o600)
    # A call may take as long as the session: it is the session that has a deadline.
    timeout = math.ceil(seconds_for(request) * 1000)
    servers = {each.name: {**_described(each), "timeout": timeout} for each in request.mcp_servers}
    path.write_text(json.dumps({"mcpServers": servers}))


def _described(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "http", "url": server.url}
    program, *arguments = server.argv
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.environment)}


# What any program needs here to find others, to speak the right language and to reach the endpoint.
_PASSED = (
    *("PATH", "LANG", "LC_ALL", "TZ"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
_KEY_DESCRIPTORS = {
    "api_key": "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
    "oauth_token": "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR",
}
_ALWAYS = {
    # Only the endpoint is spoken to: no telemetry, no updates, no plugins.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    # A broken stream is a failure of that request, not the beginning of another kind of request.
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    # Tools are listed from the start; by default the model would have to search for those of a server.
    "ENABLE_TOOL_SEARCH": "false",
    # Nothing is carried from one session to another, and nothing runs beside it.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # What the SDK would have set, had its environment been passed on.
    "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
    "CLAUDE_CODE_PROJECT_DIR_NAME": PROJECT,
    "SHELL": "/bin/bash",
}


def make_environment(
    around: Mapping[str, str], settings: Claude, *, home: Path, sdk_version: str
) -> dict[str, str]:
    temporary = str(home / "tmp")
    passed = (*_PASSED, *settings.environment)
    environment = {name: around[name] for name in passed if name in around} | _ALWAYS | past_the_proxy(around)
    environment |= {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home),
        "TMPDIR": temporary,
        "CLAUDE_CODE_TMPDIR": temporary,
        "CLAUDE_AGENT_SDK_VERSION": sdk_version,
        "CLAUDE_CODE_MAX_RETRIES": str(settings.retries),
        _KEY_DESCRIPTORS[settings.key_kind]: str(KEY_DESCRIPTOR),
    }
    if settings.base_url is not None:
        environment["ANTHROPIC_BASE_URL"] = settings.base_url
    return environment


KEY_VARIABLE = "RATCHET_CLAUDE_KEY"
"""How the key travels into the sandbox. The program itself does not get this variable."""
KEY_DESCRIPTOR = 9
"""Where the program reads its key, once: no command of the session finds it in an environment or in a file."""

_HAND_OVER = f"""exec {KEY_DESCRIPTOR}<<END
${KEY_VARIABLE}
END
unset {KEY_VARIABLE}
exec "$@\""""
_PID = "pid"
_LOOK_SECONDS = 0.005
_DYING_SECONDS = 10.0


def with_key(program: Path) -> list[str]:
    """The command line of the program, to be run inside the sandbox with the key in `KEY_VARIABLE`."""
    return ["/bin/sh", "-c", _HAND_OVER, "sh", str(program)]


def write_launcher(directory: Path, argv: Sequence[str]) -> Path:
    """A script in `directory` that becomes `argv` and whatever arguments it is given: the SDK wants a single file."""
    script = directory / "launch"
    script.write_text(
        f'#!/bin/sh\necho $$ > {shlex.quote(str(directory / _PID))}\nexec {shlex.join(argv)} "$@"\n'
    )
    script.chmod(0o700)
    return script


class Leash:
    """Holds the program that a launcher started: tells when it has ended, and ends it with all that it started.

    The SDK's own way of ending it is polite, slow, and given up when the task that waits for it is cancelled.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / _PID

    async def ended(self) -> None:
        """Wait until it has started and ended."""
        pid = await self._pid()
        with contextlib.ExitStack() as handles, contextlib.suppress(ProcessLookupError):
            await _ended(_handle(pid, handles))

    async def kill(self) -> None:
        """Kill it, and wait until nothing of it is left; first for its start, if need be."""
        pid = await self._pid()
        with contextlib.ExitStack() as handles, contextlib.suppress(TimeoutError):
            dying = _strike(pid, handles)
            async with asyncio.timeout(_DYING_SECONDS):
                for handle in dying:
                    await _ended(handle)

    async def _pid(self) -> int:
        while True:
            with contextlib.suppress(FileNotFoundError, ValueError):
                return int(self._file.read_text())
            await asyncio.sleep(_LOOK_SECONDS)


def _strike(pid: int, handles: contextlib.ExitStack) -> list[int]:
    """Kill the process. Returns what then ends, last the sandbox's first process, and with it all that ran in there."""
    try:
        outer = _handle(pid, handles)
        # Only a child of ours that was not waited for yet: its number cannot belong to another process.
        if os.waitid(os.P_PIDFD, outer, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return []
        inner = [_handle(int(child), handles) for child in _children(pid)]
        signal.pidfd_send_signal(outer, signal.SIGKILL)
    except (ProcessLookupError, ChildProcessError):
        return []
    return [outer, *inner]


def _handle(pid: int, handles: contextlib.ExitStack) -> int:
    handle = os.pidfd_open(pid)
    handles.callback(os.close, handle)
    return handle


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


async def _ended(handle: int) -> None:
    """Wait for the end of a process."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
