"""The tools of a specialist's session."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.sessions.tools.choice import tool_names, tools_for
else:
    __getattr__ = on_demand(__name__)

__all__ = ["tool_names", "tools_for"]
