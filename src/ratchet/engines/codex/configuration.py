"""How Codex reaches its model, and the configuration of one session, written by Ratchet alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.config.engine_settings import Codex
from ratchet.engines.endpoint import HiddenKeys, SettingNames
from ratchet.engines.engine import Failure, Fault, McpServer, Request
from ratchet.engines.program import past_the_proxy, seconds_for
from ratchet.engines.providers import read_key
from ratchet.engines.registry import AgentModel, Login, agent_model, codex_login
from ratchet.kernel import Misuse, decoded

if TYPE_CHECKING:
    from ratchet.engines.registry import EngineContext


# How the token of a login travels: by a variable that Codex reads and its commands do not see, as a key does.
_LOGIN_VARIABLE = "RATCHET_CODEX_LOGIN"
_ACCOUNT_HEADER = "chatgpt-account-id"


@dataclass(frozen=True, slots=True)
class CodexAccess:
    """`settings` are those of the table with the address and the variable that hold for this model."""

    settings: Codex
    model: str | None
    environment: Mapping[str, str] = field(repr=False)
    secrets: HiddenKeys = field(repr=False)
    names: SettingNames
    headers: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    """With what it goes to whom."""
    by_login: bool = False

    def or_model(self, usual: str | None) -> CodexAccess:
        """With the program's usual model where none is named: its price is known before it is used. The login of an
        account may have other models, so that is left to the program."""
        return self if self.model or self.by_login else replace(self, model=usual)


def find_access(named: str | None, settings: Codex, around: EngineContext) -> CodexAccess:
    """Raises `Fault` when there is no key and no login, and `Misuse` for a model that Codex cannot ask."""
    found = agent_model(named, "codex", settings, around)
    held = settings.model_copy(update={"base_url": found.base_url, "key_variable": found.key_variable})
    key = read_key(around.environment, found.key_variable)
    login = None if key or found.base_url is not None else codex_login(around.environment)
    if login is not None:
        return _logged_in(login, held, found, around.environment)
    if found.base_url is None and not key:
        variable = found.key_variable
        raise Fault(
            Failure.MISSING,
            f"{variable} is not set, Codex is not logged in, and OpenAI needs a key",
            hint=f"run `ratchet setup`; or put a key into {variable}, run `ratchet engine login codex`, or set "
            "engines.codex.base_url to an endpoint that needs none",
        )
    description = f"with the key in {found.key_variable}" if key else f"without a key at {found.base_url}"
    environment = {**around.environment, found.key_variable: key} if key else around.environment
    return CodexAccess(held, found.model, environment, _hiding(key), found.names, description=description)


def _logged_in(
    login: Login, settings: Codex, found: AgentModel, environment: Mapping[str, str]
) -> CodexAccess:
    if login.expired:
        raise Fault(
            Failure.MISSING,
            f"the login of Codex in {login.file} has expired",
            hint="run `ratchet engine login codex`, which renews it",
        )
    url = settings.base_url if login.is_key else settings.login_url
    return CodexAccess(
        settings.model_copy(update={"base_url": url, "key_variable": _LOGIN_VARIABLE}),
        found.model,
        {**environment, _LOGIN_VARIABLE: login.token},
        _hiding(login.token),
        found.names,
        {_ACCOUNT_HEADER: login.account} if login.account else {},
        f"with the login in {login.file}",
        by_login=True,
    )


def _hiding(key: str) -> HiddenKeys:
    return HiddenKeys((key, json.dumps(key)[1:-1]))


_PROVIDER = "ratchet"
OPENAI = "https://api.openai.com/v1"
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SERVER_START_SECONDS = 60
# What Codex needs to get through the proxy of a company; its commands do not see them.
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
_PROJECT_NOTES = "AGENTS.md"
_NOTES_BYTES = 32 * 1024
_RULES = (
    "You work alone: nobody can answer questions. Leave your changes in the working directory; they are committed for "
    "you afterwards, and `.git` is read-only. Commands with `rm -f` or `rm -rf` are refused here: use `rm`, `rm -r` or "
    "`find … -delete`."
)


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """Where one session keeps its things, all below its own directory."""

    home: Path

    @property
    def scratch(self) -> Path:
        """The TMPDIR of the session, and the home of its commands.

        Inside of CODEX_HOME: were it the other way round, Codex would not make the aliases its sandbox needs. And not
        `tmp`, where it makes them: commands may write here, and must not be able to replace them.
        """
        return self.home / "scratch"

    @property
    def schema(self) -> Path:
        return self.home / "schema.json"

    @property
    def rollouts(self) -> Path:
        return self.home / "sessions"


def write_files(
    files: SessionFiles, access: CodexAccess, request: Request, workspace: Path
) -> dict[str, str]:
    """Write what a session needs into its directory and return its environment: all that Codex gets to see.

    Raises `Misuse` for MCP servers that Codex cannot be given.
    """
    files.scratch.mkdir()
    variables = _environment(files, access.settings, access.environment)
    servers = {each.name: _server(each, variables, seconds_for(request)) for each in request.mcp_servers}
    tables = _tables(files, access, request, workspace)
    text = "\n".join(_lines({**tables, "mcp_servers": servers})) + "\n"
    (files.home / "config.toml").write_text(text, encoding="utf-8", errors="replace")
    if request.output_schema is not None:
        files.schema.write_text(json.dumps(request.output_schema))
    return variables


def _environment(files: SessionFiles, settings: Codex, environment: Mapping[str, str]) -> dict[str, str]:
    names = (*_NETWORK, *(name.lower() for name in _NETWORK[:4]), settings.key_variable)
    return {
        "PATH": environment.get("PATH", "/usr/bin:/bin"),
        "LANG": environment.get("LANG", "C.UTF-8"),
        "HOME": str(files.home),
        "CODEX_HOME": str(files.home),
        "TMPDIR": str(files.scratch),
        **{name: environment[name] for name in names if environment.get(name)},
        **past_the_proxy(environment),
    }


def _tables(files: SessionFiles, access: CodexAccess, request: Request, workspace: Path) -> dict[str, Any]:
    settings, environment = access.settings, access.environment
    provider: dict[str, Any] = {
        "name": _PROVIDER,
        "base_url": settings.base_url or OPENAI,
        "wire_api": "responses",
        "requires_openai_auth": False,
        # These two multiply, so only one of them is used.
        "request_max_retries": 0,
        "stream_max_retries": settings.retries,
        "stream_idle_timeout_ms": round(settings.idle_seconds * 1000),
    }
    if environment.get(settings.key_variable):
        # By its name: commands can read this file.
        provider["env_key"] = settings.key_variable
    if access.headers:
        provider["http_headers"] = dict(access.headers)
    chosen = {"model": access.model, "model_reasoning_effort": settings.effort}
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        "model_provider": _PROVIDER,
        "model_providers": {_PROVIDER: provider},
        "approval_policy": "never",
        "sandbox_mode": settings.sandbox,
        "sandbox_workspace_write": {"network_access": settings.network, "exclude_slash_tmp": True},
        "developer_instructions": _instructions(request, workspace),
        "web_search": "disabled",
        # A login shell would read /etc/profile, which resets the PATH.
        "allow_login_shell": False,
        "shell_environment_policy": {
            "inherit": "core",
            "ignore_default_excludes": False,
            "set": {
                "HOME": str(files.scratch),
                "LANG": environment.get("LANG", "C.UTF-8"),
                **{name: environment[name] for name in settings.environment if name in environment},
                **request.environment,
            },
        },
        # Otherwise `.codex/config.toml` of the workspace could name programs to start outside the sandbox.
        "projects": {str(workspace): {"trust_level": "untrusted"}},
        "analytics": {"enabled": False},
        "feedback": {"enabled": False},
        "history": {"persistence": "none"},
        "skills": {"bundled": {"enabled": False}},
        "features": {
            "plugins": False,
            "apps": False,
            "hooks": False,
            "goals": False,
            "multi_agent": False,
            "daemon_auto_start": False,
            # Without this a dead endpoint is tried for ever, whatever the retries say.
            "unbounded_connection_retries": False,
        },
    }


def _instructions(request: Request, workspace: Path) -> str:
    parts = [_RULES, request.system, _project_notes(workspace)]
    return "\n\n".join(part for part in parts if part)


def _project_notes(workspace: Path) -> str | None:
    """What AGENTS.md says. Codex does not read it in a project that it does not trust."""
    path = workspace / _PROJECT_NOTES
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        notes = decoded(file.read(_NOTES_BYTES)).strip()
    return f"The project's own {_PROJECT_NOTES}:\n\n{notes}" if notes else None


def _server(server: McpServer, variables: dict[str, str], seconds: float) -> dict[str, Any]:
    """The table of an MCP server. What its environment needs goes into `variables`, out of reach of commands.

    A call may take as long as the session, which is `seconds`: it is the session that has a deadline.
    """
    if not _SERVER_NAME.fullmatch(server.name):
        raise Misuse(
            f"Codex takes no MCP server named {server.name!r}", hint="use letters, digits, '_' and '-' only"
        )
    table: dict[str, Any] = {
        "required": True,
        "default_tools_approval_mode": "approve",
        "startup_timeout_sec": _SERVER_START_SECONDS,
        "tool_timeout_sec": math.ceil(seconds),
    }
    if server.url is not None:
        return {**table, "url": server.url}
    for name, value in server.environment.items():
        if variables.setdefault(name, value) != value:
            raise Misuse(
                f"the MCP server {server.name} wants {name} to be different from what Codex or another server has",
                hint="give it the value in another variable or in its arguments",
            )
    command, *arguments = server.argv
    return {**table, "command": command, "args": arguments, "env_vars": list(server.environment)}


def _lines(tables: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """TOML with dotted keys."""
    for name, value in tables.items():
        key = prefix + _toml(name)
        if isinstance(value, Mapping):
            yield from _lines(value, f"{key}.")
        else:
            yield f"{key} = {_toml(value)}"


def _toml(value: Any) -> str:
    # JSON is TOML for these, but for one character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
