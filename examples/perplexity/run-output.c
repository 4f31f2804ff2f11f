#include "lrnn.h"
#include "run.h"

#include "eval/estimates/summary.h"
#include "program.h"

#include <inttypes.h>

enum exit_code run_print_result(const struct run_files * files, int64_t n_windows, bool stopped) {
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

void run_print_dry(const struct run_plan * plan, const struct run_files * files,
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
    const double speed =
            score_speed(model, windows, plan->args->device.session, plan->group, plan->n_batch);
    if (speed > 0.0) {
        printf("  time        about %.0f s at %.0f tokens/s, with %" PRId64 " windows of %" PRId64
               " tokens per call\n",
                (double) s->n_tokens / (double) plan->n_shards / speed, speed, plan->group,
                plan->n_batch);
    }
    fflush(stdout);
}
