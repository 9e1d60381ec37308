"""The tables that everything stands on."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0001"
down_revision = None

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Type = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("scope_id", Number, autoincrement=False, nullable=False),
        sa.Column("policy", sa.String(length=16), nullable=True),
        sa.Column("tokens", Number, nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("wall_seconds", sa.Float(), nullable=True),
        sa.Column("trials", Number, nullable=True),
        sa.PrimaryKeyConstraint("scope", "scope_id", name=op.f("pk_budgets")),
    )
    op.create_table(
        "components",
        sa.Column("name", Words, nullable=False),
        sa.Column("version", Words, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_components")),
    )
    op.create_table(
        "events",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("at", Number, nullable=False),
        sa.Column("type", Type, nullable=False),
        sa.Column("actor", Words, nullable=False),
        sa.Column("request_id", Words, nullable=True),
        sa.Column("project_id", Number, nullable=True),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("step_id", Number, nullable=True),
        sa.Column("attempt_id", Number, nullable=True),
        sa.Column("job_id", Number, nullable=True),
        sa.Column("message", Words, nullable=True),
        sa.Column("data", Json, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_events_job",
        "events",
        ["job_id", "id"],
        unique=False,
        sqlite_where=sa.text("job_id IS NOT NULL"),
        postgresql_where=sa.text("job_id IS NOT NULL"),
    )
    op.create_index(
        "ix_events_project",
        "events",
        ["project_id", "id"],
        unique=False,
        sqlite_where=sa.text("project_id IS NOT NULL"),
        postgresql_where=sa.text("project_id IS NOT NULL"),
    )
    op.create_index(
        "ix_events_run",
        "events",
        ["run_id", "id"],
        unique=False,
        sqlite_where=sa.text("run_id IS NOT NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
    op.create_index(
        "ix_events_step",
        "events",
        ["step_id", "id"],
        unique=False,
        sqlite_where=sa.text("step_id IS NOT NULL"),
        postgresql_where=sa.text("step_id IS NOT NULL"),
    )
    op.create_index("ix_events_type", "events", ["type", "id"], unique=False)
    op.create_table(
        "job_queues",
        sa.Column("name", Words, nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_job_queues")),
    )
    op.create_table(
        "job_tallies",
        sa.Column("queue", Words, nullable=False),
        sa.Column("status", Words, nullable=False),
        sa.Column("process_id", Words, nullable=False),
        sa.Column("count", Number, nullable=False),
        sa.PrimaryKeyConstraint("queue", "status", "process_id", name=op.f("pk_job_tallies")),
    )
    op.create_table(
        "processes",
        sa.Column("id", Words, nullable=False),
        sa.Column("role", Words, nullable=False),
        sa.Column("host", Words, nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("identity", Words, nullable=False),
        sa.Column("version", Words, nullable=False),
        sa.Column("state", Words, nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("busy", sa.Integer(), nullable=False),
        sa.Column("beat", Number, nullable=False),
        sa.Column("started_at", Number, nullable=False),
        sa.Column("beat_at", Number, nullable=False),
        sa.Column("metrics", Json, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_processes")),
    )
    op.create_index("ix_processes_state", "processes", ["state"], unique=False)
    op.create_table(
        "projects",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "schedules",
        sa.Column("name", Words, nullable=False),
        sa.Column("cron", Words, nullable=False),
        sa.Column("timezone", Words, nullable=False),
        sa.Column("kind", Words, nullable=False),
        sa.Column("queue", Words, nullable=False),
        sa.Column("key", Words, nullable=True),
        sa.Column("payload", Json, nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("last_fired_at", Number, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_schedules")),
    )
    op.create_table(
        "usage_totals",
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("scope_id", Number, autoincrement=False, nullable=False),
        sa.Column("input_tokens", Number, nullable=False),
        sa.Column("cached_tokens", Number, nullable=False),
        sa.Column("output_tokens", Number, nullable=False),
        sa.Column("cost_microusd", Number, nullable=False),
        sa.Column("wall_ms", Number, nullable=False),
        sa.Column("trials", Number, nullable=False),
        sa.PrimaryKeyConstraint("scope", "scope_id", name=op.f("pk_usage_totals")),
    )
    op.create_table(
        "runs",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("kind", Words, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("project_id", Number, nullable=True),
        sa.Column("status", Words, nullable=False),
        sa.Column("reason", Words, nullable=True),
        sa.Column("spec", Json, nullable=False),
        sa.Column("result", Json, nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("used_recording", sa.Boolean(), nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("updated_at", Number, nullable=False),
        sa.Column("ended_at", Number, nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_runs_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_kind", "runs", ["kind", "id"], unique=False)
    op.create_index("ix_runs_name", "runs", ["name", "id"], unique=False)
    op.create_index(
        "ix_runs_project",
        "runs",
        ["project_id", "id"],
        unique=False,
        sqlite_where=sa.text("project_id IS NOT NULL"),
        postgresql_where=sa.text("project_id IS NOT NULL"),
    )
    op.create_index("ix_runs_status", "runs", ["status", "id"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("kind", Words, nullable=False),
        sa.Column("queue", Words, nullable=False),
        sa.Column("key", Words, nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("request_id", Words, nullable=True),
        sa.Column("once", Words, nullable=True),
        sa.Column("status", Words, nullable=False),
        sa.Column("stop", Words, nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("timeout_ms", Number, nullable=True),
        sa.Column("delivery", sa.Integer(), nullable=False),
        sa.Column("recoveries", sa.Integer(), nullable=False),
        sa.Column("process_id", Words, nullable=True),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("due_at", Number, nullable=False),
        sa.Column("started_at", Number, nullable=True),
        sa.Column("ended_at", Number, nullable=True),
        sa.Column("result", Json, nullable=True),
        sa.Column("error", Words, nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_jobs_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_jobs_in_line",
        "jobs",
        ["key", "priority", "id"],
        unique=False,
        sqlite_where=sa.text("status IN ('queued', 'waiting') AND key IS NOT NULL"),
        postgresql_where=sa.text("status IN ('queued', 'waiting') AND key IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_process",
        "jobs",
        ["process_id"],
        unique=False,
        sqlite_where=sa.text("status = 'started'"),
        postgresql_where=sa.text("status = 'started'"),
    )
    op.create_index("ix_jobs_queue", "jobs", ["queue", "id"], unique=False)
    op.create_index("ix_jobs_queue_status", "jobs", ["queue", "status", "id"], unique=False)
    op.create_index(
        "ix_jobs_ready",
        "jobs",
        ["queue", "priority", "id"],
        unique=False,
        sqlite_where=sa.text("status = 'queued'"),
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "ix_jobs_run",
        "jobs",
        ["run_id", "id"],
        unique=False,
        sqlite_where=sa.text("run_id IS NOT NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
    op.create_index("ix_jobs_status", "jobs", ["status", "id"], unique=False)
    op.create_index(
        "uq_jobs_once",
        "jobs",
        ["once"],
        unique=True,
        sqlite_where=sa.text("once IS NOT NULL"),
        postgresql_where=sa.text("once IS NOT NULL"),
    )
    op.create_index(
        "uq_jobs_running_key",
        "jobs",
        ["key"],
        unique=True,
        sqlite_where=sa.text("status = 'started' AND key IS NOT NULL"),
        postgresql_where=sa.text("status = 'started' AND key IS NOT NULL"),
    )
    op.create_table(
        "steps",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("run_id", Number, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("status", Words, nullable=False),
        sa.Column("reason", Words, nullable=True),
        sa.Column("spec", Json, nullable=False),
        sa.Column("result", Json, nullable=True),
        sa.Column("created_at", Number, nullable=False),
        sa.Column("updated_at", Number, nullable=False),
        sa.Column("ended_at", Number, nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_steps_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
        sa.UniqueConstraint("run_id", "name", name=op.f("uq_steps_run_id_name")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_steps_run", "steps", ["run_id", "position", "id"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("run_id", Number, nullable=False),
        sa.Column("step_id", Number, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("process_id", Words, nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("outcome", Words, nullable=True),
        sa.Column("reason", Words, nullable=True),
        sa.Column("verdict", Json, nullable=True),
        sa.Column("started_at", Number, nullable=False),
        sa.Column("ended_at", Number, nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id")),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_attempts_step_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("step_id", "number", name=op.f("uq_attempts_step_id_number")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_attempts_run", "attempts", ["run_id", "id"], unique=False)
    op.create_table(
        "artifacts",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", Number, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("media_type", Words, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("attempt_id", Number, nullable=True),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("created_at", Number, nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_artifacts_attempt_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_artifacts_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_artifacts_attempt",
        "artifacts",
        ["attempt_id", "id"],
        unique=False,
        sqlite_where=sa.text("attempt_id IS NOT NULL"),
        postgresql_where=sa.text("attempt_id IS NOT NULL"),
    )
    op.create_index("ix_artifacts_created", "artifacts", ["created_at"], unique=False)
    op.create_index(
        "ix_artifacts_run",
        "artifacts",
        ["run_id", "id"],
        unique=False,
        sqlite_where=sa.text("run_id IS NOT NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
    op.create_index("ix_artifacts_sha256", "artifacts", ["sha256", "id"], unique=False)
    op.create_table(
        "usage",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("at", Number, nullable=False),
        sa.Column("project_id", Number, nullable=True),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("attempt_id", Number, nullable=True),
        sa.Column("engine", Words, nullable=False),
        sa.Column("model", Words, nullable=True),
        sa.Column("input_tokens", Number, nullable=False),
        sa.Column("cached_tokens", Number, nullable=False),
        sa.Column("output_tokens", Number, nullable=False),
        sa.Column("cost_microusd", Number, nullable=False),
        sa.Column("wall_ms", Number, nullable=False),
        sa.Column("trials", Number, nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_usage_attempt_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_usage_project_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_usage_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_usage_run",
        "usage",
        ["run_id", "id"],
        unique=False,
        sqlite_where=sa.text("run_id IS NOT NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
