// lrnn-quantize: a model in fewer bits, and what that does to each tensor.

#include "exit-code.h"
#include "interrupt.h"
#include "load-model.h"
#include "options.h"
#include "file/quantize.h"
#include "base/read-file.h"
#include "base/sha256.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char NAME[] = "lrnn-quantize";

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

static enum exit_code fail(enum exit_code code, const char * err) {
    fprintf(stderr, "%s: %s\n", NAME, err);
    return code;
}

static enum exit_code exit_code_of(enum quantize_status status) {
    switch (status) {
        case QUANTIZE_OK: return EXIT_CODE_OK;
        case QUANTIZE_STOPPED: return EXIT_CODE_STOPPED;
        case QUANTIZE_USAGE: return EXIT_CODE_USAGE;
        case QUANTIZE_DATA: return EXIT_CODE_DATA;
        case QUANTIZE_NUMBERS: return EXIT_CODE_NUMBERS;
        case QUANTIZE_SYSTEM: break;
    }
    return EXIT_CODE_SYSTEM;
}

//
// The plan, a line a tensor
//

static void print_head(void) {
    printf("%-36s %-20s %-5s %-5s %13s %10s  %s\n", "tensor", "shape", "from", "to", "bytes",
            "error", "note");
}

static void print_tensor(const struct quantize_tensor * t) {
    char shape[96];
    int  n = 0;
    for (int d = 0; d < t->source->n_dims; ++d) {
        n += snprintf(shape + n, sizeof(shape) - (size_t) n, "%s%" PRId64, d > 0 ? " x " : "",
                t->source->ne[d]);
    }
    printf("%-36s %-20s %-5s %-5s %13zu ", t->source->name, shape,
            quantize_type_word(t->source->type), quantize_type_word(t->choice.to), t->bytes);
    if (t->choice.to == t->source->type) {
        printf("%10s", "-");
    } else {
        printf("%10.3e", t->error);
    }
    if (t->choice.to != t->choice.wanted) {
        printf("  a row of %" PRId64 " does not fit %s", t->source->ne[0],
                quantize_type_word(t->choice.wanted));
    } else if (t->choice.recurrent) {
        printf("  shapes the recurrence");
    }
    printf("\n");
}

struct output {
    const struct quantize_plan * plan;
    struct progress              progress;
    bool                         quiet;
};

static bool on_tensor(const struct quantize_tensor * t, size_t i, void * user) {
    struct output * o = user;
    if (!o->quiet) {
        progress_clear(&o->progress);
    }
    print_tensor(t);
    fflush(stdout);
    progress_done(&o->progress);
    if (!o->quiet && i + 1 < o->plan->n_tensors) {
        progress_step(&o->progress, o->plan->tensors[i + 1].source->name);
    }
    return !interrupt_seen();
}

static void print_sum(const struct quantize_plan * plan) {
    int64_t n_weights = 0;
    for (size_t i = 0; i < plan->n_tensors; ++i) {
        const int64_t * ne = plan->tensors[i].source->ne;
        n_weights += ne[0] * ne[1] * ne[2] * ne[3];
    }
    printf("%zu tensors, %" PRId64
           " weights: %zu bytes become %zu, %.2f bits a weight become %.2f\n",
            plan->n_tensors, n_weights, plan->bytes_from, plan->bytes_to,
            8.0 * (double) plan->bytes_from / (double) n_weights,
            8.0 * (double) plan->bytes_to / (double) n_weights);
}

// What a user should know before it is done.
// - reflects: the model has Householder transitions with eigenvalues down to −1
static void warn(const struct quantize_plan * plan, const struct quantize_params * params,
        bool reflects, bool quiet) {
    int          n_recurrent = 0, n_fallback = 0, n_plain = 0, n_keys = 0;
    const char * plain = "";
    for (size_t i = 0; i < plan->n_tensors; ++i) {
        const struct quantize_tensor * t = &plan->tensors[i];
        n_recurrent += t->choice.recurrent;
        n_fallback += t->choice.to != t->choice.wanted;
        n_keys +=
                ggml_is_quantized(t->choice.to) && strstr(t->source->name, "attn_k.weight") != NULL;
        if (params->imatrix != NULL && t->choice.to != t->source->type && t->importance == NULL) {
            plain = n_plain++ == 0 ? t->source->name : plain;
        }
    }
    if (n_recurrent > 0) {
        fprintf(stderr,
                "%s: warning: %d tensor%s shape the recurrence and would better stay F32: an error there is applied again at every token\n",
                NAME, n_recurrent, n_recurrent > 1 ? "s" : "");
    }
    if (n_fallback > 0) {
        fprintf(stderr,
                "%s: the rows of %d tensor%s are not whole blocks of the type asked for; the nearest type that fits is taken\n",
                NAME, n_fallback, n_fallback > 1 ? "s" : "");
    }
    if (reflects && n_keys > 0 && !quiet) {
        fprintf(stderr,
                "%s: should this model track a state by reflections, keep their directions: --tensor-type '(attn_k|token_embd)=F16'\n",
                NAME);
    }
    if (n_plain > 0) {
        fprintf(stderr,
                "%s: the importance matrix has nothing on %d of the tensors, first %s: their columns count alike\n",
                NAME, n_plain, plain);
    }
}

//
// Inputs
//

static const char * base_name(const char * path) {
    const char * slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool hash_file(const char * path, char hex[65], char * err, size_t err_size) {
    char *        data;
    size_t        size;
    struct sha256 sha;
    if (!read_file(path, &data, &size, err, err_size)) {
        return false;
    }
    sha256_begin(&sha);
    sha256_add(&sha, data, size);
    sha256_hex(&sha, hex);
    free(data);
    return true;
}

static bool is_same_file(const char * a, const char * b) {
    struct stat sa, sb;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

// "REGEX=TYPE REGEX=TYPE …", made with malloc; NULL without memory
static char * join(const struct option_strings * list) {
    size_t size = 1;
    for (int i = 0; i < list->n; ++i) {
        size += strlen(list->v[i]) + 1;
    }
    char * text = calloc(size, 1);
    for (int i = 0; i < list->n && text != NULL; ++i) {
        strcat(text, i > 0 ? " " : "");
        strcat(text, list->v[i]);
    }
    return text;
}

//
// The run
//

static enum exit_code quantize(const struct args * args, const struct quantize_params * params) {
    struct quantize_plan plan = { 0 };
    struct output        out  = { .plan = &plan, .quiet = args->quiet };
    char                 err[1024];

    // a file that no program of ours can run is not worth quantising
    struct lrnn_model * model = load_model(NAME, args->in, args->quiet);
    if (model == NULL) {
        return EXIT_CODE_MODEL;
    }
    const struct lrnn_model_info info = lrnn_model_get_info(model);
    const bool reflects = info.n_householder > 0 && strcmp(info.eigenvalues, "[-1,1]") == 0;
    lrnn_model_free(model);
    struct lrnn_model_file * file = lrnn_model_file_open(args->in, err, sizeof(err));
    if (file == NULL) {
        return fail(EXIT_CODE_MODEL, err);
    }
    enum quantize_status status = quantize_plan_make(&plan, file, params, err, sizeof(err));
    if (status == QUANTIZE_OK) {
        warn(&plan, params, reflects, args->quiet);
        print_head();
        interrupt_listen(false);
        progress_begin(&out.progress, (int) plan.n_tensors);
        if (!args->quiet && plan.n_tensors > 0) {
            progress_step(&out.progress, plan.tensors[0].source->name);
        }
        status = quantize_run(&plan, file, params, args->dry_run ? NULL : args->out, on_tensor,
                &out, err, sizeof(err));
        if (!args->quiet) {
            progress_clear(&out.progress);
        }
    }
    if (status == QUANTIZE_OK) {
        print_sum(&plan);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            snprintf(err, sizeof(err), "the plan could not be written to stdout");
            status = QUANTIZE_SYSTEM;
        }
    }
    quantize_plan_free(&plan);
    lrnn_model_file_free(file);
    return status == QUANTIZE_OK ? EXIT_CODE_OK : fail(exit_code_of(status), err);
}

static enum exit_code run(const struct args * args) {
    struct imatrix         imatrix = { 0 };
    struct quantize_params params  = { .allow_requantize = args->allow_requantize,
         .n_threads                                      = (int) args->threads };
    char                   sha256[65];
    char                   err[1024];

    if (!quantize_type_find(args->type, &params.type)) {
        snprintf(err, sizeof(err), "there is no type '%s'; expected %s", args->type,
                quantize_type_words());
        return fail(EXIT_CODE_USAGE, err);
    }
    if (is_same_file(args->in, args->out)) {
        snprintf(err, sizeof(err),
                "%s is the model itself and would be lost; give the new file another name",
                args->out);
        return fail(EXIT_CODE_USAGE, err);
    }
    if (args->imatrix != NULL) {
        if (!imatrix_read(&imatrix, args->imatrix, err, sizeof(err)) ||
                !hash_file(args->imatrix, sha256, err, sizeof(err))) {
            imatrix_free(&imatrix);
            return fail(EXIT_CODE_DATA, err);
        }
        params.imatrix        = &imatrix;
        params.imatrix_file   = base_name(args->imatrix);
        params.imatrix_sha256 = sha256;
    }
    char *         text   = args->tensor_types.n > 0 ? join(&args->tensor_types) : NULL;
    enum exit_code code   = EXIT_CODE_OK;
    params.overrides      = quantize_overrides_new();
    params.overrides_text = text;
    if (params.overrides == NULL || (args->tensor_types.n > 0 && text == NULL)) {
        code = fail(EXIT_CODE_SYSTEM, "out of memory");
    }
    for (int i = 0; i < args->tensor_types.n && code == EXIT_CODE_OK; ++i) {
        if (!quantize_overrides_add(params.overrides, args->tensor_types.v[i], err, sizeof(err))) {
            fprintf(stderr, "%s: --tensor-type: %s\n", NAME, err);
            code = EXIT_CODE_USAGE;
        }
    }
    if (code == EXIT_CODE_OK) {
        code = quantize(args, &params);
    }
    quantize_overrides_free(params.overrides);
    imatrix_free(&imatrix);
    free(text);
    return code;
}

int main(int argc, char ** argv) {
    struct args args = { 0 };

    const struct option options[] = {
        { .group          = "What",
                .names    = "IN.gguf",
                .type     = OPTION_STRING,
                .dest     = &args.in,
                .required = true,
                .help     = "the model, in F32, F16 or BF16" },
        { .names          = "OUT.gguf",
                .type     = OPTION_STRING,
                .dest     = &args.out,
                .required = true,
                .help     = "the new file; written under another name until it is whole" },
        { .names          = "TYPE",
                .type     = OPTION_STRING,
                .dest     = &args.type,
                .required = true,
                .help = "Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_0, F16, BF16 or F32: of projections, feed-forward layers, embedding and output. What shapes the "
                        "recurrence stays as it is. Rows that are no whole blocks take the nearest type that fits" },
        { .names      = "--dry-run",
                .type = OPTION_FLAG,
                .dest = &args.dry_run,
                .help = "computes and prints all, writes nothing" },

        { .group       = "How",
                .names = "--tensor-type",
                .value = "REGEX=TYPE",
                .type  = OPTION_STRINGS,
                .dest  = &args.tensor_types,
                .help = "another type for the matrices whose names the regular expression (POSIX, extended) fits, also for those of the recurrence; "
                        "may be repeated, the first that fits counts" },
        { .names       = "--imatrix",
                .value = "F",
                .type  = OPTION_STRING,
                .dest  = &args.imatrix,
                .help = "importance matrix, of lrnn-perplexity imatrix: columns that matter more are rounded with more care" },
        { .names      = "--allow-requantize",
                .type = OPTION_FLAG,
                .dest = &args.allow_requantize,
                .help = "take also matrices that are quantised already; their errors add up" },
        { .names       = "-t, --threads",
                .value = "N",
                .type  = OPTION_INT,
                .dest  = &args.threads,
                .min   = 0,
                .max   = 256,
                .help  = "threads; the file does not depend on their number",
                .unset = "one for each core" },
        { .names = "-q, --quiet", .type = OPTION_FLAG, .dest = &args.quiet, .help = "no progress" },
    };
    const struct program program = {
        .name = NAME,
        .summary =
                "a model in fewer bits; prints for each tensor what becomes of it, with the relative RMS error of its weights",
        .modes     = (const char * const[]) { "IN.gguf OUT.gguf TYPE [options]", NULL },
        .examples  = (const char * const[]) { "lrnn-quantize model.gguf model-q8_0.gguf Q8_0",
                 "lrnn-quantize model.gguf model-q4_k.gguf Q4_K --imatrix model.imatrix.gguf --tensor-type '^output\\.weight$=Q6_K'",
                 NULL },
        .options   = options,
        .n_options = sizeof(options) / sizeof(options[0]),
    };
    enum exit_code code;

    if (!options_read(&program, argc, argv, &code)) {
        return code;
    }
    return run(&args);
}
