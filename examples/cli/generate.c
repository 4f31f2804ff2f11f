#include "generate.h"

#include "base/error.h"
#include "interrupt.h"
#include "terminal.h"

#include "ggml.h"

#include <inttypes.h>

static bool step(struct generator * g) {
    return lrnn_generation_step(&g->generation, 1, &g->err);
}

bool generator_read(
        struct generator * g, const int32_t * tokens, int64_t n_tokens, int64_t max_tokens) {
    struct lrnn_generation * gen = g->generation;
    const int64_t            start_us = ggml_time_us();
    const int64_t            n_pieces = (n_tokens + g->n_batch - 1) / g->n_batch;
    const bool               is_shown = !g->quiet && n_pieces > 1;
    struct progress          progress;

    g->err = (struct lrnn_error) { .kind = LRNN_ERROR_NONE };
    gen->params.max_tokens = max_tokens;
    bool ok = lrnn_generation_prompt(gen, tokens, n_tokens, &g->err);
    progress_begin(&progress, (int) n_pieces);
    while (ok && gen->phase == GENERATION_PROMPT) {
        const int64_t n_before = gen->n_fed;
        if (is_shown) {
            progress_step(&progress, "prompt");
        }
        if (n_before > 0 && interrupt_seen()) {
            lrnn_generation_end(gen);
            ok = error_set(&g->err, LRNN_ERROR_CANCELLED,
                    "interrupted after %" PRId64 " of %" PRId64
                    " tokens of the prompt; the state is not saved",
                    n_before, n_tokens);
        } else {
            ok = step(g);
        }
        g->n_prompt += gen->n_fed - n_before;
        progress_done(&progress);
    }
    if (is_shown) {
        progress_clear(&progress);
    }
    g->prompt_us += ggml_time_us() - start_us;
    return ok;
}

enum lrnn_finish generator_write(
        struct generator * g, struct output * out, struct token_list * made) {
    struct lrnn_generation * gen = g->generation;
    const int64_t            start_us = ggml_time_us();
    bool                     is_over = false;

    // Without drafts, one token and its logits per call. A run that continues from a saved sequence
    // makes the same calls as one that never stopped, and gives the same bits.
    for (;;) {
        const struct lrnn_generated new = lrnn_generation_get(gen);
        const bool is_eos = gen->finish == LRNN_FINISH_EOS;
        output_write(out, &new, is_eos);
        g->n_new += new.n_tokens;
        if (made != NULL) {
            token_list_add(made, new.tokens, new.n_tokens - (is_eos && new.n_tokens > 0));
        }
        if (lrnn_generation_finish(gen) != LRNN_FINISH_NONE) {
            break;
        }
        if (!is_over && (interrupt_seen() || out->error != 0)) {
            lrnn_generation_end(gen);
            is_over = true;
        } else if (step(g)) {
            g->n_calls++;
        }
    }
    g->new_us += ggml_time_us() - start_us;
    return lrnn_generation_finish(gen);
}

const char * generator_end_text(const struct generator * g) {
    static const char * const texts[LRNN_N_FINISHES] = {
        [LRNN_FINISH_LENGTH] = "ended by -n",
        [LRNN_FINISH_EOS] = "ended by the model",
        [LRNN_FINISH_STOP] = "ended by a stop string",
        [LRNN_FINISH_GRAMMAR] = "ended by the grammar",
        [LRNN_FINISH_CACHE] = "ended by a full attention cache",
        [LRNN_FINISH_CALLER] = "interrupted",
        [LRNN_FINISH_ERROR] = "failed",
    };
    return g->err.kind == LRNN_ERROR_CANCELLED    ? "interrupted in the prompt"
           : g->err.kind == LRNN_ERROR_NOT_FINITE ? "ended by logits that are not finite"
                                                  : texts[lrnn_generation_finish(g->generation)];
}
