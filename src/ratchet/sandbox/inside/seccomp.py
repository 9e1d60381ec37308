"""Which system calls a sandboxed process may make.

A node gets a list of what is allowed. A command may be any program, so it gets a list of what is refused: calls that
reach past namespaces, or that only attack the kernel.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from functools import cache

from .linux import PR_SET_SECCOMP, machine, prepared_prctl
from .syscalls import NUMBERS

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x40000000
# From here on a number means the same everywhere, and a call may be newer than this list.
_UNIFIED = 424
_MOST = 1024
_MODE_FILTER = 2

_CLONE_THREAD = 0x00010000
_CLONE_ANY_NAMESPACE = 0x7E020080
_UNIX, _IPV4, _IPV6, _NETLINK = 1, 2, 10, 16
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PLAIN_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_NAMING_PRCTLS = (15, 16, 0x53564D41)
_OWNER_FCNTLS = (8, 10, 15)

_ORDINARY = """
access alarm arch_prctl brk chdir chmod clock_getres clock_gettime clock_nanosleep close close_range
copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait
eventfd2 exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fdatasync
flock fstat fstatfs fsync ftruncate futex futex_waitv get_mempolicy get_robust_list getcpu getcwd
getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid
getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid
gettimeofday getuid link linkat lseek lstat madvise membarrier mincore mkdir mkdirat mlock mmap mprotect
mremap msync munlock munmap nanosleep newfstatat open openat pause pipe pipe2 poll ppoll pread64 preadv
preadv2 pselect6 pwrite64 pwritev pwritev2 read readlink readlinkat readv recvfrom recvmsg
rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_getaffinity sched_getparam sched_getscheduler
sched_yield select sendfile sendmsg sendto set_robust_list set_tid_address setitimer
setrlimit setsockopt shutdown sigaltstack socketpair stat statfs statx symlink symlinkat sync_file_range
sysinfo time timer_create timer_delete timer_gettime timer_settime timerfd_create timerfd_gettime
timerfd_settime times truncate umask uname unlink unlinkat utimensat wait4 waitid write writev
"""
_DANGEROUS = """
acct add_key adjtimex bpf clock_adjtime clock_settime delete_module fanotify_init finit_module init_module
io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl
lookup_dcookie modify_ldt name_to_handle_at nfsservctl open_by_handle_at perf_event_open pidfd_getfd
process_madvise process_vm_readv process_vm_writev quotactl quotactl_fd reboot request_key settimeofday
swapoff swapon syslog userfaultfd vhangup vmsplice
"""
_NESTING = """
chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root ptrace setns umount2 unshare
"""


def known() -> bool:
    """Whether the numbers of this machine's system calls are known here."""
    return machine in _ARCHITECTURES


class Filter:
    """A filter ready to be installed: what can be computed before a fork is."""

    def __init__(self, code: bytes) -> None:
        self._code = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(self._code))
        self._install = prepared_prctl(PR_SET_SECCOMP, _MODE_FILTER, program)

    def install(self) -> None:
        """Put it on this process for good. Needs `no_new_privs`."""
        self._install()


def node_filter(own_pid: int) -> Filter:
    """Only what Python needs to compute and to use its scratch: no other process, program, socket or namespace."""
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    code = _opening(_KILL)
    code += _when("clone", 0, _ANY_BIT, (_CLONE_THREAD,), _ALLOW, refuse)
    for name in ("kill", "tgkill"):
        code += _when(name, 0, _EQUAL, (own_pid,), _ALLOW, refuse)
    code += _when("prlimit64", 0, _EQUAL, (0, own_pid), _ALLOW, refuse)
    code += _when("prctl", 0, _EQUAL, _NAMING_PRCTLS, _ALLOW, refuse)
    code += _when("ioctl", 1, _EQUAL, _PLAIN_IOCTLS, _ALLOW, refuse)
    code += _when("fcntl", 1, _EQUAL, _OWNER_FCNTLS, refuse, _ALLOW)
    # `clone3` is among the absent: the C library then uses `clone`, whose flags a filter can read.
    answers = [refuse] * _UNIFIED + [absent] * (_MOST - _UNIFIED)
    for number in _numbers(_ORDINARY):
        answers[number] = _ALLOW
    return Filter(code + _table(answers))


@cache
def command_filter(*, nested: bool, internet: bool, bound: bool) -> Filter:
    """Everything but what is dangerous. `nested`: may make sandboxes of its own. `internet`: may use IP sockets.
    `bound`: must stay on the CPUs that it was given."""
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    code = _opening(absent)
    # Some families, AF_VSOCK among them, know no network namespaces.
    families = (_UNIX, _IPV4, _IPV6, _NETLINK) if internet else (_UNIX,)
    code += _when("socket", 0, _EQUAL, families, _ALLOW, _ERRNO | errno.EAFNOSUPPORT)
    code += _when("ioctl", 1, _EQUAL, (_TIOCSTI, _TIOCLINUX), refuse, _ALLOW)
    answers = [_ALLOW] * _MOST
    for number in _numbers(_DANGEROUS if nested else _DANGEROUS + _NESTING):
        answers[number] = refuse
    if bound:
        for number in _numbers("sched_setaffinity"):
            answers[number] = refuse
    if not nested:
        code += _when("clone", 0, _ANY_BIT, (_CLONE_ANY_NAMESPACE,), refuse, _ALLOW)
        # A filter cannot read the flags of `clone3`, and memory that no process has mapped is not seen by the watch.
        for number in _numbers("clone3 memfd_create"):
            answers[number] = absent
    return Filter(code + _table(answers))


def _opening(foreign: int) -> bytes:
    """Answer `foreign` to calls by another architecture's numbers; leave the number of the call loaded."""
    index, architecture = _ARCHITECTURES[machine]
    code = _instruction(_LOAD, _ARCHITECTURE_AT)
    code += _instruction(_EQUAL, architecture, 1, 0) + _answer(foreign)
    code += _instruction(_LOAD, _NUMBER_AT)
    if index == 0:
        code += _instruction(_AT_LEAST, _X32, 0, 1) + _answer(foreign)
    return code


def _when(name: str, argument: int, test: int, values: tuple[int, ...], then: int, otherwise: int) -> bytes:
    """Answer `then` to a call whose argument matches any of `values`, else `otherwise`."""
    body = _instruction(_LOAD, _ARGUMENTS_AT + 8 * argument)
    for position, value in enumerate(values):
        body += _instruction(test, value, len(values) - position, 0)
    body += _answer(otherwise) + _answer(then)
    return b"".join(_instruction(_EQUAL, number, 0, len(body) // 8) + body for number in _numbers(name))


def _table(answers: list[int]) -> bytes:
    """The answer to each number; to one beyond the list, the last of it."""
    return _search(
        [(at, answer) for at, answer in enumerate(answers) if at == 0 or answer != answers[at - 1]]
    )


def _search(changes: list[tuple[int, int]]) -> bytes:
    """A search by halves: the kernel runs a new filter for every number there is, so its length is felt."""
    if len(changes) == 1:
        return _answer(changes[0][1])
    middle = len(changes) // 2
    lower = _search(changes[:middle])
    return _instruction(_AT_LEAST, changes[middle][0], len(lower) // 8, 0) + lower + _search(changes[middle:])


def _numbers(names: str) -> list[int]:
    column = _ARCHITECTURES[machine][0]
    return [number for name in names.split() if (number := NUMBERS[name][column]) is not None]


def _answer(value: int) -> bytes:
    return _instruction(_RETURN, value)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
