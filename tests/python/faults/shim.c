/* Counts, records and disturbs the system calls that a process makes on one folder. For LD_PRELOAD.
 *
 *   FAULT_ROOT      the folder, an absolute path without symbolic links; other calls are passed on unchanged
 *   FAULT_LOG       a file outside of it, to which each counted call is appended, see `struct record`
 *   FAULT_AT        the number, from 1, of the counted call to disturb
 *   FAULT_KIND      how: kill-before, kill-after, kill-midwrite (half the bytes are written first);
 *                   EIO, ENOSPC (the call fails and does nothing); EIO-after, ENOSPC-after (the call succeeds but
 *                   reports failure); short (half the bytes are written, as write may); flip (one bit is changed);
 *                   SIGINT, SIGTERM (the calling thread receives that signal first);
 *                   stop (the process stops before the call, as by SIGSTOP, until another process continues it)
 *   FAULT_FOR_GOOD  1: every later call that changes something fails too, and does nothing
 *   FAULT_CLOCK     the process's time, in seconds since 1970; it does not advance
 *   FAULT_STILL     1: monotonic clocks do not advance either
 *
 * The library counts calls of libc's symbols. It makes calls on the folder one at a time, so that the log has them in
 * the order in which they took effect. It logs a call before it kills the process that made the call. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

/* In the order of CLASSES in shim.py. */
enum class { OPEN, READ, WRITE, SYNC, LINK, RENAME, UNLINK, MKDIR, TRUNCATE };
enum kind { NOTHING, KILL_BEFORE, KILL_AFTER, KILL_MIDWRITE, FAIL, FAIL_AFTER, SHORT, FLIP, SIGNAL, STOP };

/* One call in the log, followed by its two paths and by the bytes that it wrote. */
struct record {
    uint32_t number, process;
    uint32_t class, performed;
    int32_t error; /* the error that the caller saw, 0 for none */
    uint32_t flags; /* the flags of open */
    uint64_t inode;
    uint64_t offset; /* the offset of write, or the length of truncate */
    uint32_t path, other, data; /* lengths */
    uint32_t zero;
};

struct call {
    struct record record;
    char path[PATH_MAX], other[PATH_MAX]; /* `other` is the target of link and rename */
    const void *data;
    size_t length;
    bool counted, changes;
    enum kind kind;
};

static char root[PATH_MAX];
static size_t root_length;
static int log_fd = -1, fault_error, fault_signal;
static uint32_t fault_at, counter;
static enum kind fault_kind;
static bool for_good;
static bool has_clock, is_still;
static time_t clock_seconds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(result, name, ...)                                                                                        \
    static result (*real_##name)(__VA_ARGS__);                                                                         \
    static void find_##name(void) { *(void **)&real_##name = dlsym(RTLD_NEXT, #name); }
REAL(int, openat, int, const char *, int, ...)
REAL(DIR *, opendir, const char *)
REAL(struct dirent64 *, readdir64, DIR *)
REAL(ssize_t, read, int, void *, size_t)
REAL(ssize_t, pread64, int, void *, size_t, off64_t)
REAL(ssize_t, readv, int, const struct iovec *, int)
REAL(ssize_t, write, int, const void *, size_t)
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)
REAL(ssize_t, writev, int, const struct iovec *, int)
REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t)
REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned)
REAL(ssize_t, sendfile64, int, int, off64_t *, size_t)
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(int, linkat, int, const char *, int, const char *, int)
REAL(int, renameat2, int, const char *, int, const char *, unsigned)
REAL(int, renameat, int, const char *, int, const char *)
REAL(int, unlinkat, int, const char *, int)
REAL(int, mkdirat, int, const char *, mode_t)
REAL(int, ftruncate64, int, off64_t)
REAL(int, clock_gettime, clockid_t, struct timespec *)

/* The first call sets this up, because other libraries' constructors run before this library's. A fork with other
 * settings calls it again. */
PUBLIC void set_up_faults(void);
PUBLIC void set_up_faults(void) {
    find_openat(), find_opendir(), find_readdir64(), find_read(), find_pread64(), find_readv(), find_write();
    find_pwrite64(), find_writev(), find_pwritev64(), find_copy_file_range(), find_sendfile64(), find_fsync();
    find_fdatasync(), find_linkat(), find_renameat2(), find_renameat(), find_unlinkat(), find_mkdirat();
    find_ftruncate64(), find_clock_gettime();
    const char *text = getenv("FAULT_KIND");
    if (text) {
        static const char *const names[] = {"kill-before", "kill-after", "kill-midwrite", "EIO", "ENOSPC", "EIO-after",
                                            "ENOSPC-after", "short", "flip", "SIGINT", "SIGTERM", "stop"};
        static const enum kind kinds[] = {KILL_BEFORE, KILL_AFTER, KILL_MIDWRITE, FAIL, FAIL, FAIL_AFTER,
                                          FAIL_AFTER, SHORT, FLIP, SIGNAL, SIGNAL, STOP};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (strcmp(text, names[i]) == 0) fault_kind = kinds[i];
        if (fault_kind == NOTHING) abort();
        fault_error = strncmp(text, "ENOSPC", 6) == 0 ? ENOSPC : EIO;
        fault_signal = strcmp(text, "SIGINT") == 0 ? SIGINT : SIGTERM;
    }
    if ((text = getenv("FAULT_AT"))) fault_at = (uint32_t)strtoul(text, NULL, 10);
    if ((text = getenv("FAULT_FOR_GOOD"))) for_good = *text == '1';
    if ((text = getenv("FAULT_CLOCK"))) has_clock = true, clock_seconds = strtoll(text, NULL, 10);
    if ((text = getenv("FAULT_STILL"))) is_still = *text == '1';
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    if ((text = getenv("FAULT_LOG"))) log_fd = real_openat(AT_FDCWD, text, flags, 0666);
    if ((text = getenv("FAULT_ROOT"))) root_length = (size_t)snprintf(root, sizeof root, "%s", text);
}

static void ready(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int error = errno;
    pthread_once(&once, set_up_faults);
    errno = error;
}

/* Paths */

static bool inside(const char *path) {
    return root_length && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

static bool path_of_fd(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

/* The absolute path, without "." and doubled slashes. */
static void resolve(int folder, const char *name, char path[PATH_MAX]) {
    char full[2 * PATH_MAX];
    *path = 0;
    if (*name == '/') {
        snprintf(full, sizeof full, "%s", name);
    } else {
        if (folder == AT_FDCWD ? !getcwd(path, PATH_MAX) : !path_of_fd(folder, path)) return;
        snprintf(full, sizeof full, "%s/%s", path, name);
    }
    size_t length = 0;
    for (char *rest = full, *part; (part = strsep(&rest, "/"));) {
        if (!*part || strcmp(part, ".") == 0) continue;
        length += (size_t)snprintf(path + length, PATH_MAX - length, "/%s", part);
        if (length >= PATH_MAX) length = PATH_MAX - 1;
    }
}

/* Calls */

/* Counts a call whose path is known and returns its fault. If it is counted, the lock is held on return. */
static void begin(struct call *call, enum class class, bool changes) {
    call->counted = inside(call->path) || inside(call->other);
    call->kind = NOTHING;
    if (!call->counted) return;
    pthread_mutex_lock(&lock);
    call->record.class = class;
    call->record.process = (uint32_t)getpid();
    call->record.number = ++counter;
    call->changes = changes;
    if (counter == fault_at) call->kind = fault_kind;
    if (fault_at && counter > fault_at && for_good && changes) call->kind = FAIL;
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

static void append_to_log(struct call *call) {
    struct record *record = &call->record;
    size_t data = record->class == WRITE && record->performed ? call->length : 0;
    record->path = (uint32_t)strlen(call->path), record->other = (uint32_t)strlen(call->other);
    record->data = (uint32_t)data;
    struct iovec parts[] = {{record, sizeof *record},
                            {call->path, record->path},
                            {call->other, record->other},
                            {(void *)call->data, data}};
    ssize_t length = (ssize_t)(sizeof *record + record->path + record->other + data);
    if (log_fd >= 0 && real_writev(log_fd, parts, 4) != length) abort();
}

static void inode_of(struct call *call, int fd, const char *path) {
    struct stat status;
    if ((fd >= 0 ? fstat(fd, &status) : lstat(path, &status)) == 0) call->record.inode = status.st_ino;
}

/* Runs before the real call, and returns whether to make it. */
static bool allowed(struct call *call) {
    if (call->kind == KILL_BEFORE) die();
    if (call->kind == SIGNAL) raise(fault_signal);
    if (call->kind == STOP) syscall(SYS_kill, getpid(), SIGSTOP);
    return call->kind != FAIL;
}

/* Runs after the real call, and returns the error to report, 0 for none. */
static int finish(struct call *call, bool performed, bool failed) {
    int error = failed ? errno : 0;
    if (!performed) error = fault_error;
    if (performed && call->kind == FAIL_AFTER) error = fault_error;
    call->record.performed = performed && !failed;
    call->record.error = error;
    append_to_log(call);
    if (call->kind == KILL_AFTER || call->kind == KILL_MIDWRITE) die();
    pthread_mutex_unlock(&lock);
    errno = error ? error : errno;
    return error;
}

/* Makes the call `real` with its fault; `undo` reverts a result that the caller must not see. */
#define MAKE(call, type, failure, real, identify, undo)                                                                \
    ({                                                                                                                 \
        type result_ = failure;                                                                                        \
        if (!(call).counted) {                                                                                         \
            result_ = (real);                                                                                          \
        } else {                                                                                                       \
            bool performed_ = allowed(&(call));                                                                        \
            if (performed_) result_ = (real);                                                                          \
            bool failed_ = performed_ && result_ == failure;                                                           \
            if (performed_ && !failed_) {                                                                              \
                int errno_ = errno;                                                                                    \
                identify;                                                                                              \
                errno = errno_;                                                                                        \
            }                                                                                                          \
            if (finish(&(call), performed_, failed_) && performed_ && !failed_) {                                      \
                int errno_ = errno;                                                                                    \
                undo;                                                                                                  \
                errno = errno_;                                                                                        \
                result_ = failure;                                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        result_;                                                                                                       \
    })
#define NO_UNDO (void)0

static int opening(int folder, const char *name, int flags, mode_t mode) {
    struct call call = {0};
    ready();
    resolve(folder, name, call.path);
    call.record.flags = (uint32_t)flags;
    begin(&call, OPEN, (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)));
    return MAKE(call, int, -1, real_openat(folder, name, flags, mode), inode_of(&call, result_, ""), close(result_));
}

#define OPENING(folder)                                                                                                \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {                                                            \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }                                                                                                                  \
    return opening(folder, name, flags, mode);

PUBLIC int open(const char *name, int flags, ...) { OPENING(AT_FDCWD) }
PUBLIC int open64(const char *name, int flags, ...) { OPENING(AT_FDCWD) }
PUBLIC int openat(int folder, const char *name, int flags, ...) { OPENING(folder) }
PUBLIC int openat64(int folder, const char *name, int flags, ...) { OPENING(folder) }
PUBLIC int creat(const char *name, mode_t mode) { return opening(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

PUBLIC DIR *opendir(const char *name) {
    struct call call = {0};
    ready();
    resolve(AT_FDCWD, name, call.path);
    call.record.flags = O_DIRECTORY;
    begin(&call, OPEN, false);
    return MAKE(call, DIR *, NULL, real_opendir(name), inode_of(&call, dirfd(result_), ""), closedir(result_));
}

/* At the end of a folder it returns NULL, as after a failure, but does not change errno. */
PUBLIC struct dirent64 *readdir64(DIR *folder) {
    struct call call = {0};
    ready();
    path_of_fd(dirfd(folder), call.path);
    begin(&call, READ, false);
    if (!call.counted) return real_readdir64(folder);
    bool performed = allowed(&call);
    struct dirent64 *entry = performed ? real_readdir64(folder) : NULL;
    return finish(&call, performed, false) ? NULL : entry;
}

static void begin_fd(struct call *call, int fd, enum class class) {
    ready();
    int error = errno;
    path_of_fd(fd, call->path);
    if (inside(call->path)) inode_of(call, fd, "");
    begin(call, class, class != READ);
    errno = error;
}

#define READING(type, real)                                                                                            \
    struct call call = {0};                                                                                            \
    begin_fd(&call, fd, READ);                                                                                         \
    return MAKE(call, type, -1, real, NO_UNDO, NO_UNDO);

PUBLIC ssize_t read(int fd, void *data, size_t length) { READING(ssize_t, real_read(fd, data, length)) }
PUBLIC ssize_t pread64(int fd, void *data, size_t length, off64_t at) {
    READING(ssize_t, real_pread64(fd, data, length, at))
}
PUBLIC ssize_t pread(int fd, void *data, size_t length, off_t at) { return pread64(fd, data, length, at); }
PUBLIC ssize_t readv(int fd, const struct iovec *parts, int count) { READING(ssize_t, real_readv(fd, parts, count)) }

/* A write that was already counted. A negative offset means the file's own position. */
static ssize_t writing(struct call *call, int fd, const void *data, size_t length, off64_t at) {
    char *changed = NULL;
    if (call->kind == SHORT || call->kind == KILL_MIDWRITE) length = length > 1 ? length / 2 : length;
    if (call->kind == FLIP && length && (changed = malloc(length))) {
        memcpy(changed, data, length);
        changed[length / 2] ^= 0x10;
        data = changed;
    }
    int flags = fcntl(fd, F_GETFL);
    struct stat status;
    call->record.offset = (uint64_t)(at >= 0 ? at : lseek(fd, 0, SEEK_CUR));
    if (flags & O_APPEND && fstat(fd, &status) == 0) call->record.offset = (uint64_t)status.st_size;
    call->data = data;
#define WRITTEN (at < 0 ? real_write(fd, data, length) : real_pwrite64(fd, data, length, at))
    ssize_t result = MAKE(*call, ssize_t, -1, WRITTEN, call->length = (size_t)result_, NO_UNDO);
    free(changed);
    return result;
}

PUBLIC ssize_t write(int fd, const void *data, size_t length) {
    struct call call = {0};
    begin_fd(&call, fd, WRITE);
    return call.counted ? writing(&call, fd, data, length, -1) : real_write(fd, data, length);
}

PUBLIC ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    struct call call = {0};
    begin_fd(&call, fd, WRITE);
    return call.counted ? writing(&call, fd, data, length, at) : real_pwrite64(fd, data, length, at);
}

PUBLIC ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return pwrite64(fd, data, length, at); }

static ssize_t writing_parts(struct call *call, int fd, const struct iovec *parts, int count, off64_t at) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    char *data = malloc(length + 1), *end = data;
    if (!data) abort();
    for (int i = 0; i < count; i++) end = mempcpy(end, parts[i].iov_base, parts[i].iov_len);
    ssize_t result = writing(call, fd, data, length, at);
    free(data);
    return result;
}

PUBLIC ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct call call = {0};
    begin_fd(&call, fd, WRITE);
    return call.counted ? writing_parts(&call, fd, parts, count, -1) : real_writev(fd, parts, count);
}

PUBLIC ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    struct call call = {0};
    begin_fd(&call, fd, WRITE);
    return call.counted ? writing_parts(&call, fd, parts, count, at) : real_pwritev64(fd, parts, count, at);
}

PUBLIC ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return pwritev64(fd, parts, count, at);
}

static bool fd_inside(int fd) {
    char path[PATH_MAX];
    ready();
    return path_of_fd(fd, path) && inside(path);
}

/* Fails as on file systems without this call, so that copies use reads and writes, which are counted. */
PUBLIC ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t length, unsigned flags) {
    if (!fd_inside(out)) return real_copy_file_range(in, from, out, to, length, flags);
    errno = EXDEV;
    return -1;
}

PUBLIC ssize_t sendfile64(int out, int in, off64_t *from, size_t length) {
    if (!fd_inside(out)) return real_sendfile64(out, in, from, length);
    errno = EINVAL;
    return -1;
}

PUBLIC ssize_t sendfile(int out, int in, off_t *from, size_t length) { return sendfile64(out, in, from, length); }

PUBLIC int fsync(int fd) {
    struct call call = {0};
    begin_fd(&call, fd, SYNC);
    return MAKE(call, int, -1, real_fsync(fd), NO_UNDO, NO_UNDO);
}

PUBLIC int fdatasync(int fd) {
    struct call call = {0};
    begin_fd(&call, fd, SYNC);
    return MAKE(call, int, -1, real_fdatasync(fd), NO_UNDO, NO_UNDO);
}

PUBLIC int ftruncate64(int fd, off64_t length) {
    struct call call = {0};
    call.record.offset = (uint64_t)length;
    begin_fd(&call, fd, TRUNCATE);
    return MAKE(call, int, -1, real_ftruncate64(fd, length), NO_UNDO, NO_UNDO);
}

PUBLIC int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

/* Calls that create, move or remove a name. */
#define NAMING(class, from_folder, from, to_folder, to, real)                                                          \
    struct call call = {0};                                                                                            \
    ready();                                                                                                           \
    resolve(from_folder, from, call.path);                                                                             \
    if (*(to)) resolve(to_folder, to, call.other);                                                                     \
    begin(&call, class, true);                                                                                         \
    return MAKE(call, int, -1, real, inode_of(&call, -1, *call.other ? call.other : call.path), NO_UNDO);

PUBLIC int linkat(int from, const char *old, int to, const char *new, int flags) {
    NAMING(LINK, from, old, to, new, real_linkat(from, old, to, new, flags))
}
PUBLIC int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

PUBLIC int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    NAMING(RENAME, from, old, to, new, real_renameat2(from, old, to, new, flags))
}
PUBLIC int renameat(int from, const char *old, int to, const char *new) {
    NAMING(RENAME, from, old, to, new, real_renameat(from, old, to, new))
}
PUBLIC int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }

PUBLIC int unlinkat(int folder, const char *name, int flags) {
    NAMING(UNLINK, folder, name, 0, "", real_unlinkat(folder, name, flags))
}
PUBLIC int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
PUBLIC int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

PUBLIC int mkdirat(int folder, const char *name, mode_t mode) {
    NAMING(MKDIR, folder, name, 0, "", real_mkdirat(folder, name, mode))
}
PUBLIC int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

PUBLIC int clock_gettime(clockid_t clock, struct timespec *now) {
    ready();
    bool is_date = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (is_date ? !has_clock : !is_still) return real_clock_gettime(clock, now);
    /* Some hours after the machine's start, because a monotonic clock never shows 0. */
    *now = (struct timespec){.tv_sec = is_date ? clock_seconds : 10000};
    return 0;
}
