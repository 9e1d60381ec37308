"""The packages that a tool needs, each set in a virtual environment of its own, kept for as long as it is used."""

from ratchet.tools.environments.environment import Environment, environment_for
from ratchet.tools.environments.requirement import read_requirements

__all__ = ["Environment", "environment_for", "read_requirements"]
