"""The pages, a module for each place."""

from ratchet.server.console import (
    agent_calls,
    agents,
    attempts,
    projects,
    protocols,
    queue,
    research,
    runs,
    settings,
    tools,
    usage,
    workflow_runs,
    workflows,
)

ROUTERS = (
    runs.router,
    queue.router,
    usage.router,
    settings.router,
    agent_calls.router,
    agents.router,
    tools.router,
    workflow_runs.router,
    workflows.router,
    attempts.router,
    projects.router,
    protocols.router,
    research.router,
)
