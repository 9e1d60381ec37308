"""What a version must pass before it may be promoted: its form, its own tests, its start-up, and canary calls."""

from ratchet.agents.checks.version import Checked, VersionJudge, check_version

__all__ = ["Checked", "VersionJudge", "check_version"]
