"""A change of an agent from the first word to the new version: the Architect at work."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.agents.changing.run import change_agent
else:
    __getattr__ = on_demand(__name__)

__all__ = ["change_agent"]
