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

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "access": (21, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "alarm": (37, None),
    "arch_prctl": (158, None),
    "bpf": (321, 280),
    "brk": (12, 214),
    "chdir": (80, 49),
    "chmod": (90, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "close_range": (436, 436),
    "copy_file_range": (326, 285),
    "creat": (85, None),
    "delete_module": (176, 106),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "eventfd2": (290, 19),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fadvise64": (221, 223),
    "fallocate": (285, 47),
    "fanotify_init": (300, 262),
    "fchdir": (81, 50),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fcntl": (72, 25),
    "fdatasync": (75, 83),
    "finit_module": (313, 273),
    "flock": (73, 32),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "fstat": (5, 80),
    "fstatfs": (138, 44),
    "fsync": (74, 82),
    "ftruncate": (77, 46),
    "futex": (202, 98),
    "futex_waitv": (449, 449),
    "get_mempolicy": (239, 236),
    "get_robust_list": (274, 100),
    "getcpu": (309, 168),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getgroups": (115, 158),
    "getitimer": (36, 102),
    "getpeername": (52, 205),
    "getpgid": (121, 155),
    "getpgrp": (111, None),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getpriority": (140, 141),
    "getrandom": (318, 278),
    "getresgid": (120, 150),
    "getresuid": (118, 148),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "getsid": (124, 156),
    "getsockname": (51, 204),
    "getsockopt": (55, 209),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "init_module": (175, 105),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "link": (86, None),
    "linkat": (265, 37),
    "lookup_dcookie": (212, 18),
    "lseek": (8, 62),
    "lstat": (6, None),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mincore": (27, 232),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "mlock": (149, 228),
    "mmap": (9, 222),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mprotect": (10, 226),
    "mq_open": (240, 180),
    "mremap": (25, 216),
    "msgget": (68, 186),
    "msync": (26, 227),
    "munlock": (150, 229),
    "munmap": (11, 215),
    "name_to_handle_at": (303, 264),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "nfsservctl": (180, 42),
    "open": (2, None),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "openat2": (437, 437),
    "pause": (34, None),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "pivot_root": (155, 41),
    "poll": (7, None),
    "ppoll": (271, 73),
    "prctl": (157, 167),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "preadv2": (327, 286),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pselect6": (270, 72),
    "ptrace": (101, 117),
    "pwrite64": (18, 68),
    "pwritev": (296, 70),
    "pwritev2": (328, 287),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "read": (0, 63),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "reboot": (169, 142),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "request_key": (249, 218),
    "restart_syscall": (219, 128),
    "rmdir": (84, None),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigpending": (127, 136),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigtimedwait": (128, 137),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_setaffinity": (203, 122),
    "sched_yield": (24, 124),
    "select": (23, None),
    "semget": (64, 190),
    "sendfile": (40, 71),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "setitimer": (38, 103),
    "setns": (308, 268),
    "setrlimit": (160, 164),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "shutdown": (48, 210),
    "sigaltstack": (131, 132),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "stat": (4, None),
    "statfs": (137, 43),
    "statx": (332, 291),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "sync_file_range": (277, 84),
    "sysinfo": (99, 179),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "time": (201, None),
    "timer_create": (222, 107),
    "timer_delete": (226, 111),
    "timer_gettime": (224, 108),
    "timer_settime": (223, 110),
    "timerfd_create": (283, 85),
    "timerfd_gettime": (287, 87),
    "timerfd_settime": (286, 86),
    "times": (100, 153),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umask": (95, 166),
    "umount2": (166, 39),
    "uname": (63, 160),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utimensat": (280, 88),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "write": (1, 64),
    "writev": (20, 66),
}


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
# A lease makes another process that opens the file wait; so does a lock one that wants it, and both can be seen.
_LEASE = 1024
# To have a pipe hold more, and locks that are nobody's: memory that is not counted.
_PIPE_SIZE, _NAMELESS_LOCKS = 1031, (36, 37, 38)
_NODE_FCNTLS = (8, 10, 15, _LEASE, 1025, 1026, _PIPE_SIZE, *_NAMELESS_LOCKS)
_LOCK_FCNTLS = (5, 6, 7)
# For a node that writes nowhere: what only the file system would refuse it, and landlock does not.
_FOR_WRITERS = "chmod fchmod fchmodat flock truncate utimensat"
_TRUNCATE_FLAG = 0o1000
# Bits of a mode by which a program has the rights of its owner or group, whoever runs it.
_LENDING = 0o6000
# Each call that can set them, with the number of the argument that is the mode.
_MODES = {
    "chmod": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "creat": 1,
    "mknod": 1,
    "mknodat": 2,
}
# Those that only look at the mode if they make a file; before it come the flags that say so.
_OPEN_MODES = {"open": 2, "openat": 3}
_MAKING_FLAGS = 0o20000100

_ORDINARY = """
access alarm arch_prctl brk chdir chmod clock_getres clock_gettime clock_nanosleep close close_range
copy_file_range dup dup2 dup3
eventfd2 exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fdatasync
flock fstat fstatfs fsync ftruncate futex futex_waitv get_mempolicy get_robust_list getcpu getcwd
getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid
getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid
gettimeofday getuid link linkat lseek lstat madvise membarrier mincore mkdir mkdirat mlock mmap mprotect
mremap msync munlock munmap nanosleep newfstatat open openat pause pipe pipe2 poll ppoll pread64 preadv
preadv2 pselect6 pwrite64 pwritev pwritev2 read readlink readlinkat readv recvfrom recvmsg
rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_getaffinity sched_getparam sched_getscheduler
sched_yield select sendfile sendto set_robust_list set_tid_address setitimer
setrlimit shutdown sigaltstack socketpair stat statfs statx symlink symlinkat sync_file_range
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


class SeccompFilter:
    """A filter ready to be installed: what can be computed before a fork is."""

    def __init__(self, code: bytes) -> None:
        self._code = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(self._code))
        self._install = prepared_prctl(PR_SET_SECCOMP, _MODE_FILTER, program)

    def install(self) -> None:
        """Put it on this process for good. Needs `no_new_privs`."""
        self._install()


def node_filter(own_pid: int, *, writes: bool, guards_truncation: bool = True) -> SeccompFilter:
    """Only what Python needs to compute and to use its scratch: no other process, program, socket or namespace.

    One that `writes` has files of its own, and a view in which all others are read-only. `guards_truncation`: whether
    another layer keeps it from emptying a file that it may only read.
    """
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    allowed = [name for name in _ORDINARY.split() if writes or name not in _FOR_WRITERS.split()]
    code = _opening(_KILL)
    code += _when("clone", 0, _ANY_BIT, (_CLONE_THREAD,), _ALLOW, refuse)
    for name in ("kill", "tgkill"):
        code += _when(name, 0, _EQUAL, (own_pid,), _ALLOW, refuse)
    code += _when("prlimit64", 0, _EQUAL, (0, own_pid), _ALLOW, refuse)
    code += _when("prctl", 0, _EQUAL, _NAMING_PRCTLS, _ALLOW, refuse)
    code += _when("ioctl", 1, _EQUAL, _PLAIN_IOCTLS, _ALLOW, refuse)
    fcntls = _NODE_FCNTLS if writes else (*_NODE_FCNTLS, *_LOCK_FCNTLS)
    code += _when("fcntl", 1, _EQUAL, fcntls, refuse, _ALLOW)
    if writes:
        code += _no_lending(refuse, tuple(name for name in _MODES if name in allowed))
    elif not guards_truncation:
        for name, mode in _OPEN_MODES.items():
            code += _when(name, mode - 1, _ANY_BIT, (_TRUNCATE_FLAG,), refuse, _ALLOW)
    # `clone3` is among the absent: the C library then uses `clone`, whose flags a filter can read.
    answers = [refuse] * _UNIFIED + [absent] * (_MOST - _UNIFIED)
    for number in _numbers(" ".join(allowed)):
        answers[number] = _ALLOW
    return SeccompFilter(code + _table(answers))


@cache
def command_filter(
    *, nested: bool, internet: bool, bound: bool, sharing: bool, watching: bool
) -> SeccompFilter:
    """Everything but what is dangerous. `nested`: may make sandboxes of its own. `internet`: may use IP sockets.
    `bound`: must stay on the CPUs that it was given. `sharing`: may use System V memory, messages and semaphores.
    `watching`: may watch files, of which each user can do only so much."""
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    code = _opening(absent)
    # Some families, AF_VSOCK among them, know no network namespaces.
    families = (_UNIX, _IPV4, _IPV6, _NETLINK) if internet else (_UNIX,)
    code += _when("socket", 0, _EQUAL, families, _ALLOW, _ERRNO | errno.EAFNOSUPPORT)
    code += _when("ioctl", 1, _EQUAL, (_TIOCSTI, _TIOCLINUX), refuse, _ALLOW)
    code += _when("fcntl", 1, _EQUAL, (_LEASE,), refuse, _ALLOW)
    code += _no_lending(refuse, tuple(_MODES))
    answers = [_ALLOW] * _MOST
    for number in _numbers(_DANGEROUS if nested else _DANGEROUS + _NESTING):
        answers[number] = refuse
    if bound:
        for number in _numbers("sched_setaffinity"):
            answers[number] = refuse
    if not sharing:
        for number in _numbers("shmget semget msgget mq_open"):
            answers[number] = absent
    if not watching:
        for number in _numbers("inotify_init inotify_init1"):
            answers[number] = absent
    # Memory that no process has mapped is not seen by the watch, and this kind never leaves the machine's memory.
    for number in _numbers("memfd_secret"):
        answers[number] = absent
    if not nested:
        code += _when("clone", 0, _ANY_BIT, (_CLONE_ANY_NAMESPACE,), refuse, _ALLOW)
        # A filter can read neither the flags of `clone3` nor the mode of `openat2`.
        for number in _numbers("clone3 memfd_create openat2"):
            answers[number] = absent
    return SeccompFilter(code + _table(answers))


def _no_lending(refuse: int, names: tuple[str, ...]) -> bytes:
    """Refuse a file that lends its owner's or group's rights, to each of the calls `names` and to opening one."""
    code = b"".join(_when(name, _MODES[name], _ANY_BIT, (_LENDING,), refuse, _ALLOW) for name in names)
    for name, mode in _OPEN_MODES.items():
        body = _instruction(_LOAD, _ARGUMENTS_AT + 8 * mode) + _instruction(_ANY_BIT, _LENDING, 0, 2)
        body += _instruction(_LOAD, _ARGUMENTS_AT + 8 * (mode - 1)) + _instruction(
            _ANY_BIT, _MAKING_FLAGS, 1, 0
        )
        body += _answer(_ALLOW) + _answer(refuse)
        code += b"".join(_instruction(_EQUAL, number, 0, len(body) // 8) + body for number in _numbers(name))
    return code


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
