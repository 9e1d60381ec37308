"""The environment of a project: what its checks and authors need, installed once by the project's own set-up."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.projects.environments.build import Environments
    from ratchet.projects.environments.environment import (
        Environment,
        Recipe,
        SetupFailed,
        recipe_of,
        stays_inside,
    )
    from ratchet.projects.environments.packages import missing_packages
else:
    __getattr__ = on_demand(__name__)
