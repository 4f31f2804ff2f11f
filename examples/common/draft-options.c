#include "draft-options.h"

#include "base/error.h"

bool draft_options_check(const struct draft_options * o, struct lrnn_error * err) {
    return o->lookup == 0 || o->mtp == 0 ||
           error_bad_input(err, "--draft-lookup and --draft-mtp both set drafts; give only one");
}

void draft_options_session(const struct draft_options * o, struct lrnn_session_params * params) {
    const int32_t n = o->lookup + o->mtp;
    params->n_rewind = n > 0 ? n + 1 : 0;
    params->draft_block = o->mtp > 0;
}
