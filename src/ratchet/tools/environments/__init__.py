"""The packages that a tool needs, each set in a virtual environment of its own, kept for as long as it is used."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.tools.environments.environment import Environment, environment_for
    from ratchet.tools.environments.requirement import read_requirements
else:
    __getattr__ = on_demand(__name__)

__all__ = ["Environment", "environment_for", "read_requirements"]
