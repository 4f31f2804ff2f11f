// lrnn-paper: one HTML page with the state-tracking results of Grazzi et al. (arXiv 2411.12537),
// measured on the models that ship: Table 3, and the group word problems. cmake --build build
// --target paper runs it.

#include "base/arena.h"
#include "base/atomic-file.h"
#include "base/error.h"
#include "chart/chart.h"
#include "chart/markup.h"
#include "eval/estimates/stats.h"
#include "eval/report/page.h"
#include "eval/report/text-table.h"
#include "eval/tasks/probe.h"
#include "memory.h"
#include "program.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

//
// What the page contains. A file that does not exist is a model that was not trained.
//

struct model {
    const char * name;
    const char * range; // of the eigenvalues
    const char * file;  // the part after the task
};

static const struct model TABLE_MODELS[] = {
    { "Transformer", "", "transformer" },
    { "mLSTM", "", "mlstm" },
    { "sLSTM", "", "slstm" },
    { "Mamba", "[0,1]", "mamba-pos" },
    { "Mamba", "[-1,1]", "mamba-neg" },
    { "DeltaNet", "[0,1]", "delta-pos" },
    { "DeltaNet", "[-1,1]", "delta-neg" },
};

enum { TABLE_ROWS = sizeof(TABLE_MODELS) / sizeof(TABLE_MODELS[0]) };

// Table 3 of the paper.
static const struct {
    const char * title;
    const char * file;  // the part before the model
    const char * hints; // the same for models that were trained with hints; NULL: none
    double       paper[TABLE_ROWS];
    const char * note;
} TABLES[] = {
    { "Parity", "parity", NULL, { 0.022, 0.087, 1.000, 0.000, 1.000, 0.017, 1.000 },
            "The sum of bits modulo 2. One layer, two for the Transformer and mLSTM; width 32." },
    { "Modular arithmetic without brackets", "arith5-answers", "arith5",
            { 0.031, 0.040, 0.787, 0.095, 0.241, 0.314, 0.971 },
            "Expressions modulo 5, such as 2 + 3 * 4 =. Three layers, width 64, trained on answers "
            "alone; with hints, the loss also asks for the state of the automaton." },
    { "Modular arithmetic with brackets", "brackets5", NULL,
            { 0.067, 0.114, 0.178, 0.123, 0.116, 0.194, 0.260 },
            "Expressions modulo 5, such as ( ( 2 + 3 ) * - 4 ) =. Three layers, width 64." },
};

static const struct model GROUP_MODELS[] = {
    { "DeltaNet, 1 layer", "[0,1]", "delta1-pos" },
    { "DeltaNet, 1 layer", "[-1,1]", "delta1-neg" },
    { "DeltaNet, 5 layers", "[0,1]", "delta5-pos" },
    { "DeltaNet, 5 layers", "[-1,1]", "delta5-neg" },
    { "DeltaProduct, n_h 2", "[-1,1]", "deltaproduct2-neg" },
    { "DeltaProduct, n_h 3", "[-1,1]", "deltaproduct3-neg" },
    { "DeltaProduct, n_h 4", "[-1,1]", "deltaproduct4-neg" },
    { NULL, NULL, NULL },
};

static const struct model S5_MODELS[] = {
    { "DeltaProduct, n_h 4", "[0,1]", "deltaproduct4-pos" },
    { "DeltaProduct, n_h 4", "[-1,1]", "deltaproduct4-neg" },
    { NULL, NULL, NULL },
};

static const struct model SMALL_MODELS[] = {
    { "DeltaNet, 2 layers", "[0,1]", "delta-pos" },
    { "DeltaNet, 2 layers", "[-1,1]", "delta-neg" },
    { "Mamba, 2 layers", "[0,1]", "mamba-pos" },
    { "Mamba, 2 layers", "[-1,1]", "mamba-neg" },
    { "DeltaProduct, n_h 2", "[0,1]", "deltaproduct2-pos" },
    { "DeltaProduct, n_h 2", "[-1,1]", "deltaproduct2-neg" },
    { NULL, NULL, NULL },
};

static const struct {
    const char *         title;
    const char *         file;
    const struct model * models;
    double               trained; // on so many letters
    const char *         note;    // what the paper's figure shows
} FIGURES[] = {
    { "S₅, only swaps", "s5-swaps", GROUP_MODELS, 32,
            "Letters: the 11 permutations of five points that move at most two. Paper: DeltaNet "
            "[-1,1] with one layer learns it and is right up to 500 letters; DeltaNet [0,1] with "
            "five layers gets only slightly past the trained 32." },
    { "S₅, swaps and 3-cycles", "s5-3-cycles", GROUP_MODELS, 32,
            "Letters: the 31 permutations that move at most three points. Paper: all models drop; "
            "DeltaNet [-1,1] with five layers still extrapolates well." },
    { "S₅, four tokens per letter", "s5-4-tokens", GROUP_MODELS, 64,
            "All 120 permutations, each followed by three blanks. Paper: DeltaNet [-1,1] with five "
            "layers is good up to about 200 tokens." },
    { "S₅", "s5-plain", GROUP_MODELS, 32,
            "All 120 permutations. Paper: every model is at 0 before 30 letters. In the paper of "
            "DeltaProduct (trained on 128 letters), n_h 4 is right up to about 200." },
    { "S₅, trained on 40 letters with hints", "s5", S5_MODELS, 40,
            "All 120 permutations. The loss also asks for the image of each point." },
    { "ℤ₆₀", "z60", GROUP_MODELS, 32,
            "Sums modulo 60. Paper: the signed range helps, and Mamba [-1,1], which is not among "
            "these models, is the best, but no model extrapolates far." },
    { "S₃", "s3", SMALL_MODELS, 40, "The six permutations of three points. Not in the paper." },
    { "ℤ₅", "mod5", SMALL_MODELS, 40, "Sums modulo 5. Not in the paper." },
};

static const int64_t LENGTHS[] = { 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192,
    224, 256, 288, 320, 352, 384, 416, 448, 480, 512 };
static const int     SHOWN[] = { 4, 12, 16, 24 }; // of them in the tables

enum {
    N_TABLES = sizeof(TABLES) / sizeof(TABLES[0]),
    N_FIGURES = sizeof(FIGURES) / sizeof(FIGURES[0]),
    N_LENGTHS = sizeof(LENGTHS) / sizeof(LENGTHS[0]),
    N_SHOWN = sizeof(SHOWN) / sizeof(SHOWN[0]),
    N_TYPES = 2, // F32, Q8_0
};

static const char * const TYPES[N_TYPES] = { "F32", "Q8_0" };

//
// Measurements
//

struct args {
    const char * models;
    const char * work;
    const char * out;
    int64_t      trials;
    int64_t      sequences;
};

struct measured {
    char                name[64]; // of the file, without extension
    bool                at_end;   // the score of Table 3; otherwise accuracy by length
    bool                shipped;
    double              chance;
    struct probe_result results[N_TYPES];
};

static bool quantize(const char * in, const char * out, struct lrnn_error * err) {
    const struct lrnn_quantize_params params = { .type = TYPES[1] };
    struct lrnn_quantizer *           q = lrnn_quantizer_new(in, &params, err);
    const bool                        ok = q != NULL && lrnn_quantizer_run(q, out, NULL, NULL, err);
    lrnn_quantizer_free(q);
    return ok;
}

static bool probe_file(const char * path, const struct probe_params * params, bool at_end,
        double * chance, struct probe_result * result, struct lrnn_error * err) {
    char                name[64] = "";
    size_t              size = 0;
    struct task *       task = NULL;
    struct lrnn_model * model = lrnn_model_load(path, NULL, err);
    bool                ok = model != NULL;
    if (ok) {
        const char * stated = lrnn_model_get_string(model, "lrnn.task", &size);
        snprintf(name, sizeof(name), "%.*s", size < 64 ? (int) size : 63, stated ? stated : "");
        task = task_new(name, NULL, 0, err);
        ok = task != NULL;
    }
    if (ok) {
        *chance = task_chance(task);
        ok = (at_end ? probe_at_end : probe_by_length)(model, task, params, result, err);
    }
    task_free(task);
    lrnn_model_free(model);
    return ok || error_prefix(err, "%s", path);
}

// Probes a model as shipped and in Q8_0, if it exists.
static bool measure(const struct args * args, struct measured * m, struct lrnn_error * err) {
    struct probe_params params = {
        .n_lengths = m->at_end ? 2 : N_LENGTHS,
        .n_sequences = m->at_end ? args->trials : args->sequences,
        .n_batch = 2048,
        .session.n_threads = 1,
    };
    char paths[N_TYPES][4096];
    if (m->at_end) {
        params.lengths[0] = 40;
        params.lengths[1] = 256;
    } else {
        memcpy(params.lengths, LENGTHS, sizeof(LENGTHS));
    }
    snprintf(paths[0], sizeof(paths[0]), "%s/%s.gguf", args->models, m->name);
    snprintf(paths[1], sizeof(paths[1]), "%s/%s-%s.gguf", args->work, m->name, TYPES[1]);
    m->shipped = access(paths[0], R_OK) == 0;
    if (!m->shipped) {
        return true;
    }
    bool ok = quantize(paths[0], paths[1], err);
    for (int i = 0; i < N_TYPES && ok; ++i) {
        ok = probe_file(paths[i], &params, m->at_end, &m->chance, &m->results[i], err);
    }
    unlink(paths[1]);
    if (ok) {
        program_say("measured %s", m->name);
    }
    return ok;
}

// All models of the page. Threads take them in turn, one model each: the models are too small to
// share one among threads.
struct measurements {
    const struct args * args;
    struct measured *   at;
    size_t              n, capacity;
    atomic_size_t       next;
    pthread_mutex_t     lock; // of failed and err
    atomic_bool         failed;
    struct lrnn_error   err;
};

static void * work(void * user) {
    struct measurements * all = user;
    for (size_t i = all->next++; i < all->n && !all->failed; i = all->next++) {
        struct lrnn_error err;
        if (!measure(all->args, &all->at[i], &err)) {
            pthread_mutex_lock(&all->lock);
            all->err = all->failed ? all->err : err;
            all->failed = true;
            pthread_mutex_unlock(&all->lock);
        }
    }
    return NULL;
}

static bool measure_all(struct measurements * all, struct lrnn_error * err) {
    enum { THREADS_MAX = 16 };
    pthread_t  threads[THREADS_MAX];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int        n = 0;
    while (n < THREADS_MAX && n + 1 < cores && pthread_create(&threads[n], NULL, work, all) == 0) {
        ++n;
    }
    work(all);
    for (int i = 0; i < n; ++i) {
        pthread_join(threads[i], NULL);
    }
    if (all->failed) {
        *err = all->err;
    }
    return !all->failed;
}

static void add(struct measurements * all, const char * file, const char * model, bool at_end) {
    program_grow(&all->at, &all->capacity, all->n + 1, sizeof(*all->at));
    struct measured * m = &all->at[all->n++];
    *m = (struct measured) { .at_end = at_end };
    snprintf(m->name, sizeof(m->name), "%s-%s", file, model);
}

static void add_all(struct measurements * all) {
    for (int k = 0; k < N_TABLES; ++k) {
        for (int i = 0; i < TABLE_ROWS; ++i) {
            add(all, TABLES[k].file, TABLE_MODELS[i].file, true);
            if (TABLES[k].hints != NULL) {
                add(all, TABLES[k].hints, TABLE_MODELS[i].file, true);
            }
        }
    }
    for (int k = 0; k < N_FIGURES; ++k) {
        for (const struct model * m = FIGURES[k].models; m->name != NULL; ++m) {
            add(all, FIGURES[k].file, m->file, false);
        }
    }
}

static const struct measured * find(
        const struct measurements * all, const char * file, const char * model) {
    char name[64];
    snprintf(name, sizeof(name), "%s-%s", file, model);
    const struct measured * m = all->at;
    while (strcmp(m->name, name) != 0) { // add_all added it
        ++m;
    }
    return m;
}

//
// The page
//

// A share, so that chance is 0 and 1 is perfect.
static double scaled(double share, double chance) {
    return (share - chance) / (1.0 - chance);
}

// value [lo, hi] of a share, scaled
static void set_share(struct table * t, int row, int col, int64_t k, int64_t n, double chance) {
    double lo, hi;
    stats_share(k, n, &lo, &hi);
    const double share[] = { (double) k / (double) n, lo, hi };
    double       shown[3];
    for (int i = 0; i < 3; ++i) {
        shown[i] = scaled(share[i], chance);
        shown[i] = fabs(shown[i]) < 0.0005 ? 0.0 : shown[i]; // no −0.000
    }
    table_set(t, row, col, "%.3f [%.3f, %.3f]", shown[0], shown[1], shown[2]);
}

static void set_scores(struct table * t, int row, const struct model * model, const char * hint,
        const struct measured * m) {
    table_set(t, row, 0, "%s %s%s", model->name, model->range, hint);
    for (int i = 0; i < N_TYPES; ++i) {
        const struct probe_row * r = &m->results[i].rows[0];
        const int                col = i == 0 ? 2 : 3 + i; // the difference is between them
        if (m->shipped) {
            set_share(t, row, col, r->n_right, r->n_asked, m->chance);
        } else {
            table_set(t, row, col, "%s", i == 0 ? "not trained" : "");
        }
    }
    table_set(t, row, 3 + N_TYPES, "%s", m->shipped ? m->name : "");
}

// The difference of the F32 score from that of the paper, in points: negative is a shortfall.
static void set_difference(struct table * t, int row, double paper, const struct measured * m) {
    const struct probe_row * r = &m->results[0].rows[0];
    if (m->shipped) {
        const double score = scaled((double) r->n_right / (double) r->n_asked, m->chance);
        const double points = 100.0 * (score - paper);
        table_set(t, row, 3, "%+.1f", fabs(points) < 0.05 ? 0.0 : points); // no −0.0
    }
}

// One task of Table 3.
static void write_table(const struct measurements * all, int number, FILE * out) {
    const char * const HEAD[] = { "model", "paper", TYPES[0], "points", TYPES[1], "file" };
    struct arena *     arena = program_arena();
    struct table *     t = table_new(arena, 2 * TABLE_ROWS + 1, 4 + N_TYPES);
    int                row = 0;

    table_title(t, "%s", TABLES[number].title);
    table_note(t, "%s", TABLES[number].note);
    table_head(t, HEAD);
    for (int i = 0; i < TABLE_ROWS; ++i) {
        const struct measured * m = find(all, TABLES[number].file, TABLE_MODELS[i].file);
        set_scores(t, ++row, &TABLE_MODELS[i], "", m);
        table_set(t, row, 1, "%.3f", TABLES[number].paper[i]);
        set_difference(t, row, TABLES[number].paper[i], m);
    }
    for (int i = 0; i < TABLE_ROWS && TABLES[number].hints != NULL; ++i) {
        const struct measured * m = find(all, TABLES[number].hints, TABLE_MODELS[i].file);
        if (m->shipped) {
            set_scores(t, ++row, &TABLE_MODELS[i], ", with hints", m);
            set_difference(t, row, TABLES[number].paper[i], m);
        }
    }
    table_write_html(t, out);
    arena_free(arena);
}

// The curves of a figure: solid F32 with its interval, dashed Q8_0.
static void write_chart(
        int number, const struct measured * measured, int n, struct arena * arena, FILE * out) {
    struct chart_series *   series = program_alloc_in(arena, (size_t) n * N_TYPES, sizeof(*series));
    const struct chart_mark mark = { .x = FIGURES[number].trained, .label = "trained" };
    int                     n_series = 0;
    for (int k = 0; k < n * N_TYPES; ++k) {
        const struct measured *     m = &measured[k / N_TYPES];
        const struct model *        model = &FIGURES[number].models[k / N_TYPES];
        const struct probe_result * result = &m->results[k % N_TYPES];
        double *                    v = program_alloc_in(arena, 4 * N_LENGTHS, sizeof(*v));
        for (int r = 0; r < result->n_rows; ++r) {
            const struct probe_row * row = &result->rows[r];
            v[r] = (double) row->length;
            v[N_LENGTHS + r] = (double) row->n_all_right / (double) row->n_sequences;
            stats_share(row->n_all_right, row->n_sequences, &v[2 * N_LENGTHS + r],
                    &v[3 * N_LENGTHS + r]);
        }
        if (m->shipped) {
            const bool quantized = k % N_TYPES > 0;
            series[n_series++] = (struct chart_series) {
                .name = program_print_in(arena, "%s %s%s%s", model->name, model->range,
                        quantized ? " " : "", quantized ? TYPES[1] : ""),
                .n = N_LENGTHS,
                .x = v,
                .y = v + N_LENGTHS,
                .lo = quantized ? NULL : v + 2 * N_LENGTHS,
                .hi = quantized ? NULL : v + 3 * N_LENGTHS,
                .color = k / N_TYPES,
                .dash = quantized,
            };
        }
    }
    const struct chart_panel panel = {
        .x_label = "letters",
        .y_label = "sequences without error",
        .height = 220,
        .series = series,
        .n_series = n_series,
        .marks = &mark,
        .n_marks = 1,
    };
    const struct chart_stack stack = { .panels = &panel, .n_panels = 1 };
    const struct chart       chart = {
              .stacks = &stack, .n_stacks = 1, .n_across = 1, .panel_width = 560
    };
    if (n_series > 0) {
        fputs("<figure><div class=\"scroll\">\n", out);
        chart_write(&chart, false, out);
        fputs("</div></figure>\n", out);
    }
}

static void write_lengths(
        int number, const struct measured * measured, int n, struct arena * arena, FILE * out) {
    struct table * t = table_new(arena, N_TYPES * n + 1, 1 + N_SHOWN);
    int            row = 0;
    table_title(t, "Sequences without error up to this many letters");
    table_set(t, 0, 0, "model");
    for (int c = 0; c < N_SHOWN; ++c) {
        table_set(t, 0, 1 + c, "%d", (int) LENGTHS[SHOWN[c]]);
    }
    for (int k = 0; k < n * N_TYPES; ++k) {
        const struct measured * m = &measured[k / N_TYPES];
        const struct model *    model = &FIGURES[number].models[k / N_TYPES];
        if (!m->shipped) {
            continue;
        }
        table_set(t, ++row, 0, "%s %s, %s", model->name, model->range, TYPES[k % N_TYPES]);
        for (int c = 0; c < N_SHOWN; ++c) {
            const struct probe_row * r = &m->results[k % N_TYPES].rows[SHOWN[c]];
            set_share(t, row, 1 + c, r->n_all_right, r->n_sequences, 0.0);
        }
    }
    if (row > 0) {
        table_write_html(t, out);
    }
    bool first = true;
    for (int i = 0; i < n; ++i) {
        if (!measured[i].shipped) {
            fprintf(out, "%s%s %s", first ? "<p class=\"note\">Not trained: " : "; ",
                    FIGURES[number].models[i].name, FIGURES[number].models[i].range);
            first = false;
        }
    }
    fputs(first ? "" : ".</p>\n", out);
}

// One group word problem.
static void write_figure(const struct measurements * all, int number, FILE * out) {
    // the models of a figure were added one after the other
    const struct model *    models = FIGURES[number].models;
    const struct measured * measured = find(all, FIGURES[number].file, models[0].file);
    struct arena *          arena = program_arena();
    int                     n = 0;
    while (models[n].name != NULL) {
        ++n;
    }
    fprintf(out, "<h2>%s</h2>\n<p class=\"faint\">%s</p>\n", FIGURES[number].title,
            FIGURES[number].note);
    write_chart(number, measured, n, arena, out);
    write_lengths(number, measured, n, arena, out);
    arena_free(arena);
}

static void write_page(const struct measurements * all, FILE * out) {
    const struct args * args = all->args;
    page_begin("State tracking: the paper and the models that ship", out);
    fprintf(out,
            "<p>Grazzi et al., <i>Unlocking State-Tracking in Linear RNNs Through Negative "
            "Eigenvalues</i> (arXiv 2411.12537), next to the models of this repository. Models and "
            "trainings are smaller than the paper's: see <code>models/README.md</code>. Brackets "
            "contain 95 %% intervals (Wilson) of the measurement on one trained model. They say "
            "nothing about other seeds.</p>\n"
            "<h2>Table 3</h2>\n"
            "<p class=\"faint\">Scaled accuracy of the last answer on %d random sequences of 40 to "
            "256 tokens: 0 is chance, 1 is perfect. Trained on at most 40 tokens. Paper: best of "
            "three seeds. Points: 100 times the difference of our F32 score from the paper's. "
            "<code>lrnn-probe -m models/FILE.gguf --sample 40,256 --trials %d</code> "
            "measures one file.</p>\n",
            (int) args->trials, (int) args->trials);
    for (int i = 0; i < N_TABLES; ++i) {
        write_table(all, i, out);
    }
    fprintf(out,
            "<h2>Group word problems</h2>\n"
            "<p class=\"faint\">The share of %d sequences whose first n answers are all right. "
            "The answer after each letter is the product of the letters so far. Solid: F32 with "
            "its interval; dashed: Q8_0.</p>\n",
            (int) args->sequences);
    for (int i = 0; i < N_FIGURES; ++i) {
        write_figure(all, i, out);
    }
    page_end(out);
}

static enum exit_code run(void * user) {
    struct measurements all = { .args = user, .lock = PTHREAD_MUTEX_INITIALIZER };
    struct atomic_file  file;
    struct lrnn_error   err;
    add_all(&all);
    bool ok = measure_all(&all, &err) && atomic_file_open(&file, all.args->out, &err);
    if (ok) {
        write_page(&all, file.file);
        ok = atomic_file_commit(&file, &err);
    }
    free(all.at);
    return ok ? EXIT_CODE_OK : program_error(&err);
}

int main(int argc, char ** argv) {
    struct args args = { .models = "models", .work = ".", .trials = 2048, .sequences = 256 };
    const struct option options[] = {
        opt_string("--models", "FOLDER", &args.models, "the models"),
        opt_string("--work", "FOLDER", &args.work, "where the Q8_0 files are made and deleted"),
        opt_int("--trials", "N", &args.trials, 1, 1e9, "sequences per model in Table 3"),
        opt_int("--sequences", "N", &args.sequences, 1, 1e9, "sequences per model in the figures"),
        opt_required(opt_string("-o, --output", "PAGE.html", &args.out, "the page")),
    };
    const struct program program = {
        .name = "lrnn-paper",
        .summary = "measures the results of the paper on the models that ship",
        .usage = "-o PAGE.html",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
