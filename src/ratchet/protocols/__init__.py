"""Protocols: planned work on a project, through worktrees, QA gates, CI and pull requests."""
