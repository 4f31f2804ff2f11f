// Writes a synthetic score file for tests of lrnn-perplexity. Keys are those of struct synthetic.
//
//     make-scores OUT.nll key=value...

#include "lrnn.h"
#include "kit/synthetic-scores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char ** argv) {
    struct synthetic s = {
        .window = 1024, .n_windows = 12, .level = 0.6, .spread = 0.2, .warm = 1.0
    };
    const struct {
        const char *  key;
        const char ** text;
        int64_t *     integer;
        double *      number;
    } keys[] = {
        { "model", &s.model, NULL, NULL },
        { "dataset", &s.dataset, NULL, NULL },
        { "quantization", &s.quantization, NULL, NULL },
        { "tokenizer", &s.tokenizer, NULL, NULL },
        { "fingerprint", &s.fingerprint, NULL, NULL },
        { "mode", &s.mode, NULL, NULL },
        { "reset", &s.reset, NULL, NULL },
        { "sources", &s.sources, NULL, NULL },
        { "same_targets", &s.same_targets, NULL, NULL },
        { "trained_length", NULL, &s.trained_length, NULL },
        { "window", NULL, &s.window, NULL },
        { "n_windows", NULL, &s.n_windows, NULL },
        { "n_write", NULL, &s.n_write, NULL },
        { "shard", NULL, &s.shard, NULL },
        { "n_shards", NULL, &s.n_shards, NULL },
        { "group", NULL, &s.group, NULL },
        { "doc_bytes", NULL, &s.doc_bytes, NULL },
        { "nan_window", NULL, &s.nan_window, NULL },
        { "nan_position", NULL, &s.nan_position, NULL },
        { "short_every", NULL, &s.short_every, NULL },
        { "level", NULL, NULL, &s.level },
        { "spread", NULL, NULL, &s.spread },
        { "warm", NULL, NULL, &s.warm },
        { "rise", NULL, NULL, &s.rise },
        { "shift", NULL, NULL, &s.shift },
        { "wobble", NULL, NULL, &s.wobble },
        { "uniform", NULL, NULL, &s.uniform },
        { "norm", NULL, NULL, &s.norm },
    };
    struct lrnn_error err;
    for (int i = 2; i < argc; ++i) {
        const char * value = strchr(argv[i], '=');
        bool         found = false;
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]) && value != NULL; ++k) {
            if (strlen(keys[k].key) == (size_t) (value - argv[i]) &&
                    strncmp(argv[i], keys[k].key, (size_t) (value - argv[i])) == 0) {
                found = true;
                if (keys[k].text != NULL) {
                    *keys[k].text = value + 1;
                } else if (keys[k].integer != NULL) {
                    *keys[k].integer = atoll(value + 1);
                } else {
                    *keys[k].number = atof(value + 1);
                }
            }
        }
        if (!found) {
            fprintf(stderr, "make-scores: %s: unknown key\n", argv[i]);
            return 2;
        }
    }
    if (argc < 2 || !synthetic_write(&s, argv[1], &err)) {
        fprintf(stderr, "make-scores: %s\n",
                argc < 2 ? "make-scores OUT.nll key=value..." : err.text);
        return 1;
    }
    return 0;
}
