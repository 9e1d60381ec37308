/* Stands between a process and the kernel: records every change below one directory in the order in which it happened,
 * and injects the faults of a plan. Loaded with LD_PRELOAD; see docs/faults.md and shim.py, which has the same numbers.
 *
 * The control block and the record are one file that all processes of a seed map, so that a record survives the death
 * of its writer, and the order of the record is the order of the world. A recorded call happens under the lock of that
 * file: what the record says is what the disk was given. Waiting for the disk itself is left out: whether something
 * would have survived a power cut is worked out from the record.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, WRITE, SYNC, RENAME, UNLINK, MKDIR, SPAWN, THREAD, PIPE, NOTE };
enum { LEDGER, OBJECTS, REFS, ARTIFACTS, OTHER, ELSEWHERE };
enum { PASS, FAIL, SHORT, KILL, CUT, TEAR, STOP, JUMP };
enum { R_OPEN = 1, R_WRITE, R_TRUNCATE, R_SYNC, R_SYNC_DIRECTORY, R_SYNC_ALL, R_RENAME, R_UNLINK, R_MKDIR, R_LINK,
       R_SYMLINK, R_NOTE, R_FAULT };

#define FAULTS 16
#define LOG_OFFSET 8192
#define VARIABLE "RATCHET_FAULTS"

struct fault {
    uint32_t kinds, places, first, last, action;
    int32_t error;
    int64_t jump_ns;
    uint32_t seen, fired;
};
struct control {
    pthread_mutex_t lock;
    uint64_t used, size;
    int64_t clock_ns;
    uint32_t dead, count;
    int32_t held; /* the process that was stopped at a note, until it may continue there */
    struct fault fault[FAULTS];
    uint64_t calls[10][6];
    char root[1024];
};
struct record {
    uint32_t size;
    uint8_t op, place;
    uint16_t flags;
    uint64_t inode, offset;
};

static struct control *control;
static int active, executed;
static pid_t starter; /* the worker that has started this program */
static char file_name[1024];
static size_t root_length;
#define MOST_FDS 65536
static uint8_t fd_place[MOST_FDS]; /* of files below the root that are written: the place + 1 */
static pid_t (*real_fork)(void);
static int (*real_thread)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static int (*real_clock)(clockid_t, struct timespec *);

static void find_real(void) {
    real_fork = dlsym(RTLD_NEXT, "fork");
    real_thread = dlsym(RTLD_NEXT, "pthread_create");
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
}

static void *map(const char *name, uint64_t size, int make) {
    int fd = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
    struct stat found;
    if (fd < 0 || (make && ftruncate(fd, size)) || fstat(fd, &found)) abort();
    void *at = mmap(NULL, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) abort();
    syscall(SYS_close, fd);
    return at;
}

/* Make the file of a seed; what happens below `root` is recorded in it. */
void faults_make(const char *name, const char *root, uint64_t size) {
    control = map(name, size, 1);
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&control->lock, &shared);
    control->size = size - LOG_OFFSET;
    snprintf(control->root, sizeof control->root, "%s/", root);
    root_length = strlen(control->root);
    snprintf(file_name, sizeof file_name, "%s", name);
}

/* Be under the faults of the file from now on, with every process that is started from here. */
void faults_enter(void) { active = 1; }

void faults_forget(void) { control->dead = control->count = 0; control->used = 0; }

void faults_add(uint32_t kinds, uint32_t places, uint32_t first, uint32_t last, uint32_t action, int32_t error,
                int64_t jump_ns) {
    if (control->count == FAULTS) abort();
    control->fault[control->count++] =
        (struct fault){kinds, places, first, last, action, error, jump_ns, 0, 0};
}

void faults_clear(void) { control->count = 0; }
void faults_set_clock(int64_t ns) { control->clock_ns = ns; }
int64_t faults_clock(void) { return control->clock_ns; }
int faults_dead(void) { return control->dead; }
uint32_t faults_fired(uint32_t number) { return control->fault[number].fired; }
uint64_t faults_calls(uint32_t kind, uint32_t place) { return control->calls[kind][place]; }
uint64_t faults_used(void) { return control->used; }
const char *faults_log(void) { return (const char *)control + LOG_OFFSET; }

__attribute__((constructor)) static void start(void) {
    find_real();
    const char *name = getenv(VARIABLE);
    if (name && *name) {
        snprintf(file_name, sizeof file_name, "%s", name);
        control = map(name, 0, 0);
        root_length = strlen(control->root);
        active = executed = 1;
        starter = getppid();
    }
}

static void die(void) {
    for (;;) {
        syscall(SYS_kill, getpid(), SIGKILL);
        usleep(1000);
    }
}

static void lock(void) {
    if (pthread_mutex_lock(&control->lock) == EOWNERDEAD) pthread_mutex_consistent(&control->lock);
}
static void unlock(void) { pthread_mutex_unlock(&control->lock); }

static void record(int op, int place, int flags, uint64_t inode, uint64_t offset, const void *one, size_t one_size,
                   const void *two, size_t two_size) {
    struct record head = {sizeof head + one_size + two_size, op, place, flags, inode, offset};
    if (control->used + head.size > control->size) {
        static const char text[] = "the record of faults is full\n";
        syscall(SYS_write, 2, text, sizeof text - 1);
        abort();
    }
    char *at = (char *)control + LOG_OFFSET + control->used;
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, one, one_size);
    if (two_size) memcpy(at + sizeof head + one_size, two, two_size);
    control->used += head.size;
}

/* What a plan has for this call. The lock is held when it returns. */
static int enter(int kind, int place, int *error) {
    int action = PASS;
    lock();
    if (control->dead) {
        unlock();
        die();
    }
    control->calls[kind][place]++;
    for (uint32_t number = 0; number < control->count; number++) {
        struct fault *each = &control->fault[number];
        if (!(each->kinds >> kind & 1) || !(each->places >> place & 1)) continue;
        uint32_t seen = ++each->seen;
        if (seen < each->first || seen > each->last) continue;
        each->fired++;
        uint8_t what[3] = {number, kind, place};
        record(R_FAULT, place, each->action, 0, seen, what, sizeof what, NULL, 0);
        if (each->action == JUMP)
            control->clock_ns += each->jump_ns;
        else if (each->action == CUT) {
            control->dead = 1;
            unlock();
            die();
        } else if (each->action == KILL) {
            /* Of a program that a worker has started, the worker dies, and the program continues. */
            if (!executed) {
                unlock();
                die();
            }
            syscall(SYS_kill, starter, SIGKILL);
        } else {
            action = each->action;
            *error = each->error;
        }
    }
    return action;
}

static int absolute(int directory, const char *path, char *out) {
    char base[PATH_MAX];
    if (path[0] == '/') return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
    if (directory == AT_FDCWD) {
        if (syscall(SYS_getcwd, base, sizeof base) < 0) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return 0;
        base[length] = 0;
    }
    return snprintf(out, PATH_MAX, "%s/%s", base, path) < PATH_MAX;
}

static int ends(const char *path, const char *with) {
    size_t length = strlen(path), size = strlen(with);
    return length >= size && !strcmp(path + length - size, with);
}

/* Where a path lies; ELSEWHERE is not recorded. Workspaces are thrown away, and SQLite makes its index again. */
static int place_of(const char *path) {
    if (strncmp(path, control->root, root_length) || strstr(path, ".workspaces") || ends(path, "-shm")
        || ends(path, ".log"))
        return ELSEWHERE;
    if (strstr(path, "/ledger.db")) return LEDGER;
    if (strstr(path, "/objects/")) return OBJECTS;
    if (strstr(path, "/refs/") || strstr(path, "/logs/")) return REFS;
    if (strstr(path, "/artifacts/")) return ARTIFACTS;
    return OTHER;
}

static int find(int directory, const char *path, char *out) {
    return absolute(directory, path, out) ? place_of(out) : ELSEWHERE;
}

static int find_fd(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, PATH_MAX - 1);
    if (length < 0) return ELSEWHERE;
    out[length] = 0;
    return place_of(out);
}

static uint64_t inode_of(int fd) {
    struct stat found;
    return syscall(SYS_fstat, fd, &found) ? 0 : found.st_ino;
}

static int do_open(int directory, const char *path, int flags, mode_t mode) {
    if (!active) return syscall(SYS_openat, directory, path, flags, mode);
    char full[PATH_MAX];
    int place = find(directory, path, full), error = 0;
    int action = enter(OPEN, place, &error);
    if (action == FAIL) {
        unlock();
        errno = error;
        return -1;
    }
    int fd = syscall(SYS_openat, directory, path, flags, mode);
    int saved = errno;
    int writes = (flags & O_ACCMODE) != O_RDONLY && !(flags & __O_TMPFILE & ~O_DIRECTORY);
    if (fd >= 0 && fd < MOST_FDS) {
        fd_place[fd] = writes && place != ELSEWHERE ? place + 1 : 0;
        if (fd_place[fd]) record(R_OPEN, place, (flags & O_TRUNC) != 0, inode_of(fd), 0, full, strlen(full), NULL, 0);
    }
    unlock();
    errno = saved;
    return fd;
}

#define MODE_OF(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }
int open(const char *path, int flags, ...) { MODE_OF(flags) return do_open(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return do_open(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE_OF(flags) return do_open(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE_OF(flags) return do_open(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return do_open(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return do_open(at, path, flags, 0); }
int creat(const char *path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int fd) {
    if (fd >= 0 && fd < MOST_FDS) fd_place[fd] = 0;
    return syscall(SYS_close, fd);
}

static ssize_t do_write(int fd, const void *data, size_t size, off_t offset, int positioned) {
    if (!active || fd < 0 || fd >= MOST_FDS || !fd_place[fd])
        return positioned ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
    int error = 0, place = fd_place[fd] - 1, action = enter(WRITE, place, &error);
    if (action == FAIL) {
        unlock();
        errno = error;
        return -1;
    }
    if ((action == SHORT || action == TEAR) && size > 1) size /= 2;
    if (!positioned) {
        struct stat found;
        int append = fcntl(fd, F_GETFL) & O_APPEND;
        offset = append && !syscall(SYS_fstat, fd, &found) ? found.st_size : lseek(fd, 0, SEEK_CUR);
    }
    ssize_t done = positioned ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
    int saved = errno;
    if (done > 0) record(R_WRITE, place, 0, inode_of(fd), offset, data, done, NULL, 0);
    unlock();
    /* Never kill by a number for long: once the parent is gone, its number belongs to a stranger. */
    if (action == TEAR) {
        if (executed && getppid() != 1) syscall(SYS_kill, getppid(), SIGKILL);
        die();
    }
    errno = saved;
    return done;
}

ssize_t write(int fd, const void *data, size_t size) { return do_write(fd, data, size, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return do_write(fd, data, size, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return do_write(fd, data, size, offset, 1); }
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!active || fd < 0 || fd >= MOST_FDS || !fd_place[fd]) return syscall(SYS_writev, fd, parts, count);
    ssize_t all = 0;
    for (int number = 0; number < count; number++) {
        if (!parts[number].iov_len) continue;
        ssize_t done = do_write(fd, parts[number].iov_base, parts[number].iov_len, 0, 0);
        if (done < 0) return all ? all : -1;
        all += done;
        if ((size_t)done < parts[number].iov_len) break;
    }
    return all;
}

static int do_truncate(int fd, off_t size) {
    if (!active || fd < 0 || fd >= MOST_FDS || !fd_place[fd]) return syscall(SYS_ftruncate, fd, size);
    int error = 0, place = fd_place[fd] - 1, action = enter(WRITE, place, &error), done = -1;
    if (action == FAIL)
        errno = error;
    else if (!(done = syscall(SYS_ftruncate, fd, size)))
        record(R_TRUNCATE, place, 0, inode_of(fd), size, NULL, 0, NULL, 0);
    unlock();
    return done;
}
int ftruncate(int fd, off_t size) { return do_truncate(fd, size); }
int ftruncate64(int fd, off64_t size) { return do_truncate(fd, size); }

static int do_sync(int fd, int real) {
    char path[PATH_MAX];
    struct stat found;
    if (!active || syscall(SYS_fstat, fd, &found)) return syscall(real, fd);
    int place = find_fd(fd, path), error = 0;
    if (place == ELSEWHERE && strncmp(path, control->root, root_length - 1)) return syscall(real, fd);
    int action = enter(SYNC, place, &error), done = -1;
    if (action == FAIL)
        errno = error;
    else {
        int op = real == SYS_syncfs ? R_SYNC_ALL : S_ISDIR(found.st_mode) ? R_SYNC_DIRECTORY : R_SYNC;
        record(op, place, 0, found.st_ino, 0, path, strlen(path), NULL, 0);
        done = 0;
    }
    unlock();
    return done;
}
int fsync(int fd) { return do_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return do_sync(fd, SYS_fdatasync); }
int syncfs(int fd) { return do_sync(fd, SYS_syncfs); }

/* Calls that change names. `two` is the second name, if there is one. */
static int named(int op, int kind, int at, const char *one, int at_two, const char *two, long call, long third, long last) {
    char full[PATH_MAX], other[PATH_MAX];
    int place = find(at, one, full), error = 0, done = -1;
    other[0] = 0;
    if (two) {
        int second = find(at_two, two, other);
        place = place == ELSEWHERE ? second : place;
    }
    int action = enter(kind, place, &error);
    if (action == FAIL)
        errno = error;
    else {
        done = two ? syscall(call, third, one, at_two, two, last) : syscall(call, at, one, last);
        int saved = errno;
        if (!done && place != ELSEWHERE)
            record(op, place, 0, 0, strlen(full), full, strlen(full), other, strlen(other));
        errno = saved;
    }
    unlock();
    return done;
}

static int do_rename(int at, const char *one, int at_two, const char *two, unsigned flags) {
    if (!active) return syscall(SYS_renameat2, at, one, at_two, two, flags);
    return named(R_RENAME, RENAME, at, one, at_two, two, SYS_renameat2, at, flags);
}
int rename(const char *one, const char *two) { return do_rename(AT_FDCWD, one, AT_FDCWD, two, 0); }
int renameat(int at, const char *one, int at_two, const char *two) { return do_rename(at, one, at_two, two, 0); }
int renameat2(int at, const char *one, int at_two, const char *two, unsigned flags) {
    return do_rename(at, one, at_two, two, flags);
}
static int do_link(int at, const char *one, int at_two, const char *two, int flags) {
    if (!active) return syscall(SYS_linkat, at, one, at_two, two, flags);
    return named(R_LINK, RENAME, at, one, at_two, two, SYS_linkat, at, flags);
}
int link(const char *one, const char *two) { return do_link(AT_FDCWD, one, AT_FDCWD, two, 0); }
int linkat(int at, const char *one, int at_two, const char *two, int flags) {
    return do_link(at, one, at_two, two, flags);
}
static int do_unlink(int at, const char *path, int flags) {
    if (!active) return syscall(SYS_unlinkat, at, path, flags);
    return named(R_UNLINK, UNLINK, at, path, 0, NULL, SYS_unlinkat, 0, flags);
}
int unlink(const char *path) { return do_unlink(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return do_unlink(at, path, flags); }
int rmdir(const char *path) { return do_unlink(AT_FDCWD, path, AT_REMOVEDIR); }
static int do_mkdir(int at, const char *path, mode_t mode) {
    if (!active) return syscall(SYS_mkdirat, at, path, mode);
    return named(R_MKDIR, MKDIR, at, path, 0, NULL, SYS_mkdirat, 0, mode);
}
int mkdir(const char *path, mode_t mode) { return do_mkdir(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return do_mkdir(at, path, mode); }

/* What a process needs of the machine besides files. */
static int refused(int kind) {
    if (!active) return 0;
    int error = 0, action = enter(kind, ELSEWHERE, &error);
    unlock();
    if (action != FAIL) return 0;
    errno = error;
    return 1;
}
pid_t fork(void) { return refused(SPAWN) ? -1 : real_fork(); }
/* A child that shares our memory must not return through this frame. */
pid_t vfork(void) { return refused(SPAWN) ? -1 : real_fork(); }
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*call)(void *), void *with) {
    if (!real_thread) find_real();
    return refused(THREAD) ? EAGAIN : real_thread(thread, how, call, with);
}
int pipe(int ends[2]) { return refused(PIPE) ? -1 : (int)syscall(SYS_pipe2, ends, 0); }
int pipe2(int ends[2], int flags) { return refused(PIPE) ? -1 : (int)syscall(SYS_pipe2, ends, flags); }

/* A program is started with the environment that its starter chose, and with this. */
int execve(const char *path, char *const words[], char *const environment[]) {
    if (!active) return syscall(SYS_execve, path, words, environment);
    size_t count = 0;
    while (environment && environment[count]) count++;
    char preload[PATH_MAX + 16], name[PATH_MAX + 32], *more[count + 3];
    size_t kept = 0;
    for (size_t number = 0; number < count; number++)
        if (strncmp(environment[number], "LD_PRELOAD=", 11)) more[kept++] = environment[number];
    const char *library = getenv("LD_PRELOAD");
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library ? library : "");
    snprintf(name, sizeof name, VARIABLE "=%s", file_name);
    more[kept++] = preload;
    more[kept++] = name;
    more[kept] = NULL;
    return syscall(SYS_execve, path, words, more);
}

/* The wall clock of the plan. */
int clock_gettime(clockid_t which, struct timespec *now) {
    if (!real_clock) find_real();
    int done = real_clock(which, now);
    if (active && control && which == CLOCK_REALTIME && !done && control->clock_ns) {
        int64_t ns = now->tv_nsec + control->clock_ns % 1000000000;
        now->tv_sec += control->clock_ns / 1000000000 + (ns < 0 ? -1 : ns >= 1000000000);
        now->tv_nsec = ns < 0 ? ns + 1000000000 : ns >= 1000000000 ? ns - 1000000000 : ns;
    }
    return done;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}

/* Put a line into the record, beside what happens to the disk. */
void faults_note(const char *text, size_t size) {
    if (!active) return;
    int error = 0, action = enter(NOTE, OTHER, &error);
    record(R_NOTE, 0, 0, getpid(), 0, text, size, NULL, 0);
    unlock();
    if (action != STOP) return;
    __atomic_store_n(&control->held, getpid(), __ATOMIC_SEQ_CST);
    syscall(SYS_kill, getpid(), SIGSTOP);
    /* Woken so that another thread can end what it was in the middle of: this one has not come that far. */
    while (__atomic_load_n(&control->held, __ATOMIC_SEQ_CST) == getpid()) usleep(1000);
}
void faults_release(void) { __atomic_store_n(&control->held, 0, __ATOMIC_SEQ_CST); }
