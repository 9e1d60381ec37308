"""Workflows: plans as DAGs, nodes in sandboxed processes, tools that evolve."""
