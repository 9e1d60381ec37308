"""What every node of one parent has in common, made ready before any of them is forked.

A fork pays for each page of memory that it writes to, and Python writes to whatever it looks at. So what can be opened,
computed or given up once is, in the parent.
"""

# pathlib is slow to import.
# ruff: noqa: PTH123
from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
from typing import NamedTuple

from . import names, namespaces, rlimits, seccomp, view
from .linux import (
    CLONE_NEWNS,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    Prepared,
    forgo_capabilities,
    prctl,
    unshare,
)
from .rights import node_filter, node_restriction
from .tree import Piece

# The number of the descriptor by which a node answers.
ANSWER = 3


class NodeSettings(NamedTuple):
    layers: list[str]
    python: list[str]
    path: list[str]
    modules: list[str]
    hidden: list[tuple[str, str]]


class NodeSurroundings:
    """A plain class, since no other looks at so little memory when it is used."""

    def __init__(
        self,
        *,
        layers: frozenset[str],
        python: tuple[str, ...],
        hidden: tuple[tuple[str, str], ...],
        address_bytes: int,
        open_files: int,
        most_descriptors: int,
        filter: seccomp.SeccompFilter | None,
        scratch_filter: seccomp.SeccompFilter | None,
        restriction: Prepared | None,
        parent: select.poll | None,
        own_pids: int,
        whole_machine: int,
    ) -> None:
        self.layers = layers
        self.python = python
        self.hidden = hidden
        # The address space that each node has from the start.
        self.address_bytes = address_bytes
        # How many files each may have open, and a number that is above those of all descriptors that it inherits.
        self.open_files = open_files
        self.most_descriptors = most_descriptors
        # One for nodes that write nowhere, one for those with scratch.
        self.filter = filter
        self.scratch_filter = scratch_filter
        # Landlock, for nodes that see what all see and have no scratch.
        self.restriction = restriction
        # Has something to tell once the parent is dead. `None` where the parent is the first process of its pid
        # namespace: then the kernel ends all nodes with it.
        self.parent = parent
        # Descriptors: of the parent's pid namespace, and of a mount namespace that shows the whole machine.
        self.own_pids = own_pids
        self.whole_machine = whole_machine


def enter(settings: NodeSettings) -> NodeSurroundings:
    """Stand where the nodes will stand, with what they need."""
    layers = frozenset(settings.layers)
    common = view.FileView(processes=False, python=tuple(settings.python), hidden=tuple(settings.hidden))
    pieces = _as_own_user(common) if names.OWN_USER in layers else None
    namespaces.enter(settings.layers)
    if names.CAPABILITIES in layers:
        forgo_capabilities()
    if names.PID in layers:
        _become_first()
    own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY)
    whole_machine = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    address_bytes = _address_bytes()
    if names.MOUNT in layers:
        unshare(CLONE_NEWNS)
        view.build(common, pieces)
    os.chdir(view.SCRATCH[0] if names.MOUNT in layers else "/")
    rlimits.limit_always()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    return NodeSurroundings(
        layers=layers,
        python=common.python,
        hidden=common.hidden,
        address_bytes=address_bytes,
        open_files=rlimits.open_files_of_node(),
        most_descriptors=os.sysconf("SC_OPEN_MAX"),
        filter=node_filter(layers, 1, scratch=False),
        scratch_filter=node_filter(layers, 1, scratch=True),
        restriction=node_restriction(layers, common, scratch=False),
        parent=None if names.PID in layers else _watched(os.getpid()),
        own_pids=own_pids,
        whole_machine=whole_machine,
    )


def set_apart(descriptor: int) -> int:
    """Move it out of the way of the numbers that nodes use, behind which there is nothing until then."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, ANSWER + 1)
    os.close(descriptor)
    for number, way in ((0, os.O_RDONLY), (ANSWER, os.O_WRONLY)):
        nothing = os.open("/dev/null", way)
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)
    return moved


def _as_own_user(common: view.FileView) -> list[Piece]:
    """Become a user of the nodes' own, with what all of them see cloned while root still can."""
    number = namespaces.own_number()
    users = namespaces.user_mapping(number)
    pieces = view.pieces_of(common, users)
    os.close(users)
    namespaces.become_user(number)
    return pieces


def _become_first() -> None:
    """Continue as the first process of the pid namespace: whatever ends that one, the kernel ends all nodes with it."""
    child = os.fork()
    if child:
        # An end that was held here too would hide that the child has died.
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        os.waitpid(child, 0)
        os._exit(0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _watched(pid: int) -> select.poll:
    watched = select.poll()
    watched.register(os.pidfd_open(pid), select.POLLIN)
    return watched


def _address_bytes() -> int:
    """How much address space this process has, which every node has from the start."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
