// lrnn-inspect: describes a model file, or the devices of this machine.

#include "lrnn.h"
#include "device-options.h"
#include "backends.h"
#include "base/json-write.h"
#include "load-model.h"
#include "metadata.h"
#include "program.h"

#include "ggml-backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct args {
    const char *          model;
    bool                  json;
    bool                  devices;
    struct device_options device; // by default, nothing is offloaded
};

//
// A model
//

// Where the range of the eigenvalues comes from. Our files state it; the architectures of llama.cpp
// imply it.
static const char * eigenvalues_source(const struct lrnn_model_info * info) {
    return info->range_source[0] != '\0'             ? info->range_source
           : strcmp(info->architecture, "lrnn") == 0 ? "stated in the file"
                                                     : "implied by the architecture";
}

static const char * eigenvalues_text(const struct lrnn_model_info * info) {
    return strcmp(info->eigenvalues, "family") == 0 ? "the family's own" : info->eigenvalues;
}

// 1234567 bytes, 1.2 MiB
static void print_bytes(int64_t bytes) {
    static const char * const units[] = { "KiB", "MiB", "GiB", "TiB" };
    double                    x       = (double) bytes / 1024.0;
    int                       unit    = 0;

    printf("%" PRId64 " bytes", bytes);
    for (; x >= 1024.0 && unit < 3; ++unit) {
        x /= 1024.0;
    }
    if (bytes >= 1024) {
        printf(", %.1f %s", x, units[unit]);
    }
}

static void print_id(const char * name, int32_t id) {
    if (id >= 0) {
        printf(", %s %" PRId32, name, id);
    }
}

// Prints a name from the file without control characters, which a terminal would interpret.
static void print_name(const char * name) {
    for (const char * p = name; *p != '\0'; ++p) {
        putchar((unsigned char) *p < ' ' || *p == 0x7f ? '?' : *p);
    }
}

// Loading the model has checked these two keys. The pre-tokenizer belongs to byte-level BPE.
static const char KEY_TOKENIZER[]     = "tokenizer.ggml.model";
static const char KEY_PRE_TOKENIZER[] = "tokenizer.ggml.pre";

static bool is_bpe(const struct lrnn_model * model) {
    size_t       size;
    const char * name = lrnn_model_get_string(model, KEY_TOKENIZER, &size);
    return name != NULL && size == strlen("gpt2") && memcmp(name, "gpt2", size) == 0;
}

// Names the tokenizer: "byte-level BPE (gpt2), pre-tokenizer llama-bpe".
static void print_tokenizer(const struct lrnn_model * model) {
    static const struct {
        const char *name, *text;
    } KINDS[] = {
        { "llama", "SentencePiece" },
        { "gpt2", "byte-level BPE" },
        { "rwkv", "World" },
        { "lrnn-bytes", "bytes" },
        { "lrnn-symbols", "symbols" },
    };
    size_t       size;
    const char * name = lrnn_model_get_string(model, KEY_TOKENIZER, &size);

    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); ++i) {
        if (size == strlen(KINDS[i].name) && memcmp(name, KINDS[i].name, size) == 0) {
            printf("%s (%s)", KINDS[i].text, KINDS[i].name);
        }
    }
    if (is_bpe(model)) {
        name = lrnn_model_get_string(model, KEY_PRE_TOKENIZER, &size);
        printf(", pre-tokenizer %.*s", (int) size, name);
    }
}

static void print_model(const struct lrnn_model * model, const struct lrnn_model_info * info) {
    printf("name              ");
    print_name(info->name != NULL ? info->name : "");
    printf("\narchitecture      %s\n", info->architecture);
    printf("family            %s\n", info->family);
    printf("eigenvalues       %s (%s)\n", eigenvalues_text(info), eigenvalues_source(info));
    if (info->n_householder > 0) {
        printf("n_h               %" PRId64 " Householder factor%s per token\n",
                info->n_householder, info->n_householder > 1 ? "s" : "");
    }
    if (info->n_head > 0) {
        printf("heads             %" PRId64 " of %" PRId64 " x %" PRId64 " (d_k x d_v)\n",
                info->n_head, info->d_k, info->d_v);
    }
    printf("layers            %" PRId64, info->n_layer);
    if (info->n_layer_attention > 0) {
        printf(", %" PRId64 " of them attention", info->n_layer_attention);
    }
    if (info->n_layer_attention > 0 && info->n_layer_recurrent > 0) { // a hybrid
        printf("\npattern           %s (R recurrent, A attention, B both, F neither)",
                info->layers);
    }
    printf("\nwidth             %" PRId64 "\n", info->n_embd);
    printf("vocabulary        %" PRId64, info->n_vocab);
    print_id("bos", info->bos);
    print_id("eos", info->eos);
    printf("\ntokenizer         ");
    if (info->has_tokenizer) {
        print_tokenizer(model);
    } else {
        printf("none: prompts are token ids");
    }
    printf("\n");
    if (info->trained_length > 0) {
        printf("trained length    %" PRId64 " tokens\n", info->trained_length);
    } else {
        printf("trained length    unknown\n");
    }
    printf("weights           ");
    print_bytes(info->weight_bytes);
    printf("\nstate             ");
    print_bytes(info->state_bytes);
    printf(" per sequence of any length\n");
    if (info->n_layer_attention > 0) {
        printf("cache             ");
        print_bytes(info->cache_bytes);
        printf(" per token (f16)\n");
    }
    printf("identity          %016" PRIx64 " (hash of the model file; state files store it)\n",
            info->identity);
    if (info->source[0] != '\0') {
        printf("source            ");
        print_name(info->source);
        printf("\n");
    }
}

static void print_tensors(const struct lrnn_model * model) {
    struct lrnn_tensor_info t;
    printf("\n%-36s %-6s %-28s %12s\n", "tensor", "type", "shape", "bytes");
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &t); ++i) {
        char shape[96];
        int  n = snprintf(shape, sizeof(shape), "%" PRId64, t.ne[0]);
        for (int d = 1; d < 4 && (t.ne[d] > 1 || (d < 3 && t.ne[d + 1] > 1)); ++d) {
            n += snprintf(shape + n, sizeof(shape) - (size_t) n, " x %" PRId64, t.ne[d]);
        }
        printf("%-36s %-6s %-28s %12" PRId64 "\n", t.name, t.type, shape, t.n_bytes);
    }
}

static void print_key(const char * key) {
    printf(",\n  \"%s\": ", key);
}

static void print_key_string(const char * key, const char * text) {
    print_key(key);
    json_write_string(stdout, text);
}

// null if unknown
static void print_key_int(const char * key, bool known, int64_t x) {
    print_key(key);
    if (known) {
        printf("%" PRId64, x);
    } else {
        printf("null");
    }
}

// A string key of the file; null if `file_key` is NULL.
static void print_key_name(
        const char * key, const struct lrnn_model * model, const char * file_key) {
    size_t       size = 0;
    const char * text = file_key != NULL ? lrnn_model_get_string(model, file_key, &size) : NULL;

    print_key(key);
    if (text != NULL) {
        json_write_bytes(stdout, text, size);
    } else {
        printf("null");
    }
}

static void print_model_json(const struct lrnn_model * model, const struct lrnn_model_info * info) {
    char identity[17];

    snprintf(identity, sizeof(identity), "%016" PRIx64, info->identity);
    printf("{\n  \"architecture\": ");
    json_write_string(stdout, info->architecture);
    print_key_string("name", info->name != NULL ? info->name : "");
    print_key_string("family", info->family);
    print_key_string("eigenvalues", info->eigenvalues);
    print_key_string("eigenvalues_source", eigenvalues_source(info));
    print_key_int("n_householder", true, info->n_householder);
    print_key_int("n_head", info->n_head > 0, info->n_head);
    print_key_int("d_k", info->n_head > 0, info->d_k);
    print_key_int("d_v", info->n_head > 0, info->d_v);
    print_key_int("n_layer", true, info->n_layer);
    print_key_int("n_layer_attention", true, info->n_layer_attention);
    print_key_string("layers", info->layers);
    print_key_int("n_embd", true, info->n_embd);
    print_key_int("n_vocab", true, info->n_vocab);
    print_key_int("bos", info->bos >= 0, info->bos);
    print_key_int("eos", info->eos >= 0, info->eos);
    print_key("tokenizer");
    printf("%s", info->has_tokenizer ? "true" : "false");
    print_key_name("tokenizer_model", model, info->has_tokenizer ? KEY_TOKENIZER : NULL);
    print_key_name("pre_tokenizer", model, is_bpe(model) ? KEY_PRE_TOKENIZER : NULL);
    print_key_int("trained_length", info->trained_length > 0, info->trained_length);
    print_key_int("weight_bytes", true, info->weight_bytes);
    print_key_int("state_bytes", true, info->state_bytes);
    print_key_int("cache_bytes_per_token", true, info->cache_bytes);
    print_key_string("identity", identity);
    print_key_string("source", info->source);
    print_key("source_config");
    metadata_source_config(stdout, model);
    print_key("metadata");
    metadata_keys(stdout, model);
    print_key("tensors");
    struct lrnn_tensor_info t;
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &t); ++i) {
        printf("%s\n    { \"name\": ", i == 0 ? "[" : ",");
        json_write_string(stdout, t.name);
        printf(", \"type\": \"%s\", \"ne\": [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
               "], \"bytes\": %" PRId64 " }",
                t.type, t.ne[0], t.ne[1], t.ne[2], t.ne[3], t.n_bytes);
    }
    printf("\n  ]\n}\n");
}

//
// Devices
//

static const char * type_name(enum ggml_backend_dev_type type) {
    switch (type) {
        case GGML_BACKEND_DEVICE_TYPE_CPU: return "CPU";
        case GGML_BACKEND_DEVICE_TYPE_GPU: return "GPU";
        case GGML_BACKEND_DEVICE_TYPE_IGPU: return "integrated GPU";
        case GGML_BACKEND_DEVICE_TYPE_ACCEL: return "accelerator";
        default: return "other";
    }
}

// The state of CUDA: whether a GPU is missing, and how the kernels of this build were tested.
static void print_cuda(bool json) {
    const char * notice = backends_cuda_notice();
    char         missing[320];
    const bool   is_missing = backends_why_no_gpu(missing, sizeof(missing));

    if (!json) {
        if (is_missing) {
            printf("%s\n", missing);
        }
        if (notice[0] != '\0') {
            printf("%s\n", notice);
        }
    } else if (notice[0] == '\0') {
        printf("null");
    } else {
        printf("{ \"notice\": ");
        json_write_string(stdout, notice);
        printf(", \"missing\": ");
        if (is_missing) {
            json_write_string(stdout, missing);
        } else {
            printf("null");
        }
        printf(" }");
    }
}

static void print_devices(bool json) {
    const size_t n = ggml_backend_dev_count();

    printf("%s", json ? "{\n  \"devices\": [" : "");
    for (size_t i = 0; i < n; ++i) {
        ggml_backend_dev_t dev     = ggml_backend_dev_get(i);
        const char *       name    = ggml_backend_dev_name(dev);
        const char *       what    = ggml_backend_dev_description(dev);
        const char *       type    = type_name(ggml_backend_dev_type(dev));
        const char *       backend = ggml_backend_reg_name(ggml_backend_dev_backend_reg(dev));
        size_t             free_bytes, total_bytes;

        ggml_backend_dev_memory(dev, &free_bytes, &total_bytes);
        if (json) {
            printf("%s\n    { \"name\": ", i == 0 ? "" : ",");
            json_write_string(stdout, name);
            printf(", \"backend\": ");
            json_write_string(stdout, backend);
            printf(", \"type\": ");
            json_write_string(stdout, type);
            printf(", \"description\": ");
            json_write_string(stdout, what);
            printf(",\n      \"memory_bytes\": %zu, \"memory_free_bytes\": %zu }", total_bytes,
                    free_bytes);
        } else {
            printf("%-10s %s, %s (%s), %.1f GiB of memory, %.1f free\n", name, type, what, backend,
                    (double) total_bytes / (1 << 30), (double) free_bytes / (1 << 30));
        }
    }
    printf("%s", json ? "\n  ],\n  \"cuda\": " : "");
    print_cuda(json);
    printf("%s", json ? "\n}\n" : "");
}

//
// Command line
//

static enum exit_code run(void * user) {
    struct args *     args = user;
    struct lrnn_error err;

    if ((args->model != NULL) == args->devices) {
        return program_fail(EXIT_CODE_USAGE, "%s; see lrnn-inspect --help",
                args->devices ? "--devices takes no model" : "M.gguf is missing");
    }
    if (!device_options_check(&args->device, &err)) {
        return program_fail(EXIT_CODE_USAGE, "%s", err.text);
    }
    if (args->devices) {
        print_devices(args->json);
    } else {
        const bool          place = args->device.n_gpu_layers != 0 || args->device.verbose;
        struct lrnn_model * model =
                place ? device_options_load(&args->device, args->model, false, &err)
                      : load_model(args->model, false, &err);
        if (model == NULL) {
            return program_error(&err);
        }
        const struct lrnn_model_info info = lrnn_model_get_info(model);
        if (args->json) {
            print_model_json(model, &info);
        } else {
            print_model(model, &info);
            print_tensors(model);
        }
        lrnn_model_free(model);
    }
    return EXIT_CODE_OK;
}

int main(int argc, char ** argv) {
    struct args args         = { .device = DEVICE_OPTIONS_DEFAULTS };
    args.device.n_gpu_layers = 0;

    const struct option options[] = {
        opt_group("What"),
        opt_arg("M.gguf", &args.model, "the model"),
        opt_flag("--devices", &args.devices, "list the devices that ggml finds, with their memory"),

        opt_group("Output"),
        opt_flag("--json", &args.json, "print JSON; unknown values are null"),

        opt_group("Placement, shown by -v"),
        opt_int("-ngl, --gpu-layers", "N", &args.device.n_gpu_layers, -1, 1 << 20,
                "layers to offload, as in the other programs; the model is loaded onto the "
                "devices"),
        DEVICE_PLACES(args.device),
    };
    const struct program program = {
        .name     = "lrnn-inspect",
        .summary  = "describes a model file and its memory use, or the devices of this machine",
        .usage    = "M.gguf [--json]       a model\n"
                    "--devices [--json]    this machine, and servers",
        .examples = "lrnn-inspect model.gguf\n"
                    "lrnn-inspect model.gguf --json | jq .state_bytes\n"
                    "lrnn-inspect --devices --rpc 10.0.0.7:50052",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
