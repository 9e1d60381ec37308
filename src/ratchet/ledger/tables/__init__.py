"""The ledger's tables.

Times are whole milliseconds since 1970 (UTC), numbered rows never reuse a number, and JSON is text. The indexes serve
the lists and views: each reads a page from the end of one index, however long the history is. Those that matter only
for unfinished work are partial, so that finished work costs nothing.

Building a table takes a while, so that those of a subject are built when one of them is first used. `metadata` has all
of them.
"""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.ledger.tables._complete import metadata
    from ratchet.ledger.tables._jobs import (
        job_starts,
        job_tallies,
        jobs,
        processes,
        queues,
        schedules,
        triggers,
    )
    from ratchet.ledger.tables._research import (
        ci_checks,
        lessons,
        protocol_steps,
        protocols,
        research,
        specialists,
        trial_tallies,
        trials,
        webhook_deliveries,
    )
    from ratchet.ledger.tables._runs import (
        approvals,
        artifact_contents,
        artifacts,
        attempts,
        budgets,
        clarifications,
        events,
        holds,
        project_secrets,
        projects,
        runs,
        sessions,
        stages,
        steps,
        usage,
        usage_days,
        usage_totals,
    )
    from ratchet.ledger.tables._tools import (
        agent_call_totals,
        agent_calls,
        agent_evals,
        agent_feedback,
        agent_incidents,
        agent_keys,
        agent_secrets,
        agent_traffic,
        agent_versions,
        agents,
        step_results,
        tool_buffers,
        tool_calls,
        tool_starts,
        tool_versions,
        tools,
        workflows,
    )
else:
    __getattr__ = on_demand(__name__)
