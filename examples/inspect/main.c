// lrnn-inspect: describes a model file, or the devices of this machine.

#include "lrnn.h"
#include "device-options.h"
#include "backends.h"
#include "base/json-read.h"
#include "json-write.h"
#include "load-model.h"
#include "program.h"
#include "terminal.h"

#include "ggml-backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct args {
    const char *          model;
    bool                  json;
    bool                  devices;
    int64_t               n_tokens; // 0: unknown
    struct device_options device;   // by default, nothing is offloaded
};

//
// A model
//

// Weights, the state of one sequence, and its attention cache in F16.
static int64_t total_bytes(const struct lrnn_model_info * info, int64_t n_tokens) {
    return info->weight_bytes + info->state_bytes + n_tokens * info->cache_bytes;
}

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
    double                    x = (double) bytes / 1024.0;
    int                       unit = 0;

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

// Names from the file are printed without control characters, which a terminal would interpret.
static char printable(char c) {
    return (unsigned char) c < ' ' || c == 0x7f ? '?' : c;
}

static void print_name(const char * name) {
    for (const char * p = name; *p != '\0'; ++p) {
        putchar(printable(*p));
    }
}

// Loading the model has checked these two keys. The pre-tokenizer belongs to byte-level BPE.
static const char KEY_TOKENIZER[] = "tokenizer.ggml.model";
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

// Element j of an integer key, or its only value; 0 if there is none. `name` is without the
// architecture.
static int64_t key_at(const struct lrnn_model * model, const struct lrnn_model_info * info,
        const char * name, int64_t j) {
    struct lrnn_key_info key;
    char                 full[128];
    const size_t size = (size_t) snprintf(full, sizeof(full), "%s.%s", info->architecture, name);
    for (int64_t i = 0; lrnn_model_get_key(model, i, 0, &key); ++i) {
        if (key.name_size == size && memcmp(key.name, full, size) == 0) {
            lrnn_model_get_key(model, i, key.is_array ? j : 0, &key);
            return key.integer;
        }
    }
    return 0;
}

struct experts {
    int64_t n, used; // the largest number that a layer uses; 0: no mixture
    int64_t n_bytes; // of the weights that a token reads
};

static struct experts find_experts(
        const struct lrnn_model * model, const struct lrnn_model_info * info) {
    struct experts          e = { .n = key_at(model, info, "expert_count", 0) };
    struct lrnn_tensor_info t;
    int64_t                 embedding = 0;
    bool                    has_output = false;
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &t); ++i) {
        const long    layer = strncmp(t.name, "blk.", 4) == 0 ? strtol(t.name + 4, NULL, 10) : -1;
        const bool    is_expert = e.n > 0 && strstr(t.name, "_exps.") != NULL;
        const int64_t used = is_expert ? key_at(model, info, "expert_used_count", layer) : 1;
        if (layer >= info->n_layer) {
            continue; // the draft block
        }
        if (is_expert && used > e.used) {
            e.used = used;
        }
        has_output |= strcmp(t.name, "output.weight") == 0;
        embedding += strcmp(t.name, "token_embd.weight") == 0 ? t.n_bytes : 0;
        e.n_bytes += is_expert ? t.n_bytes / e.n * used : t.n_bytes;
    }
    e.n_bytes -= has_output ? embedding : 0; // of which a token reads one row
    return e;
}

static void print_model(
        const struct lrnn_model * model, const struct lrnn_model_info * info, int64_t n_tokens) {
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
        printf("\npattern           %s (R recurrent, A attention, B both, - only an MLP, E only "
               "experts)",
                info->layers);
    }
    if (info->has_draft_block) {
        printf("\ndraft block       yes: lrnn-cli and lrnn-server have --draft-mtp");
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
    const struct experts e = find_experts(model, info);
    if (e.used > 0) {
        printf("\nexperts           %" PRId64 " of %" PRId64 "; a token reads ", e.used, e.n);
        print_bytes(e.n_bytes);
        printf(" of weights");
    }
    printf("\nstate             ");
    print_bytes(info->state_bytes);
    printf(" per sequence of any length\n");
    if (info->n_layer_attention > 0) {
        printf("cache             ");
        print_bytes(info->cache_bytes);
        printf(" per token (f16)\n");
    }
    if (n_tokens > 0) {
        printf("memory            ");
        print_bytes(total_bytes(info, n_tokens));
        printf(" for a sequence of %" PRId64 " tokens, and what a call computes with\n", n_tokens);
    }
    printf("identity          %016" PRIx64 " (hash of the model file; state files store it)\n",
            info->identity);
    if (info->source[0] != '\0') {
        char * text = program_alloc(strlen(info->source) + 1, 1); // with notes of the converter
        strcpy(text, info->source);
        for (char * p = text; *p != '\0'; ++p) {
            *p = printable(*p);
        }
        const int column = printf("source            ");
        terminal_print_wrapped(stdout, text, column, column, terminal_width(stdout));
        free(text);
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

//
// A model as JSON
//

// null if unknown
static void int_or_null(struct json_writer * w, const char * key, bool known, int64_t x) {
    json_line(w, 2);
    if (known) {
        json_int(w, key, x);
    } else {
        json_null(w, key);
    }
}

static void text_line(struct json_writer * w, const char * key, const char * text) {
    json_string(json_line(w, 2), key, text);
}

// A string key of the file; null if `file_key` is NULL.
static void file_text(struct json_writer * w, const char * key, const struct lrnn_model * model,
        const char * file_key) {
    size_t       size = 0;
    const char * text = file_key != NULL ? lrnn_model_get_string(model, file_key, &size) : NULL;

    json_line(w, 2);
    if (text != NULL) {
        json_bytes(w, key, text, size);
    } else {
        json_null(w, key);
    }
}

static const char SOURCE_CONFIG[] = "lrnn.source_config";

// The config.json that the model was converted from.
static void source_config(struct json_writer * w, const struct lrnn_model * model) {
    size_t            size;
    struct json_error error;
    const char *      text = lrnn_model_get_string(model, SOURCE_CONFIG, &size);

    json_line(w, 2);
    if (text == NULL) {
        json_null(w, "source_config");
    } else if (json_read(text, size, NULL, 0, NULL, &error) == JSON_OBJECT) {
        json_verbatim(w, "source_config", text, size);
    } else { // the output stays valid JSON
        json_bytes(w, "source_config", text, size);
    }
}

static bool begins_with(const struct lrnn_key_info * key, const char * prefix) {
    return key->name_size >= strlen(prefix) && memcmp(key->name, prefix, strlen(prefix)) == 0;
}

static bool is_omitted(const struct lrnn_key_info * key) {
    const bool is_config =
            key->name_size == strlen(SOURCE_CONFIG) && begins_with(key, SOURCE_CONFIG);
    return is_config || (key->is_array && begins_with(key, "tokenizer."));
}

static void key_value(struct json_writer * w, const char * name, const struct lrnn_key_info * key) {
    switch (key->kind) {
        case LRNN_KEY_INT: json_int(w, name, key->integer); break;
        // an F32 in most files: 0.01, not 0.0099999998
        case LRNN_KEY_FLOAT: json_exact(w, name, key->number, 6, true); break;
        case LRNN_KEY_BOOL: json_bool(w, name, key->integer != 0); break;
        case LRNN_KEY_STRING: json_bytes(w, name, key->string, key->string_size); break;
    }
}

// All keys of the file except the config and the arrays of the tokenizer.
static void metadata(struct json_writer * w, const struct lrnn_model * model) {
    struct lrnn_key_info key;

    json_object(json_line(w, 2), "metadata");
    for (int64_t i = 0; lrnn_model_get_key(model, i, 0, &key); ++i) {
        char name[1 << 16]; // a file allows 65,535 bytes
        if (is_omitted(&key)) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int) key.name_size, key.name);
        json_line(w, 4);
        if (!key.is_array) {
            key_value(w, name, &key);
            continue;
        }
        json_array(w, name);
        for (int64_t j = 0; j < key.n; ++j) {
            lrnn_model_get_key(model, i, j, &key);
            key_value(w, NULL, &key);
        }
        json_end(w);
    }
    json_end(json_line(w, 2));
}

static void tensors(struct json_writer * w, const struct lrnn_model * model) {
    struct lrnn_tensor_info t;
    json_array(json_line(w, 2), "tensors");
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &t); ++i) {
        json_object(json_line(w, 4), NULL);
        json_string(w, "name", t.name);
        json_string(w, "type", t.type);
        json_array(w, "ne");
        for (int d = 0; d < 4; ++d) {
            json_int(w, NULL, t.ne[d]);
        }
        json_end(w);
        json_int(w, "bytes", t.n_bytes);
        json_end(w);
    }
    json_end(json_line(w, 2));
}

static void print_model_json(
        const struct lrnn_model * model, const struct lrnn_model_info * info, int64_t n_tokens) {
    struct json_writer w = { .out = stdout };
    char               identity[17];

    snprintf(identity, sizeof(identity), "%016" PRIx64, info->identity);
    json_object(&w, NULL);
    text_line(&w, "architecture", info->architecture);
    text_line(&w, "name", info->name != NULL ? info->name : "");
    text_line(&w, "family", info->family);
    text_line(&w, "eigenvalues", info->eigenvalues);
    text_line(&w, "eigenvalues_source", eigenvalues_source(info));
    int_or_null(&w, "n_householder", true, info->n_householder);
    int_or_null(&w, "n_head", info->n_head > 0, info->n_head);
    int_or_null(&w, "d_k", info->n_head > 0, info->d_k);
    int_or_null(&w, "d_v", info->n_head > 0, info->d_v);
    int_or_null(&w, "n_layer", true, info->n_layer);
    int_or_null(&w, "n_layer_attention", true, info->n_layer_attention);
    text_line(&w, "layers", info->layers);
    json_bool(json_line(&w, 2), "draft_block", info->has_draft_block);
    int_or_null(&w, "n_embd", true, info->n_embd);
    int_or_null(&w, "n_vocab", true, info->n_vocab);
    int_or_null(&w, "bos", info->bos >= 0, info->bos);
    int_or_null(&w, "eos", info->eos >= 0, info->eos);
    json_bool(json_line(&w, 2), "tokenizer", info->has_tokenizer);
    file_text(&w, "tokenizer_model", model, info->has_tokenizer ? KEY_TOKENIZER : NULL);
    file_text(&w, "pre_tokenizer", model, is_bpe(model) ? KEY_PRE_TOKENIZER : NULL);
    int_or_null(&w, "trained_length", info->trained_length > 0, info->trained_length);
    int_or_null(&w, "weight_bytes", true, info->weight_bytes);
    const struct experts e = find_experts(model, info);
    int_or_null(&w, "n_expert", e.used > 0, e.n);
    int_or_null(&w, "n_expert_used", e.used > 0, e.used);
    int_or_null(&w, "weight_bytes_per_token", true, e.n_bytes);
    int_or_null(&w, "state_bytes", true, info->state_bytes);
    int_or_null(&w, "cache_bytes_per_token", true, info->cache_bytes);
    int_or_null(&w, "total_bytes", n_tokens > 0, total_bytes(info, n_tokens));
    text_line(&w, "identity", identity);
    text_line(&w, "source", info->source);
    source_config(&w, model);
    metadata(&w, model);
    tensors(&w, model);
    json_end(json_line(&w, 0));
    printf("\n");
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

static void print_device(struct json_writer * w, ggml_backend_dev_t dev) {
    const char * name = ggml_backend_dev_name(dev);
    const char * what = ggml_backend_dev_description(dev);
    const char * type = type_name(ggml_backend_dev_type(dev));
    const char * backend = ggml_backend_reg_name(ggml_backend_dev_backend_reg(dev));
    size_t       free_bytes, total_bytes;
    char         features[128] = "";

    ggml_backend_dev_memory(dev, &free_bytes, &total_bytes);
    if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU) {
        backends_cpu_features(features, sizeof(features));
    }
    if (w == NULL) {
        printf("%-10s %s, %s (%s%s%s), %.1f GiB of memory, %.1f free\n", name, type, what, backend,
                features[0] != '\0' ? ": " : "", features, (double) total_bytes / (1 << 30),
                (double) free_bytes / (1 << 30));
        return;
    }
    json_object(json_line(w, 4), NULL);
    json_string(w, "name", name);
    json_string(w, "backend", backend);
    json_string(w, "type", type);
    json_string(w, "description", what);
    json_string(w, "features", features);
    json_int(json_line(w, 6), "memory_bytes", (int64_t) total_bytes);
    json_int(w, "memory_free_bytes", (int64_t) free_bytes);
    json_end(w);
}

// The devices, and the state of CUDA: whether a GPU is missing, and how the kernels of this build
// were tested.
static void print_devices(bool json) {
    struct json_writer w = { .out = stdout };
    const char *       notice = backends_cuda_notice();
    char               missing[320];
    const bool         is_missing = backends_why_no_gpu(missing, sizeof(missing));

    if (json) {
        json_object(&w, NULL);
        json_array(json_line(&w, 2), "devices");
    }
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        print_device(json ? &w : NULL, ggml_backend_dev_get(i));
    }
    if (!json) {
        printf("%s%s", is_missing ? missing : "", is_missing ? "\n" : "");
        printf("%s%s", notice, notice[0] != '\0' ? "\n" : "");
        return;
    }
    json_end(json_line(&w, 2));
    json_line(&w, 2);
    if (notice[0] == '\0') {
        json_null(&w, "cuda");
    } else {
        json_object(&w, "cuda");
        json_string(&w, "notice", notice);
        json_string(&w, "missing", is_missing ? missing : NULL);
        json_end(&w);
    }
    json_end(json_line(&w, 0));
    printf("\n");
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
        return program_error(&err);
    }
    if (args->devices) {
        print_devices(args->json);
    } else {
        const bool          place = args->device.model.n_gpu_layers != 0 || args->device.verbose;
        struct lrnn_model * model =
                place ? device_options_load(&args->device, args->model, false, &err)
                      : load_model(args->model, false, &err);
        if (model == NULL) {
            return program_error(&err);
        }
        const struct lrnn_model_info info = lrnn_model_get_info(model);
        if (args->json) {
            print_model_json(model, &info, args->n_tokens);
        } else {
            print_model(model, &info, args->n_tokens);
            print_tensors(model);
        }
        lrnn_model_free(model);
    }
    return EXIT_CODE_OK;
}

int main(int argc, char ** argv) {
    struct args args = { .device = DEVICE_OPTIONS_DEFAULTS };
    args.device.model.n_gpu_layers = 0;

    const struct option options[] = {
        opt_group("What"),
        opt_arg("M.gguf", &args.model, "the model"),
        opt_flag("--devices", &args.devices, "list the devices that ggml finds, with their memory"),

        opt_int("-c, --ctx", "N", &args.n_tokens, 1, INT64_C(1) << 40,
                "print the memory that a sequence of N tokens needs: weights, state and cache"),

        opt_group("Output"),
        opt_flag("--json", &args.json, "print JSON; unknown values are null"),

        opt_group("Placement, shown by -v"),
        opt_int32("-ngl, --gpu-layers", "N", &args.device.model.n_gpu_layers, -1, 1 << 20,
                "layers to offload, as in the other programs; the model is loaded onto the "
                "devices"),
        DEVICE_PLACES(args.device),
    };
    const struct program program = {
        .name = "lrnn-inspect",
        .summary = "describes a model file and its memory use, or the devices of this machine",
        .usage = "M.gguf [--json]       a model\n"
                 "--devices [--json]    this machine, and servers",
        .examples = "lrnn-inspect model.gguf\n"
                    "lrnn-inspect model.gguf --json | jq .state_bytes\n"
                    "lrnn-inspect --devices --rpc 10.0.0.7:50052",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
