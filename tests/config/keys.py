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
    "artifacts.url": ("s3://one", "s3://two/team", "s3://three?endpoint=http://127.0.0.1:9000"),
    "artifacts.retention_days": (7, 8, 9),
    "artifacts.grace_minutes": (10, 20, 30),
    "engines.default": ("claude", "llm", "mine"),
    "engines.deadline_seconds": (10.5, 20.5, 30.5),
    "engines.tries": (1, 2, 4),
    "engines.readable": ("/a", "/b ~/c", "/d"),
    "engines.codex.path": ("/a/codex", "/b/codex", "/c/codex"),
    "engines.codex.model": ("gpt-a", "gpt-b", "gpt-c"),
    "engines.codex.effort": ("low", "medium", "high"),
    "engines.codex.base_url": ("http://a:8000/v1", "http://b:8000/v1", "http://c:8000/v1"),
    "engines.codex.key_variable": ("KEY_A", "KEY_B", "KEY_C"),
    "engines.codex.login_url": ("http://a.example/codex", "http://b.example/codex", "http://c.example/codex"),
    "engines.codex.sandbox": ("read-only", "danger-full-access", "workspace-write"),
    "engines.codex.network": (True, False, True),
    "engines.codex.environment": ("JAVA_HOME", "JAVA_HOME GOPATH", "GOPATH"),
    "engines.codex.retries": (1, 3, 0),
    "engines.codex.idle_seconds": (10.5, 20.5, 30.5),
    "engines.codex.resume_days": (1, 2, 3),
    "engines.command.mine.argv": ("a", "a b", "a {model}"),
    "engines.command.mine.model": ("model-a", "model-b", "model-c"),
    "engines.command.mine.environment": ("KEY_A", "KEY_A KEY_B", "KEY_B"),
    "engines.command.mine.variables": ("A=1", "A=1 B=2", "B={home}"),
    "engines.command.mine.network": (False, True, False),
    "engines.command.mine.edits_files": (False, True, False),
    "engines.command.mine.answer": ("last_line", "json:a.b", "file:{home}/answer"),
    "engines.command.mine.error_at": ("error", "error.text", "wrong"),
    "engines.command.mine.error_pattern": ("^Error", "^Fatal", "^Panic"),
    "engines.command.mine.input_tokens_at": ("a.in", "b.in", "c.in"),
    "engines.command.mine.cached_tokens_at": ("a.cached", "b.cached", "c.cached"),
    "engines.command.mine.output_tokens_at": ("a.out", "b.out", "c.out"),
    "engines.command.mine.cost_usd_at": ("a.usd", "b.usd", "c.usd"),
    "engines.command.mine.usage_pattern": ("(?P<input>1)", "(?P<input>2)", "(?P<input>3)"),
    "engines.command.mine.usage_counts": ("sum", "last", "sum"),
    "engines.command.mine.exit_codes": ("1=crashed", "1=refused 2=missing", "3=timeout"),
    "engines.command.mine.patterns": ("refused=a", "refused=a crashed=b", "missing=c"),
    "engines.command.mine.nothing_done": ("refused", "no route", "unreachable"),
    "engines.command.mine.version": ("--version", "version", "-V"),
    "engines.command.mine.install": ("get a", "get b", "get c"),
    "engines.claude.path": ("/a/claude", "/b/claude", "/c/claude"),
    "engines.claude.model": ("claude-a", "claude-b", "claude-c"),
    "engines.claude.effort": ("low", "medium", "high"),
    "engines.claude.base_url": ("http://a:8080", "http://b:8080", "http://c:8080"),
    "engines.claude.key_variable": ("KEY_A", "KEY_B", "KEY_C"),
    "engines.claude.key_kind": ("oauth_token", "api_key", "oauth_token"),
    "engines.claude.tools": ("Read", "Read Edit", "Read Bash"),
    "engines.claude.max_turns": (10, 20, 30),
    "engines.claude.environment": ("LANGUAGE", "LANGUAGE DISPLAY", "DISPLAY"),
    "engines.claude.retries": (1, 3, 0),
    "engines.claude.idle_seconds": (10.5, 20.5, 30.5),
    "engines.claude.resume_days": (1, 2, 3),
    "llm.default": ("code.fast", "code", "local/qwen3"),
    "llm.tries": (4, 5, 6),
    "llm.retry_base_seconds": (0.1, 0.2, 0.3),
    "llm.patience_seconds": (10.5, 20.5, 30.5),
    "llm.call_seconds": (11.5, 21.5, 31.5),
    "llm.repairs": (0, 1, 3),
    "llm.turns": (10, 20, 30),
    "llm.output_tokens": (1000, 2000, 3000),
    "llm.resume_days": (1, 2, 3),
    "llm.endpoints.local.kind": ("ollama", "anthropic", "openai"),
    "llm.endpoints.local.base_url": ("http://a:8000/v1", "http://b:8000/v1", "http://c:8000/v1"),
    "llm.endpoints.local.key_variable": ("KEY_A", "KEY_B", "KEY_C"),
    "llm.endpoints.local.structured": ("native", "tool", "prompt"),
    "llm.endpoints.local.concurrency": (1, 2, 3),
    "llm.endpoints.local.requests_per_minute": (10, 20, 30),
    "llm.endpoints.local.tokens_per_minute": (1000, 2000, 3000),
    "llm.roles.code.fast": ("local/a", "local/b local/c", "local/d"),
    "llm.prices.qwen3-coder.input": (0.5, 1.5, 2.5),
    "llm.prices.qwen3-coder.cached": (0.25, 0.75, 0.0),
    "llm.prices.qwen3-coder.output": (5.5, 6.5, 7.5),
    "memory.store": ("qdrant", "sqlite", "qdrant"),
    "memory.qdrant.url": ("http://a:6333", "http://b:6333", "http://c:6333"),
    "memory.qdrant.api_key": ("key-a", "key-b", "key-c"),
    "memory.qdrant.collection": ("one", "two", "three"),
    "memory.qdrant.timeout_seconds": (5, 6, 7),
    "agents.engine": ("codex", "claude", "llm"),
    "agents.host": ("127.0.0.2", "127.0.0.3", "127.0.0.4"),
    "agents.port": (1, 2, 3),
    "agents.network": (True, False, True),
    "agents.session_seconds": (1.5, 2.5, 3.5),
    "agents.tries": (1, 3, 4),
    "agents.tests_seconds": (1.5, 2.5, 3.5),
    "agents.start_seconds": (1.5, 2.5, 3.5),
    "agents.approval": ("never", "always", "never"),
    "agents.call_seconds": (1.5, 2.5, 3.5),
    "agents.record_bytes": (11, 12, 13),
    "agents.record_share": (0.1, 0.2, 0.3),
    "agents.records_kept": (11, 12, 13),
    "agents.replay_calls": (11, 12, 13),
    "agents.learn": ("auto", "ask", "auto"),
    "agents.learn_after": (11, 12, 13),
    "agents.learn_pause_seconds": (11.0, 12.0, 13.0),
    "agents.learn_runs_per_day": (11, 12, 13),
    "agents.learn_usd_per_day": (11.0, 12.0, 13.0),
    "agents.learn_tokens_per_day": (11, 12, 13),
    "agents.traffic_calls": (31, 32, 33),
    "agents.traffic_margin": (0.1, 0.2, 0.3),
    "agents.health_seconds": (1.5, 2.5, 3.5),
    "agents.health_failures": (1, 2, 4),
    "agents.restart_seconds": (1.5, 2.5, 3.5),
    "agents.restart_cap_seconds": (11.5, 12.5, 13.5),
    "agents.crashes": (1, 2, 3),
    "agents.crash_seconds": (1.5, 2.5, 3.5),
    "agents.idle_seconds": (1.5, 2.5, 3.5),
    "agents.session_idle_seconds": (1.5, 2.5, 3.5),
    "agents.drain_seconds": (1.5, 2.5, 3.5),
    "agents.memory_mb": (128, 256, 512),
    "agents.cpus": (1.0, 2.0, 0.5),
    "agents.processes": (1, 2, 3),
    "agents.quarantines": (1, 2, 3),
    "agents.feedback_bytes": (1, 2, 3),
    "agents.prompt_chars": (2000, 3000, 4000),
    "agents.llm": ("llm:code", "llm:fast", "llm:deep"),
    "agents.llm_tokens": (1, 2, 3),
    "research.stagger_seconds": (0.5, 0.25, 0.0),
    "research.backoff_seconds": (1.0, 2.0, 3.0),
    "research.backoff_cap_seconds": (100.0, 200.0, 300.0),
    "research.session_failures": (1, 2, 3),
    "research.infra_tries": (1, 2, 4),
    "research.infra_errors": (2, 3, 4),
    "research.prompt_chars": (2000, 3000, 4000),
    "research.novelty": (0.5, 0.9, 0.99),
    "workflows.overseer": ("llm:code", "llm:fast", "llm:deep"),
    "workflows.model": ("model-a", "model-b", "model-c"),
    "workflows.repairs": (0, 1, 3),
    "workflows.concurrency": (1, 2, 3),
    "workflows.spread": (True, False, True),
    "workflows.cache_days": (1, 2, 3),
    "workflows.llm": ("llm:code", "llm:fast", "llm:deep"),
    "workflows.reuse": (0.5, 0.6, 0.7),
    "workflows.template": (0.5, 0.6, 0.7),
    "workflows.evolution.auto": (True, False, True),
    "workflows.evolution.engine": ("codex", "claude", "llm"),
    "workflows.evolution.min_runs": (4, 5, 6),
    "workflows.evolution.check_minutes": (1, 2, 3),
    "workflows.evolution.drop": (0.1, 0.2, 0.3),
    "workflows.evolution.low": (0.1, 0.2, 0.3),
    "workflows.evolution.tries": (1, 2, 4),
    "workflows.evolution.cases": (1, 2, 3),
    "workflows.evolution.generated": (10, 20, 30),
    "workflows.evolution.repeats": (2, 3, 4),
    "workflows.evolution.session_seconds": (1.5, 2.5, 3.5),
    "workflows.evolution.budget_usd": (1.5, 2.5, 3.5),
    "tools.folders": ("/a", "/b", "/c:/d"),
    "tools.memory_mb": (64, 128, 256),
    "tools.output_bytes": (1000, 2000, 3000),
    "tools.environment_days": (1, 2, 3),
    "tools.install_seconds": (1.5, 2.5, 3.5),
    "tools.variables": ("KEY_A", "KEY_A KEY_B", "KEY_B"),
    "tools.mcp.files.argv": ("a", "b", "c d"),
    "tools.mcp.files.url": ("http://a:1/mcp", "http://b:1/mcp", "http://c:1/mcp"),
    "tools.mcp.files.environment": ("KEY_A", "KEY_A KEY_B", "KEY_B"),
    "projects.root": ("clones", "/a/clones", "/b/clones"),
    "projects.auto_clone": (False, True, False),
    "projects.github_ssh": (True, False, True),
    "projects.git_user": ("A", "B", "C"),
    "projects.git_email": ("a@x.org", "b@x.org", "c@x.org"),
    "projects.require_clarifications": (True, False, True),
    "projects.discovery": ("codex", "claude", "mine"),
    "projects.discovery_seconds": (10.5, 20.5, 30.5),
    "projects.setup_seconds": (10.5, 20.5, 30.5),
    "projects.environment_days": (1, 2, 3),
    "projects.remote_seconds": (10.5, 20.5, 30.5),
    "projects.secret_key": ("key-a", "key-b", "key-c"),
    "protocols.automatic": (False, True, False),
    "protocols.baseline": (False, True, False),
    "protocols.planner": ("codex", "claude", "mine"),
    "protocols.engine": ("codex", "claude", "mine"),
    "protocols.reviewer": ("codex", "claude", "mine"),
    **{
        f"protocols.models.{phase}": ("gpt-a", "gpt-b", "gpt-c")
        for phase in ("planning", "decompose", "exec", "qa", "discovery")
    },
    "protocols.decompose": (False, True, False),
    "protocols.repairs": (0, 3, 4),
    "protocols.concurrency": (1, 3, 4),
    "protocols.fixes": (0, 3, 4),
    "protocols.session_seconds": (10.5, 20.5, 30.5),
    "protocols.check_seconds": (10.5, 20.5, 30.5),
    "protocols.diff_lines": (10, 20, 30),
    "protocols.trigger_depth": (1, 2, 4),
    "protocols.loops": (1, 2, 3),
    "protocols.worktrees": (0, 5, 6),
    "protocols.push": (False, True, False),
    "protocols.pull_requests": (False, True, False),
    "protocols.ci": ("required", "off", "auto"),
    "protocols.qa_on_ci": (True, False, True),
    "protocols.webhook_secret": ("secret-a", "secret-b", "secret-c"),
    "protocols.github_url": ("http://a", "http://b", "http://c"),
    "protocols.gitlab_url": ("http://a", "http://b", "http://c"),
    "protocols.audit_minutes": (1, 2, 3),
    "placement.kind": ("ray", "processes", "ray"),
    "placement.address": ("a:1", "b:2", "c:3"),
    "placement.cache": ("/a", "/b", "/c"),
    "placement.nodes": (3, 4, 5),
    "log.level": ("debug", "warning", "error"),
    "log.format": ("json", "text", "json"),
    "tracing.enabled": (True, False, True),
    "tracing.endpoint": ("http://a:4318", "http://b:4318", "http://c:4318"),
}

# A person chooses the last word of the others, so that no spelling of it is wrong.
FIXED = [key for key in KEYS if not key.startswith("llm.roles.")]
# A mistake is found the same way in every key of a table.
ONE_OF_EACH_TABLE = list({key.rpartition(".")[0]: key for key in FIXED}.values())

# One of everything that a person names.
NAMED = """
    [queues.gpu]
    [engines.command.mine]
    argv = "a"
    [tools.mcp.files]
    [llm.endpoints.local]
    [llm.roles.code]
    fast = "local/a"
    [llm.prices.qwen3-coder]
    input = 1
    output = 1
"""

# Keys that cannot stand alone; the others of their table get these values.
PARTNER = {
    "memory.store": '[memory.qdrant]\nurl = "http://q:6333"\n[memory]\n',
    **{
        key: '[engines.command.mine]\nargv = "a"\n'
        for key in KEYS
        if key.startswith("engines.command.mine.") and not key.endswith(".argv")
    },
    "queues.gpu.rate_limit": "[queues.gpu]\nrate_seconds = 1.0\n",
    "queues.gpu.rate_seconds": "[queues.gpu]\nrate_limit = 1\n",
    "llm.prices.qwen3-coder.input": "[llm.prices.qwen3-coder]\noutput = 1\n",
    "llm.prices.qwen3-coder.cached": "[llm.prices.qwen3-coder]\ninput = 1\noutput = 1\n",
    "llm.prices.qwen3-coder.output": "[llm.prices.qwen3-coder]\ninput = 1\n",
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
    if isinstance(value, tuple):
        return " ".join(value)
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return value.reveal() if isinstance(value, DatabaseUrl) else value
