"""What hostile code tries. Each function returns what it got; one that is stopped raises.

`ratchet doctor --attack` and the tests run them as nodes, as commands and as agent programs. The tests also run them
with no sandbox at all, which shows that they can succeed. This file is run by its path: it needs the standard library
only.
"""

# ruff: noqa: PTH101, PTH102, PTH108, PTH110, PTH116, PTH123, PTH208, PTH211, SIM105, SIM115
import ctypes
import os
import socket
from collections.abc import Callable
from typing import Any


def tcp(address: list[Any]) -> str:
    with socket.create_connection((address[0], address[1]), timeout=2) as link:
        return link.recv(100).decode()


def udp(address: list[Any]) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        return link.sendto(b"leak", (address[0], address[1]))


def abstract_socket(name: str) -> str:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect("\0" + name)
        return link.recv(100).decode()


def virtual_socket(_: None) -> str:
    """The line from a virtual machine to its host knows no network namespaces."""
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as link:
        return repr(link)


def read_file(path: str) -> str:
    with open(path) as file:
        return file.read()


def read_device(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    return len(os.read(descriptor, 512))


def write_file(path: str) -> bool:
    with open(path, "w") as file:
        file.write("was here")
    return True


def change_kernel_setting(path: str) -> bool:
    """Write back what is there: harmless, and refused all the same."""
    with open(path) as file:
        value = file.read()
    with open(path, "w") as file:
        file.write(value)
    return True


def link_away(target: str) -> str:
    """Point a link of one's own at something outside, and read through it."""
    link = f"/tmp/link-{os.getpid()}"
    os.symlink(target, link)
    try:
        return read_file(link)
    finally:
        os.unlink(link)


def walk_out(path: str) -> str:
    """Go through another process's root directory."""
    return read_file(f"/proc/{os.getppid() or 1}/root{path}")


def environment(_: None) -> dict[str, str]:
    return dict(os.environ)


def environment_of_others(_: None) -> str:
    """What /proc tells of the environment of every process that can be seen, above all our parents."""
    found = b""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    found += file.read()
            except OSError:
                continue
    return found.decode(errors="replace")


def scan_memory(start: str) -> bool:
    """Look through all memory near any living object for a word that is given in two halves."""
    import gc

    first, second = start.split("|")
    wanted = first.encode() + second.encode()
    libc = ctypes.CDLL(None, use_errno=True)
    page, region = 4096, 1 << 22
    libc.sbrk.restype = ctypes.c_void_p
    near = [id(each) for each in gc.get_objects()] + [libc.sbrk(0) - 1] + [id(os.environ), id(wanted)]
    own = id(wanted)
    # The kernel says of what cannot be read that it cannot; to look at it oneself would be the end.
    read, write = os.pipe()
    for base in sorted({address // region for address in near}):
        for address in range(base * region, (base + 1) * region, page):
            if libc.write(write, ctypes.c_void_p(address), ctypes.c_size_t(page)) == page:
                at = os.read(read, page).find(wanted)
                if at >= 0 and not own <= address + at < own + 200:
                    return True
    return False


def open_descriptors(_: None) -> list[int]:
    found = []
    for number in range(512):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found


def write_to_descriptors(_: None) -> list[int]:
    """Write to whatever was left open, beside one's own three."""
    found = []
    for number in range(4, 512):
        try:
            os.write(number, b"forged")
        except OSError:
            continue
        found.append(number)
    return found


def signal_process(pid: int) -> bool:
    os.kill(pid, 0)
    return True


def end_process(pid: int) -> bool:
    import signal

    os.kill(pid, signal.SIGTERM)
    return True


def signal_everyone(_: None) -> bool:
    import signal

    os.kill(-1, signal.SIGKILL)
    return True


def signal_parent(_: None) -> bool:
    import signal

    parent = os.getppid()
    if parent == 0:
        raise PermissionError("there is no parent to be seen")
    os.kill(parent, signal.SIGKILL)
    os.kill(parent, signal.SIGTERM)
    return True


def trace(pid: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    seize = 0x4206
    if libc.ptrace(seize, pid or os.getppid() or 1, None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    return True


def unshare(flags: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return True


def mount(_: None) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) < 0:
        raise OSError(ctypes.get_errno(), "mount")
    return True


def capabilities(_: None) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    held = (ctypes.c_uint32 * 6)()
    if libc.capget(header, held) < 0:
        raise OSError(ctypes.get_errno(), "capget")
    return "".join(f"{each:08x}" for each in held)


def program(path: str) -> int:
    import subprocess

    return subprocess.run([path], check=False).returncode


def fork(count: int) -> int:
    """Make processes that stay."""
    import time

    for _ in range(count):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    return count


def crowd(count: int) -> int:
    """The same, and stay as well."""
    import time

    fork(count)
    time.sleep(60)
    return count


def fork_bomb(_: None) -> None:
    while True:
        try:
            os.fork()
        except OSError:
            continue


def survivor(mark: str) -> bool:
    """A grandchild in a session of its own, that nobody waits for and that ignores being asked to end."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sh", ["sh", "-c", f"trap '' TERM HUP INT; while :; do sleep 0.05; done # {mark}"])
        os._exit(0)
    return True


def stubborn(seconds: float) -> None:
    import signal
    import time

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(seconds)


def loop(_: None) -> None:
    while True:
        pass


def burn(seconds: float) -> float:
    """Use this much CPU time, however long that takes."""
    import time

    while (used := time.process_time()) < seconds:
        pass
    return used


def block(_: None) -> None:
    """Stuck in C, where Python runs no handler."""
    ctypes.CDLL(None).sleep(600)


def allocate(size: int) -> int:
    held = bytearray(size)
    for position in range(0, size, 4096):
        held[position] = 1
    return len(held)


def allocate_shared(size: int) -> int:
    import mmap

    held = mmap.mmap(-1, size)
    for position in range(0, size, 4096):
        held[position] = 1
    return len(held)


def allocate_in_many(size: int) -> None:
    """Each process stays below the limit, all of them do not."""
    import time

    for _ in range(8):
        if os.fork() == 0:
            held = bytearray(b"x") * size
            time.sleep(60)
            os._exit(len(held) % 2)
    time.sleep(60)


def huge_file(path: str) -> int:
    """A file that takes no space, and all memory of whoever reads it whole."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    os.truncate(path, 6 << 30)
    return os.stat(path).st_size


def fill(path: str) -> int:
    piece, total = b"x" * (1 << 20), 0
    with open(path, "wb", buffering=0) as file:
        while total < 4 << 30:
            total += file.write(piece)
    return total


def flood(descriptor: int) -> None:
    piece = b"x" * 65536
    while True:
        os.write(descriptor, piece)


def forge_success(_: None) -> None:
    os._exit(0)


def special_modes(directory: str) -> list[str]:
    """Every way to get a file that lends its owner's or group's rights; those that worked."""
    import stat

    libc = ctypes.CDLL(None, use_errno=True)
    here = -100
    got = []

    def new(name: str) -> bytes:
        path = f"{directory}/{name}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
        return path.encode()

    def openat2(path: bytes) -> None:
        how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
        libc.syscall(437, here, path, ctypes.byref(how), 24)

    ways: dict[str, Callable[[], object]] = {
        "chmod": lambda: os.chmod(new("chmod"), 0o4755),
        "chmod-group": lambda: os.chmod(new("chmod-group"), 0o2755),
        "fchmod": lambda: os.fchmod(os.open(new("fchmod"), os.O_RDONLY), 0o4755),
        "fchmodat": lambda: os.chmod("fchmodat", 0o4755, dir_fd=os.open(new("fchmodat")[:-9], os.O_RDONLY)),
        "fchmodat2": lambda: libc.syscall(452, here, new("fchmodat2"), 0o4755, 0),
        "open": lambda: os.open(f"{directory}/open", os.O_CREAT | os.O_WRONLY, 0o4755),
        "mknod": lambda: os.mknod(f"{directory}/mknod", stat.S_IFREG | 0o6755),
        "openat2": lambda: openat2(f"{directory}/openat2".encode()),
    }
    if os.uname().machine == "x86_64":
        ways["creat"] = lambda: libc.syscall(85, f"{directory}/creat".encode(), 0o4755)
        ways["old open"] = lambda: libc.syscall(2, f"{directory}/old open".encode(), 0o101, 0o4755)
        ways["old mknod"] = lambda: libc.syscall(133, f"{directory}/old mknod".encode(), 0o104755, 0)
    for name, attempt in ways.items():
        try:
            attempt()
        except OSError:
            pass
        path = f"{directory}/{name}"
        if os.path.exists(path) and os.stat(path).st_mode & 0o6000:
            got.append(name)
    return got


def touch_foreign(paths: list[str]) -> list[str]:
    """Change what is known of files without opening them to be written: to what it is already, which harms no one."""
    import fcntl

    def change(path: str, kind: str) -> None:
        found = os.stat(path)
        if kind == "chmod":
            os.chmod(path, found.st_mode & 0o7777)
        elif kind == "fchmod":
            os.fchmod(os.open(path, os.O_RDONLY), found.st_mode & 0o7777)
        elif kind == "utime":
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        elif kind == "chown":
            os.chown(path, found.st_uid, found.st_gid)
        elif kind == "setxattr":
            os.setxattr(path, "user.ratchet", b"x")
            os.removexattr(path, "user.ratchet")
        elif kind == "truncate":
            os.truncate(path, found.st_size)
        else:
            fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)

    got = []
    for path in paths:
        for kind in ("chmod", "fchmod", "utime", "chown", "setxattr", "truncate", "lease"):
            try:
                change(path, kind)
            except OSError:
                continue
            got.append(f"{kind} {path}")
    return got


def mark_descriptor(_: None) -> bool:
    """Leave a mark on the open file behind one's stdin, and say whether it was there already."""
    import fcntl

    found = fcntl.fcntl(0, fcntl.F_GETFL)
    fcntl.fcntl(0, fcntl.F_SETFL, found | os.O_NONBLOCK)
    return bool(found & os.O_NONBLOCK)


def lock_stdin(_: None) -> bool:
    import fcntl

    fcntl.flock(0, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def send_descriptors(stay: float) -> int:
    """Put as many descriptors on their way to no one as there may be; then say so, and stay."""
    import time

    held, sent = [], 0
    try:
        while sent < 20_000:
            pair = socket.socketpair()
            held.append(pair)
            while True:
                try:
                    socket.send_fds(pair[0], [b"x"], [pair[0].fileno()] * 200, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                sent += 200
    except OSError as error:
        if not sent:
            raise
        os.write(2, f"{error}\n".encode())
    time.sleep(stay)
    return sent


def watch_files(_: None) -> int:
    """As many watches as there may be, each of which takes one of the user's few."""
    libc = ctypes.CDLL(None, use_errno=True)
    count = 0
    while count < 10_000 and libc.inotify_init() >= 0:
        count += 1
    if not count:
        raise OSError(ctypes.get_errno(), "inotify_init")
    return count


def links(directory: str) -> int:
    """As many names for one file as there may be."""
    open(f"{directory}/file", "w").close()
    count = 0
    try:
        while count < 200_000:
            os.symlink("x", f"{directory}/link-{count}")
            count += 1
    except OSError:
        pass
    return count


def secret_memory(size: int) -> int:
    """Memory by `memfd_secret` that is not mapped any more, of which each process may map only a little at once."""
    import mmap
    import time

    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.syscall(447, 0)
    if number < 0:
        raise OSError(ctypes.get_errno(), "memfd_secret")
    os.ftruncate(number, size)
    for at in range(0, size, 1 << 22):
        with mmap.mmap(number, 1 << 22, offset=at) as part:
            for page in range(0, 1 << 22, mmap.PAGESIZE):
                part[page] = 1
    time.sleep(5)
    return size


def system_v_memory(size: int) -> int:
    """Shared memory that no process has mapped."""
    import time

    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    for _ in range(size >> 26):
        number = libc.shmget(0, ctypes.c_size_t(1 << 26), 0o1600)
        if number < 0:
            raise OSError(ctypes.get_errno(), "shmget")
        at = libc.shmat(number, None, 0)
        ctypes.memset(at, 1, 1 << 26)
        libc.shmdt(ctypes.c_void_p(at))
    time.sleep(20)
    return size


def system_v_semaphores(count: int) -> int:
    import time

    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(count):
        if libc.semget(0, 32000, 0o1600) < 0:
            raise OSError(ctypes.get_errno(), "semget")
    time.sleep(20)
    return count


def page_tables(size: int) -> int:
    """Map single pages so far apart that the tables which lead to each take two more, and stay."""
    import time

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    fixed_private_anonymous, start, far = 0x100022, 1 << 40, 1 << 30
    for number in range(size // 8192):
        address = start + number * far
        words = (
            ctypes.c_void_p(address),
            ctypes.c_size_t(4096),
            1,
            fixed_private_anonymous,
            -1,
            ctypes.c_long(0),
        )
        if libc.mmap(*words) != address:
            raise OSError(ctypes.get_errno() or 12, "mmap")
        # Read, so that even the page itself is one that all share.
        ctypes.string_at(address, 1)
    time.sleep(20)
    return size


def mappings(count: int) -> int:
    """As many mappings as a process may have, in as many processes."""
    import mmap
    import time

    for _ in range(count):
        if os.fork() == 0:
            held = [mmap.mmap(-1, 8192, mmap.MAP_PRIVATE, mmap.PROT_READ)]
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            at = libc.mmap(None, ctypes.c_size_t(1 << 30), 0, 0x4022, -1, ctypes.c_long(0))
            for number in range(30_000):
                libc.mprotect(ctypes.c_void_p(at + number * 8192), ctypes.c_size_t(4096), 1)
            time.sleep(60)
            os._exit(len(held))
    time.sleep(60)
    return count


def epoll_watches(given: list[Any]) -> int:
    """Watch one file again and again, which needs neither many files nor many descriptors: each epoll can know it by
    every number that it has ever had. With `away` each epoll is sent to no one, where it cannot be seen."""
    import select
    import time

    count, away = given
    first = os.eventfd(0)
    numbers = [first, *(os.dup(first) for _ in range(999))]
    held, kept, made = socket.socketpair(), [], 0
    while made < count:
        epoll = select.epoll()
        for number in numbers:
            epoll.register(number, select.EPOLLIN)
        made += len(numbers)
        if away:
            socket.send_fds(held[0], [b"x"], [epoll.fileno()])
            epoll.close()
        else:
            kept.append(epoll)
    time.sleep(20)
    return made


def file_locks(given: list[Any]) -> int:
    """Lock every second byte of each of many files, since the kernel looks at all locks of a file for each new one."""
    import fcntl
    import time

    directory, files, count = given
    held = [open(f"{directory}/locked-{number}", "wb") for number in range(files)]
    for at in range(count):
        for file in held:
            fcntl.lockf(file, fcntl.LOCK_EX, 1, at * 2)
    time.sleep(20)
    return int(files * count)


def open_sockets(count: int) -> int:
    """Sockets that hold nothing."""
    import time

    for _ in range(8):
        if os.fork() == 0:
            held = [socket.socketpair() for _ in range(count)]
            time.sleep(60)
            os._exit(len(held) % 2)
    time.sleep(60)
    return count


def fill_pairs(given: list[Any]) -> int:
    """Let the kernel hold what nobody reads, with all the room that sockets and pipes can be given."""
    import fcntl

    kind, count = given
    held, total = [], 0
    try:
        for _ in range(count):
            if kind == "pipe":
                _read, write = os.pipe()
                try:
                    fcntl.fcntl(write, 1031, 1 << 20)
                except OSError:
                    pass
            else:
                left, right = socket.socketpair()
                held.append((left, right))
                try:
                    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
                except OSError:
                    pass
                write = left.fileno()
            os.set_blocking(write, False)
            try:
                while True:
                    total += os.write(write, b"x" * 65536)
            except BlockingIOError:
                pass
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    return total


def pending_timers(_: None) -> int:
    """Timers, each of which takes one of the signals that may wait for its user."""
    libc = ctypes.CDLL(None, use_errno=True)
    count, timer = 0, ctypes.c_void_p()
    while count < 200_000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0:
        count += 1
    return count


def burn_forgotten(seconds: float) -> None:
    """Burn CPU time in children that the kernel is to forget when they end."""
    import signal
    import time

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        child = os.fork()
        if child == 0:
            burn(seconds)
            os._exit(0)
        while os.path.exists(f"/proc/{child}"):
            time.sleep(0.001)


def signal_first(number: int) -> bool:
    """Signal the first process of the sandbox in every way there is."""
    import time

    for _ in range(3):
        os.kill(1, number)
        libc = ctypes.CDLL(None, use_errno=True)
        # What is queued may claim to come from another process, here from outside of the namespace.
        words = (ctypes.c_int32 * 32)(number, 0, -1, 0, 0)
        libc.syscall(129 if os.uname().machine == "x86_64" else 138, 1, number, words)
    time.sleep(0.3)
    return True


def fill_with_files(given: list[Any]) -> int:
    """Fill a directory with files each of which is small enough, and stay. One that is `closed` cannot be listed."""
    import time

    directory, count, closed = given
    os.mkdir(f"{directory}/files")
    for number in range(count):
        with open(f"{directory}/files/{number}", "wb") as file:
            file.write(b"x" * (8 << 20))
    if closed:
        os.chmod(f"{directory}/files", 0)
    time.sleep(60)
    return int(count)


def fill_sockets(given: list[Any]) -> int:
    """Let the kernel hold what was sent and never read, with the sender gone or not."""
    import time

    kind, count, close = given
    held, total = [], 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(count):
            if kind == "unix":
                left, right = socket.socketpair()
            else:
                left = socket.create_connection(server.getsockname())
                right, _address = server.accept()
            left.setblocking(False)
            try:
                while True:
                    total += left.send(b"x" * 65536)
            except BlockingIOError:
                pass
            if close:
                left.close()
            held.append((left, right))
        time.sleep(60)
    return total
