#include "base/error.h"
#include "base/json-read.h"
#include "json-write.h"
#include "conversation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void write_tokens(FILE * f, const int32_t * tokens, int64_t n) {
    fputc('[', f);
    for (int64_t i = 0; i < n; ++i) {
        fprintf(f, "%s%" PRId32, i > 0 ? ", " : "", tokens[i]);
    }
    fputc(']', f);
}

bool conversation_write(
        const struct conversation * c, struct buffer * text, struct lrnn_error * err) {
    char * data = NULL;
    size_t size = 0;
    FILE * out = open_memstream(&data, &size);
    if (out == NULL) {
        return error_no_memory(err, "the messages");
    }
    fprintf(out, "{\"lrnn_chat\": 1, \"messages\": [");
    for (int64_t i = 0; i < c->n; ++i) {
        const struct lrnn_message * m = &c->messages[i];
        fprintf(out, "%s\n {\"role\": \"%s\", \"content\": ", i > 0 ? "," : "", m->role);
        json_write_bytes(out, m->content, m->size);
        if (m->tokens != NULL) {
            fprintf(out, ", \"tokens\": ");
            write_tokens(out, m->tokens, m->n_tokens);
        }
        fputc('}', out);
    }
    fprintf(out, "]}\n");
    const bool ok = fclose(out) == 0 && buffer_append(text, data, size);
    free(data);
    return ok || error_no_memory(err, "the messages");
}

static bool read_tokens(struct json_value array, int64_t n_vocab, struct token_list * out,
        struct lrnn_error * err) {
    struct json_value item;
    if (array.kind != JSON_ARRAY) {
        return error_bad_file(
                err, "the tokens are %s; expected an array", json_kind_name(array.kind));
    }
    out->n = 0;
    while (json_array_next(&array, &item)) {
        char   text[16] = "";
        char * end = text;
        if (item.kind == JSON_NUMBER && item.size < sizeof(text)) {
            memcpy(text, item.data, item.size);
        }
        const long long value = strtoll(text, &end, 10);
        if (end == text || *end != '\0' || value < 0 || value >= n_vocab) {
            return error_bad_file(err, "a token is %.*s; expected 0 to %" PRId64,
                    item.size > 32 ? 32 : (int) item.size, item.data, n_vocab - 1);
        }
        const int32_t token = (int32_t) value;
        token_list_add(out, &token, 1);
    }
    return true;
}

static bool read_message(struct conversation * c, struct json_value message, int64_t n_vocab,
        struct lrnn_error * err) {
    static const char * const roles[] = { "system", "user", "assistant" };
    static const char * const keys[] = { "role", "content", "tokens" };
    struct json_path          paths[3];
    struct json_value         v[3];
    struct json_error         error;
    struct buffer             content = { 0 };
    struct token_list         tokens = { 0 };
    int64_t                   n_lone = 0;
    size_t                    role = 0;

    for (int i = 0; i < 3; ++i) {
        json_path_parse(keys[i], strlen(keys[i]), &paths[i]);
    }
    if (json_read(message.data, message.size, paths, 3, v, &error) != JSON_OBJECT ||
            v[0].kind != JSON_STRING || v[1].kind != JSON_STRING) {
        return error_bad_file(err, "message %" PRId64 " has no role or no content", c->n);
    }
    while (role < 3 && !json_string_is(v[0], roles[role], strlen(roles[role]))) {
        ++role;
    }
    bool ok = role < 3;
    if (!ok) {
        error_bad_file(err, "message %" PRId64 " has an unknown role", c->n);
    }
    ok = ok && (v[2].kind == JSON_MISSING || read_tokens(v[2], n_vocab, &tokens, err));
    if (ok && !json_read_string(v[1], &content, &n_lone)) {
        ok = error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for a message");
    }
    if (ok) {
        conversation_add(c, roles[role], content.n > 0 ? content.data : "", content.n,
                v[2].kind == JSON_MISSING ? NULL : &tokens);
    }
    buffer_free(&content);
    token_list_free(&tokens);
    return ok;
}

static bool read_all(struct conversation * c, struct token_list * sequence, int64_t n_vocab,
        const char * data, size_t size, struct lrnn_error * err) {
    static const char * const keys[] = { "messages", "sequence" };
    struct json_path          paths[2];
    struct json_value         v[2], item;
    struct json_error         error;

    for (int i = 0; i < 2; ++i) {
        json_path_parse(keys[i], strlen(keys[i]), &paths[i]);
    }
    if (json_read(data, size, paths, 2, v, &error) != JSON_OBJECT || v[0].kind != JSON_ARRAY) {
        return error_bad_file(err, "not a conversation written by /save");
    }
    while (json_array_next(&v[0], &item)) {
        if (!read_message(c, item, n_vocab, err)) {
            return false;
        }
    }
    return sequence == NULL || read_tokens(v[1], n_vocab, sequence, err);
}

bool conversation_read(struct conversation * c, struct token_list * sequence, int64_t n_vocab,
        struct slice text, const char * path, struct lrnn_error * err) {
    struct conversation loaded = { 0 };
    if (!read_all(&loaded, sequence, n_vocab, text.data, text.size, err)) {
        conversation_drop(&loaded, loaded.n);
        return error_prefix(err, "%s", path);
    }
    conversation_drop(c, c->n);
    *c = loaded;
    return true;
}
