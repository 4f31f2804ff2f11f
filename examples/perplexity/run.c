#include "commands.h"

#include "program.h"
#include "compute-options.h"
#include "eval/dataset.h"
#include "interrupt.h"
#include "eval/model-facts.h"
#include "options.h"
#include "run-progress.h"
#include "eval/score-file.h"
#include "eval/score.h"
#include "eval/windows.h"

#include "ggml.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char NAME[] = "lrnn-perplexity run";

enum { DEFAULT_CALL = 512, DEFAULT_GROUP = 4 };

// What a protocol fixes; everything can be said otherwise.
struct protocol {
    const char *     name;
    enum window_mode mode;
    enum window_bos  bos;
    enum window_eos  eos;
    enum score_reset reset;
    int64_t          window;
};

static const struct protocol PROTOCOLS[] = {
    { "paper", WINDOW_PACKED, WINDOW_BOS_AUTO, WINDOW_EOS_NONE, SCORE_RESET_WINDOW, 32768 },
    { "fla", WINDOW_PACKED, WINDOW_BOS_AUTO, WINDOW_EOS_NONE, SCORE_RESET_WINDOW, 28672 },
    { "document", WINDOW_DOCUMENT, WINDOW_BOS_AUTO, WINDOW_EOS_NONE, SCORE_RESET_WINDOW, 32768 },
    { "llama", WINDOW_LLAMA, WINDOW_BOS_AUTO, WINDOW_EOS_NONE, SCORE_RESET_WINDOW, 512 },
};

static const char * const MODE_NAMES[]  = { "packed", "document", "llama" };
static const char * const EOS_NAMES[]   = { "none", "doc" };
static const char * const RESET_NAMES[] = { "window", "document", "never" };
static const char * const PROBE_NAMES[] = { "state-norm" };

struct args {
    struct option_strings models, names, data;
    const char *          dataset;
    const char * template;
    const char *       text_field;
    const char *       where;
    int64_t            start_doc, max_docs;
    int64_t            shuffle; // -1: file order
    double             max_bad;
    int                protocol;
    int                mode, bos, eos, reset; // -1: of the protocol
    int64_t            window, min_doc_tokens, max_windows, max_tokens;
    bool               skip_special;
    struct option_ints same_targets;
    int                probe; // -1: nothing
    int64_t            trained_length;
    const char *       out;
    bool               resume, force, dry_run, list_datasets, quiet;
    const char *       shard;
    const char *       time_limit;
    int64_t            checkpoint_every;
    struct compute     compute;
    int64_t            batch, group;
};

// What was made of them.
struct plan {
    const struct args *   args;
    struct dataset_params data;
    struct window_params  window;
    enum score_reset      reset;
    const char *          protocol;
    char                  same_targets[1024];
    int64_t               shard, n_shards;
    double                limit_s;
    int64_t               n_batch, group;
    bool complained; // of the data: what one model has said, the next need not repeat
    struct run_progress progress;
};

// One model of the run.
struct run_model {
    const char *        path;
    char *              name;
    char *              nll;         // score file
    char *              checkpoints; // folder
    struct lrnn_model * model;
    struct model_facts  facts;
};

static enum exit_code fail(enum exit_code code, const char * err) {
    fprintf(stderr, "%s: %s\n", NAME, err);
    return code;
}

//
// The command line
//

// "90", "90s", "30m", "2h", "1.5d" → seconds
static bool parse_time(const char * text, double * seconds) {
    char *       end;
    const double value = strtod(text, &end);
    double       unit  = 1.0;
    switch (*end) {
        case '\0': break;
        case 's': end++; break;
        case 'm':
            unit = 60.0;
            end++;
            break;
        case 'h':
            unit = 3600.0;
            end++;
            break;
        case 'd':
            unit = 86400.0;
            end++;
            break;
        default: return false;
    }
    *seconds = value * unit;
    return end != text && *end == '\0' && isfinite(value) && value > 0.0;
}

// "2/8"
static bool parse_shard(const char * text, int64_t * shard, int64_t * n_shards) {
    char * end;
    if (!isdigit((unsigned char) text[0])) {
        return false;
    }
    *shard = strtoll(text, &end, 10);
    if (*end != '/' || !isdigit((unsigned char) end[1])) {
        return false;
    }
    *n_shards = strtoll(end + 1, &end, 10);
    return *end == '\0' && *shard >= 1 && *shard <= *n_shards && *n_shards <= 1 << 20;
}

static bool make_plan(const struct args * args, struct plan * plan, char * err, size_t err_size) {
    const struct protocol * protocol = &PROTOCOLS[args->protocol];
    const bool              custom   = (args->mode >= 0 && args->mode != (int) protocol->mode) ||
                        (args->bos >= 0 && args->bos != (int) protocol->bos) ||
                        (args->eos >= 0 && args->eos != (int) protocol->eos) ||
                        (args->reset >= 0 && args->reset != (int) protocol->reset) ||
                        args->skip_special || args->same_targets.n > 0;
    *plan = (struct plan) {
        .args = args,
        .data = {
            .paths = args->data.v, .n_paths = args->data.n, .preset = args->dataset, .template = args->template, .text_field = args->text_field,
            .where = args->where, .start_doc = args->start_doc, .max_docs = args->max_docs, .shuffle = args->shuffle >= 0,
            .shuffle_seed = args->shuffle >= 0 ? (uint64_t) args->shuffle : 0, .max_bad_share = args->max_bad > 0.0 ? args->max_bad : 1e-12,
        },
        .window = {
            .mode           = args->mode >= 0 ? (enum window_mode) args->mode : protocol->mode,
            .bos            = args->bos  >= 0 ? (enum window_bos)  args->bos  : protocol->bos,
            .eos            = args->eos  >= 0 ? (enum window_eos)  args->eos  : protocol->eos,
            .length         = args->window > 0 ? args->window : protocol->window,
            .min_doc_tokens = args->min_doc_tokens, .max_windows = args->max_windows, .max_tokens = args->max_tokens,
            .skip_special   = args->skip_special, .n_contexts = args->same_targets.n,
        },
        .reset    = args->reset >= 0 ? (enum score_reset) args->reset : protocol->reset,
        .protocol = custom ? "custom" : protocol->name,
        .shard    = 1,
        .n_shards = 1,
    };
    size_t used = 0;
    for (int i = 0; i < args->same_targets.n && used < sizeof(plan->same_targets); ++i) {
        plan->window.contexts[i] = args->same_targets.v[i];
        used += (size_t) snprintf(plan->same_targets + used, sizeof(plan->same_targets) - used,
                "%s%" PRId64, i > 0 ? "," : "", args->same_targets.v[i]);
    }
    const bool never = plan->reset == SCORE_RESET_NEVER;

    if (args->shard != NULL && !parse_shard(args->shard, &plan->shard, &plan->n_shards)) {
        snprintf(err, err_size, "--shard '%s'; expected i/n, as in 2/8", args->shard);
    } else if (args->time_limit != NULL && !parse_time(args->time_limit, &plan->limit_s)) {
        snprintf(err, err_size,
                "--time-limit '%s'; expected a time above zero, as in 90s, 30m, 2.5h or 1d",
                args->time_limit);
    } else if (args->names.n > 0 && args->names.n != args->models.n) {
        snprintf(err, err_size,
                "%d times --name for %d times -m; expected one for each model, in the same order, or none",
                args->names.n, args->models.n);
    } else if (never && (args->group > 1 || plan->n_shards != 1 || plan->window.n_contexts > 0)) {
        snprintf(err, err_size,
                "--reset never is one stream: it goes with neither --group, --shard nor --same-targets");
    } else if (args->resume && args->force) {
        snprintf(err, err_size,
                "--resume goes on with what there is, --force throws it away; expected one of them");
    } else {
        return true;
    }
    return false;
}

// The calls of the model: as many windows side by side as there are, up to a few, and as many
// tokens of each as make a call of a good size.
static void plan_calls(struct plan * plan, int64_t n_windows) {
    const int64_t most = plan->reset == SCORE_RESET_NEVER ? 1 : DEFAULT_GROUP;
    plan->group   = plan->args->group > 0 ? plan->args->group : n_windows < most ? n_windows : most;
    plan->n_batch = plan->args->batch > 0            ? plan->args->batch
                    : DEFAULT_CALL / plan->group > 0 ? DEFAULT_CALL / plan->group
                                                     : 1;
}

static void list_datasets(void) {
    const struct dataset_preset * p;
    for (int i = 0; (p = dataset_preset_at(i)) != NULL; ++i) {
        printf("%-14s %s\n", p->name, p->about);
        for (const char * t = p->templates; *t != '\0';) {
            const size_t n = strcspn(t, "\n");
            printf("%-14s   %.*s\n", "", (int) n, t);
            t += n + (t[n] == '\n');
        }
        if (p->where != NULL) {
            printf("%-14s   where %s\n", "", p->where);
        }
    }
}

//
// Names
//

// The strings one behind the other, made with malloc; NULL: out of memory.
static char * join(const char * a, const char * b, const char * c, const char * d) {
    const size_t size = strlen(a) + strlen(b) + strlen(c) + strlen(d) + 1;
    char *       text = malloc(size);
    if (text != NULL) {
        snprintf(text, size, "%s%s%s%s", a, b, c, d);
    }
    return text;
}

static void run_model_free(struct run_model * m) {
    lrnn_model_free(m->model);
    free(m->name);
    free(m->nll);
    free(m->checkpoints);
    *m = (struct run_model) { 0 };
}

// The model's name, and its files in the folder: name.dataset.nll, or name.dataset.2-of-8.nll
static bool name_files(
        const struct plan * plan, int i, struct run_model * m, char * err, size_t err_size) {
    const struct args * args = plan->args;
    m->path                  = args->models.v[i];
    const char * base        = strrchr(m->path, '/');
    m->name                  = join(args->names.n > 0 ? args->names.v[i]
                                    : base != NULL    ? base + 1
                                                      : m->path,
            "", "", "");
    const size_t n = m->name != NULL ? strlen(m->name) : 0;
    if (args->names.n == 0 && n > 5 && strcmp(m->name + n - 5, ".gguf") == 0) {
        m->name[n - 5] = '\0';
    }
    char tail[96] = ".nll";
    if (plan->n_shards > 1) {
        snprintf(
                tail, sizeof(tail), ".%" PRId64 "-of-%" PRId64 ".nll", plan->shard, plan->n_shards);
    }
    char * stem = m->name != NULL ? join(m->name, ".", args->dataset, tail) : NULL;
    for (char * p = stem; p != NULL && *p != '\0'; ++p) {
        *p = *p == '/' || iscntrl((unsigned char) *p) ? '_' : *p;
    }
    m->nll         = stem != NULL ? join(args->out, "/", stem, "") : NULL;
    m->checkpoints = m->nll != NULL ? join(m->nll, ".checkpoint", "", "") : NULL;
    free(stem);
    if (m->checkpoints == NULL) {
        snprintf(err, err_size, "out of memory");
    }
    return m->checkpoints != NULL;
}

//
// Dry run
//

// Tokens a second, from a few calls like those of the run; 0: could not be measured.
static double measure_speed(
        const struct plan * plan, struct run_model * m, struct windows * windows) {
    char                  err[256];
    struct window         window  = { 0 };
    double                speed   = 0.0;
    struct lrnn_session * session = lrnn_session_new(m->model,
            &(struct lrnn_session_params) {
                    .n_threads = (int32_t) plan->args->compute.threads,
                    .n_seqs    = (int32_t) plan->group,
                    .n_batch   = (int32_t) (plan->group * plan->n_batch),
                    .n_cache   = (int32_t) plan->n_batch,
            },
            err, sizeof(err));
    struct lrnn_input *   inputs  = calloc((size_t) plan->group, sizeof(*inputs));
    bool                  ok      = session != NULL && inputs != NULL &&
              windows_read(windows, 0, &window, err, sizeof(err));
    for (int64_t s = 0; s < plan->group && ok; ++s) {
        const int64_t n = window.n_tokens < plan->n_batch ? window.n_tokens : plan->n_batch;
        inputs[s]       = (struct lrnn_input) {
                  .seq = (int32_t) s, .tokens = window.tokens, .n_tokens = n, .n_logits = n
        };
    }
    ok                    = ok && lrnn_eval(session, inputs, (int32_t) plan->group, err,
                                          sizeof(err)); // the first call also builds graphs and reads the file
    int64_t       n_calls = 0;
    const int64_t start   = ggml_time_us();
    while (ok && ggml_time_us() - start < 1000 * 1000 && !interrupt_seen()) {
        for (int64_t s = 0; s < plan->group && ok; ++s) {
            ok = lrnn_seq_reset(session, (int32_t) s, err, sizeof(err));
        }
        ok = ok && lrnn_eval(session, inputs, (int32_t) plan->group, err, sizeof(err));
        n_calls++;
    }
    if (ok && n_calls > 0) {
        speed = (double) (n_calls * plan->group * inputs[0].n_tokens) /
                (1e-6 * (double) (ggml_time_us() - start));
    }
    window_free(&window);
    free(inputs);
    lrnn_session_free(session);
    return speed;
}

static void print_dry_run(
        const struct plan * plan, struct run_model * m, struct windows * windows) {
    const struct windows_summary * s = windows_get_summary(windows);
    const struct dataset_counts *  c = &s->counts;
    printf("%s on %s\n", m->name, plan->args->dataset);
    printf("  records     %" PRId64 " read, %" PRId64 " left out by the filter, %" PRId64
           " malformed\n",
            c->records, c->filtered, c->malformed);
    printf("  documents   %" PRId64 ", %" PRId64 " bytes, sha256 %s\n", c->documents,
            s->stream_bytes, s->fingerprint);
    if (plan->window.mode == WINDOW_DOCUMENT) {
        printf("  left out    %" PRId64 " documents that are too short\n", s->left_out);
    }
    printf("  tokens      %" PRId64 ", %.4f a byte\n", s->stream_tokens,
            (double) s->stream_tokens / (double) (s->stream_bytes > 0 ? s->stream_bytes : 1));
    printf("  windows     %" PRId64 " with %" PRId64 " tokens and %" PRId64 " targets; bos %s\n",
            s->n_windows, s->n_tokens, s->n_targets, s->bos);
    printf("  score file  %s, %.1f MB\n", m->nll, 7e-6 * (double) s->n_tokens);
    const double speed = measure_speed(plan, m, windows);
    if (speed > 0.0) {
        printf("  time        about %.0f s at %.0f tokens/s, %" PRId64 " windows of %" PRId64
               " tokens in a call\n",
                (double) s->n_tokens / (double) plan->n_shards / speed, speed, plan->group,
                plan->n_batch);
    }
    fflush(stdout);
}

//
// Running
//

// What the file holds now, on one line of stdout.
// - n_windows: that it will hold when it is finished
static enum exit_code print_result(const struct run_model * m, int64_t n_windows, bool stopped) {
    struct scores scores;
    char          err[1024];
    const char *  paths[] = { m->nll };
    if (!scores_read(paths, 1, true, &scores, err, sizeof(err))) {
        return fail(EXIT_CODE_DATA, err);
    }
    double  nll       = 0.0;
    int64_t n_targets = 0, n_bytes = 0, n_top1 = 0, n_diverged = 0, first_window = 0, first_at = 0;
    for (int64_t i = 0; i < scores.n_windows; ++i) {
        const struct score_window * w   = &scores.windows[i];
        double                      sum = 0.0;
        bool                        bad = false;
        for (int64_t t = 0; t < w->n_targets; ++t) {
            if ((w->flags[t] & SCORE_COUNTED) == 0) {
                continue;
            }
            if (!isfinite(w->nll[t]) && !bad) {
                first_window = n_diverged == 0 ? w->index : first_window;
                first_at     = n_diverged == 0 ? t + 1 : first_at;
                n_diverged++;
                bad = true;
            }
            sum += (double) w->nll[t];
            n_targets++;
            n_bytes += w->bytes[t];
            n_top1 += (w->flags[t] & SCORE_TOP1) != 0;
        }
        nll += sum;
    }
    printf("%s: %" PRId64 " of %" PRId64 " windows", m->nll, scores.n_windows, n_windows);
    if (n_targets > 0) {
        printf(", %" PRId64 " targets, perplexity %.6g", n_targets, exp(nll / (double) n_targets));
        if (n_bytes > 0) {
            printf(", %.5f bits per byte", nll / (log(2.0) * (double) n_bytes));
        }
        printf(", top-1 %.4f", (double) n_top1 / (double) n_targets);
    }
    printf("\n");
    fflush(stdout);
    if (n_diverged > 0) {
        fprintf(stderr,
                "%s: %s: %" PRId64
                " windows have numbers that are not finite; the first is window %" PRId64
                ", from position %" PRId64 " on\n",
                NAME, m->name, n_diverged, first_window + 1, first_at);
    }
    scores_free(&scores);
    if (stopped) {
        fprintf(stderr, "%s: %s: stopped; the same command with --resume goes on\n", NAME, m->name);
        return EXIT_CODE_STOPPED;
    }
    return n_diverged > 0 ? EXIT_CODE_NUMBERS : EXIT_CODE_OK;
}

// A complaint begins with the name of its file, here without the folder: the same data gives the
// same header on every machine.
static const char * without_folder(const char * complaint) {
    const size_t n_name = strcspn(complaint, ":");
    const char * name   = complaint;
    for (size_t i = 0; i < n_name; ++i) {
        name = complaint[i] == '/' ? complaint + i + 1 : name;
    }
    return name;
}

// Complaints of the data set as one line, separated by tabs. NULL: out of memory.
static char * join_complaints(const struct dataset * ds) {
    size_t       size = 1;
    const char * c;
    for (int i = 0; (c = dataset_complaint(ds, i)) != NULL; ++i) {
        size += strlen(c) + 1;
    }
    char * text = malloc(size);
    if (text != NULL) {
        size_t n = 0;
        text[0]  = '\0';
        for (int i = 0; (c = dataset_complaint(ds, i)) != NULL; ++i) {
            n += (size_t) snprintf(
                    text + n, size - n, "%s%s", i > 0 ? "\t" : "", without_folder(c));
        }
    }
    return text;
}

static struct score_meta make_meta(const struct plan * plan, const struct run_model * m,
        const struct windows_summary * s, const char * tool, const char * complaints) {
    const struct lrnn_model_info info = lrnn_model_get_info(m->model);
    const int64_t                shortest =
            plan->window.min_doc_tokens > 0 ? plan->window.min_doc_tokens : plan->window.length;
    return (struct score_meta) {
        .tool         = tool,
        .model        = m->name,
        .model_hash   = m->facts.hash,
        .model_family = info.family,
        .eigenvalues  = info.eigenvalues,
        .quantization = m->facts.quantization,
        .parameters   = m->facts.parameters,
        .trained_length =
                plan->args->trained_length > 0 ? plan->args->trained_length : info.trained_length,
        .n_vocab          = info.n_vocab,
        .tokenizer_hash   = m->facts.tokenizer_hash,
        .dataset          = plan->args->dataset,
        .data_fingerprint = s->fingerprint,
        .template         = s->counts.template,
        .files            = s->files,
        .sources          = s->sources,
        .records          = s->counts.records,
        .documents        = s->counts.documents,
        .filtered         = s->counts.filtered,
        .malformed        = s->counts.malformed,
        .lone_surrogates  = s->counts.lone_surrogates,
        .complaints       = complaints,
        .protocol         = plan->protocol,
        .mode             = MODE_NAMES[plan->window.mode],
        .bos              = s->bos,
        .eos              = EOS_NAMES[plan->window.eos],
        .reset            = RESET_NAMES[plan->reset],
        .window           = plan->window.length,
        .min_doc_tokens   = plan->window.mode != WINDOW_DOCUMENT ? 0 : shortest,
        .skip_special     = plan->window.skip_special,
        .same_targets     = plan->same_targets,
        .probe            = plan->args->probe >= 0 ? PROBE_NAMES[plan->args->probe] : "",
        .n_batch          = plan->n_batch,
        .group            = plan->group,
        .n_windows        = s->n_windows,
        .shard            = plan->shard,
        .n_shards         = plan->n_shards,
    };
}

static enum exit_code score_model(struct plan * plan, struct run_model * m,
        struct windows * windows, const char * complaints) {
    const struct windows_summary * s = windows_get_summary(windows);
    char                           err[1024], tool[64];
    snprintf(tool, sizeof(tool), "lrnn-perplexity %s", lrnn_version());
    const struct score_meta meta = make_meta(plan, m, s, tool, complaints);

    int64_t               n_done = 0;
    struct score_writer * writer =
            plan->args->resume ? score_writer_resume(m->nll, &meta, &n_done, err, sizeof(err))
                               : score_writer_create(m->nll, &meta, err, sizeof(err));
    if (writer == NULL) {
        return fail(EXIT_CODE_DATA, err);
    }
    struct score_params params = {
        .n_threads        = (int32_t) plan->args->compute.threads,
        .n_batch          = plan->n_batch,
        .group            = plan->group,
        .reset            = plan->reset,
        .state_norm       = plan->args->probe >= 0,
        .max_length       = plan->window.length,
        .checkpoint_every = plan->args->checkpoint_every,
        .checkpoints      = m->checkpoints,
        .callback         = run_progress_score,
        .user             = &plan->progress,
    };
    score_shard_range(&meta, &params.first, &params.end);
    if (params.first == params.end && !plan->args->quiet) {
        fprintf(stderr,
                "%s: shard %" PRId64 " of %" PRId64 " owns no windows: there are %" PRId64
                ", and %" PRId64 " stay together; --group 1 parts them\n",
                NAME, plan->shard, plan->n_shards, s->n_windows, plan->group);
    }
    params.next                = params.first + n_done;
    params.resume              = plan->args->resume;
    struct score_result result = { 0 };
    enum score_status   status = SCORE_FAILED;
    if (!score_meta_identity(&meta, params.identity)) {
        snprintf(err, sizeof(err), "out of memory");
    } else {
        plan->progress.n_windows = s->n_windows;
        plan->progress.n_tokens =
                (int64_t) ((double) s->n_tokens * (double) (params.end - params.next) /
                           (double) s->n_windows);
        plan->progress.begun_us = ggml_time_us();
        status = score_run(m->model, windows, writer, &params, &result, err, sizeof(err));
    }
    run_progress_clear(&plan->progress);
    if (result.warning[0] != '\0' && !plan->args->quiet) {
        fprintf(stderr, "%s: %s\n", NAME, result.warning);
    }
    char why[512];
    if (!score_writer_close(writer, why, sizeof(why)) && status != SCORE_FAILED) {
        return fail(EXIT_CODE_SYSTEM, why);
    }
    return status == SCORE_FAILED
                   ? fail(EXIT_CODE_SYSTEM, err)
                   : print_result(m, params.end - params.first, status == SCORE_STOPPED);
}

static bool go_on(void) {
    return !interrupt_seen();
}

// What models with one tokenizer share: the windows of the data.
struct pass {
    struct windows * windows;
    char             tokenizer_hash[65];
    char *           complaints;
};

static void pass_free(struct pass * pass) {
    windows_free(pass->windows);
    free(pass->complaints);
    *pass = (struct pass) { 0 };
}

static enum exit_code read_data(
        struct plan * plan, const struct run_model * m, struct pass * pass) {
    char err[1024];
    bool has_stdin = false;
    for (int i = 0; i < plan->data.n_paths; ++i) {
        has_stdin = has_stdin || strcmp(plan->data.paths[i], "-") == 0;
    }
    if (pass->windows != NULL && has_stdin) {
        return fail(EXIT_CODE_USAGE,
                "stdin can be read once, and this model's tokenizer is another than the one before it");
    }
    pass_free(pass);
    struct dataset * ds = dataset_open(&plan->data, err, sizeof(err));
    if (ds != NULL) {
        pass->windows    = windows_make(ds, m->model, &plan->window, plan->args->out,
                   run_progress_data, &plan->progress, err, sizeof(err));
        pass->complaints = join_complaints(ds);
    }
    run_progress_clear(&plan->progress);
    const struct dataset_counts counts =
            ds != NULL ? dataset_get_counts(ds) : (struct dataset_counts) { 0 };
    const bool says = ds != NULL && !plan->args->quiet && !plan->complained;
    for (int i = 0; says && i < 3 && dataset_complaint(ds, i) != NULL; ++i) {
        fprintf(stderr, "%s: %s\n", NAME, dataset_complaint(ds, i));
    }
    if (says && counts.malformed > 3) {
        fprintf(stderr, "%s: %" PRId64 " of %" PRId64 " records are malformed\n", NAME,
                counts.malformed, counts.records);
    }
    plan->complained = true;
    dataset_free(ds);
    if (pass->windows == NULL || pass->complaints == NULL) {
        return fail(run_progress_is_over(&plan->progress) ? EXIT_CODE_STOPPED : EXIT_CODE_DATA,
                pass->windows == NULL ? err : "out of memory");
    }
    memcpy(pass->tokenizer_hash, m->facts.tokenizer_hash, sizeof(pass->tokenizer_hash));
    const int64_t shortest = plan->window.min_doc_tokens;
    if (plan->window.mode == WINDOW_DOCUMENT && shortest > 0 && shortest < plan->window.length &&
            !plan->args->quiet) {
        fprintf(stderr,
                "%s: documents shorter than the window are scored: far positions come from long documents only\n",
                NAME);
    }
    return EXIT_CODE_OK;
}

static enum exit_code run_one(struct plan * plan, struct run_model * m, struct pass * pass) {
    char err[1024];
    m->model = compute_load(&plan->args->compute, m->path, plan->args->quiet);
    if (m->model == NULL) {
        return EXIT_CODE_MODEL;
    }
    plan->progress.model = m->name;
    if (!model_facts_get(m->model, m->path, go_on, &m->facts, err, sizeof(err))) {
        return fail(interrupt_seen() ? EXIT_CODE_STOPPED : EXIT_CODE_MODEL, err);
    }
    if (!lrnn_model_get_info(m->model).has_tokenizer) {
        snprintf(err, sizeof(err), "%s: has no tokenizer: it cannot read text", m->path);
        return fail(EXIT_CODE_MODEL, err);
    }
    if (pass->windows == NULL || strcmp(pass->tokenizer_hash, m->facts.tokenizer_hash) != 0) {
        const enum exit_code code = read_data(plan, m, pass);
        if (code != EXIT_CODE_OK) {
            return code;
        }
    }
    plan_calls(plan, windows_get_summary(pass->windows)->n_windows);
    if (plan->args->dry_run) {
        print_dry_run(plan, m, pass->windows);
        return EXIT_CODE_OK;
    }
    return score_model(plan, m, pass->windows, pass->complaints);
}

static bool exists(const char * path) {
    struct stat st;
    return stat(path, &st) == 0;
}

// Names of all models, before any work is done: no two write to one file, and nothing is
// overwritten that was not meant to be.
static enum exit_code check_files(const struct plan * plan, struct run_model * models) {
    char err[1024];
    for (int i = 0; i < plan->args->models.n; ++i) {
        if (!name_files(plan, i, &models[i], err, sizeof(err))) {
            return fail(EXIT_CODE_SYSTEM, err);
        }
        for (int j = 0; j < i; ++j) {
            if (strcmp(models[i].nll, models[j].nll) == 0) {
                snprintf(err, sizeof(err), "%s and %s would both write %s; --name tells them apart",
                        models[j].path, models[i].path, models[i].nll);
                return fail(EXIT_CODE_USAGE, err);
            }
        }
        if (!plan->args->resume && !plan->args->force && !plan->args->dry_run &&
                exists(models[i].nll)) {
            snprintf(err, sizeof(err),
                    "%s is there already; --resume goes on with it, --force begins anew",
                    models[i].nll);
            return fail(EXIT_CODE_USAGE, err);
        }
    }
    if (mkdir(plan->args->out, 0777) != 0 && errno != EEXIST) {
        snprintf(err, sizeof(err), "%s: the folder cannot be made: %s", plan->args->out,
                strerror(errno));
        return fail(EXIT_CODE_SYSTEM, err);
    }
    return EXIT_CODE_OK;
}

static enum exit_code run_all(struct plan * plan) {
    struct run_model * models = calloc((size_t) plan->args->models.n, sizeof(*models));
    struct pass        pass   = { 0 };
    if (models == NULL) {
        return fail(EXIT_CODE_SYSTEM, "out of memory");
    }
    enum exit_code code = check_files(plan, models);
    for (int i = 0; i < plan->args->models.n && (code == EXIT_CODE_OK || code == EXIT_CODE_NUMBERS);
            ++i) {
        const enum exit_code one = run_one(plan, &models[i], &pass);
        code                     = one != EXIT_CODE_OK
                                           ? one
                                           : code; // numbers that are not finite in one model are no reason to leave out the next
        lrnn_model_free(models[i].model);
        models[i].model = NULL;
    }
    pass_free(&pass);
    for (int i = 0; i < plan->args->models.n; ++i) {
        run_model_free(&models[i]);
    }
    free(models);
    return code;
}

enum exit_code run_main(int argc, char ** argv) {
    struct args args = {
        .dataset          = "text",
        .shuffle          = -1,
        .max_bad          = 0.01,
        .mode             = -1,
        .bos              = -1,
        .eos              = -1,
        .reset            = -1,
        .probe            = -1,
        .out              = ".",
        .checkpoint_every = 16384,
        .compute          = COMPUTE_DEFAULTS,
    };
    const struct option options[] = {
        opt_group("Models"),
        opt_strings("-m, --model", "M.gguf", &args.models, "a model; can be given several times"),
        opt_strings("--name", "NAME", &args.names,
                "what reports call it, one for each -m in the same order (default: the file's name)"),
        opt_int("--train-ctx", "N", &args.trained_length, 1, 1e12,
                "tokens that the models were trained on at once (default: what the file says)"),
        opt_group("Data"),
        opt_strings("--data", "PATH", &args.data,
                "text or JSON, plain, gzip or zstd; a folder stands for its files, - for stdin; can be given several times"),
        opt_string("--dataset", "NAME", &args.dataset, "what the records are: see --list-datasets"),
        opt_flag("--list-datasets", &args.list_datasets, "the data sets that are known by name"),
        opt_string("--template", "TEXT", &args.template,
                "the text of a record, its fields in braces: 'Problem: {problem}, Solution: {solution}' (default: of the data set)"),
        opt_string("--text-field", "FIELD", &args.text_field, "short for --template '{FIELD}'"),
        opt_string("--where", "FIELD=VALUE", &args.where,
                "only these records (default: of the data set)"),
        opt_int("--start-doc", "N", &args.start_doc, 0, 1e12, "documents left out at the front"),
        opt_int("--max-docs", "N", &args.max_docs, 1, 1e12, "documents at most (default: all)"),
        opt_int("--shuffle-docs", "SEED", &args.shuffle, 0, 1e15,
                "documents in another order, which the seed decides (default: file order)"),
        opt_float("--max-bad", "SHARE", &args.max_bad, 0, 1,
                "malformed records that are put up with"),
        opt_group("Protocol"),
        opt_choice("--protocol", "paper|fla|document|llama", &args.protocol,
                "paper: documents packed into windows of 32768; fla: of 28672; document: one document a window; llama: as llama-perplexity"),
        opt_int("-w, --window", "W", &args.window, 2, WINDOW_MAX_LENGTH,
                "tokens of a window (default: of the protocol)"),
        opt_choice("--mode", "packed|document|llama", &args.mode,
                "how windows are cut from the documents (default: of the protocol)"),
        opt_choice("--bos", "auto|doc|window|none", &args.bos,
                "the token that begins a text: before each document if the tokenizer adds one, before each document, each window, nowhere (default: of the protocol)"),
        opt_choice("--eos", "none|doc", &args.eos,
                "the token that ends a text (default: of the protocol)"),
        opt_choice("--reset", "window|document|never", &args.reset,
                "where the state is emptied: never is one endless stream (default: of the protocol)"),
        opt_int("--min-doc-tokens", "N", &args.min_doc_tokens, 2, WINDOW_MAX_LENGTH,
                "document mode: shorter documents are left out (default: W)"),
        opt_int("--max-windows", "N", &args.max_windows, 1, 1e12, "windows at most (default: all)"),
        opt_int("--max-tokens", "N", &args.max_tokens, 2, 1e15, "tokens at most (default: all)"),
        opt_flag("--skip-special", &args.skip_special, "special tokens are not scored"),
        opt_ints("--same-targets", "LIST", &args.same_targets, 1, WINDOW_MAX_LENGTH,
                "score the last 2048 tokens of each window after contexts of these lengths, instead of all after what stands before them (default: off)"),
        opt_choice("--probe", "state-norm", &args.probe,
                "record as well how large the recurrent states are along the window: tells a state that explodes from one that is of no use (default: nothing)"),
        opt_group("Results"),
        opt_string("-o, --out", "DIR", &args.out, "folder for the score files, MODEL.DATASET.nll"),
        opt_flag("--resume", &args.resume, "go on with what is there"),
        opt_flag("--force", &args.force, "begin anew, whatever is there"),
        opt_flag("--dry-run", &args.dry_run,
                "count documents, tokens and windows, estimate the time, write nothing"),
        opt_group("Computation"),
        COMPUTE_THREADS(args.compute),
        COMPUTE_OPTIONS(args.compute),
        opt_int("--group", "N", &args.group, 1, 4096,
                "windows evaluated side by side (default: 4, or as many as there are; 1 with --reset never)"),
        opt_int("-b, --ubatch", "N", &args.batch, 1, 1 << 20,
                "tokens of each window in a call; another number changes results by rounding only (default: 512 over all windows of a group)"),
        opt_string("--shard", "I/N", &args.shard,
                "only the I-th of N parts, for N processes or machines; report puts them together"),
        opt_string("--time-limit", "TIME", &args.time_limit,
                "stop after so long (90s, 30m, 2.5h) with a checkpoint and exit code 5 (default: none)"),
        opt_int("--checkpoint-every", "N", &args.checkpoint_every, 0, 1e12,
                "save the recurrent states after so many tokens of a window; 0: only when the run is stopped"),
        opt_flag("-q, --quiet", &args.quiet, "no progress, no warnings"),
    };
    const struct program program = {
        .name = NAME,
        .summary =
                "score every token of a data set, for reports on how models extrapolate in length",
        .usage = "-m M.gguf --data PATH [options]\n"
                 "--list-datasets",
        .examples =
                "lrnn-perplexity run -m neg.gguf -m pos.gguf --dataset codeparrot --data valid.json.gz --window 131072 --max-windows 16 --out results\n"
                "lrnn-perplexity run -m model.gguf --data book.txt --protocol document --time-limit 2h --out results --resume",
        OPTIONS(options),
    };
    char           err[1024];
    enum exit_code code;
    struct plan    plan;

    if (!program_begin(&program, argc, argv, &code)) {
        return code;
    }
    if (args.list_datasets) {
        list_datasets();
        return EXIT_CODE_OK;
    }
    if (args.models.n == 0 || args.data.n == 0) {
        return fail(EXIT_CODE_USAGE, args.models.n == 0 ? "-m is missing: which model?"
                                                        : "--data is missing: which text?");
    }
    if (dataset_preset_find(args.dataset) == NULL) {
        snprintf(
                err, sizeof(err), "--dataset '%s' is not known; see --list-datasets", args.dataset);
        return fail(EXIT_CODE_USAGE, err);
    }
    if (!make_plan(&args, &plan, err, sizeof(err)) ||
            !compute_check(&args.compute, err, sizeof(err))) {
        return fail(EXIT_CODE_USAGE, err);
    }
    interrupt_listen(false);
    run_progress_begin(&plan.progress, args.quiet, plan.limit_s);
    return run_all(&plan);
}
