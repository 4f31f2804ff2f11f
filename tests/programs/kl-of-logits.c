// Checks what lrnn-perplexity compare says against the logits that lrnn-perplexity logits wrote for
// each model: a loop over the definition.
//
//     kl-of-logits P.npy Q.npy IDS KL KL_P99 NLL_P NLL_Q TOP1      IDS: decimal ids, one a line; the rest: what was said

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 128, T_MAX = 4096 };

// float32 [n_rows, *n_columns] behind a header of 128 bytes, as lrnn-perplexity logits writes them
static float * read_logits(const char * path, long n_rows, long * n_columns) {
    FILE * f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0) {
        return NULL;
    }
    const long size = ftell(f) - HEADER;
    float *    x    = malloc((size_t) size);
    *n_columns      = size / (long) sizeof(float) / n_rows;
    const int ok    = x != NULL && fseek(f, HEADER, SEEK_SET) == 0 &&
                   fread(x, 1, (size_t) size, f) == (size_t) size;
    fclose(f);
    if (!ok) {
        free(x);
        return NULL;
    }
    return x;
}

static int compare_doubles(const void * a, const void * b) {
    return (*(const double *) a > *(const double *) b) -
           (*(const double *) a < *(const double *) b);
}

static int check(const char * what, double said, double found) {
    const int ok =
            fabs(said - found) <= 1e-5 * fabs(found) + 1e-9; // what was said is kept in float
    printf("%-6s %.9g, from the logits %.9g%s\n", what, said, found, ok ? "" : ": WRONG");
    return !ok;
}

int main(int argc, char ** argv) {
    static int    ids[T_MAX];
    static double kl[T_MAX];
    long          T = 0, V = 0, V2 = 0;
    FILE *        f = argc == 9 ? fopen(argv[3], "r") : NULL;
    if (f == NULL) {
        return 2;
    }
    while (T < T_MAX && fscanf(f, "%d", &ids[T]) == 1) {
        T++;
    }
    fclose(f);
    float * p = read_logits(argv[1], T, &V);
    float * q = read_logits(argv[2], T, &V2);
    if (p == NULL || q == NULL || V != V2 || T < 3) {
        return 2;
    }
    double     sum = 0.0, nll_p = 0.0, nll_q = 0.0, top = 0.0;
    const long n = T - 1;
    for (long t = 1; t < T; ++t) {
        const float * a  = p + (t - 1) * V;
        const float * b  = q + (t - 1) * V;
        double        za = 0.0, zb = 0.0;
        long          ta = 0, tb = 0;
        for (long v = 0; v < V; ++v) {
            za += exp((double) a[v]);
            zb += exp((double) b[v]);
            ta = a[v] > a[ta] ? v : ta;
            tb = b[v] > b[tb] ? v : tb;
        }
        kl[t - 1] = 0.0;
        for (long v = 0; v < V; ++v) {
            kl[t - 1] += exp((double) a[v]) / za *
                         log(exp((double) a[v]) / za / (exp((double) b[v]) / zb));
        }
        sum += kl[t - 1];
        nll_p -= log(exp((double) a[ids[t]]) / za);
        nll_q -= log(exp((double) b[ids[t]]) / zb);
        top += ta == tb;
    }
    free(p);
    free(q);
    qsort(kl, (size_t) n, sizeof(kl[0]), compare_doubles);
    const double at  = 0.99 * (double) (n - 1);
    const long   i   = (long) at;
    const double p99 = kl[i] + (at - (double) i) * ((i + 1 < n ? kl[i + 1] : kl[i]) - kl[i]);
    return check("KL", atof(argv[4]), sum / (double) n) + check("KL 99", atof(argv[5]), p99) +
           check("NLL P", atof(argv[6]), nll_p / (double) n) +
           check("NLL Q", atof(argv[7]), nll_q / (double) n) +
           check("top-1", atof(argv[8]), top / (double) n);
}
