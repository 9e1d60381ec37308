"""The sandbox as an argv prefix, for libraries that start a program themselves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ratchet.sandbox.bounds import Bounds
from ratchet.sandbox.plan import spec_of
from ratchet.sandbox.policy import Policy

_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.launch import main; main()"


def wrapped(argv: Sequence[str], *, cwd: Path, policy: Policy, bounds: Bounds | None = None) -> list[str]:
    """The same run as an argv; arguments added at its end are the command's.

    Any user can read an argv, so it only names the variables of `policy.environment`: whoever starts it must give it
    their values. It ends as the command ends, with 125 if that could not be run, and by SIGKILL if it was stopped.
    The bytes of its output are not bounded, and it dies with the thread that starts it.
    """
    spec = spec_of(argv, cwd, bounds or Bounds(), policy)
    named = spec._replace(argv=[], environment=None, variables=sorted(policy.environment))
    inside = str(Path(__file__).parent)
    return [sys.executable, "-I", "-S", "-c", _START, inside, named.to_json(), *argv]
