"""What people and programs are shown of agents: plain values, the same in every face."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.agents.views._checks import checks
    from ratchet.agents.views._comparison import Compared, comparison, find_compared
    from ratchet.agents.views._outcome import outcome
    from ratchet.agents.views._versions import graph, one_version, version_record, versions
    from ratchet.agents.views.agent import agent_record, agents, one_agent
    from ratchet.agents.views.logs import MOST_LINES, Log, LogEnd, after, find_log, log_record, tail
    from ratchet.agents.views.runs import agent_runs, run_record
    from ratchet.agents.views.state import change_record
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "MOST_LINES",
    "Compared",
    "Log",
    "LogEnd",
    "after",
    "agent_record",
    "agent_runs",
    "agents",
    "change_record",
    "checks",
    "comparison",
    "find_compared",
    "find_log",
    "graph",
    "log_record",
    "one_agent",
    "one_version",
    "outcome",
    "run_record",
    "tail",
    "version_record",
    "versions",
]
