// Tables for other programs: RFC 4180, UTF-8, a header row, '.' for decimals, nothing where there
// is no number.

#include "eval/report-files.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void csv_text(FILE * out, const char * text) {
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    putc('"', out);
    for (const char * p = text; *p != '\0'; ++p) {
        if (*p == '"') {
            putc('"', out);
        }
        putc(*p, out);
    }
    putc('"', out);
}

static void csv_number(FILE * out, double x) {
    if (isfinite(x)) {
        fprintf(out, ",%.8g", x);
    } else {
        putc(',', out);
    }
}

static void csv_rows(const struct report * r, const struct report_run * run,
        const struct losses * f, bool is_prefix, FILE * out) {
    const struct score_meta * m = &run->summary.meta;
    for (int i = 0; i < f->n; ++i) {
        const struct loss * g = &f->at[i];
        csv_text(out, run->name);
        putc(',', out);
        csv_text(out, r->panels[run->panel].title);
        putc(',', out);
        csv_text(out, m->protocol);
        if (is_prefix) {
            fprintf(out, ",%" PRId64, g->range.to + 1);
        } else {
            fprintf(out, ",%" PRId64 ",%" PRId64, g->range.from, g->range.to);
        }
        fprintf(out, ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, g->tokens, g->windows,
                g->diverged, g->bytes);
        const double numbers[] = {
            g->nats.value,
            g->nats.se,
            g->nats.lo,
            g->nats.hi,
            loss_value(g, LOSS_PPL),
            loss_lo(g, LOSS_PPL),
            loss_hi(g, LOSS_PPL),
            g->bits.value,
            g->bits.lo,
            g->bits.hi,
            g->tokens > 0 ? (double) g->hits / (double) g->tokens : NAN,
        };
        for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); ++k) {
            csv_number(out, numbers[k]);
        }
        fprintf(out, ",%" PRId64, run->summary.extrapolation.trained_length);
        if (!is_prefix) {
            const struct range_norm * norm =
                    run->summary.norms != NULL && run->summary.norms[i].windows > 0
                            ? &run->summary.norms[i]
                            : NULL;
            csv_number(out, norm != NULL ? norm->median : NAN);
            csv_number(out, norm != NULL ? norm->most : NAN);
        }
        putc('\n', out);
    }
}

static const char * const COLUMNS =
        "tokens,windows,diverged,bytes,nll,se,lo,hi,ppl,ppl_lo,ppl_hi,bpb,bpb_lo,bpb_hi,acc,train_length";

bool report_write_buckets_csv(const struct report * r, FILE * out) {
    fprintf(out, "model,dataset,protocol,from,to,%s,norm_median,norm_most\n", COLUMNS);
    for (int i = 0; i < r->n_runs; ++i) {
        csv_rows(r, &r->runs[i], &r->runs[i].summary.buckets, false, out);
    }
    return true;
}

bool report_write_prefix_csv(const struct report * r, FILE * out) {
    fprintf(out, "model,dataset,protocol,length,%s\n", COLUMNS);
    for (int i = 0; i < r->n_runs; ++i) {
        csv_rows(r, &r->runs[i], &r->runs[i].summary.prefixes, true, out);
    }
    return true;
}
