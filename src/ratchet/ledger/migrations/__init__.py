"""Alembic's scripts: one revision per change of the tables."""
