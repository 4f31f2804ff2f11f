#include "eval/report/report-columns.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

//
// Numbers as text
//

const char * report_count(int64_t x, char text[32]) {
    char      digits[24];
    const int n = snprintf(digits, sizeof(digits), "%" PRId64, x);
    int       out = 0;
    for (int i = 0; i < n; ++i) {
        text[out++] = digits[i];
        if ((n - 1 - i) % 3 == 0 && i < n - 1 && digits[i] != '-') {
            text[out++] = ',';
        }
    }
    text[out] = '\0';
    return text;
}

int report_decimals(enum loss_unit unit, double x) {
    return unit != LOSS_PPL ? 4 : x < 100.0 ? 3 : x < 1000.0 ? 2 : x < 10000.0 ? 1 : 0;
}

void report_loss(const struct loss * l, enum loss_unit unit, char * text, size_t size) {
    const double value = loss_in(l, unit).value;
    const double half = 0.5 * (loss_in(l, unit).hi - loss_in(l, unit).lo);
    const bool   is_large = fabs(value) >= 1e6;
    const int    decimals = is_large ? 3 : report_decimals(unit, value);
    char         number[48] = "", interval[48] = "", diverged[32] = "";

    if (!isfinite(value)) {
        snprintf(number, sizeof(number), l->diverged > 0 ? "diverged" : "-");
    } else {
        snprintf(number, sizeof(number), is_large ? "%.*e" : "%.*f", decimals, value);
    }
    if (isfinite(value) && isfinite(half)) {
        snprintf(interval, sizeof(interval), is_large ? " ± %.*e" : " ± %.*f",
                is_large ? 1 : decimals, half);
    }
    if (l->diverged > 0) {
        snprintf(diverged, sizeof(diverged), " !%" PRId64, l->diverged);
    }
    snprintf(text, size, "%s%s%s", number, interval, diverged);
}

//
// Values
//

static struct report_value int_value(int64_t x) {
    return (struct report_value) { .type = REPORT_INT, .integer = x };
}

static struct report_value number_value(double x) {
    return (struct report_value) { .type = REPORT_NUMBER, .number = x };
}

static struct report_value text_value(const char * text) {
    return (struct report_value) { .type = REPORT_TEXT, .text = text };
}

static const char * method_name(enum stats_method m) {
    return m == STATS_BOOTSTRAP ? "bootstrap" : m == STATS_T ? "student-t" : "none";
}

// static struct report_value get_<name>(const struct report_row * r)
#define GET(name, value)                                                 \
    static struct report_value get_##name(const struct report_row * r) { \
        return value;                                                    \
    }

GET(model, text_value(r->run->name))
GET(dataset, text_value(r->panel))
GET(protocol, text_value(r->run->summary.meta.protocol))
GET(from, int_value(r->loss->range.from))
GET(to, int_value(r->loss->range.to))
GET(length, int_value(r->loss->range.to + 1))
GET(tokens, int_value(r->loss->tokens))
GET(windows, int_value(r->loss->windows))
GET(diverged, int_value(r->loss->diverged))
GET(bytes, int_value(r->loss->bytes))
GET(nll, number_value(r->loss->nats.value))
GET(se, number_value(r->loss->nats.se))
GET(lo, number_value(r->loss->nats.lo))
GET(hi, number_value(r->loss->nats.hi))
GET(ppl, number_value(loss_in(r->loss, LOSS_PPL).value))
GET(ppl_lo, number_value(loss_in(r->loss, LOSS_PPL).lo))
GET(ppl_hi, number_value(loss_in(r->loss, LOSS_PPL).hi))
GET(bpb, number_value(r->loss->bits.value))
GET(bpb_lo, number_value(r->loss->bits.lo))
GET(bpb_hi, number_value(r->loss->bits.hi))
GET(acc,
        number_value(r->loss->tokens > 0 ? (double) r->loss->hits / (double) r->loss->tokens : NAN))
GET(trained_length, int_value(r->run->summary.extrapolation.trained_length))
GET(norm_median, number_value(r->norm != NULL ? r->norm->median : NAN))
GET(norm_most, number_value(r->norm != NULL ? r->norm->most : NAN))
GET(method, text_value(method_name(r->loss->nats.method)))
GET(tokens_per_byte, number_value((double) r->loss->tokens / (double) r->loss->bytes))
GET(token_error, number_value(exp(r->loss->nats.value) * r->run->summary.token_error))
GET(n_windows, int_value(r->run->summary.n_windows))
GET(quantization, text_value(r->run->summary.meta.quantization))

static void show_ppl(const struct report_row * r, char * text, size_t size) {
    report_loss(r->loss, LOSS_PPL, text, size);
}

static void show_nats(const struct report_row * r, char * text, size_t size) {
    report_loss(r->loss, LOSS_NATS, text, size);
}

static void show_bpb(const struct report_row * r, char * text, size_t size) {
    report_loss(r->loss, LOSS_BPB, text, size);
}

static void show_trained_length(const struct report_row * r, char * text, size_t size) {
    const int64_t length = r->run->summary.extrapolation.trained_length;
    char          count[32];
    snprintf(text, size, "%s", length > 0 ? report_count(length, count) : "unknown");
}

static void show_token_error(const struct report_row * r, char * text, size_t size) {
    const double ppl = exp(r->loss->nats.value);
    snprintf(text, size, "%.*f", report_decimals(LOSS_PPL, ppl), get_token_error(r).number);
}

//
// The table
//

static const char PERPLEXITY[] = "perplexity", NATS[] = "nats per token", BITS[] = "bits per byte";

const char * report_unit_name(enum loss_unit unit) {
    return unit == LOSS_PPL ? PERPLEXITY : unit == LOSS_NATS ? NATS : BITS;
}

enum {
    CSV = REPORT_CSV_BUCKETS | REPORT_CSV_PREFIX,
    RANGE = REPORT_JSON_TOTAL | REPORT_JSON_BUCKETS | REPORT_CSV_BUCKETS,
    PREFIX = REPORT_JSON_PREFIX | REPORT_CSV_PREFIX,
    ALL = RANGE | PREFIX,
    BUCKETS = REPORT_CSV_BUCKETS,
    TOTAL = REPORT_JSON_TOTAL,
    TABLE = REPORT_TABLE_TOTAL,
};

// clang-format off
static const struct report_column COLUMNS[] = {
    // key, title, unit, definition, where, value, text
    { "model", NULL, "", "name of the run", CSV, get_model, NULL },
    { "dataset", NULL, "", "title of the panel: the data set", CSV, get_dataset, NULL },
    { "protocol", NULL, "", "protocol of the run", CSV, get_protocol, NULL },
    { "from", NULL, "tokens", "first position", RANGE, get_from, NULL },
    { "to", NULL, "tokens", "last position", RANGE, get_to, NULL },
    { "length", NULL, "tokens", "L: the first L tokens of every window", PREFIX, get_length, NULL },
    { "tokens", NULL, "tokens", "targets", ALL, get_tokens, NULL },
    { "windows", NULL, "windows", "windows with targets here", ALL, get_windows, NULL },
    { "diverged", NULL, "windows", "windows excluded: non-finite loss", ALL, get_diverged, NULL },
    { "bytes", NULL, "bytes", "bytes of the targets", ALL, get_bytes, NULL },
    { "nll", NULL, "nats/token", "mean loss", ALL, get_nll, NULL },
    { "se", NULL, "nats/token", "standard error of nll", ALL, get_se, NULL },
    { "lo", NULL, "nats/token", "lower end of the interval of nll", ALL, get_lo, NULL },
    { "hi", NULL, "nats/token", "upper end of the interval of nll", ALL, get_hi, NULL },
    { "ppl", PERPLEXITY, "", "exp(nll)", ALL | TABLE, get_ppl, show_ppl },
    { "ppl_lo", NULL, "", "exp(lo)", ALL, get_ppl_lo, NULL },
    { "ppl_hi", NULL, "", "exp(hi)", ALL, get_ppl_hi, NULL },
    { NULL, NATS, "nats/token", "nll", TABLE, get_nll, show_nats },
    { "bpb", BITS, "bits/byte", "loss per byte of text", ALL | TABLE, get_bpb, show_bpb },
    { "bpb_lo", NULL, "bits/byte", "lower end of the interval of bpb", ALL, get_bpb_lo, NULL },
    { "bpb_hi", NULL, "bits/byte", "upper end of the interval of bpb", ALL, get_bpb_hi, NULL },
    { "acc", "top-1 accuracy", "", "fraction of targets that were the most likely token",
            ALL | TABLE, get_acc, NULL },
    { "trained_length", NULL, "tokens", "context length in training; 0: unknown", CSV,
            get_trained_length, NULL },
    { "norm_median", NULL, "", "largest state norm: median over windows", BUCKETS,
            get_norm_median, NULL },
    { "norm_most", NULL, "", "largest state norm: maximum over windows", BUCKETS,
            get_norm_most, NULL },
    { "method", NULL, "", "of the intervals: bootstrap, student-t or none", TOTAL, get_method,
            NULL },
    { "tokens_per_byte", "tokens per byte", "tokens/byte", "tokens / bytes", TOTAL | TABLE,
            get_tokens_per_byte, NULL },
    { NULL, "targets", "tokens", "tokens", TABLE, get_tokens, NULL },
    { NULL, "bytes", "bytes", "bytes", TABLE, get_bytes, NULL },
    { NULL, "windows", "windows", "windows that were read", TABLE, get_n_windows, NULL },
    { NULL, "trained on", "tokens", "trained length", TABLE, get_trained_length,
            show_trained_length },
    { NULL, "weights", "", "type of most weights", TABLE, get_quantization, NULL },
    { "llama_perplexity_token_error", "llama-perplexity's +/-", "",
            "standard error of ppl if tokens were independent", TOTAL | TABLE, get_token_error,
            show_token_error },
};
// clang-format on

enum { N_COLUMNS = sizeof(COLUMNS) / sizeof(COLUMNS[0]) };

const struct report_column * report_column_at(int in, int i) {
    for (int k = 0; k < N_COLUMNS; ++k) {
        if ((COLUMNS[k].in & in) != 0 && i-- == 0) {
            return &COLUMNS[k];
        }
    }
    return NULL;
}

const char * report_column_show(
        const struct report_column * c, const struct report_row * row, char * text, size_t size) {
    const struct report_value v = c->get(row);
    char                      count[32];
    if (c->show != NULL) {
        c->show(row, text, size);
    } else if (v.type == REPORT_NUMBER) {
        snprintf(text, size, "%.4f", v.number);
    } else {
        snprintf(text, size, "%s", v.type == REPORT_INT ? report_count(v.integer, count) : v.text);
    }
    return text;
}

//
// Comparisons
//

#define GET_PAIRED(name, value)                                         \
    static struct report_value paired_##name(const struct paired * p) { \
        return value;                                                   \
    }

GET_PAIRED(difference, number_value(p->difference.value))
GET_PAIRED(se, number_value(p->difference.se))
GET_PAIRED(lo, number_value(p->difference.lo))
GET_PAIRED(hi, number_value(p->difference.hi))
GET_PAIRED(windows, int_value(p->difference.n))
GET_PAIRED(method, text_value(method_name(p->difference.method)))
GET_PAIRED(won, int_value(p->won))
GET_PAIRED(p, number_value(stats_p_value(&p->difference)))

static const struct paired_column PAIRED[] = {
    { "difference", "other - base, paired by window", true, paired_difference },
    { "se", "standard error of the difference", true, paired_se },
    { "lo", "lower end of its interval", true, paired_lo },
    { "hi", "upper end of its interval", true, paired_hi },
    { "windows", "windows that both runs have", true, paired_windows },
    { "method", "of the interval: bootstrap, student-t or none", true, paired_method },
    { "won", "windows in which the other is better", false, paired_won },
    { "p", "two-sided p of Student's t", false, paired_p },
};

const struct paired_column * paired_column_at(int i) {
    return i < (int) (sizeof(PAIRED) / sizeof(PAIRED[0])) ? &PAIRED[i] : NULL;
}

void report_list_columns(FILE * out) {
    const struct report_column * c;
    const struct paired_column * p;
    fputs("buckets.csv, prefix.csv; total, buckets and prefix in report.json:\n", out);
    for (int i = 0; (c = report_column_at(ALL | CSV | TOTAL, i)) != NULL; ++i) {
        fprintf(out, "  %-29s %-11s %s\n", c->key, c->unit, c->about);
    }
    fputs("comparisons in report.json:\n", out);
    for (int i = 0; (p = paired_column_at(i)) != NULL; ++i) {
        fprintf(out, "  %-41s %s\n", p->key, p->about);
    }
}

//
// Facts about a run
//

#define RUN(member)  offsetof(struct report_run, member)
#define META(member) offsetof(struct report_run, summary.meta.member)

// clang-format off
static const struct report_fact FACTS[] = {
    { "model", "name", "model", FACT_TEXT, META(model) },
    { "model", "shown", NULL, FACT_TEXT, RUN(name) },
    { "model", "sha256", "SHA-256 of the file", FACT_TEXT, META(model_hash) },
    { "model", "family", "family", FACT_TEXT, META(model_family) },
    { "model", "eigenvalues", "eigenvalues", FACT_TEXT, META(eigenvalues) },
    { "model", "quantization", "weights", FACT_TEXT, META(quantization) },
    { "model", "parameters", "parameters", FACT_INT, META(parameters) },
    { "model", "trained_length", "trained length (0: unknown)", FACT_INT, META(trained_length) },
    { "tokenizer", "sha256", "tokenizer", FACT_TEXT, META(tokenizer_hash) },
    { "tokenizer", "n_vocab", "vocabulary", FACT_INT, META(n_vocab) },
    { "data", "dataset", "data set", FACT_TEXT, META(dataset) },
    { "data", "fingerprint", "fingerprint", FACT_TEXT, META(data_fingerprint) },
    { "data", "template", "template", FACT_TEXT, META(template) },
    { "data", "files", "files", FACT_LIST, META(files) },
    { "data", "sources", NULL, FACT_LIST, META(sources) },
    { "data", "records", "records read", FACT_INT, META(records) },
    { "data", "documents", "documents", FACT_INT, META(documents) },
    { "data", "filtered", "excluded by the filter", FACT_INT, META(filtered) },
    { "data", "malformed", "malformed", FACT_INT, META(malformed) },
    { "data", "lone_surrogates", NULL, FACT_INT, META(lone_surrogates) },
    { "data", "complaints", "complaints", FACT_LIST, META(complaints) },
    { "protocol", "name", "protocol", FACT_TEXT, META(protocol) },
    { "protocol", "mode", "mode", FACT_TEXT, META(mode) },
    { "protocol", "bos", "bos", FACT_TEXT, META(bos) },
    { "protocol", "eos", "eos", FACT_TEXT, META(eos) },
    { "protocol", "reset", "reset", FACT_TEXT, META(reset) },
    { "protocol", "window", "window", FACT_INT, META(window) },
    { "protocol", "min_doc_tokens", "minimum document length", FACT_INT, META(min_doc_tokens) },
    { "protocol", "skip_special", "special tokens skipped", FACT_BOOL, META(skip_special) },
    { "protocol", "same_targets", NULL, FACT_TEXT, META(same_targets) },
    { "protocol", "state_type", "states rounded to", FACT_TEXT, META(state_type) },
    { "protocol", "exact_cuts", "exact cuts", FACT_BOOL, META(exact_cuts) },
    { "protocol", "n_batch", "tokens per call", FACT_INT, META(n_batch) },
    { "protocol", "group", "windows per group", FACT_INT, META(group) },
    { "protocol", "n_windows", NULL, FACT_INT, META(n_windows) },
    { "protocol", NULL, "windows", FACT_INT, RUN(summary.n_windows) },
    { "protocol", "tool", "tool", FACT_TEXT, META(tool) },
};
// clang-format on

const struct report_fact * report_fact_at(int i) {
    return i < (int) (sizeof(FACTS) / sizeof(FACTS[0])) ? &FACTS[i] : NULL;
}

int64_t report_fact_int(const struct report_fact * f, const struct report_run * run) {
    const char * at = (const char *) run + f->offset;
    return f->type == FACT_INT    ? *(const int64_t *) at
           : f->type == FACT_BOOL ? *(const bool *) at
                                  : 0;
}

const char * report_fact_text(const struct report_fact * f, const struct report_run * run) {
    const char * at = (const char *) run + f->offset;
    return f->type == FACT_TEXT || f->type == FACT_LIST ? *(const char * const *) at : "";
}
