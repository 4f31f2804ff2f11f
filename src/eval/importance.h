#pragma once

// Collects an importance matrix (imatrix.h) while a session computes: the inputs of every product
// with a weight of the file.
//
//     struct importance im = { .model = model };
//     session = lrnn_session_new(model, &(struct lrnn_session_params) {
//         .watch_what = LRNN_WATCH_MATRICES, .watch = importance_watch, .watch_user = &im }, …);
//     lrnn_eval(session, …);                        if it fails and im.err is not empty, that is why
//     imatrix_write(&im.imatrix, …); imatrix_free(&im.imatrix);
//
// Ask for the logits of every token, or the output's weight sees fewer inputs than the others.

#include "file/imatrix.h"
#include "lrnn.h"

struct importance {
    const struct lrnn_model * model;
    struct imatrix            imatrix;
    char                      err[512];
};

bool importance_watch(const struct lrnn_watched * watched, void * user); // an lrnn_watch
