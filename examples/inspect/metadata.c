#include "metadata.h"

#include "base/json-read.h"
#include "base/json-write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char SOURCE_CONFIG[] = "lrnn.source_config";

void metadata_source_config(FILE * out, const struct lrnn_model * model) {
    size_t            size;
    struct json_error error;
    const char *      text = lrnn_model_get_string(model, SOURCE_CONFIG, &size);

    if (text == NULL) {
        fputs("null", out);
    } else if (json_read(text, size, NULL, 0, NULL, &error) == JSON_OBJECT) {
        fwrite(text, 1, size, out);
    } else {
        json_write_bytes(out, text, size); // not an object, but the output stays valid JSON
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

// Prints the fewest digits that restore the value, which is an F32 in most files: 0.01, not
// 0.0099999998.
static void print_number(FILE * out, double x) {
    const bool is_f32 = (double) (float) x == x;
    char       text[32];

    if (!isfinite(x)) {
        json_write_number(out, x);
        return;
    }
    for (int digits = 6; digits <= 17; ++digits) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (is_f32 ? strtof(text, NULL) == (float) x : strtod(text, NULL) == x) {
            break;
        }
    }
    fputs(text, out);
}

static void print_value(FILE * out, const struct lrnn_key_info * key) {
    switch (key->kind) {
        case LRNN_KEY_INT: fprintf(out, "%" PRId64, key->integer); break;
        case LRNN_KEY_FLOAT: print_number(out, key->number); break;
        case LRNN_KEY_BOOL: fputs(key->integer != 0 ? "true" : "false", out); break;
        case LRNN_KEY_STRING: json_write_bytes(out, key->string, key->string_size); break;
    }
}

void metadata_keys(FILE * out, const struct lrnn_model * model) {
    struct lrnn_key_info key;
    const char *         separator = "{";

    for (int64_t i = 0; lrnn_model_get_key(model, i, 0, &key); ++i) {
        if (is_omitted(&key)) {
            continue;
        }
        fprintf(out, "%s\n    ", separator);
        separator = ",";
        json_write_bytes(out, key.name, key.name_size);
        fputs(": ", out);
        if (!key.is_array) {
            print_value(out, &key);
            continue;
        }
        putc('[', out);
        for (int64_t j = 0; j < key.n; ++j) {
            lrnn_model_get_key(model, i, j, &key);
            fputs(j > 0 ? ", " : "", out);
            print_value(out, &key);
        }
        putc(']', out);
    }
    fputs("\n  }", out); // never empty: general.architecture is required
}
