"""The tables of research: runs' standing, trials and their tallies, specialists, lessons."""

import sqlalchemy as sa
from alembic import op

from ratchet.ledger._columns import Json, Words

revision = "0003"
down_revision = "0002"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "research",
        sa.Column("run_id", Number, autoincrement=False, nullable=False),
        sa.Column("task", Words, nullable=False),
        sa.Column("score_field", Words, nullable=False),
        sa.Column("direction", sa.String(length=8), nullable=False),
        sa.Column("keep_policy", Words, nullable=False),
        sa.Column("next_number", sa.Integer(), nullable=False),
        sa.Column("trials", Number, nullable=False),
        sa.Column("baseline", Json, nullable=True),
        sa.Column("best", sa.Integer(), nullable=True),
        sa.Column("best_score", sa.Float(precision=53), nullable=True),
        sa.Column("best_commit", Words, nullable=True),
        sa.Column("active_ms", Number, nullable=False),
        sa.Column("kept_at_ms", Number, nullable=False),
        _foreign("research", "run_id"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_research")),
    )
    op.create_table(
        "trials",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("run_id", Number, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("compared_to", sa.Integer(), nullable=True),
        sa.Column("specialist", Words, nullable=False),
        sa.Column("domain", Words, nullable=False),
        sa.Column("hypothesis", Words, nullable=False),
        sa.Column("expected_delta", Words, nullable=False),
        sa.Column("notes", Words, nullable=False),
        sa.Column("commit", Words, nullable=True),
        sa.Column("attempt_id", Number, nullable=True),
        sa.Column("proposal", Json, nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=True),
        sa.Column("score", sa.Float(precision=53), nullable=True),
        sa.Column("delta", sa.Float(precision=53), nullable=True),
        sa.Column("reason", Words, nullable=True),
        sa.Column("measurements", Json, nullable=True),
        sa.Column("evaluator", sa.String(length=64), nullable=True),
        sa.Column("certificate", sa.String(length=64), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("wall_ms", Number, nullable=True),
        sa.Column("imported", Json, nullable=True),
        sa.Column("started_at", Number, nullable=False),
        sa.Column("ended_at", Number, nullable=True),
        _foreign("trials", "run_id"),
        _foreign("trials", "attempt_id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint("run_id", "number", name=op.f("uq_trials_run_id_number")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_trials_parent", "trials", ["run_id", "parent", "number"], unique=False)
    op.create_index("ix_trials_specialist", "trials", ["run_id", "specialist", "number"], unique=False)
    _index("ix_trials_kept", "run_id", "number", where="status IN ('baseline', 'keep')")
    _index(
        "ix_trials_missed",
        "run_id",
        "score",
        where="score IS NOT NULL AND status NOT IN ('baseline', 'keep', 'infra_error', 'harness_abort')",
    )
    _index("ix_trials_in_flight", "run_id", "number", where="status IS NULL")
    op.create_table(
        "trial_tallies",
        sa.Column("run_id", Number, autoincrement=False, nullable=False),
        sa.Column("specialist", Words, nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("count", Number, nullable=False),
        _foreign("trial_tallies", "run_id"),
        sa.PrimaryKeyConstraint("run_id", "specialist", "status", name=op.f("pk_trial_tallies")),
    )
    op.create_table(
        "specialists",
        sa.Column("run_id", Number, autoincrement=False, nullable=False),
        sa.Column("name", Words, nullable=False),
        sa.Column("sessions", Number, nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("problem", Words, nullable=True),
        sa.Column("resume", Words, nullable=True),
        sa.Column("told", sa.Integer(), nullable=False),
        sa.Column("input_tokens", Number, nullable=False),
        sa.Column("cached_tokens", Number, nullable=False),
        sa.Column("output_tokens", Number, nullable=False),
        sa.Column("cost_microusd", Number, nullable=False),
        sa.Column("wall_ms", Number, nullable=False),
        sa.Column("trials", Number, nullable=False),
        sa.Column("updated_at", Number, nullable=False),
        _foreign("specialists", "run_id"),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_specialists")),
    )
    op.create_table(
        "lessons",
        sa.Column("id", Number, autoincrement=True, nullable=False),
        sa.Column("run_id", Number, nullable=False),
        sa.Column("specialist", Words, nullable=False),
        sa.Column("trial", sa.Integer(), nullable=True),
        sa.Column("text", Words, nullable=False),
        sa.Column("at", Number, nullable=False),
        _foreign("lessons", "run_id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lessons")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_lessons_run", "lessons", ["run_id", "id"], unique=False)


def _foreign(table: str, column: str) -> sa.ForeignKeyConstraint:
    other = {"run_id": "runs", "attempt_id": "attempts"}[column]
    return sa.ForeignKeyConstraint([column], [f"{other}.id"], name=op.f(f"fk_{table}_{column}"))


def _index(name: str, *columns: str, where: str) -> None:
    condition = sa.text(where)
    op.create_index(
        name, "trials", list(columns), unique=False, sqlite_where=condition, postgresql_where=condition
    )
