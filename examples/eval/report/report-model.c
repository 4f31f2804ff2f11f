#include "eval/report/report-model.h"

#include "base/arena.h"
#include "base/error.h"
#include "eval/data/dataset.h"
#include "chart/chart.h"
#include "eval/estimates/losses.h"
#include "memory.h"

#include "lrnn.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ELLIPSIS "\xe2\x80\xa6"

//
// Panels
//

// True if the run can be compared with the first one of a panel.
static bool belongs(
        const struct report * r, const struct report_run * first, const struct report_run * run) {
    bool bytes_only;
    return comparison_allowed(&first->scores.meta, &run->scores.meta, &bytes_only, NULL) ||
           (bytes_only && r->params.unit == LOSS_BPB);
}

static void make_panels(struct report * r) {
    r->panels = program_alloc_in(r->arena, (size_t) r->n_runs, sizeof(*r->panels));
    for (int i = 0; i < r->n_runs; ++i) {
        int p = 0;
        while (p < r->n_panels && !belongs(r, r->panels[p].runs[0], &r->runs[i])) {
            p++;
        }
        struct report_panel * panel = &r->panels[p];
        if (p == r->n_panels) {
            r->n_panels++;
            panel->runs = program_alloc_in(r->arena, (size_t) r->n_runs, sizeof(*panel->runs));
        }
        panel->runs[panel->n++] = &r->runs[i];
        r->runs[i].panel = p;
    }
}

// Panels of one data set are told apart by what differs.
static void name_panels(struct report * r) {
    for (int p = 0; p < r->n_panels; ++p) {
        const struct score_meta * m = &r->panels[p].runs[0]->scores.meta;
        bool                      unique = true;
        char                      title[DATASET_TITLE_SIZE], other[DATASET_TITLE_SIZE];
        dataset_title(m->dataset, m->files, title);
        for (int q = 0; q < r->n_panels; ++q) {
            const struct score_meta * o = &r->panels[q].runs[0]->scores.meta;
            dataset_title(o->dataset, o->files, other);
            unique &= q == p || strcmp(other, title) != 0;
        }
        r->panels[p].title =
                unique ? program_print_in(r->arena, "%s", title)
                       : program_print_in(r->arena,
                                 "%s, %s, window %" PRId64 ", reset %s, data %.6s, tokenizer %.6s",
                                 title, m->mode, m->window, m->reset, m->data_fingerprint,
                                 m->tokenizer_hash);
    }
}

static void name_runs(struct report * r, const struct report_panel * panel) {
    for (int i = 0; i < panel->n; ++i) {
        const struct score_meta * m = &panel->runs[i]->scores.meta;
        int                       same_name = 0, same_file = 0;
        for (int j = 0; j < panel->n; ++j) {
            const struct score_meta * o = &panel->runs[j]->scores.meta;
            if (strcmp(o->model, m->model) == 0) {
                same_name++;
                same_file += j < i && strcmp(o->model_hash, m->model_hash) == 0;
            }
        }
        panel->runs[i]->name =
                same_name == 1   ? program_print_in(r->arena, "%s", m->model)
                : same_file == 0 ? program_print_in(r->arena, "%s (%.6s)", m->model, m->model_hash)
                                 : program_print_in(r->arena, "%s (%.6s, %d)", m->model,
                                           m->model_hash, same_file + 1);
    }
}

static bool ends_word(char c) {
    return strchr("-_. /", c) != NULL;
}

// Labels of long names leave out the words that all names of the panel share at both ends.
static void label_runs(struct report * r, const struct report_panel * panel) {
    const char * first = panel->runs[0]->name;
    size_t       head = strlen(first), tail = head;
    for (int i = 1; i < panel->n; ++i) {
        const char * name = panel->runs[i]->name;
        const size_t n = strlen(name), m = strlen(first);
        size_t       k = 0;
        while (k < head && name[k] == first[k]) {
            k++;
        }
        head = k;
        for (k = 0; k < tail && k < n && name[n - 1 - k] == first[m - 1 - k];) {
            k++;
        }
        tail = k;
    }
    while (head > 0 && !ends_word(first[head - 1])) {
        head--;
    }
    while (tail > 0 && !ends_word(first[strlen(first) - tail])) {
        tail--;
    }
    for (int i = 0; i < panel->n; ++i) {
        const char * name = panel->runs[i]->name;
        const size_t n = strlen(name);
        const bool   cut = panel->n > 1 && n > CHART_LABEL_CHARS && head + tail < n;
        char         label[4 * CHART_LABEL_CHARS + 4];
        chart_label(!cut ? name
                         : program_print_in(r->arena, "%s%.*s%s", head > 0 ? ELLIPSIS : "",
                                   (int) (n - head - tail), name + head, tail > 0 ? ELLIPSIS : ""),
                label, sizeof(label));
        panel->runs[i]->label = program_print_in(r->arena, "%s", label);
    }
}

//
// Colors
//

static bool is_quantized(const struct score_meta * m) {
    return strcasecmp(m->quantization, "f32") != 0 && strcasecmp(m->quantization, "f16") != 0 &&
           strcasecmp(m->quantization, "bf16") != 0;
}

// The length of a name without a type of weights at its end: "delta-q4_k" and "delta-f32" are
// variants of "delta".
static size_t stem_length(const char * name) {
    const size_t n = strlen(name);
    const char * type;
    for (int i = 0; (type = lrnn_quantize_type(i)) != NULL; ++i) {
        const size_t m = strlen(type);
        if (n > m + 1 && strcasecmp(name + n - m, type) == 0 &&
                strchr("-._", name[n - m - 1]) != NULL) {
            return n - m - 1;
        }
    }
    return n;
}

bool report_is_crowded(const struct report * r) {
    bool crowded = false;
    for (int i = 0; i < r->n_runs; ++i) {
        crowded |= r->runs[i].color >= CHART_COLORS;
    }
    return crowded;
}

// Every model has its own combination of color and dashes, the same in every panel.
static void color_many(struct report * r) {
    int n_styles = 0;
    for (int i = 0; i < r->n_runs; ++i) {
        int k = 0;
        while (strcmp(r->runs[k].scores.meta.model, r->runs[i].scores.meta.model) != 0) {
            k++;
        }
        const int style = k < i ? r->runs[k].color : n_styles++;
        r->runs[i].color = style;
        r->runs[i].dash = style / CHART_COLORS % CHART_DASHES;
    }
}

// A model has the same color in every panel. Its quantized variants share it, with different
// dashes.
static void color_runs(struct report * r) {
    int n_colors = 0;
    for (int i = 0; i < r->n_runs; ++i) {
        struct report_run * run = &r->runs[i];
        const char *        name = run->scores.meta.model;
        const size_t        stem = stem_length(name);
        int                 n_alike = 0; // variants that are also quantized, or also not
        bool                done = false;
        run->color = -1;
        for (int j = 0; j < i && !done; ++j) {
            const struct report_run * o = &r->runs[j];
            if (strcmp(o->scores.meta.model, name) == 0) { // in another panel
                run->color = o->color;
                run->dash = o->dash;
                done = true;
            } else if (stem_length(o->scores.meta.model) == stem &&
                       strncmp(o->scores.meta.model, name, stem) == 0) {
                run->color = o->color;
                n_alike += is_quantized(&o->scores.meta) == is_quantized(&run->scores.meta);
            }
        }
        if (!done) {
            const bool is_plain = !is_quantized(&run->scores.meta);
            if (run->color < 0 || (is_plain && n_alike > 0)) { // F32 and F16 are both solid
                run->color = n_colors++;
            }
            run->dash = is_plain ? 0 : 1 + n_alike % (CHART_DASHES - 1);
        }
    }
    if (report_is_crowded(r)) {
        color_many(r);
    }
}

//
// Summaries and comparisons
//

static int64_t trained_length_of(const struct report * r, const struct report_run * run) {
    return r->params.trained_length > 0 ? r->params.trained_length
                                        : run->scores.meta.trained_length;
}

static bool summarize_panel(
        struct report * r, struct report_panel * panel, struct lrnn_error * err) {
    int64_t * lengths = program_alloc_in(r->arena, (size_t) panel->n, sizeof(*lengths));
    int64_t   bucket = INT64_MAX; // that suits all runs
    for (int i = 0; i < panel->n; ++i) {
        lengths[i] = trained_length_of(r, panel->runs[i]);
        const int64_t b = ranges_default_bucket(panel->runs[i]->scores.meta.window, lengths[i]);
        bucket = b < bucket ? b : bucket;
    }
    panel->bucket = r->params.bucket >= 0 ? r->params.bucket : bucket;

    const struct summary_params params = {
        .bucket = panel->bucket,
        .trained_length = r->params.trained_length,
        .tolerance = r->params.tolerance,
        .log2_curve = r->params.log2_x,
        .smooth = r->params.smooth,
        .lengths = lengths,
        .n_lengths = panel->n,
    };
    for (int i = 0; i < panel->n; ++i) {
        if (!summary_make(&panel->runs[i]->scores, &params, &panel->runs[i]->summary, err)) {
            return false;
        }
    }
    return true;
}

static bool find_baselines(struct report * r, struct lrnn_error * err) {
    bool found = r->params.baseline == NULL;
    for (int p = 0; p < r->n_panels; ++p) {
        struct report_panel * panel = &r->panels[p];
        int                   plain = -1, named = -1;
        for (int i = 0; i < panel->n; ++i) {
            if (plain < 0 && !is_quantized(&panel->runs[i]->scores.meta)) {
                plain = i;
            }
            if (r->params.baseline != NULL && named < 0 &&
                    (strcmp(panel->runs[i]->name, r->params.baseline) == 0 ||
                            strcmp(panel->runs[i]->scores.meta.model, r->params.baseline) == 0)) {
                named = i;
                found = true;
            }
        }
        panel->baseline = named >= 0 ? named : plain >= 0 ? plain : 0;
    }
    if (!found) {
        error_set(err, LRNN_ERROR_NOT_FOUND, "baseline: no model '%s'; the first one is '%s'",
                r->params.baseline, r->runs[0].name);
    }
    return found;
}

static bool compare_with_baseline(struct report * r, const struct report_run * base,
        struct report_run * other, struct lrnn_error * err) {
    bool              bytes_only;
    struct lrnn_error why;

    if (comparison_allowed(&base->scores.meta, &other->scores.meta, &bytes_only, &why)) {
        return comparison_make(&base->summary, &other->summary, &other->comparison, err);
    }
    if (!byte_comparison_make(&base->scores, &other->scores,
                base->summary.extrapolation.trained_length,
                other->summary.extrapolation.trained_length, &other->bytes, &why)) {
        other->bytes.bytes = 0;
        other->refused = program_print_in(r->arena, "%s", why.text);
    }
    return true;
}

bool report_read(const struct report_params * params, struct report * r, struct lrnn_error * err) {
    *r = (struct report) { .params = *params, .arena = program_arena() };
    bool ok = report_find_runs(r, params->paths, params->n_paths, params->partial, err);
    if (ok) {
        make_panels(r);
        name_panels(r);
        for (int p = 0; p < r->n_panels; ++p) {
            name_runs(r, &r->panels[p]);
            label_runs(r, &r->panels[p]);
        }
        color_runs(r);
        ok = find_baselines(r, err);
    }
    for (int p = 0; p < r->n_panels && ok; ++p) {
        const struct report_panel * panel = &r->panels[p];
        ok = summarize_panel(r, &r->panels[p], err);
        for (int i = 0; i < panel->n && ok; ++i) {
            ok = i == panel->baseline ||
                 compare_with_baseline(r, panel->runs[panel->baseline], panel->runs[i], err);
        }
    }
    if (!ok) {
        report_free(r);
    }
    return ok;
}

void report_free(struct report * r) {
    for (int i = 0; i < r->n_runs && r->runs != NULL; ++i) {
        comparison_free(&r->runs[i].comparison);
        summary_free(&r->runs[i].summary);
        scores_free(&r->runs[i].scores);
    }
    arena_free(r->arena);
    *r = (struct report) { 0 };
}

struct paired * report_pair(const struct report * r, const struct report_run * base,
        const struct losses * base_losses, const struct report_run * other,
        const struct losses * other_losses) {
    bool bytes_only;
    if (!paired_same_ranges(base_losses, other_losses) ||
            !comparison_allowed(&base->scores.meta, &other->scores.meta, &bytes_only, NULL)) {
        return NULL;
    }
    struct paired * pairs = program_alloc((size_t) base_losses->n, sizeof(*pairs));
    paired_losses(
            &base->summary, base_losses, &other->summary, other_losses, r->params.unit, pairs);
    return pairs;
}

void name_series_add(struct name_series * list, const char * name) {
    enum { MAX_SHOWN = 4, SPACE_FOR_END = 32 };
    const size_t need = strlen(name) + 2 + SPACE_FOR_END;
    if (list->n_shown == MAX_SHOWN || (list->n_shown > 0 && list->n + need > list->size)) {
        list->n_hidden++;
        return;
    }
    const int n = snprintf(list->text + list->n, list->size - list->n, "%s%s",
            list->n_shown > 0 ? ", " : "", name);
    list->n += (size_t) n < list->size ? (size_t) n : list->size - 1;
    list->n_shown++;
}

void name_series_end(struct name_series * list) {
    if (list->n_hidden > 0) {
        snprintf(list->text + list->n, list->size - list->n, " and %d more", list->n_hidden);
    }
}

static bool has_warning(const struct summary * s, const char * text) {
    bool found = false;
    for (int k = 0; k < s->n_warnings; ++k) {
        found |= strcmp(s->warnings[k], text) == 0;
    }
    return found;
}

const char * report_warning(const struct report_panel * panel, int i, char * names, size_t size) {
    for (int run = 0; run < panel->n; ++run) {
        for (int k = 0; k < panel->runs[run]->summary.n_warnings; ++k) {
            const char * text = panel->runs[run]->summary.warnings[k];
            bool         known = false;
            for (int j = 0; j < run; ++j) {
                known |= has_warning(&panel->runs[j]->summary, text);
            }
            if (known || i-- > 0) {
                continue;
            }
            struct name_series list = { .text = names, .size = size };
            names[0] = '\0';
            for (int j = run; j < panel->n; ++j) {
                if (has_warning(&panel->runs[j]->summary, text)) {
                    name_series_add(&list, panel->runs[j]->label);
                }
            }
            name_series_end(&list);
            return text;
        }
    }
    return NULL;
}
