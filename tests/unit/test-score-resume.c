// Resumed runs, also after SIGKILL, and shards give the bytes of an uninterrupted run.

#include "kit/files.h"
#include "kit/score-bench.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool no_checkpoint(const char * name) {
    char        path[512], checkpoints[600];
    struct stat st;
    snprintf(checkpoints, sizeof(checkpoints), "%s.checkpoint", bench_path(name, path));
    return stat(checkpoints, &st) != 0;
}

// Runs in a child process that is killed after a number of calls. Returns true if it was still
// running.
static bool killed_after(struct score_bench_run run, int calls) {
    run.stop_after = calls;
    run.killed = true;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const int64_t before = bench.t.n_failed;
        bench_run(&run);
        fflush(stdout);
        _exit(bench.t.n_failed == before ? 0 : 1);
    }
    int status = 0;
    test_check(&bench.t, child > 0 && waitpid(child, &status, 0) == child,
            "cannot create a process: %s", strerror(errno));
    test_check(
            &bench.t, WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "the child process failed");
    return WIFSIGNALED(status);
}

static void test_resume(
        const char * model_name, enum score_reset reset, int64_t group, bool probe) {
    struct lrnn_model *          model = bench_model(model_name);
    const struct score_bench_run run = {
        .model = model,
        .name = "resumed",
        .n_batch = 16,
        .group = group,
        .reset = reset,
        .checkpoint_every = 60,
        .probe = probe,
        .window = { .length = 100, .max_windows = 4 },
    };
    struct score_bench_run unbroken = run;
    unbroken.name = "unbroken";
    bench_run(&unbroken);
    test_check(&bench.t, no_checkpoint("unbroken"), "a finished run left a checkpoint");

    // stopped after every fourth call
    int                    n_stops = 0;
    int64_t                n_tokens = 0;
    struct score_bench_run asked = run;
    asked.stop_after = 4;
    while (bench_run(&asked) == LRNN_ERROR_CANCELLED && n_stops < 1000) {
        n_tokens += asked.result.n_tokens;
        n_stops++;
        asked.resume = true;
    }
    n_tokens += asked.result.n_tokens;
    test_check(&bench.t, n_stops > 2 && bench_same_files("unbroken", "resumed"),
            "%s, reset %d: stopped %d times, the file has other bytes", model_name, (int) reset,
            n_stops);
    test_check(&bench.t, n_tokens == unbroken.result.n_tokens,
            "a stopped run computed %" PRId64 " tokens, an uninterrupted one %" PRId64, n_tokens,
            unbroken.result.n_tokens);
    test_check(&bench.t, no_checkpoint("resumed"), "a finished run left a checkpoint");

    // killed after more and more calls
    bench_forget("resumed");
    struct score_bench_run again = run;
    int                    n_kills = 0;
    for (int calls = 4; killed_after(again, calls) && n_kills < 50; ++calls, ++n_kills) {
        again.resume = true;
    }
    test_check(&bench.t, n_kills > 1 && bench_same_files("unbroken", "resumed"),
            "%s, reset %d: killed %d times, the file has other bytes", model_name, (int) reset,
            n_kills);
    test_check(&bench.t, no_checkpoint("resumed"), "a finished run left a checkpoint");

    // killed while appending a group: the missing windows are computed again
    again.resume = true;
    if (reset != SCORE_RESET_NEVER) {
        char        path[512];
        struct stat st;
        test_check(&bench.t,
                stat(bench_path("resumed", path), &st) == 0 && truncate(path, st.st_size - 40) == 0,
                "cannot truncate the file");
        test_check(&bench.t,
                bench_run(&again) == LRNN_ERROR_NONE && again.result.n_windows == 1 &&
                        bench_same_files("unbroken", "resumed"),
                "%s: truncated inside a group", model_name);
    }

    // resuming a finished run changes nothing
    test_check(&bench.t,
            bench_run(&again) == LRNN_ERROR_NONE && again.result.n_tokens == 0 &&
                    bench_same_files("unbroken", "resumed"),
            "a finished run was changed");

    // a run without --resume ignores checkpoints
    bench_forget("resumed");
    asked.resume = false;
    test_check(&bench.t, bench_run(&asked) == LRNN_ERROR_CANCELLED && !no_checkpoint("resumed"),
            "a stopped run left no checkpoint");
    struct score_bench_run restarted = run;
    test_check(&bench.t,
            bench_run(&restarted) == LRNN_ERROR_NONE && restarted.result.n_resumed == 0 &&
                    bench_same_files("unbroken", "resumed"),
            "a restarted run used a checkpoint");

    bench_forget("resumed");
    bench_forget("unbroken");
    lrnn_model_free(model);
}

// A checkpoint of another run over the same windows is ignored with a warning.
static void test_foreign_checkpoint(void) {
    struct lrnn_model *          model = bench_model("delta_net_neg");
    const struct score_bench_run run = { .model = model,
        .name = "mine",
        .n_batch = 16,
        .group = 2,
        .window = { .length = 100, .max_windows = 4 } };
    char                         mine[600], theirs[600], path[512];
    snprintf(mine, sizeof(mine), "%s.checkpoint", bench_path("mine", path));
    snprintf(theirs, sizeof(theirs), "%s.checkpoint", bench_path("theirs", path));

    struct score_bench_run other = run; // its losses are those of other states
    other.name = "theirs";
    other.reset = SCORE_RESET_DOCUMENT;
    other.stop_after = 4;
    test_check(
            &bench.t, bench_run(&other) == LRNN_ERROR_CANCELLED, "the other run was not stopped");

    struct score_bench_run unbroken = run;
    unbroken.name = "unbroken";
    bench_run(&unbroken);

    struct score_bench_run stopped = run;
    stopped.stop_after = 1;
    test_check(&bench.t, bench_run(&stopped) == LRNN_ERROR_CANCELLED, "the run was not stopped");
    char old[700];
    snprintf(old, sizeof(old), "%s.old", mine);
    test_check(&bench.t, rename(mine, old) == 0 && rename(theirs, mine) == 0, "cannot rename: %s",
            strerror(errno));

    struct score_bench_run resumed = run;
    resumed.resume = true;
    resumed.warning = "another run";
    test_check(&bench.t,
            bench_run(&resumed) == LRNN_ERROR_NONE && resumed.result.n_resumed == 0 &&
                    bench_same_files("unbroken", "mine"),
            "a checkpoint of another run was used");
    test_check(&bench.t, no_checkpoint("mine"), "a finished run left a checkpoint");

    // the run's own checkpoint, with a wrong loss and unharmed
    bench_forget("mine");
    stopped.stop_after = 4;
    test_check(&bench.t, bench_run(&stopped) == LRNN_ERROR_CANCELLED, "the run was not stopped");
    char   partial[700];
    size_t size;
    snprintf(partial, sizeof(partial), "%s/0.partial", mine);
    uint8_t * data = test_read_file(partial, &size);
    data[92] ^= 1; // after the headers of file and window
    test_write_file(partial, data, size);
    free(data);
    resumed.warning = "checksum";
    test_check(&bench.t,
            bench_run(&resumed) == LRNN_ERROR_NONE && resumed.result.n_resumed == 0 &&
                    bench_same_files("unbroken", "mine"),
            "a damaged checkpoint was used");

    bench_forget("mine");
    test_check(&bench.t, bench_run(&stopped) == LRNN_ERROR_CANCELLED, "the run was not stopped");
    resumed.warning = NULL;
    test_check(&bench.t,
            bench_run(&resumed) == LRNN_ERROR_NONE && resumed.result.n_resumed > 0 &&
                    bench_same_files("unbroken", "mine"),
            "the run's own checkpoint was not used");

    char command[800];
    snprintf(command, sizeof(command), "rm -r '%s'", old);
    test_check(&bench.t, system(command) == 0, "cannot remove %s", old);
    bench_forget("mine");
    bench_forget("theirs");
    bench_forget("unbroken");
    lrnn_model_free(model);
}

// A file cut after any number of windows is completed with the bytes of an unbroken run: a group
// that is there in part is computed as a whole. One token per window and call, so that a group of
// another size would round differently.
static void test_cut_files(void) {
    enum { GROUP = 3, N_WINDOWS = 8 };
    struct lrnn_model *          model = bench_model("gated_deltanet_neg");
    const struct score_bench_run run = { .model = model,
        .name = "cut",
        .n_batch = 1,
        .group = GROUP,
        .window = { .length = 40, .max_windows = N_WINDOWS } };
    struct score_bench_run       unbroken = run;
    char                         path[512];
    size_t                       ends[N_WINDOWS + 1]; // offsets of the windows in the file
    size_t                       size = 0;
    int                          n = 0;
    unbroken.name = "unbroken";
    bench_run(&unbroken);
    uint8_t * data = test_read_file(bench_path("unbroken", path), &size);
    for (size_t i = 0; i + 4 <= size && n <= N_WINDOWS; ++i) {
        if (memcmp(data + i, "NLL1", 4) == 0) {
            ends[n++] = i;
        }
    }
    test_check(&bench.t, n == N_WINDOWS, "%d windows in the file", n);
    for (int k = 0; k < n; ++k) {
        test_write_file(bench_path("cut", path), data, ends[k]);
        struct score_bench_run again = run;
        again.resume = true;
        test_check(&bench.t,
                bench_run(&again) == LRNN_ERROR_NONE && again.result.n_windows == N_WINDOWS - k,
                "%d windows were appended to %d", (int) again.result.n_windows, k);
        test_check(&bench.t, bench_same_files("unbroken", "cut"),
                "cut after %d windows: other bytes", k);
    }
    free(data);
    bench_forget("cut");
    bench_forget("unbroken");
    lrnn_model_free(model);
}

// Four shards, one of them killed and resumed, equal the unsplit run.
static void test_shards(void) {
    struct lrnn_model *          model = bench_model("deltaproduct3_neg");
    const struct score_bench_run run = { .model = model,
        .name = "whole",
        .n_batch = 16,
        .group = 2,
        .checkpoint_every = 20,
        .probe = true,
        .window = { .length = 70 } };
    struct score_bench_run       unsplit = run;
    bench_run(&unsplit);
    static const char * const names[] = { "part1", "part2", "part3", "part4" };
    char                      path[4][512];
    struct lrnn_error         err = { LRNN_ERROR_NONE, "" };
    const char *              paths[4];
    for (int i = 0; i < 4; ++i) {
        struct score_bench_run part = run;
        part.name = names[i];
        part.shard = i + 1;
        part.n_shards = 4;
        if (i == 2) {
            test_check(&bench.t, killed_after(part, 4), "the shard finished before it was killed");
            part.resume = true;
        }
        bench_run(&part);
        paths[i] = bench_path(names[i], path[i]);
    }
    struct scores whole = bench_read("whole"), parts;
    if (test_check(&bench.t, scores_read(paths, 4, false, &parts, &err), "%s", err.text)) {
        bool same = parts.n_windows == whole.n_windows && whole.n_windows > 10;
        for (int64_t i = 0; i < whole.n_windows && same; ++i) {
            const struct score_window * a = &whole.windows[i];
            const struct score_window * b = &parts.windows[i];
            same = a->index == b->index && a->n_targets == b->n_targets &&
                   a->n_spans == b->n_spans &&
                   memcmp(a->nll, b->nll, (size_t) a->n_targets * sizeof(*a->nll)) == 0 &&
                   memcmp(a->flags, b->flags, (size_t) a->n_targets) == 0 &&
                   memcmp(a->bytes, b->bytes, (size_t) a->n_targets * sizeof(*a->bytes)) == 0 &&
                   memcmp(a->spans, b->spans, (size_t) a->n_spans * sizeof(*a->spans)) == 0 &&
                   a->n_norms == b->n_norms && a->n_norms > 2 &&
                   memcmp(a->norms, b->norms, (size_t) a->n_norms * sizeof(*a->norms)) == 0;
        }
        test_check(&bench.t, same, "four shards differ from the run");
        scores_free(&parts);
    }
    scores_free(&whole);
    for (int i = 0; i < 4; ++i) {
        bench_forget(names[i]);
    }
    bench_forget("whole");
    lrnn_model_free(model);
}

int main(void) {
    if (!bench_begin()) {
        return 1;
    }
    test_resume("gated_deltaproduct2_neg", SCORE_RESET_WINDOW, 2, true);
    test_resume("olmo_hybrid", SCORE_RESET_WINDOW, 3, false);
    test_resume("mamba2", SCORE_RESET_DOCUMENT, 2, true);
    test_resume("rwkv6", SCORE_RESET_NEVER, 1, true);
    test_foreign_checkpoint();
    test_cut_files();
    test_shards();
    return bench_end("score-resume");
}
