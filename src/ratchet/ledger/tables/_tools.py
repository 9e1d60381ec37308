"""Tools, their versions and their calls."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Words, numbered, partial, to
from ratchet.ledger.tables._runs import metadata

# A tool by its id. `current_id` is the version that is called, unless `pinned_id` holds it at another one. Those of
# `folder` are known only where that folder is used, such as beside a workflow; it is empty for those known everywhere.
tools = sa.Table(
    "tools",
    metadata,
    numbered(),
    sa.Column("folder", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    # Where its definition comes from, a mark by which a changed file is told without reading it, and what was in it.
    sa.Column("source", Words, nullable=False),
    sa.Column("source_mark", Words),
    sa.Column("source_hash", sa.String(64)),
    sa.Column("removed", sa.Boolean, nullable=False),
    sa.Column("current_id", Number),
    sa.Column("pinned_id", Number),
    # Grows with every change of any tool: who has seen up to one reads only what is newer.
    sa.Column("revision", Number, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
    sa.UniqueConstraint("folder", "name"),
    sa.Index("ix_tools_revision", "revision"),
    sqlite_autoincrement=True,
)

# Every definition that a tool ever had, and every variant that was tried and not taken (`refused`).
tool_versions = sa.Table(
    "tool_versions",
    metadata,
    numbered(),
    to("tools", required=True),
    sa.Column("version", Words, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("definition", Json, nullable=False),
    sa.Column("change_type", sa.String(16), nullable=False),
    sa.Column("parent_id", Number),
    sa.Column("origin", sa.String(16), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", Words),
    sa.Column("verdict", Json),
    to("runs"),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("promoted_at", Number),
    # What its calls came to, kept with each of them; those of simulations are left out.
    sa.Column("calls", Number, nullable=False),
    sa.Column("failures", Number, nullable=False),
    sa.Column("wall_ms", sa.Float(53), nullable=False),
    sa.Column("cost_microusd", Number, nullable=False),
    sa.Column("tokens", Number, nullable=False),
    sa.Column("unpriced_tokens", Number, nullable=False, server_default="0"),
    sa.Column("scored", Number, nullable=False),
    sa.Column("score_sum", sa.Float(53), nullable=False),
    # How many of its examples fail; empty until they are run.
    sa.Column("examples_failed", Number),
    sa.UniqueConstraint("tool_id", "hash"),
    sa.Index("ix_tool_versions_tool", "tool_id", "id"),
    sa.Index("ix_tool_versions_version", "tool_id", "version", "id"),
    partial("ix_tool_versions_promoted", "tool_id", "promoted_at", where="promoted_at IS NOT NULL"),
    sqlite_autoincrement=True,
)

# One call of a tool as it was measured. Inputs and outputs are kept while they are small: they are real cases to try a
# variant on.
tool_calls = sa.Table(
    "tool_calls",
    metadata,
    numbered(),
    to("tools", required=True),
    sa.Column("version_id", Number, sa.ForeignKey("tool_versions.id"), nullable=False),
    to("runs"),
    sa.Column("step", Words),
    sa.Column("ok", sa.Boolean, nullable=False),
    sa.Column("error", Words),
    sa.Column("wall_ms", sa.Float(53), nullable=False),
    sa.Column("cpu_ms", sa.Float(53)),
    sa.Column("peak_bytes", Number),
    sa.Column("cost_microusd", Number, nullable=False),
    sa.Column("tokens", Number, nullable=False),
    sa.Column("unpriced_tokens", Number, nullable=False, server_default="0"),
    # From 0 to 1, where somebody or something has scored it.
    sa.Column("score", sa.Float(53)),
    sa.Column("input", Json),
    sa.Column("output", Json),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("at", Number, nullable=False),
    sa.Index("ix_tool_calls_tool", "tool_id", "at"),
    sa.Index("ix_tool_calls_version", "version_id", "id"),
    partial("ix_tool_calls_run", "run_id", "id", where="run_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# When a tool that may be called only so often was started; an hour later the row is of no more use.
tool_starts = sa.Table(
    "tool_starts",
    metadata,
    numbered(),
    to("tools", required=True),
    sa.Column("at", Number, nullable=False),
    sa.Index("ix_tool_starts_tool", "tool_id", "at"),
    sqlite_autoincrement=True,
)

# Values that a tool gathers under a name until there are enough.
tool_buffers = sa.Table(
    "tool_buffers",
    metadata,
    numbered(),
    sa.Column("name", Words, nullable=False),
    sa.Column("value", Json),
    sa.Column("at", Number, nullable=False),
    sa.Index("ix_tool_buffers_name", "name", "id"),
    sqlite_autoincrement=True,
)


# The workflows that were saved. A name has as many rows as it had contents; the last is the one that is run.
workflows = sa.Table(
    "workflows",
    metadata,
    numbered(),
    sa.Column("name", Words, nullable=False),
    sa.Column("version", Words, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("description", Words, nullable=False),
    sa.Column("spec", Json, nullable=False),
    sa.Column("origin", Words, nullable=False),
    sa.Column("removed", sa.Boolean, nullable=False),
    to("runs"),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_workflows_name", "name", "id"),
    sqlite_autoincrement=True,
)

# What a step came to, by what was run and what it was given.
step_results = sa.Table(
    "step_results",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", Json, nullable=False),
    sa.Column("metrics", Json, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_step_results_created", "created_at"),
)


# A named, versioned pair of MCP servers. `current` is the commit that its address leads to.
agents = sa.Table(
    "agents",
    metadata,
    numbered(),
    sa.Column("name", Words, nullable=False),
    sa.Column("description", Words, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", Words),
    sa.Column("current", Words),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("engine", Words),
    sa.Column("model", Words),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
    # When a person is asked about a change; as the settings say if it is empty.
    sa.Column("approval", sa.String(16)),
    # Whether incidents become proposals by themselves; as the settings say if it is empty.
    sa.Column("learning", sa.String(16)),
    # What its servers may connect to.
    sa.Column("egress", Json),
    # A name is free again once its agent is deleted.
    partial("uq_agents_name", "name", where="status <> 'deleted'", unique=True),
    sqlite_autoincrement=True,
)

# Every version that was ever promoted, or stands beside as a variant. `parent` is the commit it was made from.
agent_versions = sa.Table(
    "agent_versions",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("commit", Words, nullable=False),
    sa.Column("version", Words, nullable=False),
    sa.Column("parent", Words),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", Words),
    sa.Column("summary", Words, nullable=False),
    sa.Column("tools", Json, nullable=False),
    to("runs"),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    # When it last became the current one; empty again once it was taken back.
    sa.Column("promoted_at", Number),
    # What callers may rely on besides the tools of the Runner, and what the version was promoted on.
    sa.Column("offers", Json),
    sa.Column("certificate", Json),
    sa.UniqueConstraint("agent_id", "commit"),
    sa.Index("ix_agent_versions_agent", "agent_id", "id"),
    sa.Index("ix_agent_versions_version", "agent_id", "version", "id"),
    partial("ix_agent_versions_promoted", "agent_id", "promoted_at", where="promoted_at IS NOT NULL"),
    sqlite_autoincrement=True,
)

# Calls with what they must answer, which belong to the user: every change is held to them. `call_id` is the recorded
# call that one was made from.
agent_evals = sa.Table(
    "agent_evals",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("server", sa.String(16), nullable=False),
    sa.Column("tool", Words, nullable=False),
    sa.Column("arguments", Json, nullable=False),
    sa.Column("expect", Json, nullable=False),
    sa.Column("note", Words),
    sa.Column("call_id", Number),
    sa.Column("created_by", Words, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_agent_evals_agent", "agent_id", "id"),
    sqlite_autoincrement=True,
)

# What lets a caller in who holds nothing else. Of the key itself only a hash is kept.
agent_keys = sa.Table(
    "agent_keys",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("scopes", Json, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("created_by", Words, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.UniqueConstraint("agent_id", "name"),
    sqlite_autoincrement=True,
)

# Encrypted, as the secrets of projects are.
agent_secrets = sa.Table(
    "agent_secrets",
    metadata,
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), primary_key=True, autoincrement=False),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("value", Words, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
)

# Calls that clients made. One that is not whole had something hidden or cut.
agent_calls = sa.Table(
    "agent_calls",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("commit", Words, nullable=False),
    sa.Column("server", sa.String(16), nullable=False),
    sa.Column("tool", Words, nullable=False),
    sa.Column("arguments", Json),
    sa.Column("result", Json),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("milliseconds", Number, nullable=False),
    sa.Column("is_whole", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_agent_calls_agent", "agent_id", "id"),
    sqlite_autoincrement=True,
)

# How often each tool of each version was called, and what came of it. `le_N` counts calls of at most N milliseconds.
agent_call_totals = sa.Table(
    "agent_call_totals",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("commit", Words, nullable=False),
    sa.Column("server", sa.String(16), nullable=False),
    sa.Column("tool", Words, nullable=False),
    sa.Column("calls", Number, nullable=False),
    sa.Column("failed", Number, nullable=False),
    sa.Column("errors", Number, nullable=False),
    sa.Column("milliseconds", Number, nullable=False),
    sa.Column("le_10", Number, nullable=False),
    sa.Column("le_25", Number, nullable=False),
    sa.Column("le_50", Number, nullable=False),
    sa.Column("le_100", Number, nullable=False),
    sa.Column("le_250", Number, nullable=False),
    sa.Column("le_1000", Number, nullable=False),
    sa.Column("le_5000", Number, nullable=False),
    sa.Column("le_30000", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
    sa.UniqueConstraint("agent_id", "commit", "server", "tool"),
    sa.Index("ix_agent_call_totals_updated", "updated_at"),
    sqlite_autoincrement=True,
)

# Calls that went wrong in the same way, with the input of one. `versions` are the commits in which it was seen.
agent_incidents = sa.Table(
    "agent_incidents",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("server", sa.String(16), nullable=False),
    sa.Column("tool", Words, nullable=False),
    sa.Column("message", Words, nullable=False),
    sa.Column("arguments", Json),
    sa.Column("expect", Json),
    sa.Column("is_whole", sa.Boolean, nullable=False),
    sa.Column("count", Number, nullable=False),
    sa.Column("versions", Json, nullable=False),
    sa.Column("first_at", Number, nullable=False),
    sa.Column("last_at", Number, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    to("runs"),
    sa.UniqueConstraint("agent_id", "fingerprint"),
    sa.Index("ix_agent_incidents_agent", "agent_id", "id"),
    partial("ix_agent_incidents_drift", "id", where="kind = 'drift'"),
    sqlite_autoincrement=True,
)

# What callers said of a version by its Tuner; what has no run waits to be worked on.
agent_feedback = sa.Table(
    "agent_feedback",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("commit", Words, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("message", Words, nullable=False),
    sa.Column("severity", sa.String(16), nullable=False),
    sa.Column("count", Number, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("last_at", Number, nullable=False),
    to("runs"),
    sa.UniqueConstraint("agent_id", "commit", "digest"),
    sa.Index("ix_agent_feedback_agent", "agent_id", "id"),
    sqlite_autoincrement=True,
)

# A share of the new sessions of an agent that goes to another version until what came of it is clear.
agent_traffic = sa.Table(
    "agent_traffic",
    metadata,
    numbered(),
    sa.Column("agent_id", Number, sa.ForeignKey("agents.id"), nullable=False),
    sa.Column("against", Words, nullable=False),
    sa.Column("candidate", Words, nullable=False),
    sa.Column("percent", Number, nullable=False),
    sa.Column("wanted_calls", Number, nullable=False),
    sa.Column("margin", sa.Float, nullable=False),
    sa.Column("looks", Number, nullable=False),
    sa.Column("base_current", Number, nullable=False),
    sa.Column("base_current_wrong", Number, nullable=False),
    sa.Column("base_candidate", Number, nullable=False),
    sa.Column("base_candidate_wrong", Number, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", Words),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.Index("ix_agent_traffic_agent", "agent_id", "id"),
    partial("ix_agent_traffic_asks", "id", where="status = 'asks'"),
    sqlite_autoincrement=True,
)
