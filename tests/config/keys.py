"""Every key with three different valid values, weakest source first."""

from __future__ import annotations

import json
from typing import Any

from pydantic import SecretStr

from ratchet.config import DatabaseUrl, Settings

KEYS: dict[str, tuple[Any, Any, Any]] = {
    "database_url": ("sqlite:////a/l.db", "postgresql://b/l", "sqlite:////c/l.db"),
    "server.host": ("10.0.0.1", "10.0.0.2", "10.0.0.3"),
    "server.port": (1001, 1002, 1003),
    "server.token": ("token-a", "token-b", "token-c"),
    "runtime.slots": (11, 12, 13),
    "runtime.poll_seconds": (0.2, 0.3, 0.4),
    "runtime.heartbeat_seconds": (1.1, 1.2, 1.3),
    "runtime.dead_after_seconds": (21.0, 22.0, 23.0),
    "runtime.max_attempts": (5, 6, 7),
    "runtime.retry_base_seconds": (2.0, 3.0, 4.0),
    "runtime.retry_cap_seconds": (70.0, 80.0, 90.0),
    "runtime.max_recoveries": (21, 22, 23),
    "runtime.job_timeout_seconds": (100.0, 200.0, 300.0),
    "runtime.drain_seconds": (5.0, 6.0, 0.0),
    "runtime.delivery_history_hours": (1, 2, 3),
    "queues.gpu.concurrency": (2, 3, 4),
    "queues.gpu.rate_limit": (20, 30, 40),
    "queues.gpu.rate_seconds": (20.0, 30.0, 40.0),
    "budgets.policy": ("warn", "off", "strict"),
    **{
        f"budgets.{scope}.{measure}": values
        for scope in ("attempt", "run", "project")
        for measure, values in {
            "tokens": (10, 20, 30),
            "cost_usd": (0.5, 1.5, 2.5),
            "wall_seconds": (10.5, 20.5, 30.5),
            "trials": (1, 2, 3),
        }.items()
    },
    "artifacts.retention_days": (7, 8, 9),
    "artifacts.grace_minutes": (10, 20, 30),
    "log.level": ("debug", "warning", "error"),
    "log.format": ("json", "text", "json"),
    "tracing.enabled": (True, False, True),
    "tracing.endpoint": ("http://a:4318", "http://b:4318", "http://c:4318"),
}

# A limit on the rate is two keys; the one that is not under test gets this value.
PARTNER = {
    "queues.gpu.rate_limit": "[queues.gpu]\nrate_seconds = 1.0\n",
    "queues.gpu.rate_seconds": "[queues.gpu]\nrate_limit = 1\n",
}


def toml(key: str, value: Any) -> str:
    table, _, name = key.rpartition(".")
    header = f"[{table}]\n" if table and key not in PARTNER else ""
    return PARTNER.get(key, "") + f"{header}{name} = {json.dumps(value)}\n"


def variable(key: str) -> str:
    return "RATCHET_" + key.upper().replace(".", "__")


def value_of(settings: Settings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return value.reveal() if isinstance(value, DatabaseUrl) else value
