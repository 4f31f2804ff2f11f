#include "lrnn.h"
#include "run.h"

#include "eval/scores/model-facts.h"
#include "interrupt.h"
#include "load-model.h"
#include "output-check.h"
#include "program.h"

#include "ggml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

    struct score_meta meta = score_meta_of(s->model, &plan->args->device.session, &s->facts,
            s->windows, &plan->data.window, plan->reset);
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
    run_progress_clear(&s->progress);
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
            .session = args->device.session,
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
    if (!score_meta_identity(&meta, params.identity)) {
        return program_fail(EXIT_CODE_SYSTEM, "out of memory");
    }
    int64_t               n_done = 0;
    struct score_writer * writer =
            args->resume ? score_writer_resume(s->files->scores, &meta, &n_done, &err)
                         : score_writer_create(s->files->scores, &meta, &err);
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
    run_progress_clear(&s->progress);
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
    run_plan_calls(s->plan, windows_get_summary(s->windows)->n_windows);
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

enum exit_code run_models(struct run_plan * plan) {
    const int          n = plan->args->models.n;
    struct run_files * files = calloc((size_t) n, sizeof(*files));
    struct scoring     s = { .plan = plan };
    if (files == NULL) {
        return program_fail(EXIT_CODE_SYSTEM, "out of memory");
    }
    run_progress_begin(&s.progress, plan->args->quiet, plan->limit_s);
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
