#include "eval/scores/model-facts.h"
#include "eval/scores/score.h"

static const char * const MODE_NAMES[]  = { "packed", "document", "llama" };
static const char * const EOS_NAMES[]   = { "none", "doc" };
static const char * const RESET_NAMES[] = { "window", "document", "never" };

struct score_meta score_meta_of(const struct lrnn_model * model,
        const struct lrnn_session_params * session, const struct model_facts * facts,
        const struct windows * windows, const struct window_params * window,
        enum score_reset reset) {
    const struct windows_summary * data = windows_get_summary(windows);
    const struct lrnn_model_info   info = lrnn_model_get_info(model);
    const int64_t min_tokens = window->min_doc_tokens > 0 ? window->min_doc_tokens : window->length;
    return (struct score_meta) {
        .model_hash       = facts->hash,
        .model_family     = info.family,
        .eigenvalues      = info.eigenvalues,
        .quantization     = facts->quantization,
        .parameters       = facts->parameters,
        .trained_length   = info.trained_length,
        .n_vocab          = info.n_vocab,
        .tokenizer_hash   = facts->tokenizer_hash,
        .data_fingerprint = data->fingerprint,
        .template         = data->counts.template,
        .files            = data->files,
        .sources          = data->sources,
        .records          = data->counts.records,
        .documents        = data->counts.documents,
        .filtered         = data->counts.filtered,
        .malformed        = data->counts.malformed,
        .lone_surrogates  = data->counts.lone_surrogates,
        .complaints       = data->complaints,
        .mode             = MODE_NAMES[window->mode],
        .bos              = data->bos,
        .eos              = EOS_NAMES[window->eos],
        .reset            = RESET_NAMES[reset],
        .window           = window->length,
        .min_doc_tokens   = window->mode == WINDOW_DOCUMENT ? min_tokens : 0,
        .skip_special     = window->skip_special,
        .n_windows        = data->n_windows,
        .cache_type = info.n_layer_attention > 0 ? lrnn_cache_type_name(session->cache_type) : "",
        .shard      = 1,
        .n_shards   = 1,
    };
}
