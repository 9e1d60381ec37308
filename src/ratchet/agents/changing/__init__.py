"""A change of an agent from the first word to the new version: the Architect at work."""

from ratchet.agents.changing.run import change_agent

__all__ = ["change_agent"]
