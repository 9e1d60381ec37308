"""`TASKSGODZILLA_*` and `PROTOCOL_*` variables, for whoever has them set: each is another name of a setting.

A `RATCHET_*` variable is stronger. One that has nothing to set here is named with the reason, never silently dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.config.sources import Given, Key
from ratchet.kernel import ConfigError

PREFIX = "TASKSGODZILLA_"

Reader = Callable[[str, Path], object]
"""What a text means for the setting, given the working directory. Raises `ValueError` with what it must be."""


@dataclass(frozen=True, slots=True)
class Alias:
    key: Key
    read: Reader


def _same(text: str, _: Path) -> str:
    return text


def _lower(text: str, _: Path) -> str:
    return text.strip().lower()


def _boolean(text: str, _: Path) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("must be 1, true, yes or on, or 0, false, no or off")


def _json_format(text: str, cwd: Path) -> str:
    return "json" if _boolean(text, cwd) else "text"


def _level(text: str, _: Path) -> str:
    level = text.strip().lower()
    return {"warn": "warning", "critical": "error", "fatal": "error"}.get(level, level)


def _minutes(text: str, _: Path) -> int | None:
    """Whole minutes, rounded up; 0 is never."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError("must be a number of seconds, 0 or more")
    return math.ceil(seconds / 60) or None


def _path(text: str, cwd: Path) -> str:
    """A relative path starts at the working directory here, not at the home."""
    return str(cwd / Path(text).expanduser())


def _database(text: str, cwd: Path) -> str:
    return "sqlite:///" + _path(text, cwd).replace("%", "%25").replace("?", "%3F")


def _at(key: str, read: Reader = _same) -> Alias:
    return Alias(tuple(key.split(".")), read)


# Of two for one key the later is stronger.
ALIASES: Mapping[str, Alias] = {
    "TASKSGODZILLA_DB_PATH": _at("database_url", _database),
    "TASKSGODZILLA_DB_URL": _at("database_url"),
    "TASKSGODZILLA_API_HOST": _at("server.host"),
    "TASKSGODZILLA_API_PORT": _at("server.port"),
    "TASKSGODZILLA_API_TOKEN": _at("server.token"),
    "TASKSGODZILLA_WEBHOOK_TOKEN": _at("protocols.webhook_secret"),
    "TASKSGODZILLA_LOG_LEVEL": _at("log.level", _level),
    "TASKSGODZILLA_LOG_JSON": _at("log.format", _json_format),
    "TASKSGODZILLA_MAX_TOKENS_PER_STEP": _at("budgets.attempt.tokens"),
    "TASKSGODZILLA_MAX_TOKENS_PER_PROTOCOL": _at("budgets.run.tokens"),
    "TASKSGODZILLA_TOKEN_BUDGET_MODE": _at("budgets.policy", _lower),
    "TASKSGODZILLA_AUTO_QA_ON_CI": _at("protocols.qa_on_ci", _boolean),
    "TASKSGODZILLA_SPEC_AUDIT_INTERVAL_SECONDS": _at("protocols.audit_minutes", _minutes),
    "TASKSGODZILLA_PROJECTS_ROOT": _at("projects.root", _path),
    "TASKSGODZILLA_AUTO_CLONE": _at("projects.auto_clone", _boolean),
    "TASKSGODZILLA_GH_SSH": _at("projects.github_ssh", _boolean),
    "TASKSGODZILLA_GIT_USER": _at("projects.git_user"),
    "TASKSGODZILLA_GIT_EMAIL": _at("projects.git_email"),
    "TASKSGODZILLA_REQUIRE_ONBOARDING_CLARIFICATIONS": _at("projects.require_clarifications", _boolean),
    "TASKSGODZILLA_DISCOVERY_TIMEOUT": _at("projects.discovery_seconds"),
    "PROTOCOL_PLANNING_MODEL": _at("protocols.models.planning"),
    "PROTOCOL_DECOMPOSE_MODEL": _at("protocols.models.decompose"),
    "PROTOCOL_EXEC_MODEL": _at("protocols.models.exec"),
    "PROTOCOL_QA_MODEL": _at("protocols.models.qa"),
    "PROTOCOL_DISCOVERY_MODEL": _at("protocols.models.discovery"),
}

_FOR_REPORTS = "only scripts/ci/report.sh and clients of the API use it"
IGNORED: Mapping[str, str] = {
    "TASKSGODZILLA_REDIS_URL": "jobs wait in the database, and no Redis is needed",
    "TASKSGODZILLA_DB_POOL_SIZE": "connections are counted by what runs at once",
    "TASKSGODZILLA_ENV": "there are no settings by the name of an environment",
    "TASKSGODZILLA_AUTO_QA_AFTER_EXEC": "the review of a step always follows its execution",
    "PROTOCOL_SKIP_SIMPLE_DECOMPOSE": "only steps that need it are ever taken apart; see `protocols.decompose`",
    "TASKSGODZILLA_API_BASE": _FOR_REPORTS,
    "TASKSGODZILLA_PROJECT_TOKEN": _FOR_REPORTS,
    "TASKSGODZILLA_CI_PROVIDER": _FOR_REPORTS,
    "TASKSGODZILLA_PROTOCOL_RUN_ID": _FOR_REPORTS,
    "TASKSGODZILLA_BRANCH": _FOR_REPORTS,
    "TASKSGODZILLA_TARGET_URL": _FOR_REPORTS,
}


def from_aliases(env: Mapping[str, str], stronger: Mapping[Key, object], cwd: Path) -> dict[Key, Given]:
    """The settings that other names give, but for those that `stronger` has. An empty variable counts as not set.

    Raises `ConfigError` for a `TASKSGODZILLA_*` variable that nobody knows, and for a value that has no meaning.
    """
    given: dict[Key, Given] = {}
    for name, alias in ALIASES.items():
        if env.get(name) and alias.key not in stronger:
            given[alias.key] = Given(_read(name, alias, env[name], cwd), "environment", name)
    _refuse_unknown(env)
    return given


def ignored_aliases(env: Mapping[str, str]) -> tuple[str, ...]:
    """What is set and does nothing here, each with the reason."""
    return tuple(f"{name} is ignored: {reason}" for name, reason in IGNORED.items() if env.get(name))


def _read(name: str, alias: Alias, text: str, cwd: Path) -> object:
    try:
        return alias.read(text, cwd)
    except ValueError as problem:
        raise ConfigError(f"{name} is {text[:100]!r}; it {problem}") from None


def _refuse_unknown(env: Mapping[str, str]) -> None:
    """Variables that begin with PROTOCOL_ are left alone: other programs have such names too."""
    unknown = [name for name in env if name.startswith(PREFIX) and env[name]]
    unknown = [name for name in unknown if name not in ALIASES and name not in IGNORED]
    if unknown:
        from difflib import get_close_matches

        [first, *_] = sorted(unknown)
        near = get_close_matches(first, [*ALIASES, *IGNORED], n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"{first} is unknown; the nearest is {near}",
            hint="rename it, use a RATCHET_* variable, or remove it",
        )
