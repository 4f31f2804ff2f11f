#include "state-routes.h"

#include "lrnn.h"
#include "base/json-write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool states_find(
        const struct server * s, struct http_call * call, char name[REQUEST_NAME_MAX + 1]) {
    const char *       begin = http_path(call) + strlen("/states/");
    const struct slice part  = { begin, strcspn(begin, "/") };
    if (s->state_dir == NULL) {
        reply_error(call, 400, NULL, "the server was started without --state-dir");
        return false;
    }
    if (!state_name_is_valid(part)) {
        char quoted[96];
        reply_error(call, 400, "name",
                "the name of the state is %s; expected 1 to %d letters, digits, '-', '_' and '.', "
                "not beginning with '.'",
                slice_quote(quoted, sizeof(quoted), part), REQUEST_NAME_MAX);
        return false;
    }
    memcpy(name, part.data, part.size);
    name[part.size] = '\0';
    return true;
}

bool states_check(struct http_call * call, enum state_status status, const char * err) {
    switch (status) {
        case STATE_OK: return true;
        case STATE_MISSING: reply_error(call, 404, NULL, "%s", err); break;
        case STATE_BAD: reply_error(call, 400, NULL, "%s", err); break;
        case STATE_SYSTEM: reply_error(call, 500, NULL, "%s", err); break;
    }
    return false;
}

void reply_state(struct http_call * call, const char * name, int64_t n_tokens, size_t n_bytes,
        int64_t n_cached) {
    struct text * t = text_new();
    if (t != NULL) {
        fputs("{\"name\":", t->out);
        json_write_string(t->out, name);
        fprintf(t->out,
                ",\"n_tokens\":%" PRId64 ",\"state_bytes\":%zu,\"cached_tokens\":%" PRId64 "}",
                n_tokens, n_bytes, n_cached);
    }
    reply_json(call, 200, t);
}

static bool load(const struct server * s, struct http_call * call, const char * name,
        struct saved_state * state) {
    struct lrnn_error err;
    return states_check(call,
            state_load(s->state_dir, name, s->info.identity, s->info.n_vocab, state, &err),
            err.text);
}

void handle_state_list(struct server * s, struct http_call * call) {
    struct state_entry * list = NULL;
    int64_t              n    = 0;
    struct lrnn_error    err;
    if (s->state_dir != NULL &&
            !states_check(
                    call, state_list(s->state_dir, s->info.identity, &list, &n, &err), err.text)) {
        return;
    }
    struct text * t = text_new();
    if (t != NULL) {
        fputs("{\"states\":[", t->out);
        for (int64_t i = 0; i < n; ++i) {
            fprintf(t->out, "%s{\"name\":", i > 0 ? "," : "");
            json_write_string(t->out, list[i].name);
            fprintf(t->out,
                    ",\"n_tokens\":%" PRId64 ",\"file_bytes\":%" PRId64 ",\"is_usable\":%s}",
                    list[i].n_tokens, list[i].size, list[i].is_valid ? "true" : "false");
        }
        fputs("]}", t->out);
    }
    free(list);
    reply_json(call, 200, t);
}

// Makes prompts that begin with the tokens of a state continue from it.
void handle_state_load(struct server * s, struct http_call * call) {
    char               name[REQUEST_NAME_MAX + 1];
    struct saved_state state;
    if (!states_find(s, call, name) || !load(s, call, name, &state)) {
        return;
    }
    const int64_t n_tokens = state.n_tokens;
    const size_t  size     = state.size;
    bool          ok       = true;
    if (n_tokens > 1) {
        ok = scheduler_add_state(s->scheduler, state.tokens, n_tokens - 1, state.data, size);
        state.data = NULL; // taken
    }
    saved_state_free(&state);
    if (!ok) {
        reply_error(call, 400, NULL,
                "state '%s' has %zu bytes, which do not fit the limit of --state-memory", name,
                size);
        return;
    }
    reply_state(call, name, n_tokens, size, n_tokens - 1);
}

// Copies a state to another name.
void handle_state_fork(struct server * s, struct http_call * call) {
    char                 name[REQUEST_NAME_MAX + 1], to[REQUEST_NAME_MAX + 1];
    struct lrnn_error    err;
    struct saved_state   state;
    struct request_error error;
    if (!states_find(s, call, name)) {
        return;
    }
    if (!state_name_parse(to, http_body(call), "name", &error)) {
        reply_error(call, 400, error.param, "%s", error.message);
        return;
    }
    if (load(s, call, name, &state)) {
        if (states_check(
                    call, state_save(s->state_dir, to, s->info.identity, &state, &err), err.text)) {
            reply_state(call, to, state.n_tokens, state.size, state.n_tokens - 1);
        }
        saved_state_free(&state);
    }
}

void handle_state_delete(struct server * s, struct http_call * call) {
    char              name[REQUEST_NAME_MAX + 1];
    struct lrnn_error err;
    if (states_find(s, call, name) &&
            states_check(call, state_delete(s->state_dir, name, &err), err.text)) {
        struct text * t = text_new();
        if (t != NULL) {
            fputs("{\"deleted\":", t->out);
            json_write_string(t->out, name);
            putc('}', t->out);
        }
        reply_json(call, 200, t);
    }
}
