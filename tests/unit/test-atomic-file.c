// Output files: complete or absent, also if the process is killed; nobody else's files are deleted.

#include "lrnn.h"
#include "base/atomic-file.h"
#include "kit/check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_SIZE = 512 };

static char folder[] = "test-atomic-file-XXXXXX";

// The path of a file in the folder of the test.
static const char * in_folder(char path[PATH_SIZE], const char * name) {
    snprintf(path, PATH_SIZE, "%s/%s", folder, name);
    return path;
}

// "out.1234.tmp"
static const char * temporary_of(char path[PATH_SIZE], pid_t pid) {
    snprintf(path, PATH_SIZE, "%s/out.%ld.tmp", folder, (long) pid);
    return path;
}

static bool exists(const char * path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

static void write_text(const char * path, const char * text) {
    FILE * file = fopen(path, "wb");
    if (file != NULL) {
        fputs(text, file);
        fclose(file);
    }
}

static bool has_text(const char * path, const char * text) {
    char   found[64] = "";
    FILE * file = fopen(path, "rb");
    if (file != NULL) {
        found[fread(found, 1, sizeof(found) - 1, file)] = '\0';
        fclose(file);
    }
    return file != NULL && strcmp(found, text) == 0;
}

//
// Children that have an output file open
//

struct child {
    pid_t pid;
    int   to;   // a byte lets it commit
    int   from; // its answer: 'o' opened, 'c' committed, 'f' failed
};

static void on_signal(int number) {
    atomic_file_remove_temporaries();
    signal(number, SIG_DFL);
    raise(number);
}

static void run_child(int from, int to) {
    struct atomic_file file;
    char               path[PATH_SIZE], byte;

    const struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    if (!atomic_file_open(&file, in_folder(path, "out"), NULL) ||
            !atomic_file_write(&file, "child", 5, NULL) || write(to, "o", 1) != 1 ||
            read(from, &byte, 1) != 1) {
        _exit(1);
    }
    _exit(write(to, atomic_file_commit(&file, NULL) ? "c" : "f", 1) != 1);
}

static bool start_child(struct test * t, struct child * c) {
    int  down[2], up[2];
    char byte = 0;
    if (!test_check(t, pipe(down) == 0 && pipe(up) == 0, "no pipes")) {
        return false;
    }
    c->pid = fork();
    if (c->pid == 0) {
        run_child(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    c->to = down[1];
    c->from = up[0];
    return test_check(t, read(c->from, &byte, 1) == 1 && byte == 'o', "the child opened no file");
}

static char ask_child(struct child * c) {
    char byte = 0;
    return write(c->to, "c", 1) == 1 && read(c->from, &byte, 1) == 1 ? byte : 0;
}

static int end_child(struct child * c, int number) {
    int status = 0;
    if (number != 0) {
        kill(c->pid, number);
    }
    waitpid(c->pid, &status, 0);
    close(c->to);
    close(c->from);
    return status;
}

//
// Checks
//

static bool write_out(struct lrnn_error * err) {
    struct atomic_file file;
    char               path[PATH_SIZE];
    return atomic_file_open(&file, in_folder(path, "out"), err) &&
           atomic_file_write(&file, "mine", 4, err) && atomic_file_commit(&file, err);
}

// A cancelled file deletes its temporary file and leaves the previous file intact.
static void check_cancel(struct test * t) {
    struct atomic_file file;
    char               out[PATH_SIZE], temporary[PATH_SIZE];
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    write_text(in_folder(out, "out"), "before");
    if (test_check(t,
                atomic_file_open(&file, out, &err) && atomic_file_write(&file, "mine", 4, &err),
                "%s", err.text)) {
        test_check(t, exists(temporary_of(temporary, getpid())), "%s is missing", temporary);
        atomic_file_cancel(&file);
        test_check(t, !exists(temporary), "cancelled: %s is left", temporary);
        test_check(t, has_text(out, "before"), "cancelled: the file changed");
    }
}

// A signal deletes the temporary file and leaves the previous file intact.
static void check_signals(struct test * t) {
    const int signals[] = { SIGTERM, SIGHUP };
    for (int i = 0; i < 2; ++i) {
        struct child c;
        char         out[PATH_SIZE], temporary[PATH_SIZE];
        write_text(in_folder(out, "out"), "before");
        if (start_child(t, &c)) {
            test_check(t, exists(temporary_of(temporary, c.pid)), "%s is missing", temporary);
            const int status = end_child(&c, signals[i]);
            test_check(t, WIFSIGNALED(status) && WTERMSIG(status) == signals[i],
                    "signal %d: ended with status %d", signals[i], status);
            test_check(t, !exists(temporary), "signal %d: %s is left", signals[i], temporary);
            test_check(t, has_text(out, "before"), "signal %d: the file changed", signals[i]);
        }
    }
}

// The temporary file of a dead process is deleted at the next write. Returns its id.
static pid_t check_stale(struct test * t) {
    struct child      c;
    char              temporary[PATH_SIZE], out[PATH_SIZE];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    if (!start_child(t, &c)) {
        return 0;
    }
    end_child(&c, SIGKILL);
    test_check(t, exists(temporary_of(temporary, c.pid)), "SIGKILL left nothing to delete");
    test_check(t, write_out(&err), "%s", err.text);
    test_check(t, !exists(temporary), "%s of a dead process is left", temporary);
    test_check(t, has_text(in_folder(out, "out"), "mine"), "the file has another content");
    return c.pid;
}

// The temporary file of a living process stays, and so does a locked one: its process may run in
// another container or on another machine.
static void check_living(struct test * t, pid_t dead) {
    struct child      c;
    char              temporary[PATH_SIZE], moved[PATH_SIZE], out[PATH_SIZE];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    if (!start_child(t, &c)) {
        return;
    }
    test_check(t, write_out(&err), "%s", err.text);
    test_check(
            t, exists(temporary_of(temporary, c.pid)), "%s of a living process is gone", temporary);
    rename(temporary, temporary_of(moved, dead));
    test_check(t, write_out(&err), "%s", err.text);
    test_check(t, exists(moved), "%s is locked, but gone", moved);
    rename(moved, temporary);
    test_check(t, ask_child(&c) == 'c', "the child could not complete its file");
    end_child(&c, 0);
    test_check(t, has_text(in_folder(out, "out"), "child"), "the file has another content");
}

// Similar names are not ours.
static void check_other_names(struct test * t, pid_t dead) {
    static const char * const NAMES[][2] = {
        // around the id of a dead process
        { "out.0", ".tmp" },
        { "out.+", ".tmp" },
        { "out.-", ".tmp" },
        { "out. ", ".tmp" },
        { "out.", "" },
        { "out.", "a.tmp" },
        { "out.", "-.tmp" },
        { "out.", "-0.tmp" },
        { "out.", "-1a.tmp" },
        { "out.", ".tmp.bak" },
        { "out.", ".TMP" },
        { "out.1.", ".tmp" },
        { "out.99999999999999", ".tmp" },
        { "outer.", ".tmp" },
        { "an-out.", ".tmp" },
        { "", ".tmp" },
        // without it
        { "out.tmp", NULL },
        { "out..tmp", NULL },
        { "out.0.tmp", NULL },
        { "out.1.tmp", NULL },
    };
    enum { N_NAMES = sizeof(NAMES) / sizeof(NAMES[0]) };
    char              names[N_NAMES][PATH_SIZE], link[PATH_SIZE], victim[PATH_SIZE];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };

    for (int i = 0; i < N_NAMES; ++i) {
        char name[64], id[32] = "";
        if (NAMES[i][1] != NULL) {
            snprintf(id, sizeof(id), "%ld%s", (long) dead, NAMES[i][1]);
        }
        snprintf(name, sizeof(name), "%s%s", NAMES[i][0], id);
        write_text(in_folder(names[i], name), "a user's");
    }
    write_text(in_folder(victim, "victim"), "a user's");
    test_check(t, symlink("victim", temporary_of(link, dead)) == 0, "cannot make a link");
    test_check(t, write_out(&err), "%s", err.text);
    for (int i = 0; i < N_NAMES; ++i) {
        test_check(t, has_text(names[i], "a user's"), "%s changed", names[i]);
        remove(names[i]);
    }
    test_check(t, exists(link) && has_text(victim, "a user's"), "a link or its target changed");
    remove(link);
    test_check(t, mkdir(link, 0777) == 0 && write_out(&err) && exists(link), "a folder is gone: %s",
            err.text);
    rmdir(link);

    // a file in the way of ours is neither followed nor replaced
    test_check(t, symlink("victim", temporary_of(link, getpid())) == 0, "cannot make a link");
    test_check(
            t, !write_out(&err) && strstr(err.text, "File exists") != NULL, "said: %s", err.text);
    test_check(t, exists(link) && has_text(victim, "a user's"), "a link or its target changed");
    remove(link);
    remove(victim);
}

// Two writers of one file in one process: the last to finish wins, and nothing is left.
static void check_two_writers(struct test * t) {
    struct atomic_file a, b;
    char               path[PATH_SIZE], second[PATH_SIZE + 64];
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    in_folder(path, "out");
    snprintf(second, sizeof(second), "%s.%ld-1.tmp", path, (long) getpid());
    test_check(t, atomic_file_open(&a, path, &err), "%s", err.text);
    test_check(t, atomic_file_open(&b, path, &err) && exists(second), "%s", err.text);
    test_check(t,
            atomic_file_write(&b, "second", 6, &err) && atomic_file_commit(&b, &err) &&
                    has_text(path, "second") && !exists(second),
            "%s", err.text);
    test_check(t,
            atomic_file_write(&a, "first", 5, &err) && atomic_file_commit(&a, &err) &&
                    has_text(path, "first"),
            "%s", err.text);
    write_text(second, "of a process that had our id");
    test_check(t, write_out(&err) && !exists(second), "%s", err.text);
    write_text(temporary_of(path, getpid()), "of a process that had our id");
    test_check(t, write_out(&err) && !exists(path), "%s", err.text);
}

// Only a file of the same kind or an empty one may be replaced. A magic may have any length.
static void check_may_replace(struct test * t) {
    static const char * const MAGICS[] = { "LRNNSTAT", "exactly 16 bytes",
        "more than 16 bytes of it" };
    char                      path[PATH_SIZE], text[64];
    struct lrnn_error         err = { LRNN_ERROR_NONE, "" };
    remove(in_folder(path, "out"));
    for (size_t i = 0; i < sizeof(MAGICS) / sizeof(MAGICS[0]); ++i) {
        const char * magic = MAGICS[i];
        const size_t n = strlen(magic);
        test_check(t, atomic_file_may_replace(path, magic, "x", &err), "no file");
        write_text(path, "");
        test_check(t, atomic_file_may_replace(path, magic, "x", &err), "an empty file");
        snprintf(text, sizeof(text), "%s and more", magic);
        write_text(path, text);
        test_check(t, atomic_file_may_replace(path, magic, "x", &err), "%s", err.text);
        text[n - 1] ^= 1;
        write_text(path, text);
        test_check(t, !atomic_file_may_replace(path, magic, "x", &err),
                "the last byte of '%s' is not compared", magic);
        snprintf(text, n, "%s", magic); // without its last byte
        write_text(path, text);
        test_check(t, !atomic_file_may_replace(path, magic, "x", &err),
                "a file that ends within '%s' is accepted", magic);
        remove(path);
    }
}

// After atomic_file_remove_temporaries, nothing new can be left over.
static void check_end(struct test * t) {
    struct atomic_file file;
    char               path[PATH_SIZE], temporary[PATH_SIZE];
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    write_text(in_folder(path, "out"), "before");
    test_check(t, atomic_file_open(&file, path, &err), "%s", err.text);
    atomic_file_remove_temporaries();
    atomic_file_remove_temporaries();
    test_check(t, !exists(temporary_of(temporary, getpid())), "%s is left", temporary);
    test_check(t, !atomic_file_commit(&file, &err), "a deleted file was committed");
    test_check(t, !write_out(&err) && !exists(temporary), "a file was opened at the end");
    test_check(t, has_text(path, "before"), "the file changed");
    remove(path);
}

int main(void) {
    struct test t = { 0 };
    if (test_check(&t, mkdtemp(folder) != NULL, "cannot make a folder")) {
        check_cancel(&t);
        check_signals(&t);
        const pid_t dead = check_stale(&t);
        check_living(&t, dead);
        check_other_names(&t, dead);
        check_two_writers(&t);
        check_may_replace(&t);
        check_end(&t);
        test_check(&t, rmdir(folder) == 0, "files are left in %s", folder);
    }
    return test_end(&t, "atomic-file");
}
