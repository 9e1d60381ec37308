"""Where measurements were made, as a certificate tells it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from ratchet.research.adapter import TaskAdapter
from ratchet.sandbox import granted
from ratchet.workspaces import find_git


def environment_facts(task: TaskAdapter) -> dict[str, Any]:
    """Python, the machine, git, the sandbox, and the versions of the packages that the task's programs import."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "packages": _versions(task),
        "git": _git_version(),
        "sandbox": sorted(granted().names),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or "unknown"


def _versions(task: TaskAdapter) -> dict[str, str]:
    programs = (task.evaluator, *(() if task.trial is None else (task.trial,)))
    names = {module.partition(".")[0] for program in programs for module in program.modules}
    packages = importlib.metadata.packages_distributions()
    return {
        package: importlib.metadata.version(package)
        for name in sorted(names - set(sys.stdlib_module_names))
        for package in sorted(set(packages.get(name, ())))
    }


def _git_version() -> str:
    said = subprocess.run(
        [find_git(), "--version"], capture_output=True, text=True, check=False, timeout=10, env={}
    )
    return said.stdout.strip().removeprefix("git version ")
