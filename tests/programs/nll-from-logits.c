// The first window of a score file against logits that another command wrote for the same ids: ten
// lines of arithmetic, and nothing of the library's.
//
//     nll-from-logits SCORES.nll IDS.txt LOGITS.npy

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char * read_all(const char * path) {
    FILE *          f    = fopen(path, "rb");
    unsigned char * data = NULL;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0) {
        const long size = ftell(f);
        data            = malloc((size_t) size + 1);
        rewind(f);
        if (data != NULL && fread(data, 1, (size_t) size, f) != (size_t) size) {
            free(data);
            data = NULL;
        }
        if (data != NULL) {
            data[size] = '\0';
        }
    }
    if (data == NULL) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(2);
    }
    fclose(f);
    return data;
}

int main(int argc, char ** argv) {
    if (argc != 4) {
        return 2;
    }
    unsigned char * scores = read_all(argv[1]);
    unsigned char * ids    = read_all(argv[2]);
    unsigned char * npy    = read_all(argv[3]);

    uint32_t n_text;
    int64_t  n_targets, n_spans;
    memcpy(&n_text, scores + 12, 4);
    const unsigned char * body = scores + 16 + n_text + 32 + 8;
    memcpy(&n_targets, body + 8, 8);
    memcpy(&n_spans, body + 16, 8);
    const unsigned char * nll = body + 24 + 32 * n_spans;

    int          n_rows = 0, n_vocab = 0;
    const char * shape = strstr((char *) npy + 10, "'shape': (");
    if (shape == NULL || sscanf(shape, "'shape': (%d, %d)", &n_rows, &n_vocab) != 2 ||
            n_rows < n_targets) {
        fprintf(stderr, "%s is not what was expected\n", argv[3]);
        return 2;
    }
    const unsigned char * rows = npy + 128;

    double worst = 0.0, sum_run = 0.0, sum_logits = 0.0;
    char * p = (char *) ids;
    strtol(p, &p, 10); // the first is no target
    for (int64_t t = 0; t < n_targets; ++t) {
        const long target = strtol(p, &p, 10);
        double     sum    = 0.0;
        float      z_target, z, found;
        memcpy(&z_target, rows + 4 * (t * n_vocab + target), 4);
        for (int v = 0; v < n_vocab; ++v) {
            memcpy(&z, rows + 4 * (t * n_vocab + v), 4);
            sum += exp((double) z - (double) z_target);
        }
        memcpy(&found, nll + 4 * t, 4);
        sum_run += (double) found;
        sum_logits += log(sum);
        worst = fmax(worst, fabs((double) found - log(sum)));
    }
    printf("perplexity %.7g from the run, %.7g from the logits; worst difference of a token %.2g nats\n",
            exp(sum_run / (double) n_targets), exp(sum_logits / (double) n_targets), worst);
    free(scores);
    free(ids);
    free(npy);
    return worst < 2e-5 ? 0 : 1; // also false for a NaN
}
