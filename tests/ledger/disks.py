"""Running a piece of a test on a disk of its own: small, or read-only.

Mounts are made in a namespace of the child, so nothing of them is seen outside and they end with it.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
SMALL = "mount -t tmpfs -o size={size} none {directory}"
JOURNALED = (
    "PATH=$PATH:/usr/sbin:/sbin && truncate -s 64M {image} && mkfs.ext4 -q -F -O {feature} {image} "
    "&& mount -o loop {image} {directory}"
)
CUT = (
    "PATH=$PATH:/usr/sbin:/sbin && {{ e2fsck -fy {image} >/dev/null 2>&1 || true; }} "
    "&& mount -o loop {image} {directory}"
)
READ_ONLY = "mount --bind {directory} {directory} && mount -o remount,ro,bind {directory}"


def on_disk(mount: str, directory: Path, act: Callable[[Path], Any], **options: str) -> Any:
    """What `act(directory)`, a function of a module under `tests`, returns when `directory` is mounted so."""
    mounting = mount.format(directory=directory, **options)
    namespace = next(
        (words for words in (["unshare", "-m"], ["unshare", "-Urm"]) if _may(words, mounting)), None
    )
    if namespace is None:
        pytest.skip("this kernel lets nobody mount here")
    module = inspect.getmodule(act)
    assert module is not None
    program = (
        "import json, sys, pathlib, importlib;"
        f" act = importlib.import_module({module.__name__!r}).{act.__name__};"
        f" json.dump(act(pathlib.Path({str(directory)!r})), sys.stdout)"
    )
    command = f'{mounting} && exec "$0" -c "$1"'
    done = subprocess.run(
        [*namespace, "sh", "-c", command, sys.executable, program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _may(namespace: list[str], mounting: str) -> bool:
    return (
        subprocess.run([*namespace, "sh", "-c", mounting], capture_output=True, check=False).returncode == 0
    )
