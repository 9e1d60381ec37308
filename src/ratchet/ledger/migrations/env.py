"""Run the revisions on the connection that `ratchet.ledger.database` hands over, inside its transaction."""

from alembic import context

from ratchet.ledger.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
