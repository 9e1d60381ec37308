"""The ledger's tables.

Times are whole milliseconds since 1970 (UTC), numbered rows never reuse a number, and JSON is text. The indexes serve
the lists and views: each reads a page from the end of one index, however long the history is. Those that matter only
for unfinished work are partial, so that finished work costs nothing.
"""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger._columns import Json, Number, Type, Words, numbered, partial, to

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

projects = sa.Table(
    "projects",
    metadata,
    numbered(),
    sa.Column("name", Words, nullable=False, unique=True),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number),
    sa.Column("git_url", Words),
    sa.Column("local_path", Words),
    sa.Column("base_branch", Words),
    sa.Column("ci_provider", sa.String(16)),
    sa.Column("default_models", Json),
    # What is found out about the repository, and what people settled: stack, checks, required checks, identity.
    sa.Column("facts", Json),
    # A key that both addresses of one repository share, so that a webhook finds its project by an index.
    sa.Column("remote", Words),
    sa.Column("token_hash", sa.String(64)),
    sa.Column("setup_run_id", Number),
    sa.Column("archived_at", Number),
    partial("ix_projects_remote", "remote", where="remote IS NOT NULL"),
    partial("ix_projects_token", "token_hash", where="token_hash IS NOT NULL"),
    sqlite_autoincrement=True,
)

runs = sa.Table(
    "runs",
    metadata,
    numbered(),
    sa.Column("kind", Words, nullable=False),
    sa.Column("name", Words, nullable=False),
    to("projects"),
    sa.Column("status", Words, nullable=False),
    sa.Column("reason", Words),
    sa.Column("spec", Json, nullable=False),
    sa.Column("result", Json),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("used_recording", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.Index("ix_runs_status", "status", "id"),
    sa.Index("ix_runs_kind", "kind", "id"),
    sa.Index("ix_runs_name", "name", "id"),
    partial("ix_runs_project", "project_id", "id", where="project_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

steps = sa.Table(
    "steps",
    metadata,
    numbered(),
    to("runs", required=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("status", Words, nullable=False),
    sa.Column("reason", Words),
    sa.Column("spec", Json, nullable=False),
    sa.Column("result", Json),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("updated_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.UniqueConstraint("run_id", "name"),
    sa.Index("ix_steps_run", "run_id", "position", "id"),
    sqlite_autoincrement=True,
)

attempts = sa.Table(
    "attempts",
    metadata,
    numbered(),
    to("runs", required=True),
    to("steps", required=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("process_id", Words),
    sa.Column("simulated", sa.Boolean, nullable=False),
    sa.Column("outcome", Words),
    sa.Column("reason", Words),
    sa.Column("verdict", Json),
    sa.Column("started_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.UniqueConstraint("step_id", "number"),
    sa.Index("ix_attempts_run", "run_id", "id"),
    sqlite_autoincrement=True,
)

# No foreign keys: an event is history and outlives what it speaks of.
events = sa.Table(
    "events",
    metadata,
    numbered(),
    sa.Column("at", Number, nullable=False),
    sa.Column("type", Type, nullable=False),
    sa.Column("actor", Words, nullable=False),
    sa.Column("request_id", Words),
    sa.Column("project_id", Number),
    sa.Column("run_id", Number),
    sa.Column("step_id", Number),
    sa.Column("attempt_id", Number),
    sa.Column("job_id", Number),
    sa.Column("message", Words),
    sa.Column("data", Json),
    sa.Index("ix_events_type", "type", "id"),
    partial("ix_events_project", "project_id", "id", where="project_id IS NOT NULL"),
    partial("ix_events_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("ix_events_step", "step_id", "id", where="step_id IS NOT NULL"),
    partial("ix_events_attempt", "attempt_id", "id", where="attempt_id IS NOT NULL"),
    partial("ix_events_job", "job_id", "id", where="job_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    numbered(),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("size", Number, nullable=False),
    sa.Column("name", Words, nullable=False),
    sa.Column("media_type", Words, nullable=False),
    to("runs"),
    to("attempts"),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Index("ix_artifacts_sha256", "sha256", "id"),
    sa.Index("ix_artifacts_created", "created_at"),
    partial("ix_artifacts_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("ix_artifacts_attempt", "attempt_id", "id", where="attempt_id IS NOT NULL"),
    sqlite_autoincrement=True,
)


def _usage_columns() -> list[sa.Column[int]]:
    names = ("input_tokens", "cached_tokens", "output_tokens", "cost_microusd", "wall_ms", "trials")
    return [sa.Column(name, Number, nullable=False) for name in names]


usage = sa.Table(
    "usage",
    metadata,
    numbered(),
    sa.Column("at", Number, nullable=False),
    to("projects"),
    to("runs"),
    to("attempts"),
    sa.Column("engine", Words, nullable=False),
    sa.Column("model", Words),
    *_usage_columns(),
    partial("ix_usage_run", "run_id", "id", where="run_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# The sums of `usage`, kept in the same transaction, so that a budget check never adds up history.
usage_totals = sa.Table(
    "usage_totals",
    metadata,
    sa.Column("scope", sa.String(16), primary_key=True),
    sa.Column("scope_id", Number, primary_key=True, autoincrement=False),
    *_usage_columns(),
)

# The same by day (since 1970, in UTC), kept with each row of `usage`. One row per run, whose total is held already, so
# that runs do not wait for each other; what is nobody's has run 0, and what names no model an empty one.
usage_days = sa.Table(
    "usage_days",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("run_id", Number, primary_key=True, autoincrement=False),
    sa.Column("engine", Words, primary_key=True),
    sa.Column("model", Words, primary_key=True),
    to("projects"),
    *_usage_columns(),
)

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("scope", sa.String(16), primary_key=True),
    sa.Column("scope_id", Number, primary_key=True, autoincrement=False),
    sa.Column("policy", sa.String(16)),
    sa.Column("tokens", Number),
    sa.Column("cost_usd", sa.Float),
    sa.Column("wall_seconds", sa.Float),
    sa.Column("trials", Number),
)

jobs = sa.Table(
    "jobs",
    metadata,
    numbered(),
    sa.Column("kind", Words, nullable=False),
    sa.Column("queue", Words, nullable=False),
    sa.Column("key", Words),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("payload", Json, nullable=False),
    to("runs"),
    sa.Column("request_id", Words),
    sa.Column("once", Words),
    sa.Column("status", Words, nullable=False),
    sa.Column("stop", Words),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("timeout_ms", Number),
    # The fence: it rises with every hand-over, and only the holder of the newest number may write.
    sa.Column("delivery", sa.Integer, nullable=False),
    sa.Column("recoveries", sa.Integer, nullable=False),
    sa.Column("process_id", Words),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("due_at", Number, nullable=False),
    sa.Column("started_at", Number),
    sa.Column("ended_at", Number),
    sa.Column("result", Json),
    sa.Column("error", Words),
    sa.Index("ix_jobs_status", "status", "id"),
    sa.Index("ix_jobs_queue", "queue", "id"),
    sa.Index("ix_jobs_queue_status", "queue", "status", "id"),
    partial("ix_jobs_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("ix_jobs_process", "process_id", where="status = 'started'"),
    partial(
        "ix_jobs_in_line",
        "key",
        "priority",
        "id",
        where="status IN ('queued', 'waiting') AND key IS NOT NULL",
    ),
    partial("ix_jobs_ready", "queue", "priority", "id", where="status = 'queued'"),
    # Two jobs with one key never overlap: the database itself refuses the second.
    partial("uq_jobs_running_key", "key", where="status = 'started' AND key IS NOT NULL", unique=True),
    partial("uq_jobs_once", "once", where="once IS NOT NULL", unique=True),
    sqlite_autoincrement=True,
)

# How many jobs ended how. One row per process that counted, so that workers do not wait for each other.
job_tallies = sa.Table(
    "job_tallies",
    metadata,
    sa.Column("queue", Words, primary_key=True),
    sa.Column("status", Words, primary_key=True),
    sa.Column("process_id", Words, primary_key=True),
    sa.Column("count", Number, nullable=False),
)

# What an attempt has finished so far: a restart goes on behind the last one.
stages = sa.Table(
    "stages",
    metadata,
    sa.Column("attempt_id", Number, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    sa.Column("name", Words, primary_key=True),
    sa.Column("at", Number, nullable=False),
    sa.Column("data", Json, nullable=False),
)

# One use of an engine: the author of an attempt, or its reviewer.
sessions = sa.Table(
    "sessions",
    metadata,
    numbered(),
    to("runs"),
    to("attempts"),
    sa.Column("role", Words, nullable=False),
    sa.Column("engine", Words, nullable=False),
    sa.Column("model", Words),
    sa.Column("failure", Words),
    sa.Column("reason", Words),
    sa.Column("resume", Words),
    sa.Column("transcript", sa.String(64)),
    sa.Column("simulated", sa.Boolean, nullable=False),
    *_usage_columns(),
    sa.Column("at", Number, nullable=False),
    sa.Index("ix_sessions_engine", "engine", "id"),
    partial("ix_sessions_run", "run_id", "id", where="run_id IS NOT NULL"),
    partial("ix_sessions_attempt", "attempt_id", "id", where="attempt_id IS NOT NULL"),
    partial("ix_sessions_failed", "id", where="failure IS NOT NULL"),
    sqlite_autoincrement=True,
)

# What running attempts may still spend, so that attempts side by side cannot share out the same budget twice.
holds = sa.Table(
    "holds",
    metadata,
    sa.Column("attempt_id", Number, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    to("runs"),
    to("projects"),
    sa.Column("tokens", Number, nullable=False),
    sa.Column("cost_microusd", Number, nullable=False),
    partial("ix_holds_run", "run_id", where="run_id IS NOT NULL"),
    partial("ix_holds_project", "project_id", where="project_id IS NOT NULL"),
)

# Questions to a person, on which a verdict waits.
approvals = sa.Table(
    "approvals",
    metadata,
    numbered(),
    to("runs"),
    to("attempts"),
    sa.Column("once", Words, nullable=False, unique=True),
    sa.Column("subject", Words, nullable=False),
    sa.Column("question", Words, nullable=False),
    sa.Column("data", Json, nullable=False),
    sa.Column("status", Words, nullable=False),
    sa.Column("comment", Words),
    sa.Column("decided_by", Words),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("decided_at", Number),
    sa.Index("ix_approvals_status", "status", "id"),
    partial("ix_approvals_run", "run_id", "id", where="run_id IS NOT NULL"),
    sqlite_autoincrement=True,
)

# What a research run is and where it stands: one row that changes with every trial, so that no view adds up history.
research = sa.Table(
    "research",
    metadata,
    sa.Column("run_id", Number, sa.ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    sa.Column("task", Words, nullable=False),
    sa.Column("score_field", Words, nullable=False),
    sa.Column("direction", sa.String(8), nullable=False),
    sa.Column("keep_policy", Words, nullable=False),
    sa.Column("next_number", sa.Integer, nullable=False),
    # Trials that count, the baseline and infrastructure errors not among them.
    sa.Column("trials", Number, nullable=False),
    sa.Column("baseline", Json),
    sa.Column("best", sa.Integer),
    sa.Column("best_score", sa.Float(53)),
    sa.Column("best_commit", Words),
    # Time in which the run really ran, in all, and when the best was kept.
    sa.Column("active_ms", Number, nullable=False),
    sa.Column("kept_at_ms", Number, nullable=False),
)

trials = sa.Table(
    "trials",
    metadata,
    numbered(),
    to("runs", required=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("parent", sa.Integer),
    sa.Column("depth", sa.Integer, nullable=False),
    sa.Column("compared_to", sa.Integer),
    sa.Column("specialist", Words, nullable=False),
    sa.Column("domain", Words, nullable=False),
    sa.Column("hypothesis", Words, nullable=False),
    sa.Column("expected_delta", Words, nullable=False),
    sa.Column("notes", Words, nullable=False),
    sa.Column("commit", Words),
    to("attempts"),
    sa.Column("proposal", Json),
    sa.Column("simulated", sa.Boolean, nullable=False),
    # NULL while it is in flight.
    sa.Column("status", sa.String(32)),
    sa.Column("score", sa.Float(53)),
    sa.Column("delta", sa.Float(53)),
    sa.Column("reason", Words),
    sa.Column("measurements", Json),
    sa.Column("evaluator", sa.String(64)),
    sa.Column("certificate", sa.String(64)),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("wall_ms", Number),
    # The row of another system that it was imported from, word for word.
    sa.Column("imported", Json),
    sa.Column("started_at", Number, nullable=False),
    sa.Column("ended_at", Number),
    sa.UniqueConstraint("run_id", "number"),
    sa.Index("ix_trials_parent", "run_id", "parent", "number"),
    sa.Index("ix_trials_specialist", "run_id", "specialist", "number"),
    partial("ix_trials_kept", "run_id", "number", where="status IN ('baseline', 'keep')"),
    partial(
        "ix_trials_missed",
        "run_id",
        "score",
        where="score IS NOT NULL AND status NOT IN ('baseline', 'keep', 'infra_error', 'harness_abort')",
    ),
    partial("ix_trials_in_flight", "run_id", "number", where="status IS NULL"),
    sqlite_autoincrement=True,
)

# How many trials of a specialist ended how, kept with each of them.
trial_tallies = sa.Table(
    "trial_tallies",
    metadata,
    sa.Column("run_id", Number, sa.ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    sa.Column("specialist", Words, primary_key=True),
    sa.Column("status", sa.String(32), primary_key=True),
    sa.Column("count", Number, nullable=False),
)

# A specialist of a research run: what it has used, and with what its engine goes on.
specialists = sa.Table(
    "specialists",
    metadata,
    sa.Column("run_id", Number, sa.ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    sa.Column("name", Words, primary_key=True),
    sa.Column("sessions", Number, nullable=False),
    # Failed sessions in a row.
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("problem", Words),
    sa.Column("resume", Words),
    # The last trial whose result its engine has been told.
    sa.Column("told", sa.Integer, nullable=False),
    *_usage_columns(),
    sa.Column("updated_at", Number, nullable=False),
)

# What specialists have learned, in their own words.
lessons = sa.Table(
    "lessons",
    metadata,
    numbered(),
    to("runs", required=True),
    sa.Column("specialist", Words, nullable=False),
    sa.Column("trial", sa.Integer),
    sa.Column("text", Words, nullable=False),
    sa.Column("at", Number, nullable=False),
    sa.Index("ix_lessons_run", "run_id", "id"),
    sqlite_autoincrement=True,
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
    sa.UniqueConstraint("agent_id", "commit"),
    sa.Index("ix_agent_versions_agent", "agent_id", "id"),
    sa.Index("ix_agent_versions_version", "agent_id", "version", "id"),
    partial("ix_agent_versions_promoted", "agent_id", "promoted_at", where="promoted_at IS NOT NULL"),
    sqlite_autoincrement=True,
)

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
    sa.Column("scored", Number, nullable=False),
    sa.Column("score_sum", sa.Float(53), nullable=False),
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

# What else keeps tables in this database, and in which version they are complete.
components = sa.Table(
    "components",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("version", Words, nullable=False),
)

queues = sa.Table(
    "job_queues",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("paused", sa.Boolean, nullable=False),
)

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", Words, primary_key=True),
    sa.Column("cron", Words, nullable=False),
    sa.Column("timezone", Words, nullable=False),
    sa.Column("kind", Words, nullable=False),
    sa.Column("queue", Words, nullable=False),
    sa.Column("key", Words),
    sa.Column("payload", Json, nullable=False),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("created_at", Number, nullable=False),
    sa.Column("last_fired_at", Number),
    # Times up to this one are dealt with.
    sa.Column("seen_at", Number),
    # What happens to times that passed while nobody was there; NULL fires once for all of them.
    sa.Column("missed", sa.String(16)),
    sa.Column("priority", sa.Integer),
    # The schedule as a person said it.
    sa.Column("words", Words),
)

processes = sa.Table(
    "processes",
    metadata,
    sa.Column("id", Words, primary_key=True),
    sa.Column("role", Words, nullable=False),
    sa.Column("host", Words, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("identity", Words, nullable=False),
    sa.Column("version", Words, nullable=False),
    sa.Column("state", Words, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("busy", sa.Integer, nullable=False),
    sa.Column("beat", Number, nullable=False),
    sa.Column("started_at", Number, nullable=False),
    sa.Column("beat_at", Number, nullable=False),
    sa.Column("metrics", Json),
    sa.Index("ix_processes_state", "state"),
)
