// lrnn-quantize: stores a model in fewer bits per weight.

#include "interrupt.h"
#include "backends.h"
#include "load-model.h"
#include "output-check.h"
#include "program.h"
#include "lrnn.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct args {
    const char *          in;
    const char *          out;
    const char *          type;
    const char *          imatrix;
    struct option_strings tensor_types;
    int64_t               threads;
    bool                  dry_run;
    bool                  allow_requantize;
    bool                  quiet;
};

//
// The plan, one line per tensor
//

static void print_head(void) {
    printf("%-36s %-20s %-5s %-5s %13s %10s  %s\n", "tensor", "shape", "from", "to", "bytes",
            "error", "note");
}

static void print_tensor(const struct lrnn_quantize_tensor * t) {
    char shape[96];
    int  n = 0;
    for (int d = 0; d < t->n_dims; ++d) {
        n += snprintf(
                shape + n, sizeof(shape) - (size_t) n, "%s%" PRId64, d > 0 ? " x " : "", t->ne[d]);
    }
    printf("%-36s %-20s %-5s %-5s %13" PRId64 " ", t->name, shape, t->from, t->to, t->bytes_to);
    if (strcmp(t->to, t->from) == 0) {
        printf("%10s", "-");
    } else {
        printf("%10.3e", t->error);
    }
    if (strcmp(t->to, t->wanted) != 0) {
        printf("  a row of %" PRId64 " does not fit %s", t->ne[0], t->wanted);
    } else if (t->is_recurrent) {
        printf("  shapes the recurrence");
    }
    printf("\n");
}

struct output {
    const struct lrnn_quantizer * quantizer;
    struct progress               progress;
    bool                          quiet;
};

static void show_progress(struct output * o, int64_t i) {
    struct lrnn_quantize_tensor next;
    if (!o->quiet && lrnn_quantizer_get_tensor(o->quantizer, i, &next)) {
        progress_step(&o->progress, next.name);
    }
}

static bool on_tensor(const struct lrnn_quantize_tensor * t, int64_t i, void * user) {
    struct output * o = user;
    if (!o->quiet) {
        progress_clear(&o->progress);
    }
    print_tensor(t);
    fflush(stdout);
    progress_done(&o->progress);
    show_progress(o, i + 1);
    return !interrupt_seen();
}

static void print_sum(const struct lrnn_quantizer * q) {
    struct lrnn_quantize_tensor t;
    int64_t                     n = 0, n_weights = 0, from = 0, to = 0;
    for (; lrnn_quantizer_get_tensor(q, n, &t); ++n) {
        n_weights += t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3];
        from += t.bytes_from;
        to += t.bytes_to;
    }
    printf("%" PRId64 " tensors, %" PRId64 " weights: %" PRId64 " bytes become %" PRId64
           ", %.2f bits per weight become %.2f\n",
            n, n_weights, from, to, 8.0 * (double) from / (double) n_weights,
            8.0 * (double) to / (double) n_weights);
}

static bool is_quantized(const struct lrnn_quantize_tensor * t) {
    return t->to[0] == 'Q';
}

// A hint for models that track a state by reflections: those with Householder transitions and
// eigenvalues down to −1.
static void print_hint(const struct lrnn_quantizer * q, const char * path) {
    struct lrnn_quantize_tensor t;
    int                         n_keys = 0;
    for (int64_t i = 0; lrnn_quantizer_get_tensor(q, i, &t); ++i) {
        n_keys += is_quantized(&t) && strstr(t.name, "attn_k.weight") != NULL;
    }
    struct lrnn_model * model = n_keys > 0 ? load_model(path, false, NULL) : NULL;
    if (model == NULL) {
        return;
    }
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    if (info.n_householder > 0 && strcmp(info.eigenvalues, "[-1,1]") == 0) {
        program_say("if this model tracks a state by reflections, keep their directions precise: "
                    "--tensor-type '(attn_k|token_embd)=F16'");
    }
    lrnn_model_free(model);
}

static void print_warnings(const struct lrnn_quantizer * q, bool has_imatrix) {
    struct lrnn_quantize_tensor t;
    int                         n_recurrent = 0, n_fallback = 0, n_plain = 0;
    const char *                plain = "";
    for (int64_t i = 0; lrnn_quantizer_get_tensor(q, i, &t); ++i) {
        n_recurrent += t.is_recurrent;
        n_fallback += strcmp(t.to, t.wanted) != 0;
        if (has_imatrix && strcmp(t.to, t.from) != 0 && !t.has_importance) {
            plain = n_plain++ == 0 ? t.name : plain;
        }
    }
    if (n_recurrent > 0) {
        program_say("warning: %d tensor%s shape the recurrence and should stay F32: their error is "
                    "applied again at every token",
                n_recurrent, n_recurrent > 1 ? "s" : "");
    }
    if (n_fallback > 0) {
        program_say("the rows of %d tensor%s are not whole blocks of the requested type; the "
                    "nearest type that fits is used",
                n_fallback, n_fallback > 1 ? "s" : "");
    }
    if (n_plain > 0) {
        program_say("the importance matrix does not cover %d tensor%s (the first is %s); all their "
                    "columns count alike",
                n_plain, n_plain > 1 ? "s" : "", plain);
    }
}

static enum exit_code run(void * user) {
    const struct args *               args = user;
    const struct lrnn_quantize_params params = {
        .type = args->type,
        .tensor_types = args->tensor_types.v,
        .n_tensor_types = args->tensor_types.n,
        .imatrix = args->imatrix,
        .allow_requantize = args->allow_requantize,
        .n_threads = (int32_t) args->threads,
    };
    struct lrnn_quantize_tensor t;
    struct output               out = { .quiet = args->quiet };
    int                         n = 0;
    struct lrnn_error           err;

    if (!args->dry_run) {
        const char * const   inputs[] = { args->in, args->imatrix };
        const enum exit_code code = output_check(args->out, inputs, 2);
        if (code != EXIT_CODE_OK) {
            return code;
        }
    }
    backends_start();
    struct lrnn_quantizer * q = lrnn_quantizer_new(args->in, &params, &err);
    if (q == NULL) {
        const bool again = strstr(err.text, "allow_requantize") != NULL;
        return program_fail(
                exit_code_of(err.kind), "%s%s", err.text, again ? " (--allow-requantize)" : "");
    }
    print_warnings(q, args->imatrix != NULL);
    if (!args->quiet) {
        print_hint(q, args->in);
    }
    while (lrnn_quantizer_get_tensor(q, n, &t)) {
        n++;
    }
    print_head();
    interrupt_listen();
    out.quantizer = q;
    progress_begin(&out.progress, n);
    show_progress(&out, 0);
    const bool ok = lrnn_quantizer_run(q, args->dry_run ? NULL : args->out, on_tensor, &out, &err);
    if (!args->quiet) {
        progress_clear(&out.progress);
    }
    if (ok) {
        print_sum(q);
    }
    lrnn_quantizer_free(q);
    return ok ? EXIT_CODE_OK : program_error(&err);
}

// "Q8_0, ..., F32: the type of ...", from the library's list of types
static const char * type_help(char * text, size_t size) {
    size_t       n = 0;
    const char * name;
    for (int i = 0; (name = lrnn_quantize_type(i)) != NULL && n < size; ++i) {
        n += (size_t) snprintf(text + n, size - n, "%s%s", i > 0 ? ", " : "", name);
    }
    if (n < size) {
        snprintf(text + n, size - n,
                ": the type of projections, MLPs, embedding and output. Tensors that shape the "
                "recurrence keep their type. Where a row is not a whole number of blocks, the "
                "nearest type that fits is used");
    }
    return text;
}

int main(int argc, char ** argv) {
    struct args args = { 0 };
    char        types[512];

    const struct option options[] = {
        opt_group("What"),
        opt_required(opt_arg("IN.gguf", &args.in, "the model, in F32, F16 or BF16")),
        opt_required(opt_arg(
                "OUT.gguf", &args.out, "the new file; it has a temporary name until complete")),
        opt_required(opt_arg("TYPE", &args.type, type_help(types, sizeof(types)))),
        opt_flag("--dry-run", &args.dry_run, "compute and print everything, but write no file"),

        opt_group("How"),
        opt_strings("--tensor-type", "REGEX=TYPE", &args.tensor_types,
                "another type for the matrices whose names match the POSIX extended regular "
                "expression, even if they shape the recurrence; may be repeated, the first match "
                "wins"),
        opt_string("--imatrix", "F", &args.imatrix,
                "importance matrix written by lrnn-perplexity imatrix: round important columns "
                "more precisely"),
        opt_flag("--allow-requantize", &args.allow_requantize,
                "accept matrices that are already quantized; the errors add up"),
        opt_int("-t, --threads", "N", &args.threads, 0, 256,
                "number of threads; the file does not depend on it (default: one per core)"),
        opt_flag("-q, --quiet", &args.quiet, "no progress"),
    };
    const struct program program = {
        .name = "lrnn-quantize",
        .summary = "stores a model in fewer bits per weight, and prints one line per tensor with "
                   "the relative RMS error of its weights",
        .usage = "IN.gguf OUT.gguf TYPE [options]",
        .examples = "lrnn-quantize model.gguf model-q8_0.gguf Q8_0\n"
                    "lrnn-quantize model.gguf model-q4_k.gguf Q4_K --imatrix model.imatrix.gguf "
                    "--tensor-type '^output\\.weight$=Q6_K'",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
