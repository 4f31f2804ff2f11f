#include "base/atomic-file.h"

#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- Temporary files of this process ------------------------------------------------------------

struct temporary {
    struct temporary * next;
    pid_t              owner; // not a child that inherited the list
    char               name[];
};

static atomic_flag        locked = ATOMIC_FLAG_INIT; // guards the list and `ended`
static struct temporary * temporaries;
static bool               ended; // atomic_file_remove_temporaries was called

// Signals are blocked while the list is locked, so that a handler never waits for its own thread.
static void lock_list(sigset_t * before) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
    while (atomic_flag_test_and_set_explicit(&locked, memory_order_acquire)) {
        sched_yield();
    }
}

static void unlock_list(const sigset_t * before) {
    atomic_flag_clear_explicit(&locked, memory_order_release);
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

void atomic_file_remove_temporaries(void) {
    const int   saved = errno;
    const pid_t self = getpid();
    sigset_t    before;
    lock_list(&before);
    ended = true;
    for (const struct temporary * t = temporaries; t != NULL; t = t->next) {
        if (t->owner == self) {
            unlink(t->name);
        }
    }
    unlock_list(&before);
    errno = saved;
}

// True if this process writes the file. The list is locked.
static bool is_listed(const char * name) {
    bool found = false;
    for (const struct temporary * t = temporaries; t != NULL && !found; t = t->next) {
        found = t->owner == getpid() && strcmp(t->name, name) == 0;
    }
    return found;
}

// Creates the file and adds it to the list. Returns its descriptor, or -1 with errno; EBUSY: this
// process writes a file with this name.
static int create(struct temporary * t) {
    sigset_t before;
    lock_list(&before);
    const bool is_busy = is_listed(t->name);
    errno = ended ? EINTR : EBUSY;
    const int fd =
            ended || is_busy ? -1 : open(t->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const int error = errno;
    if (fd >= 0) {
        t->next = temporaries;
        temporaries = t;
    }
    unlock_list(&before);
    errno = error;
    return fd;
}

// Renames the file to `path`, or deletes it if `path` is NULL. Removes it from the list.
static bool finish(struct temporary * t, const char * path) {
    sigset_t before;
    lock_list(&before);
    const bool ok = path != NULL ? rename(t->name, path) == 0 : unlink(t->name) == 0;
    const int  error = errno;
    if (!ok && path != NULL) {
        unlink(t->name);
    }
    struct temporary ** link = &temporaries;
    while (*link != t) {
        link = &(*link)->next;
    }
    *link = t->next;
    unlock_list(&before);
    errno = error;
    return ok;
}

// ---- Temporary files of processes that were killed ----------------------------------------------

// The process id in "PID.tmp" or "PID-N.tmp", exactly as we write it; 0: another name.
static pid_t parse_name(const char * text) {
    const size_t n = strspn(text, "0123456789");
    const char * rest = text + n;
    if (rest[0] == '-' && rest[1] != '0') {
        const size_t n_count = strspn(rest + 1, "0123456789");
        rest += n_count > 0 && n_count <= 20 ? 1 + n_count : 0;
    }
    if (n == 0 || n > 10 || text[0] == '0' || strcmp(rest, ".tmp") != 0) {
        return 0;
    }
    const long long pid = strtoll(text, NULL, 10);
    return (pid_t) pid == pid ? (pid_t) pid : 0;
}

// Deletes a temporary file if nobody writes it. The lock matters where ids do not identify a
// process: on a file system that containers or machines share.
static void remove_unlocked(const char * name) {
    struct stat st;
    const int   fd = open(name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            lockf(fd, F_TLOCK, 0) == 0) {
        unlink(name);
    }
    close(fd);
}

static void remove_stale(const char * name, pid_t pid) {
    if (pid == getpid()) { // of an earlier process with this id, unless a thread of ours writes it
        sigset_t before;
        lock_list(&before);
        if (!is_listed(name)) {
            remove_unlocked(name);
        }
        unlock_list(&before);
    } else if (kill(pid, 0) != 0 && errno == ESRCH) {
        remove_unlocked(name);
    }
}

// Deletes the stale temporary files of `path`.
static void remove_all_stale(const char * path) {
    const char * slash = strrchr(path, '/');
    const char * base = slash != NULL ? slash + 1 : path;
    const size_t n = strlen(base);
    const int    n_dir = (int) (base - path); // with its slash
    char *       name = malloc(strlen(path) + 64);
    if (name == NULL) {
        return;
    }
    sprintf(name, "%.*s", n_dir, path);
    DIR * dir = opendir(n_dir > 0 ? name : ".");
    for (const struct dirent * e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, base, n) == 0 && e->d_name[n] == '.') {
            const pid_t pid = parse_name(e->d_name + n + 1);
            if (pid > 0) {
                sprintf(name, "%.*s%s", n_dir, path, e->d_name);
                remove_stale(name, pid);
            }
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    free(name);
}

// ---- Files --------------------------------------------------------------------------------------

bool atomic_file_may_replace(
        const char * path, const char * magic, const char * kind, struct lrnn_error * err) {
    struct stat st;
    size_t      n = 0; // bytes of the magic that were found

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        return true; // atomic_file_open has a better message than ours
    }
    FILE * file = fopen(path, "rb");
    if (file != NULL) {
        while (magic[n] != '\0' && fgetc(file) == (unsigned char) magic[n]) {
            ++n;
        }
        fclose(file);
    }
    return magic[n] == '\0' ||
           error_bad_input(err, "%s: not %s; expected %s or a new file name", path, kind, kind);
}

// Creates the temporary file. Returns false with errno.
static bool open_temporary(struct atomic_file * f) {
    const size_t       size = strlen(f->path) + 64;
    struct temporary * t = malloc(sizeof(*t) + size);
    if (t == NULL) {
        return false;
    }
    t->owner = getpid();
    snprintf(t->name, size, "%s.%ld.tmp", f->path, (long) t->owner);
    int fd = create(t);
    // another thread writes the same file: the last to finish wins
    for (int i = 1; fd < 0 && errno == EBUSY; ++i) {
        snprintf(t->name, size, "%s.%ld-%d.tmp", f->path, (long) t->owner, i);
        fd = create(t);
    }
    if (fd < 0) {
        free(t);
        return false;
    }
    f->temporary = t;
    (void) !lockf(fd, F_TLOCK, 0); // on a file system without locks, the process id remains
    f->file = fdopen(fd, "wb");
    if (f->file == NULL) {
        close(fd);
    }
    return f->file != NULL;
}

bool atomic_file_open(struct atomic_file * f, const char * path, struct lrnn_error * err) {
    struct stat st;
    *f = (struct atomic_file) { 0 };
    if (path[0] == '\0') {
        return error_bad_input(err, "the name of the output file is empty");
    }
    // renaming would replace /dev/null by a regular file, and also the link /dev/stdout, whose
    // target is a regular file if standard output is
    if ((stat(path, &st) == 0 && !S_ISREG(st.st_mode)) ||
            (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))) {
        return error_set(err, LRNN_ERROR_SYSTEM, "%s: found %s, expected a regular file or none",
                path,
                S_ISDIR(st.st_mode)   ? "a directory"
                : S_ISLNK(st.st_mode) ? "a symbolic link"
                                      : "a device, pipe or socket");
    }
    f->path = strdup(path);
    if (f->path == NULL) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", path);
    }
    remove_all_stale(path);
    if (!open_temporary(f)) {
        if (errno == EEXIST) {
            error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot be written: %s.%ld.tmp: %s", path, path,
                    (long) getpid(), strerror(errno));
        } else {
            error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
        }
        atomic_file_cancel(f);
        return false;
    }
    return true;
}

bool atomic_file_write(
        struct atomic_file * f, const void * data, size_t size, struct lrnn_error * err) {
    return fwrite(data, 1, size, f->file) == size ||
           error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot be written: %s", f->path, strerror(errno));
}

bool atomic_file_commit(struct atomic_file * f, struct lrnn_error * err) {
    errno = EIO; // of an earlier write that nobody checked
    bool ok = !ferror(f->file) && fflush(f->file) == 0 && fsync(fileno(f->file)) == 0;
    ok = fclose(f->file) == 0 && ok;
    f->file = NULL;
    if (ok) {
        ok = finish(f->temporary, f->path);
        free(f->temporary);
        f->temporary = NULL;
    }
    if (!ok) {
        error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot be written: %s", f->path, strerror(errno));
    }
    atomic_file_cancel(f);
    return ok;
}

void atomic_file_cancel(struct atomic_file * f) {
    if (f->file != NULL) {
        fclose(f->file);
    }
    if (f->temporary != NULL) {
        finish(f->temporary, NULL);
        free(f->temporary);
    }
    free(f->path);
    *f = (struct atomic_file) { 0 };
}
