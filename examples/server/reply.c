#include "reply.h"

#include "json-write.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct text * text_new(void) {
    struct text * t = calloc(1, sizeof(*t));
    if (t != NULL) {
        t->out = open_memstream(&t->data, &t->size);
        if (t->out == NULL) {
            free(t);
            return NULL;
        }
    }
    return t;
}

void text_free(struct text * t) {
    if (t != NULL) {
        fclose(t->out);
        free(t->data);
        free(t);
    }
}

bool text_flush(struct text * t) {
    t->failed = t->failed || fflush(t->out) != 0 || ferror(t->out);
    return !t->failed;
}

bool text_end(struct text * t) {
    t->failed = !text_flush(t) || (t->size > 0 && !http_stream_write(t->stream, t->data, t->size));
    rewind(t->out);
    return !t->failed;
}

void text_detokenize(
        struct text * t, const struct lrnn_model * model, const int32_t * tokens, int64_t n) {
    struct lrnn_decoder * decoder = lrnn_decoder_new(model, false, NULL);
    size_t                size;
    if (decoder == NULL) {
        t->failed = true;
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        const char * piece = tokens[i] >= 0 ? lrnn_decoder_push(decoder, tokens[i], &size) : "";
        fwrite(piece, 1, tokens[i] >= 0 ? size : 0, t->out);
    }
    const char * piece = lrnn_decoder_end(decoder, &size);
    fwrite(piece, 1, size, t->out);
    lrnn_decoder_free(decoder);
}

bool text_is_large(struct text * t) {
    return ftell(t->out) >= 1 << 16;
}

void text_send(struct text * t) {
    if (t->stream != NULL && text_is_large(t)) {
        text_end(t);
    }
}

void reply_text(struct http_call * call, int status, const char * type, struct text * t) {
    if (t == NULL || !text_flush(t)) {
        char         body[512];
        const size_t size = http_error_body(500, body, sizeof(body));
        http_reply(call, 500, "application/json", body, size);
    } else {
        http_reply(call, status, type, t->data, t->size);
    }
    text_free(t);
}

void reply_json(struct http_call * call, int status, struct text * t) {
    reply_text(call, status, "application/json", t);
}

//
// Errors
//

static const struct {
    int          status;
    const char * type;
    const char * message; // of errors that the HTTP library finds
} ERRORS[] = {
    { 400, "invalid_request_error", "the request is not valid HTTP, or is incomplete" },
    { 401, "authentication_error", "the API key is missing or wrong" },
    { 403, "permission_error", "the request is not allowed" },
    { 404, "not_found_error", "there is no such path" },
    { 405, "invalid_request_error", "the path does not have this method" },
    { 408, "invalid_request_error", "the request did not arrive in time" },
    { 413, "invalid_request_error", "the body is too large" },
    { 414, "invalid_request_error", "the path is too long" },
    { 415, "invalid_request_error", "the content type is not application/json" },
    { 416, "invalid_request_error", "the header Range is not a range of the reply" },
    { 429, "rate_limit_error", "the queue is full" },
    { 431, "invalid_request_error", "the headers are too large" },
    { 503, "server_error", "the server is stopping" },
    { 500, "server_error", "memory is short" }, // and every other status
};

static int find_error(int status) {
    int i = 0;
    while (ERRORS[i].status != status && ERRORS[i].status != 500) {
        i++;
    }
    return i;
}

void error_write(FILE * out, int status, const char * param, const char * message) {
    fprintf(out, "{\"error\":{\"message\":");
    json_write_string(out, message);
    fprintf(out, ",\"type\":\"%s\",\"param\":", ERRORS[find_error(status)].type);
    if (param != NULL) {
        json_write_string(out, param);
    } else {
        fputs("null", out);
    }
    fprintf(out, ",\"code\":%d}}", status);
}

void reply_error(
        struct http_call * call, int status, const char * param, const char * format, ...) {
    char    message[600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);

    struct text * t = text_new();
    if (t != NULL) {
        error_write(t->out, status, param, message);
    }
    reply_json(call, status, t);
}

static const int STATUS_OF[LRNN_N_ERRORS] = {
    [LRNN_ERROR_NONE] = 200,
    [LRNN_ERROR_BAD_INPUT] = 400,
    [LRNN_ERROR_BAD_MODEL] = 500,
    [LRNN_ERROR_BAD_FILE] = 400,
    [LRNN_ERROR_NOT_FOUND] = 404,
    [LRNN_ERROR_NO_MEMORY] = 500,
    [LRNN_ERROR_SYSTEM] = 500,
    [LRNN_ERROR_DEVICE] = 500,
    [LRNN_ERROR_CANCELLED] = 500,
    [LRNN_ERROR_NOT_FINITE] = 500,
    [LRNN_ERROR_INTERNAL] = 500,
};

int status_of(enum lrnn_error_kind kind) {
    return STATUS_OF[kind];
}

void error_hide_folder(struct lrnn_error * err, const char * path) {
    const char * slash = strrchr(path, '/');
    for (char * at; slash != NULL && (at = strstr(err->text, path)) != NULL;) {
        const char * name = at + (slash + 1 - path);
        memmove(at, name, strlen(name) + 1);
    }
}

void reply_failure(struct http_call * call, const char * param, const struct lrnn_error * err) {
    reply_error(call, status_of(err->kind), param, "%s", err->text);
}

size_t http_error_body(int status, char * buffer, size_t size) {
    const int i = find_error(status);
    const int n = snprintf(buffer, size,
            "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%d}}",
            ERRORS[i].message, ERRORS[i].type, status);
    return n > 0 && (size_t) n < size ? (size_t) n : 0;
}
