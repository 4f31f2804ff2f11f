#pragma once

// Exports a run as a table with one row per scored token. The columns:
//
//     token     index of the token in the run: W · window + t, for target t of the window
//     position  number of tokens the model has seen
//     document  number of the document that contains the token
//     byte      of the document, where the token begins; unknown for some (see below)
//     loss      in nats, −ln p(token); may be non-finite
//
// Score files contain no token ids. They do not say how many bytes the first token of a window has,
// which is not a target. The bytes of the targets that follow it in its document are known if that
// token is a bos or if the next window continues the document, except in llama mode and with
// same-targets.

#include "eval/scores/score-file.h"

enum score_export_format {
    SCORE_EXPORT_CSV, // an unknown byte is empty; losses have 9 digits, which is exact
    SCORE_EXPORT_NPY, // structured: four int64 and a float32; an unknown byte is −1
};

// For write errors, check ferror.
void score_export(const struct scores * scores, enum score_export_format format, FILE * out);
