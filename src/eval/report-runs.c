#include "eval/report-runs.h"

#include "base/arena.h"
#include "base/error.h"
#include "eval/chart.h"
#include "eval/score-format.h"

#include "lrnn.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool out_of_memory(char * err, size_t err_size) {
    return error_set(err, err_size, "out of memory");
}

static char * format(struct arena * arena, const char * fmt, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 2, 3)))
#endif
        ;

static char * format(struct arena * arena, const char * fmt, ...) {
    char    text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    char * copy = arena_alloc(arena, strlen(text) + 1);
    return copy != NULL ? strcpy(copy, text) : NULL;
}

//
// Files
//

struct file {
    char *        path;
    struct scores header; // only its meta
    int           run;    // −1: not yet known
};

struct file_list {
    int           n, capacity;
    struct file * v;
};

static void files_free(struct file_list * list) {
    for (int i = 0; i < list->n; ++i) {
        scores_free(&list->v[i].header);
        free(list->v[i].path);
    }
    free(list->v);
}

static bool files_add(struct file_list * list, const char * path, char * err, size_t err_size) {
    for (int i = 0; i < list->n; ++i) {
        if (strcmp(list->v[i].path, path) == 0) { // named twice
            return true;
        }
    }
    if (list->n == list->capacity) {
        const int     capacity = list->capacity > 0 ? 2 * list->capacity : 16;
        struct file * v        = realloc(list->v, (size_t) capacity * sizeof(*v));
        if (v == NULL) {
            return out_of_memory(err, err_size);
        }
        list->v        = v;
        list->capacity = capacity;
    }
    struct file f = { .path = strdup(path), .run = -1 };
    if (f.path == NULL) {
        return out_of_memory(err, err_size);
    }
    if (!scores_read_meta(f.path, &f.header, err, err_size)) {
        free(f.path);
        return false;
    }
    list->v[list->n++] = f;
    return true;
}

static bool has_suffix(const char * text, const char * suffix) {
    const size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

// All *.nll below a folder, in sorted order; how many were found is added to *n_found.
static bool files_scan(
        struct file_list * list, const char * folder, int * n_found, char * err, size_t err_size) {
    struct dirent ** entries;
    const int        n  = scandir(folder, &entries, NULL, alphasort);
    bool             ok = n >= 0;
    if (!ok) {
        snprintf(err, err_size, "%s: cannot be read as a folder", folder);
    }
    for (int i = 0; i < n; ++i) {
        const char * name = entries[i]->d_name;
        struct stat  st;
        char         path[4096];
        if (ok && name[0] != '.' &&
                snprintf(path, sizeof(path), "%s/%s", folder, name) < (int) sizeof(path) &&
                stat(path, &st) == 0) {
            if (S_ISDIR(st.st_mode)) {
                ok = files_scan(list, path, n_found, err, err_size);
            } else if (has_suffix(name, ".nll")) {
                ok = files_add(list, path, err, err_size);
                ++*n_found;
            }
        }
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    return ok;
}

static bool files_find(
        const struct report_params * p, struct file_list * list, char * err, size_t err_size) {
    for (int i = 0; i < p->n_paths; ++i) {
        struct stat st;
        int         n_found = 0;
        if (stat(p->paths[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            if (!files_scan(list, p->paths[i], &n_found, err, err_size)) {
                return false;
            }
            if (n_found == 0) {
                return error_set(
                        err, err_size, "%s: there are no score files (*.nll) in it", p->paths[i]);
            }
        } else if (!files_add(list, p->paths[i], err, err_size)) {
            return false;
        }
    }
    return true;
}

static bool keep_names(struct report * r, const struct file_list * list) {
    r->files = arena_alloc(r->arena, ((size_t) list->n + 1) * sizeof(*r->files));
    for (int i = 0; i < list->n && r->files != NULL; ++i) {
        char * copy = arena_alloc(r->arena, strlen(list->v[i].path) + 1);
        if (copy == NULL) {
            return false;
        }
        r->files[r->n_files++] = strcpy(copy, list->v[i].path);
    }
    return r->files != NULL;
}

//
// Runs
//

// Files with equal headers are shards of one run, which is numbered by the first of them.
static int files_group(struct file_list * list) {
    int n_runs = 0;
    for (int i = 0; i < list->n; ++i) {
        for (int j = 0; j < i && list->v[i].run < 0; ++j) {
            char a[64], b[64];
            if (score_meta_difference(
                        &list->v[i].header.meta, &list->v[j].header.meta, false, a, b) == NULL) {
                list->v[i].run = list->v[j].run;
            }
        }
        if (list->v[i].run < 0) {
            list->v[i].run = n_runs++;
        }
    }
    return n_runs;
}

static bool read_runs(
        struct report * r, const struct file_list * list, char * err, size_t err_size) {
    const char ** paths = malloc(((size_t) list->n + 1) * sizeof(*paths));
    bool          ok    = paths != NULL || out_of_memory(err, err_size);
    for (int run = 0; run < r->n_runs && ok; ++run) {
        int n = 0;
        for (int i = 0; i < list->n; ++i) {
            if (list->v[i].run == run) {
                paths[n++] = list->v[i].path;
            }
        }
        ok = scores_read(paths, n, r->params.partial, &r->runs[run].scores, err, err_size);
        if (ok && r->runs[run].scores.n_windows == 0) {
            snprintf(err, err_size, "%s: there is no window in it yet", paths[0]);
            ok = false;
        }
    }
    free(paths);
    return ok;
}

//
// Panels
//

// May the run stand beside the first of the panel?
static bool belongs(
        const struct report * r, const struct report_run * first, const struct report_run * run) {
    bool bytes_only;
    char why[512];
    return comparison_allowed(
                   &first->scores.meta, &run->scores.meta, &bytes_only, why, sizeof(why)) ||
           (bytes_only && r->params.unit == LOSS_BPB);
}

static bool make_panels(struct report * r, char * err, size_t err_size) {
    r->panels = arena_alloc(r->arena, ((size_t) r->n_runs + 1) * sizeof(*r->panels));
    if (r->panels == NULL) {
        return out_of_memory(err, err_size);
    }
    for (int i = 0; i < r->n_runs; ++i) {
        int p = 0;
        while (p < r->n_panels && !belongs(r, r->panels[p].runs[0], &r->runs[i])) {
            p++;
        }
        struct report_panel * panel = &r->panels[p];
        if (p == r->n_panels) {
            r->n_panels++;
            panel->runs = arena_alloc(r->arena, (size_t) r->n_runs * sizeof(*panel->runs));
            panel->comparisons =
                    arena_alloc(r->arena, (size_t) r->n_runs * sizeof(*panel->comparisons));
            panel->bytes   = arena_alloc(r->arena, (size_t) r->n_runs * sizeof(*panel->bytes));
            panel->refused = arena_alloc(r->arena, (size_t) r->n_runs * sizeof(*panel->refused));
            if (panel->runs == NULL || panel->comparisons == NULL || panel->bytes == NULL ||
                    panel->refused == NULL) {
                return out_of_memory(err, err_size);
            }
        }
        panel->runs[panel->n++] = &r->runs[i];
        r->runs[i].panel        = p;
    }
    return true;
}

// Panels of one data set differ in something; their titles say in what.
static bool name_panels(struct report * r, char * err, size_t err_size) {
    for (int p = 0; p < r->n_panels; ++p) {
        const struct score_meta * m      = &r->panels[p].runs[0]->scores.meta;
        bool                      unique = true;
        for (int q = 0; q < r->n_panels; ++q) {
            unique &= q == p || strcmp(r->panels[q].runs[0]->scores.meta.dataset, m->dataset) != 0;
        }
        r->panels[p].title =
                unique ? format(r->arena, "%s", m->dataset)
                       : format(r->arena,
                                 "%s, %s, window %" PRId64 ", reset %s, data %.6s, tokenizer %.6s",
                                 m->dataset, m->mode, m->window, m->reset, m->data_fingerprint,
                                 m->tokenizer_hash);
        if (r->panels[p].title == NULL) {
            return out_of_memory(err, err_size);
        }
    }
    return true;
}

static bool name_runs(struct report * r, char * err, size_t err_size) {
    for (int p = 0; p < r->n_panels; ++p) {
        struct report_panel * panel = &r->panels[p];
        for (int i = 0; i < panel->n; ++i) {
            const struct score_meta * m         = &panel->runs[i]->scores.meta;
            int                       same_name = 0, same_file = 0;
            for (int j = 0; j < panel->n; ++j) {
                const struct score_meta * o = &panel->runs[j]->scores.meta;
                if (strcmp(o->model, m->model) == 0) {
                    same_name++;
                    same_file += j < i && strcmp(o->model_hash, m->model_hash) == 0;
                }
            }
            panel->runs[i]->name = same_name == 1 ? format(r->arena, "%s", m->model)
                                   : same_file == 0
                                           ? format(r->arena, "%s (%.6s)", m->model, m->model_hash)
                                           : format(r->arena, "%s (%.6s, %d)", m->model,
                                                     m->model_hash, same_file + 1);
            if (panel->runs[i]->name == NULL) {
                return out_of_memory(err, err_size);
            }
        }
    }
    return true;
}

//
// Colours
//

static bool is_quantised(const struct score_meta * m) {
    return strcasecmp(m->quantization, "f32") != 0 && strcasecmp(m->quantization, "f16") != 0 &&
           strcasecmp(m->quantization, "bf16") != 0;
}

// The length of a model's name without the type of its weights at the end: "delta-q4_k" and
// "delta-f32" are variants of "delta".
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

// A model has the same colour in every panel. Its quantised variants share it and are dashed, each
// in its way.
static void color_runs(struct report * r) {
    int n_colors = 0;
    for (int i = 0; i < r->n_runs; ++i) {
        struct report_run * run  = &r->runs[i];
        const char *        name = run->scores.meta.model;
        const size_t        stem = stem_length(name);
        int  n_alike             = 0; // other variants that are quantised, or not, as this one is
        bool done                = false;
        run->color               = -1;
        for (int j = 0; j < i && !done; ++j) {
            const struct report_run * o = &r->runs[j];
            if (strcmp(o->scores.meta.model, name) == 0) { // in another panel
                run->color = o->color;
                run->dash  = o->dash;
                done       = true;
            } else if (stem_length(o->scores.meta.model) == stem &&
                       strncmp(o->scores.meta.model, name, stem) == 0) {
                run->color = o->color;
                n_alike += is_quantised(&o->scores.meta) == is_quantised(&run->scores.meta);
            }
        }
        if (!done) {
            const bool is_plain = !is_quantised(&run->scores.meta);
            if (run->color < 0 ||
                    (is_plain && n_alike > 0)) { // F32 beside F16: both solid, so two colours
                run->color = n_colors++;
            }
            run->dash = is_plain ? 0 : 1 + n_alike % (CHART_DASHES - 1);
        }
    }
}

//
// Figures and comparisons
//

static int64_t trained_length_of(const struct report * r, const struct report_run * run) {
    return r->params.trained_length > 0 ? r->params.trained_length
                                        : run->scores.meta.trained_length;
}

static bool summarise_panel(
        struct report * r, struct report_panel * panel, char * err, size_t err_size) {
    int64_t * lengths = arena_alloc(r->arena, ((size_t) panel->n + 1) * sizeof(*lengths));
    int64_t   bucket  = INT64_MAX; // one that suits all of them
    if (lengths == NULL) {
        return out_of_memory(err, err_size);
    }
    for (int i = 0; i < panel->n; ++i) {
        lengths[i]      = trained_length_of(r, panel->runs[i]);
        const int64_t b = summary_default_bucket(panel->runs[i]->scores.meta.window, lengths[i]);
        bucket          = b < bucket ? b : bucket;
    }
    panel->bucket = r->params.bucket >= 0 ? r->params.bucket : bucket;

    const struct summary_params params = {
        .bucket         = panel->bucket,
        .trained_length = r->params.trained_length,
        .tolerance      = r->params.tolerance,
        .log2_curve     = r->params.log2_x,
        .smooth         = r->params.smooth,
        .lengths        = lengths,
        .n_lengths      = panel->n,
    };
    for (int i = 0; i < panel->n; ++i) {
        if (!summary_make(
                    &panel->runs[i]->scores, &params, &panel->runs[i]->summary, err, err_size)) {
            return false;
        }
    }
    return true;
}

static bool find_baselines(struct report * r, char * err, size_t err_size) {
    bool found = r->params.baseline == NULL;
    for (int p = 0; p < r->n_panels; ++p) {
        struct report_panel * panel = &r->panels[p];
        int                   plain = -1, named = -1;
        for (int i = 0; i < panel->n; ++i) {
            if (plain < 0 && !is_quantised(&panel->runs[i]->scores.meta)) {
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
        snprintf(err, err_size, "there is no model '%s' for a baseline; the first is '%s'",
                r->params.baseline, r->runs[0].name);
    }
    return found;
}

static bool compare_with_baseline(
        struct report * r, struct report_panel * panel, int i, char * err, size_t err_size) {
    const struct report_run * base  = panel->runs[panel->baseline];
    const struct report_run * other = panel->runs[i];
    bool                      bytes_only;
    char                      why[512];

    if (comparison_allowed(
                &base->scores.meta, &other->scores.meta, &bytes_only, why, sizeof(why))) {
        return comparison_make(
                &base->summary, &other->summary, &panel->comparisons[i], err, err_size);
    }
    if (!byte_comparison_make(&base->scores, &other->scores,
                base->summary.extrapolation.trained_length,
                other->summary.extrapolation.trained_length, &panel->bytes[i], why, sizeof(why))) {
        panel->bytes[i].bytes = 0;
        panel->refused[i]     = format(r->arena, "%s", why);
        return panel->refused[i] != NULL || out_of_memory(err, err_size);
    }
    return true;
}

bool report_read(
        const struct report_params * params, struct report * r, char * err, size_t err_size) {
    struct file_list list = { 0 };

    *r      = (struct report) { .params = *params, .arena = arena_new() };
    bool ok = r->arena != NULL || out_of_memory(err, err_size);
    ok      = ok && files_find(params, &list, err, err_size);
    ok      = ok && (keep_names(r, &list) || out_of_memory(err, err_size));
    if (ok) {
        r->n_runs = files_group(&list);
        r->runs   = arena_alloc(r->arena, ((size_t) r->n_runs + 1) * sizeof(*r->runs));
        ok        = r->runs != NULL || out_of_memory(err, err_size);
    }
    ok = ok && read_runs(r, &list, err, err_size) && make_panels(r, err, err_size) &&
         name_panels(r, err, err_size) && name_runs(r, err, err_size);
    if (ok) {
        color_runs(r);
    }
    ok = ok && find_baselines(r, err, err_size);
    for (int p = 0; p < r->n_panels && ok; ++p) {
        ok = summarise_panel(r, &r->panels[p], err, err_size);
        for (int i = 0; i < r->panels[p].n && ok; ++i) {
            ok = i == r->panels[p].baseline ||
                 compare_with_baseline(r, &r->panels[p], i, err, err_size);
        }
    }
    files_free(&list);
    if (!ok) {
        report_free(r);
    }
    return ok;
}

void report_free(struct report * r) {
    for (int p = 0; p < r->n_panels; ++p) {
        for (int i = 0; i < r->panels[p].n; ++i) {
            comparison_free(&r->panels[p].comparisons[i]);
        }
    }
    for (int i = 0; i < r->n_runs && r->runs != NULL; ++i) {
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
    char why[512];
    if (base_losses->n != other_losses->n ||
            !comparison_allowed(
                    &base->scores.meta, &other->scores.meta, &bytes_only, why, sizeof(why))) {
        return NULL;
    }
    for (int i = 0; i < base_losses->n; ++i) {
        if (base_losses->at[i].range.from != other_losses->at[i].range.from ||
                base_losses->at[i].range.to != other_losses->at[i].range.to) {
            return NULL;
        }
    }
    struct paired * pairs = calloc((size_t) base_losses->n + 1, sizeof(*pairs));
    if (pairs != NULL && !paired_losses(&base->summary, base_losses, &other->summary, other_losses,
                                 r->params.unit, pairs)) {
        free(pairs);
        return NULL;
    }
    return pairs;
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
            const char * text  = panel->runs[run]->summary.warnings[k];
            bool         known = false;
            for (int j = 0; j < run; ++j) {
                known |= has_warning(&panel->runs[j]->summary, text);
            }
            if (known || i-- > 0) {
                continue;
            }
            size_t n = 0;
            names[0] = '\0';
            for (int j = run; j < panel->n; ++j) {
                if (has_warning(&panel->runs[j]->summary, text) && n < size) {
                    n += (size_t) snprintf(
                            names + n, size - n, "%s%s", n > 0 ? ", " : "", panel->runs[j]->name);
                }
            }
            return text;
        }
    }
    return NULL;
}
