// lrnn-perplexity run: scores every token of a data set into score files.

#include "commands.h"

#include "base/error.h"
#include "data-options.h"
#include "device-options.h"
#include "eval/estimates/summary.h"
#include "eval/scores/model-facts.h"
#include "eval/scores/score.h"
#include "interrupt.h"
#include "output-check.h"
#include "program.h"
#include "terminal.h"

#include "ggml.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EXACT_CUTS_AUTO, EXACT_CUTS_ON, EXACT_CUTS_OFF };

struct run_args {
    struct option_strings models, names;
    struct data_options   data;
    int                   protocol;
    int                   reset; // enum score_reset; -1: of the protocol
    struct option_ints    context_lengths;
    bool                  state_norm;
    int64_t               trained_length;
    const char *          out;
    bool                  resume, force, dry_run, list_datasets, quiet;
    const char *          shard;
    const char *          time_limit;
    int64_t               checkpoint_every;
    struct device_options device;
    int64_t               batch, parallel;
    int                   exact_cuts; // EXACT_CUTS_*
};

#define RUN_PROTOCOLS "paper|fla|document|llama"

// The options, checked and completed by the protocol.
struct run_plan {
    const struct run_args * args;
    struct data_options     data; // completed
    enum score_reset        reset;
    const char *            protocol;           // "custom" if an option overrides it
    char                    same_targets[1024]; // "512,1024"
    int64_t                 shard, n_shards;
    double                  limit_s; // 0: none
    // set by run_plan_calls:
    int64_t                    n_batch, group;
    struct lrnn_session_params session;
};

//
// The plan
//

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

static bool run_plan_make(
        const struct run_args * args, struct run_plan * plan, struct lrnn_error * err) {
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

// Decides the calls of the model: windows per group, and tokens of each per call.
static void run_plan_calls(
        struct run_plan * plan, const struct lrnn_model * model, int64_t n_windows) {
    plan->session = plan->args->device.session;
    plan->session.exact_cuts = plan->args->exact_cuts == EXACT_CUTS_AUTO
                                       ? lrnn_model_get_info(model).cheap_exact_cuts
                                       : plan->args->exact_cuts == EXACT_CUTS_ON;
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

// The files of one model.
struct run_files {
    const char * model;     // path
    char         name[256]; // of the run, in reports
    char         scores[4096];
    char         checkpoints[4096]; // folder
};

// Replaces what cannot be part of a file name.
static void sanitize(char * name) {
    for (; *name != '\0'; ++name) {
        *name = *name == '/' || iscntrl((unsigned char) *name) ? '_' : *name;
    }
}

// Names the files of model i: NAME.DATASET.nll, or NAME.DATASET.2-of-8.nll. Returns false if a name
// is too long.
static bool run_files_make(const struct run_plan * plan, int i, struct run_files * f) {
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
    const enum lrnn_state_type state = args->device.session.state_type;
    const bool                 rounded = state != LRNN_STATE_F32 && args->names.n == 0;
    const int n_name = snprintf(f->name, sizeof(f->name), "%.*s%s%s", (int) n, name,
            rounded ? "-state-" : "", rounded ? lrnn_state_type_name(state) : "");
    const int n_file =
            snprintf(file, sizeof(file), "%s.%s%s.nll", f->name, args->data.data.preset, shard);
    sanitize(file);
    snprintf(f->scores, sizeof(f->scores), "%s/%s", args->out, file);
    return n_name < (int) sizeof(f->name) && n_file < (int) sizeof(file) &&
           snprintf(f->checkpoints, sizeof(f->checkpoints), "%s/%s.checkpoint", args->out, file) <
                   (int) sizeof(f->checkpoints);
}

//
// Progress
//

// The progress of a run on stderr, and its end: Ctrl-C or the time limit.
struct run_progress {
    struct progress line;
    double          limit_s; // since the beginning of the program; 0: none
    // set for each model:
    const char * model;
    int64_t      n_windows; // of the whole run
    int64_t      n_tokens;  // to evaluate
    int64_t      begun_us;
};

// The time limit stops only scoring: a run that has read its data makes at least one call, so that
// resuming it gets ahead.
static bool run_progress_score(const struct score_progress * s, void * user) {
    struct run_progress * p = user;
    const int64_t         now = ggml_time_us();
    const double  rate = (double) s->n_tokens / (1e-6 * (double) (now - p->begun_us) + 1e-9);
    const int64_t left = p->n_tokens - s->n_resumed - s->n_tokens;
    const double  left_s = (double) (left > 0 ? left : 0) / rate;
    if (progress_is_due(&p->line)) {
        char line[1024];
        snprintf(line, sizeof(line),
                "%.500s: windows %" PRId64 "-%" PRId64 " of %" PRId64 ", token %" PRId64
                " of %" PRId64 ", %.0f tokens/s, about %.*f %s left",
                p->model, s->window + 1, s->window + s->n_windows, p->n_windows, s->at, s->length,
                rate, left_s < 6000.0 ? 0 : 1,
                left_s < 100.0    ? left_s
                : left_s < 6000.0 ? left_s / 60.0
                                  : left_s / 3600.0,
                left_s < 100.0    ? "s"
                : left_s < 6000.0 ? "min"
                                  : "h");
        progress_print(&p->line, line);
    }
    const double used_s = 1e-6 * (double) (now - p->line.start_us);
    return !interrupt_seen() && (p->limit_s == 0.0 || used_s < p->limit_s);
}

static bool run_progress_data(const struct windows_summary * so_far, void * user) {
    struct run_progress *         p = user;
    const struct dataset_counts * c = &so_far->counts;
    if (progress_is_due(&p->line)) {
        char line[1024], share[64] = "";
        if (c->bytes_total > 0) {
            snprintf(share, sizeof(share), ", %.0f %% of the data",
                    100.0 * (double) c->bytes_read / (double) c->bytes_total);
        }
        snprintf(line, sizeof(line),
                "%.500s: reading, %" PRId64 " documents, %" PRId64 " tokens, %" PRId64 " windows%s",
                p->model, c->documents, so_far->stream_tokens, so_far->n_windows, share);
        progress_print(&p->line, line);
    }
    return !interrupt_seen();
}

//
// Results
//

// Prints the content of a score file on one line of stdout, and to stderr whether it has diverged
// or was stopped. Returns the exit code.
// - n_windows: in the finished file
static enum exit_code run_print_result(
        const struct run_files * files, int64_t n_windows, bool stopped) {
    const char * const          paths[] = { files->scores };
    const struct summary_params params = { .bucket = 0 };
    struct scores               scores;
    struct summary              s;
    struct lrnn_error           err;
    if (!scores_read(paths, 1, true, &scores, &err)) {
        return program_error(&err);
    }
    if (!summary_make(&scores, &params, &s, &err)) {
        scores_free(&scores);
        return program_error(&err);
    }
    const struct loss * total = &s.total.at[0];
    printf("%s: %" PRId64 " of %" PRId64 " windows", files->scores, s.n_windows, n_windows);
    if (total->tokens > 0) {
        printf(", %" PRId64 " targets, perplexity %.6g", total->tokens,
                loss_in(total, LOSS_PPL).value);
        if (total->bytes > 0) {
            printf(", %.5f bits per byte", loss_in(total, LOSS_BPB).value);
        }
        printf(", top-1 %.4f", (double) total->hits / (double) total->tokens);
    }
    printf("\n");
    fflush(stdout);
    enum exit_code code = EXIT_CODE_OK;
    if (s.n_diverged > 0) {
        int64_t i = 0;
        while (s.diverged_from[i] == 0) {
            i++;
        }
        code = program_fail(EXIT_CODE_NOT_FINITE,
                "%s: %" PRId64 " windows have non-finite losses; the first is window %" PRId64
                ", from position %" PRId64,
                files->name, s.n_diverged, scores.windows[i].index + 1, s.diverged_from[i]);
    }
    if (stopped) {
        code = program_fail(EXIT_CODE_STOPPED,
                "%s: stopped; continue with the same command and --resume", files->name);
    }
    summary_free(&s);
    scores_free(&scores);
    return code;
}

// Prints counts and an estimate of the time.
static void run_print_dry(const struct run_plan * plan, const struct run_files * files,
        struct lrnn_model * model, struct windows * windows) {
    const struct windows_summary * s = windows_get_summary(windows);
    const struct dataset_counts *  c = &s->counts;
    char                           title[DATASET_TITLE_SIZE];
    dataset_title(plan->data.data.preset, s->files, title);
    printf("%s on %s\n", files->name, title);
    printf("  records     %" PRId64 " read, %" PRId64 " excluded by the filter, %" PRId64
           " malformed\n",
            c->records, c->filtered, c->malformed);
    printf("  documents   %" PRId64 ", %" PRId64 " bytes, sha256 %s\n", c->documents,
            s->stream_bytes, s->fingerprint);
    if (plan->data.window.mode == WINDOW_DOCUMENT) {
        printf("  skipped     %" PRId64 " documents that are too short\n", s->left_out);
    }
    printf("  tokens      %" PRId64 ", %.4f per byte\n", s->stream_tokens,
            (double) s->stream_tokens / (double) (s->stream_bytes > 0 ? s->stream_bytes : 1));
    printf("  windows     %" PRId64 " with %" PRId64 " tokens and %" PRId64 " targets; bos %s\n",
            s->n_windows, s->n_tokens, s->n_targets, s->bos);
    printf("  score file  %s, %.1f MB\n", files->scores, 7e-6 * (double) s->n_tokens);
    const double speed = score_speed(model, windows, plan->session, plan->group, plan->n_batch);
    if (speed > 0.0) {
        printf("  time        about %.0f s at %.0f tokens/s, with %" PRId64 " windows of %" PRId64
               " tokens per call\n",
                (double) s->n_tokens / (double) plan->n_shards / speed, speed, plan->group,
                plan->n_batch);
    }
    fflush(stdout);
}

//
// Scoring
//

// The run of all models. Models with equal tokenizers share the windows.
struct scoring {
    struct run_plan *   plan;
    struct run_progress progress;
    struct windows *    windows;
    char                tokenizer_hash[65];
    bool                complained; // about the data
    // the current model:
    const struct run_files * files;
    struct lrnn_model *      model;
    struct model_facts       facts;
};

static struct score_meta make_meta(const struct scoring * s, const char * tool) {
    const struct run_plan * plan = s->plan;
    const int64_t           T = plan->args->trained_length;

    struct score_meta meta = score_meta_of(
            s->model, &plan->session, &s->facts, s->windows, &plan->data.window, plan->reset);
    meta.tool = tool;
    meta.model = s->files->name;
    meta.trained_length = T > 0 ? T : meta.trained_length;
    meta.dataset = plan->data.data.preset;
    meta.protocol = plan->protocol;
    meta.same_targets = plan->same_targets;
    meta.probe = plan->args->state_norm ? "state-norm" : "";
    meta.n_batch = plan->n_batch;
    meta.group = plan->group;
    meta.shard = plan->shard;
    meta.n_shards = plan->n_shards;
    return meta;
}

// Scores the windows params->next to params->end.
static enum exit_code score_windows(
        struct scoring * s, struct score_writer * writer, const struct score_params * params) {
    const struct windows_summary * data = windows_get_summary(s->windows);
    struct score_result            result = { 0 };
    struct lrnn_error              err, why;

    s->progress.n_windows = data->n_windows;
    s->progress.n_tokens =
            (int64_t) ((double) data->n_tokens * (double) (params->end - params->next) /
                       (double) data->n_windows);
    s->progress.begun_us = ggml_time_us();
    const bool done = score_run(s->model, s->windows, writer, params, &result, &err);
    progress_clear(&s->progress.line);
    if (result.warning[0] != '\0' && !s->plan->args->quiet) {
        program_say("%s", result.warning);
    }
    const bool closed = score_writer_close(writer, &why);
    const bool stopped = !done && err.kind == LRNN_ERROR_CANCELLED;
    if ((!done && !stopped) || !closed) {
        return program_error(!done && !stopped ? &err : &why);
    }
    return run_print_result(s->files, params->end - params->first, stopped);
}

static enum exit_code score_model(struct scoring * s) {
    const struct run_plan * plan = s->plan;
    const struct run_args * args = plan->args;
    struct lrnn_error       err;
    char                    tool[64];
    snprintf(tool, sizeof(tool), "lrnn-perplexity %s", lrnn_version());
    const struct score_meta meta = make_meta(s, tool);
    struct score_params     params = {
            .session = plan->session,
            .n_batch = plan->n_batch,
            .group = plan->group,
            .reset = plan->reset,
            .state_norm = args->state_norm,
            .resume = args->resume,
            .max_length = plan->data.window.length,
            .checkpoint_every = args->checkpoint_every,
            .checkpoints = s->files->checkpoints,
            .callback = run_progress_score,
            .user = &s->progress,
    };
    score_shard_range(&meta, &params.first, &params.end);
    if (params.first == params.end && !args->quiet) {
        program_say("shard %" PRId64 "/%" PRId64 " is empty: %" PRId64
                    " windows in groups of %" PRId64 "; use --parallel 1",
                plan->shard, plan->n_shards, meta.n_windows, plan->group);
    }
    score_meta_identity(&meta, params.identity);
    int64_t               n_done = 0;
    struct score_writer * writer =
            score_writer_open(s->files->scores, &meta, args->resume ? &n_done : NULL, &err);
    if (writer == NULL) {
        return program_error(&err);
    }
    params.next = params.first + n_done;
    return score_windows(s, writer, &params);
}

static enum exit_code read_data(struct scoring * s) {
    const struct run_plan * plan = s->plan;
    bool                    has_stdin = false;
    enum exit_code          code = EXIT_CODE_OK;
    for (int i = 0; i < plan->data.paths.n; ++i) {
        has_stdin = has_stdin || strcmp(plan->data.paths.v[i], "-") == 0;
    }
    if (s->windows != NULL && has_stdin) {
        return program_fail(EXIT_CODE_USAGE,
                "%s has a different tokenizer than the model before it, and stdin can be read "
                "only once",
                s->files->model);
    }
    windows_free(s->windows);
    s->windows = data_windows(
            &plan->data, s->model, plan->args->out, run_progress_data, &s->progress, true, &code);
    progress_clear(&s->progress.line);
    if (s->windows == NULL) {
        return code;
    }
    memcpy(s->tokenizer_hash, s->facts.tokenizer_hash, sizeof(s->tokenizer_hash));
    if (!plan->args->quiet && !s->complained) {
        const int64_t shortest = plan->data.window.min_doc_tokens;
        data_complain(s->windows);
        if (plan->data.window.mode == WINDOW_DOCUMENT && shortest > 0 &&
                shortest < plan->data.window.length) {
            program_say("documents shorter than the window are scored, so only long documents "
                        "contribute to late positions");
        }
    }
    s->complained = true;
    return EXIT_CODE_OK;
}

static enum exit_code run_model(struct scoring * s) {
    const struct run_args * args = s->plan->args;
    struct lrnn_error       err;
    s->model = device_options_load(&args->device, s->files->model, args->quiet, &err);
    if (s->model == NULL) {
        return program_error(&err);
    }
    s->progress.model = s->files->name;
    if (!model_facts_get(s->model, s->files->model, interrupt_seen, &s->facts, &err)) {
        return program_error(&err);
    }
    if (!lrnn_model_get_info(s->model).has_tokenizer) {
        return program_fail(EXIT_CODE_MODEL, "%s: has no tokenizer", s->files->model);
    }
    if (s->windows == NULL || strcmp(s->tokenizer_hash, s->facts.tokenizer_hash) != 0) {
        const enum exit_code code = read_data(s);
        if (code != EXIT_CODE_OK) {
            return code;
        }
    }
    run_plan_calls(s->plan, s->model, windows_get_summary(s->windows)->n_windows);
    if (args->dry_run) {
        run_print_dry(s->plan, s->files, s->model, s->windows);
        return EXIT_CODE_OK;
    }
    return score_model(s);
}

// Names the files of all models before any work is done. No two may be the same, and no file is
// overwritten by accident.
static enum exit_code name_files(const struct run_plan * plan, struct run_files * files) {
    const struct run_args * args = plan->args;
    struct stat             st;
    for (int i = 0; i < args->models.n; ++i) {
        if (!run_files_make(plan, i, &files[i])) {
            return program_fail(
                    EXIT_CODE_USAGE, "%s: the name of its score file is too long", files[i].model);
        }
        if (files[i].name[0] == '.' || files[i].name[0] == '\0') { // report skips hidden files
            return program_fail(EXIT_CODE_USAGE,
                    "the name of the run is '%s'; give --name a text without a leading dot",
                    files[i].name);
        }
        for (int j = 0; j < i; ++j) {
            if (strcmp(files[i].scores, files[j].scores) == 0) {
                return program_fail(EXIT_CODE_USAGE,
                        "%s and %s would both write %s; use --name to tell them apart",
                        files[j].model, files[i].model, files[i].scores);
            }
        }
        enum exit_code code = output_check_inputs(files[i].scores, args->models.v, args->models.n);
        if (code == EXIT_CODE_OK && stat(files[i].scores, &st) == 0) {
            code = data_check_output(&plan->data, files[i].scores);
        }
        if (code != EXIT_CODE_OK) {
            return code;
        }
        if (!args->resume && !args->force && !args->dry_run && stat(files[i].scores, &st) == 0) {
            return program_fail(EXIT_CODE_USAGE,
                    "%s exists; use --resume to continue it or --force to replace it",
                    files[i].scores);
        }
    }
    if (mkdir(args->out, 0777) != 0 && errno != EEXIST) {
        return program_fail(
                EXIT_CODE_SYSTEM, "%s: cannot create the folder: %s", args->out, strerror(errno));
    }
    return EXIT_CODE_OK;
}

static enum exit_code run_models(struct run_plan * plan) {
    const int          n = plan->args->models.n;
    struct run_files * files = program_alloc((size_t) n, sizeof(*files));
    struct scoring     s = { .plan = plan };
    progress_begin(&s.progress.line, plan->args->quiet ? 0 : 1);
    s.progress.limit_s = plan->limit_s;
    enum exit_code code = name_files(plan, files);
    for (int i = 0; i < n && (code == EXIT_CODE_OK || code == EXIT_CODE_NOT_FINITE); ++i) {
        s.files = &files[i];
        const enum exit_code one = run_model(&s);
        code = one != EXIT_CODE_OK ? one : code; // the next model runs even if this one diverged
        lrnn_model_free(s.model);
    }
    windows_free(s.windows);
    free(files);
    return code;
}

//
// Command line
//

#define OF_PROTOCOL " (default: as the protocol says)"

static enum exit_code run(void * arg) {
    const struct run_args * args = arg;
    struct run_plan         plan;
    struct lrnn_error       err;

    if (args->list_datasets) {
        data_options_list();
        return EXIT_CODE_OK;
    }
    if (!run_plan_make(args, &plan, &err) || !device_options_check(&args->device, &err)) {
        return program_error(&err);
    }
    interrupt_listen();
    return run_models(&plan);
}

// Replaces "--probe state-norm", the name of --state-norm until version 0.2.
static int replace_probe(int argc, char ** argv) {
    static char STATE_NORM[] = "--state-norm";
    for (int i = 1; i + 1 < argc; ++i) {
        if (strcmp(argv[i], "--probe") == 0 && strcmp(argv[i + 1], "state-norm") == 0) {
            argv[i] = STATE_NORM;
            argc--;
            for (int k = i + 1; k < argc; ++k) {
                argv[k] = argv[k + 1];
            }
        }
    }
    return argc;
}

enum exit_code run_main(int argc, char ** argv) {
    struct run_args args = {
        .data = DATA_DEFAULTS,
        .reset = -1,
        .out = ".",
        .checkpoint_every = 16384,
        .device = DEVICE_OPTIONS_DEFAULTS,
    };
    args.data.window.length = args.data.window.max_windows = 0;
    args.data.mode = args.data.bos = args.data.eos = -1;

    const struct option options[] = {
        opt_group("Models"),
        opt_strings("-m, --model", "M.gguf", &args.models, "a model; may be repeated"),
        opt_strings("--name", "NAME", &args.names,
                "name of the model in reports, one per -m, in the same order (default: the file "
                "name)"),
        opt_int("--trained-length", "N", &args.trained_length, 1, 1e12,
                "context length in training (default: as the model file says)"),
        DATA_OPTIONS(args.data),
        opt_flag("--list-datasets", &args.list_datasets, "print the known data sets and exit"),
        opt_group("Protocol"),
        opt_choice("--protocol", RUN_PROTOCOLS, &args.protocol,
                "paper: packed windows of 32768 tokens; fla: of 28672; document: one document per "
                "window; llama: like llama-perplexity"),
        opt_choice("--reset", "window|document|never", &args.reset,
                "where to empty the state; never: one endless sequence" OF_PROTOCOL),
        opt_alias("--same-targets",
                opt_ints("--context-lengths", "LIST", &args.context_lengths, 1, WINDOW_MAX_LENGTH,
                        "score only the last 2048 tokens of each window, once after each of these "
                        "numbers of tokens (default: off)")),
        opt_flag("--state-norm", &args.state_norm,
                "also record the norm of the recurrent states along the window"),
        WINDOW_OPTIONS(args.data, OF_PROTOCOL),
        opt_group("Results"),
        opt_string("-o, --out", "DIR", &args.out, "folder for the score files, MODEL.DATASET.nll"),
        opt_flag("--resume", &args.resume, "continue an unfinished run"),
        opt_flag("--force", &args.force, "replace existing score files"),
        opt_flag("--dry-run", &args.dry_run,
                "count documents, tokens and windows, estimate the time, write nothing"),
        opt_group("Computation"),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
        DEVICE_STATE_TYPE(args.device),
        opt_alias("--group",
                opt_int("--parallel", "N", &args.parallel, 1, 4096,
                        "windows evaluated together (default: 4; 1 with --reset never)")),
        opt_int("-b, --batch-size", "N", &args.batch, 1, 1 << 20,
                "tokens of each window per call; without exact cuts, affects rounding (default: "
                "512 divided by --parallel)"),
        opt_choice("--exact-cuts", "auto|on|off", &args.exact_cuts,
                "make scores independent of -b and --parallel, and equal to those of lrnn-server; "
                "auto: where it costs less than 10 %"),
        opt_string("--shard", "I/N", &args.shard,
                "score only part I of N, for N processes or machines; report joins the parts"),
        opt_string("--time-limit", "TIME", &args.time_limit,
                "stop after TIME (90s, 30m, 2.5h) with a checkpoint and exit code 5 (default: "
                "none)"),
        opt_int("--checkpoint-every", "N", &args.checkpoint_every, 0, 1e12,
                "save the states every N tokens of a window; 0: only when the run is stopped"),
        opt_flag("-q, --quiet", &args.quiet, "no progress, no warnings"),
    };
    const struct program program = {
        .name = "lrnn-perplexity run",
        .summary = "scores every token of a data set, for reports on length extrapolation",
        .usage = "-m M.gguf --data PATH [options]\n"
                 "--list-datasets",
        .examples = "lrnn-perplexity run -m neg.gguf -m pos.gguf --dataset codeparrot --data "
                    "valid.json.gz --window 131072 --max-windows 16 --out results\n"
                    "lrnn-perplexity run -m model.gguf --data book.txt --protocol document "
                    "--time-limit 2h --out results --resume",
        OPTIONS(options),
    };
    return program_main(&program, replace_probe(argc, argv), argv, run, &args);
}
