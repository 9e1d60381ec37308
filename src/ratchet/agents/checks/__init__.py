"""What a version must pass before it may be promoted: its form, tests, start-up and calls, and what is relied on."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.agents.checks.version import CheckedVersion, VersionJudge, check_version
else:
    __getattr__ = on_demand(__name__)
