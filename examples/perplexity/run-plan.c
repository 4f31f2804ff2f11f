#include "run.h"

#include "base/error.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_PER_CALL = 512, DEFAULT_GROUP = 4 };

// The defaults that a protocol sets.
static const struct protocol {
    const char *     name;
    enum window_mode mode;
    enum window_bos  bos;
    enum window_eos  eos;
    enum score_reset reset;
    int64_t          window;
} PROTOCOLS[] = {
    // in the order of RUN_PROTOCOLS
    { "paper", WINDOW_PACKED, WINDOW_BOS_AUTO, WINDOW_EOS_NONE, SCORE_RESET_WINDOW, 32768 },
    { "fla", WINDOW_PACKED, WINDOW_BOS_AUTO, WINDOW_EOS_NONE, SCORE_RESET_WINDOW, 28672 },
    { "document", WINDOW_DOCUMENT, WINDOW_BOS_AUTO, WINDOW_EOS_NONE, SCORE_RESET_WINDOW, 32768 },
    { "llama", WINDOW_LLAMA, WINDOW_BOS_AUTO, WINDOW_EOS_NONE, SCORE_RESET_WINDOW, 512 },
};

// "90", "90s", "30m", "2.5h", "1d" → seconds
static bool parse_time(const char * text, double * seconds) {
    static const char   UNITS[] = "smhd";
    static const double LENGTHS[] = { 1.0, 60.0, 3600.0, 86400.0 };
    char *              end;
    const double        value = strtod(text, &end);
    const char *        unit = *end != '\0' ? strchr(UNITS, *end) : UNITS;
    if (end == text || unit == NULL || !isfinite(value) || value <= 0.0) {
        return false;
    }
    *seconds = value * LENGTHS[unit - UNITS];
    return *end == '\0' || end[1] == '\0';
}

// "2/8"
static bool parse_shard(const char * text, int64_t * shard, int64_t * n_shards) {
    int n = 0;
    return strspn(text, "0123456789/") == strlen(text) &&
           sscanf(text, "%" SCNd64 "/%" SCNd64 "%n", shard, n_shards, &n) == 2 && text[n] == '\0' &&
           *shard >= 1 && *shard <= *n_shards && *n_shards <= 1 << 20;
}

// Sets an unset choice to that of the protocol. Returns true if the user chose another one.
static bool complete(int * choice, int of_protocol) {
    const bool differs = *choice >= 0 && *choice != of_protocol;
    *choice = *choice >= 0 ? *choice : of_protocol;
    return differs;
}

static bool check(const struct run_args * args, struct run_plan * plan, struct lrnn_error * err) {
    if (args->models.n == 0) {
        return error_bad_input(err, "-m is missing; see lrnn-perplexity run --help");
    }
    if (args->shard != NULL && !parse_shard(args->shard, &plan->shard, &plan->n_shards)) {
        return error_bad_input(err, "--shard is '%s'; expected I/N, such as 2/8", args->shard);
    }
    if (args->time_limit != NULL && !parse_time(args->time_limit, &plan->limit_s)) {
        return error_bad_input(err,
                "--time-limit is '%s'; expected a positive time such as 90s, 30m, 2.5h or 1d",
                args->time_limit);
    }
    if (args->names.n > 0 && args->names.n != args->models.n) {
        return error_bad_input(err, "%d --name for %d -m; expected one per model, or none",
                args->names.n, args->models.n);
    }
    if (plan->reset == SCORE_RESET_NEVER &&
            (args->parallel > 1 || plan->n_shards != 1 || plan->data.window.n_contexts > 0)) {
        return error_bad_input(err,
                "--reset never makes one sequence of all windows; --parallel, --shard and "
                "--context-lengths cannot be used with it");
    }
    if (args->resume && args->force) {
        return error_bad_input(err, "--resume continues a run and --force restarts it; "
                                    "expected at most one of them");
    }
    return data_options_check(&plan->data, err);
}

bool run_plan_make(const struct run_args * args, struct run_plan * plan, struct lrnn_error * err) {
    const struct protocol * p = &PROTOCOLS[args->protocol];
    struct data_options     data = args->data;
    int                     reset = args->reset;
    bool                    custom = data.window.skip_special || args->context_lengths.n > 0;
    custom |= complete(&data.mode, (int) p->mode);
    custom |= complete(&data.bos, (int) p->bos);
    custom |= complete(&data.eos, (int) p->eos);
    custom |= complete(&reset, (int) p->reset);
    data.window.length = data.window.length > 0 ? data.window.length : p->window;
    data.window.n_contexts = args->context_lengths.n;

    *plan = (struct run_plan) {
        .args = args,
        .data = data,
        .reset = (enum score_reset) reset,
        .protocol = custom ? "custom" : p->name,
        .shard = 1,
        .n_shards = 1,
    };
    size_t n = 0;
    for (int i = 0; i < args->context_lengths.n && n < sizeof(plan->same_targets); ++i) {
        plan->data.window.contexts[i] = args->context_lengths.v[i];
        n += (size_t) snprintf(plan->same_targets + n, sizeof(plan->same_targets) - n, "%s%" PRId64,
                i > 0 ? "," : "", args->context_lengths.v[i]);
    }
    return check(args, plan, err);
}

void run_plan_calls(struct run_plan * plan, int64_t n_windows) {
    const int64_t most = plan->reset == SCORE_RESET_NEVER ? 1 : DEFAULT_GROUP;
    plan->group = plan->args->parallel > 0 ? plan->args->parallel
                  : n_windows < most       ? n_windows
                                           : most;
    plan->n_batch = plan->args->batch > 0 ? plan->args->batch : TOKENS_PER_CALL / plan->group;
    plan->n_batch = plan->n_batch > 0 ? plan->n_batch : 1;
}

//
// Files
//

// Replaces what cannot be part of a file name.
static void sanitize(char * name) {
    for (; *name != '\0'; ++name) {
        *name = *name == '/' || iscntrl((unsigned char) *name) ? '_' : *name;
    }
}

// NAME.DATASET.nll, or NAME.DATASET.2-of-8.nll
bool run_files_make(const struct run_plan * plan, int i, struct run_files * f) {
    const struct run_args * args = plan->args;
    const char *            base = strrchr(args->models.v[i], '/');
    char                    file[512], shard[64] = "";

    f->model = args->models.v[i];
    const char * name = args->names.n > 0 ? args->names.v[i] : base != NULL ? base + 1 : f->model;
    size_t       n = strlen(name);
    n -= args->names.n == 0 && n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? 5 : 0;
    if (plan->n_shards > 1) {
        snprintf(shard, sizeof(shard), ".%" PRId64 "-of-%" PRId64, plan->shard, plan->n_shards);
    }
    const int n_name = snprintf(f->name, sizeof(f->name), "%.*s", (int) n, name);
    const int n_file =
            snprintf(file, sizeof(file), "%s.%s%s.nll", f->name, args->data.data.preset, shard);
    sanitize(file);
    snprintf(f->scores, sizeof(f->scores), "%s/%s", args->out, file);
    return n_name < (int) sizeof(f->name) && n_file < (int) sizeof(file) &&
           snprintf(f->checkpoints, sizeof(f->checkpoints), "%s/%s.checkpoint", args->out, file) <
                   (int) sizeof(f->checkpoints);
}
