"""Other places to run Ratchet in: as an ordinary user, and under a kernel that grants less."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ratchet
from ratchet.sandbox import IsolationRefused
from ratchet.sandbox.inside import linux, seccomp, tree
from ratchet.sandbox.policy import python_directories

NOBODY = 65534
CHECKOUT = Path(ratchet.__file__).parents[2]


def python_as(place: Callable[[], None], program: str) -> Any:
    """What a Python program prints as JSON when it runs in `place`. Raises `IsolationRefused` if that ended it."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        preexec_fn=place,
        capture_output=True,
        check=False,
        timeout=300,
        cwd="/",
        env={},
    )
    said = done.stderr.decode()
    refusal = f"{IsolationRefused.__module__}.{IsolationRefused.__name__}: "
    if said.rpartition("\n" + refusal)[1]:
        raise IsolationRefused(said)
    assert done.returncode == 0, said
    return json.loads(done.stdout)


def as_here() -> None:
    """No other place at all."""


def ordinary_user() -> None:
    """Become nobody in particular. Python and Ratchet stay within reach, also where they live in the home of root."""
    if os.geteuid() != 0:
        return
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", "none", linux.MS_REC | linux.MS_PRIVATE)
    needed = sorted({*python_directories(), str(CHECKOUT)})
    pieces = [tree.cloned(path, 0) for path in needed if path.startswith("/root/")]
    root = os.open("/", os.O_PATH)
    if pieces:
        linux.mount("tmpfs", "/root", "tmpfs", 0, "mode=0755")
    for piece in pieces:
        tree.attach(root, piece)
    os.close(root)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def without_namespaces() -> None:
    """Under a filter like that of a container that lets nobody make namespaces."""
    _without(seccomp._numbers("unshare setns mount"), errno.EPERM)


def root_without_rights() -> None:
    """Root as a container has it that was given no capability at all: it cannot even map itself elsewhere."""
    if os.geteuid() == 0:
        linux.forgo_capabilities()
        linux.drop_capabilities()


def ordinary_user_without_namespaces() -> None:
    ordinary_user()
    without_namespaces()


def without_user_namespaces() -> None:
    """Under a kernel that lets only root make namespaces, and none of users."""
    allow, refuse = seccomp._ALLOW, seccomp._ERRNO | errno.EPERM
    code = seccomp._when("unshare", 0, seccomp._ANY_BIT, (linux.CLONE_NEWUSER,), refuse, allow)
    _without((), errno.EPERM, before=code)


def without_filters() -> None:
    """Under a kernel that has no filters of system calls."""
    allow, refuse = seccomp._ALLOW, seccomp._ERRNO | errno.EINVAL
    code = seccomp._when("prctl", 0, seccomp._EQUAL, (linux.PR_SET_SECCOMP,), refuse, allow)
    _without((), errno.EINVAL, before=code)


def without_landlock() -> None:
    """Under a kernel that has none."""
    _without(range(444, 447), errno.ENOSYS)


def _without(numbers: Iterable[int], error: int, before: bytes = b"") -> None:
    answers = [seccomp._ALLOW] * seccomp._MOST
    for number in numbers:
        answers[number] = seccomp._ERRNO | error
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.SeccompFilter(seccomp._opening(seccomp._KILL) + before + seccomp._table(answers)).install()


def main() -> None:
    """`python -m tests.sandbox.places PLACE PROGRAM …`: run any program, such as pytest, in one of these places."""
    place, *argv = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="ratchet-place-") as directory:
        Path(directory).chmod(0o1777)
        home = {"HOME": directory, "TMPDIR": directory, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(argv, preexec_fn=globals()[place], env={**os.environ, **home}, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
