"""The tables of protocols, and what a project is besides its name."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0006"
down_revision = "0005"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:

    op.create_table(
        "ci_checks",
        sa.Column("project_id", Number, autoincrement=False, nullable=False),
        sa.Column("commit", sa.String(length=64), nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("provider", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("url", Words, nullable=True),
        sa.Column("detail", Json, nullable=True),
        sa.Column("at", Number, nullable=False),
        sa.Column("updated_at", Number, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_ci_checks_project_id")),
        sa.PrimaryKeyConstraint("project_id", "commit", "name", name=op.f("pk_ci_checks")),
    )
    op.create_table(
        "project_secrets",
        sa.Column("project_id", Number, autoincrement=False, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("value", Words, nullable=False),
        sa.Column("updated_at", Number, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_project_secrets_project_id")),
        sa.PrimaryKeyConstraint("project_id", "name", name=op.f("pk_project_secrets")),
    )
    op.create_table(
        "protocols",
        sa.Column("run_id", Number, autoincrement=False, nullable=False),
        sa.Column("project_id", Number, nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("name", Words, nullable=False),
        sa.Column("description", Words, nullable=True),
        sa.Column("base_branch", Words, nullable=False),
        sa.Column("base_commit", sa.String(length=64), nullable=True),
        sa.Column("worktree_path", Words, nullable=True),
        sa.Column("protocol_root", Words, nullable=True),
        sa.Column("automatic", sa.Boolean(), nullable=False),
        sa.Column("template_config", Json, nullable=True),
        sa.Column("template_source", Json, nullable=True),
        sa.Column("spec", Json, nullable=True),
        sa.Column("spec_hash", sa.String(length=64), nullable=True),
        sa.Column("spec_status", sa.String(length=16), nullable=True),
        sa.Column("spec_errors", Json, nullable=True),
        sa.Column("spec_validated_at", Number, nullable=True),
        sa.Column("pushed", sa.String(length=64), nullable=True),
        sa.Column("pull_request", Json, nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_protocols_project_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_protocols_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_protocols")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_protocols_project_id_name")),
    )
    op.create_index("ix_protocols_project", "protocols", ["project_id", "run_id"], unique=False)
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("provider", sa.String(length=16), nullable=False),
        sa.Column("delivery", Words, nullable=False),
        sa.Column("project_id", Number, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("event", Words, nullable=False),
        sa.Column("outcome", Words, nullable=False),
        sa.Column("at", Number, nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_webhook_deliveries_project_id")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_webhook_deliveries_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        sa.UniqueConstraint(
            "project_id",
            "provider",
            "delivery",
            name=op.f("uq_webhook_deliveries_project_id_provider_delivery"),
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_deliveries_at", "webhook_deliveries", ["at"], unique=False)
    op.create_table(
        "clarifications",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("project_id", Number, nullable=False),
        sa.Column("run_id", Number, nullable=True),
        sa.Column("step_id", Number, nullable=True),
        sa.Column("key", Words, nullable=False),
        sa.Column("question", Words, nullable=False),
        sa.Column("options", Json, nullable=True),
        sa.Column("recommended", Json, nullable=True),
        sa.Column("applies_to", sa.String(length=16), nullable=False),
        sa.Column("blocking", sa.Boolean(), nullable=False),
        sa.Column("answer", Json, nullable=True),
        sa.Column("answered_by", Words, nullable=True),
        sa.Column("answered_at", Number, nullable=True),
        sa.Column("created_at", Number, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_clarifications_project_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_clarifications_run_id")),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_clarifications_step_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clarifications")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_clarifications_project", "clarifications", ["project_id", "id"], unique=False)
    op.create_index(
        "ix_clarifications_run",
        "clarifications",
        ["run_id", "id"],
        unique=False,
        sqlite_where=sa.text("run_id IS NOT NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
    op.create_index(
        "uq_clarifications_project_key",
        "clarifications",
        ["project_id", "key"],
        unique=True,
        sqlite_where=sa.text("run_id IS NULL"),
        postgresql_where=sa.text("run_id IS NULL"),
    )
    op.create_index(
        "uq_clarifications_run_key",
        "clarifications",
        ["run_id", "key"],
        unique=True,
        sqlite_where=sa.text("run_id IS NOT NULL AND step_id IS NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL AND step_id IS NULL"),
    )
    op.create_index(
        "uq_clarifications_step_key",
        "clarifications",
        ["step_id", "key"],
        unique=True,
        sqlite_where=sa.text("step_id IS NOT NULL"),
        postgresql_where=sa.text("step_id IS NOT NULL"),
    )
    op.create_table(
        "protocol_steps",
        sa.Column("step_id", Number, autoincrement=False, nullable=False),
        sa.Column("run_id", Number, nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("step_type", Words, nullable=False),
        sa.Column("engine_id", Words, nullable=True),
        sa.Column("model", Words, nullable=True),
        sa.Column("policy", Json, nullable=True),
        sa.Column("runtime_state", Json, nullable=True),
        sa.Column("summary", Words, nullable=True),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("depends_on", Json, nullable=True),
        sa.Column("commit", sa.String(length=64), nullable=True),
        sa.Column("awaits_ci", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_protocol_steps_run_id")),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_protocol_steps_step_id")),
        sa.PrimaryKeyConstraint("step_id", name=op.f("pk_protocol_steps")),
        sa.UniqueConstraint("run_id", "step_index", name=op.f("uq_protocol_steps_run_id_step_index")),
    )
    op.create_index(
        "ix_protocol_steps_commit",
        "protocol_steps",
        ["commit"],
        unique=False,
        sqlite_where=sa.text('"commit" IS NOT NULL'),
        postgresql_where=sa.text('"commit" IS NOT NULL'),
    )
    op.add_column("projects", sa.Column("updated_at", Number, nullable=True))
    op.add_column("projects", sa.Column("git_url", Words, nullable=True))
    op.add_column("projects", sa.Column("local_path", Words, nullable=True))
    op.add_column("projects", sa.Column("base_branch", Words, nullable=True))
    op.add_column("projects", sa.Column("ci_provider", sa.String(length=16), nullable=True))
    op.add_column("projects", sa.Column("default_models", Json, nullable=True))
    op.add_column("projects", sa.Column("facts", Json, nullable=True))
    op.add_column("projects", sa.Column("remote", Words, nullable=True))
    op.add_column("projects", sa.Column("token_hash", sa.String(length=64), nullable=True))
    op.add_column("projects", sa.Column("setup_run_id", Number, nullable=True))
    op.add_column("projects", sa.Column("archived_at", Number, nullable=True))
    op.create_index(
        "ix_projects_remote",
        "projects",
        ["remote"],
        unique=False,
        sqlite_where=sa.text("remote IS NOT NULL"),
        postgresql_where=sa.text("remote IS NOT NULL"),
    )
    op.create_index(
        "ix_projects_token",
        "projects",
        ["token_hash"],
        unique=False,
        sqlite_where=sa.text("token_hash IS NOT NULL"),
        postgresql_where=sa.text("token_hash IS NOT NULL"),
    )
    op.create_index(
        "ix_events_attempt",
        "events",
        ["attempt_id", "id"],
        unique=False,
        sqlite_where=sa.text("attempt_id IS NOT NULL"),
        postgresql_where=sa.text("attempt_id IS NOT NULL"),
    )
    # From now on every event of a run names the run's project.
    op.execute(
        "UPDATE events SET project_id = (SELECT project_id FROM runs WHERE runs.id = events.run_id)"
        " WHERE project_id IS NULL AND run_id IN (SELECT id FROM runs WHERE project_id IS NOT NULL)"
    )
