"""The agent programs that are missing here, and installing them into the environment that runs Ratchet."""

from __future__ import annotations

import importlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping

from ratchet.extras import find_extra, install_command
from ratchet.kernel import Missing


def missing_programs(agents: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Those of `agents` whose program is not here. Codex may also be on the PATH; Claude needs its SDK."""
    return [
        agent
        for agent in dict.fromkeys(agents)
        if find_extra(agent).absent
        and not (agent == "codex" and shutil.which("codex", path=environment.get("PATH")))
    ]


def install(agent: str) -> str:
    """Install the program of `agent`; the command that did it. Raises `Missing` with what to do instead."""
    command = install_command(agent)
    line = shlex.join(command)
    try:
        # Its progress is for whoever waits; stdout is for what was asked for.
        done = subprocess.run(command, stdout=sys.stderr, check=False)
    except OSError as error:
        raise Missing(
            f"{agent} cannot be installed: {error}", hint=f"install uv or pip, then: {line}"
        ) from error
    if done.returncode:
        packages = shlex.join(find_extra(agent).packages)
        raise Missing(
            f"{agent} could not be installed: `{line}` ended with {done.returncode}",
            hint=f"without a network, bring the packages from a machine that has one (`pip download {packages} -d "
            f"DIR`), then: {line} --no-index --find-links DIR",
        )
    importlib.invalidate_caches()
    return line
