#include "named-states.h"

#include "lrnn.h"
#include "json-write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool states_find(
        const struct server * s, struct http_call * call, char name[REQUEST_NAME_MAX + 1]) {
    const char *       begin = http_path(call) + strlen("/states/");
    const struct slice part = { begin, strcspn(begin, "/") };
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
        struct state_file * state) {
    struct lrnn_error err;
    if (!named_state_load(s->state_dir, name, scheduler_session(s->scheduler), state, &err)) {
        reply_failure(call, NULL, &err);
        return false;
    }
    return true;
}

// The number of tokens that lead to a state, and the one after it.
static int64_t count_tokens(const struct state_file * state) {
    return state->tokens != NULL ? state->n_tokens : state->length;
}

void handle_state_list(struct server * s, struct http_call * call) {
    struct state_entry * list = NULL;
    int64_t              n = 0;
    struct lrnn_error    err;
    if (s->state_dir != NULL &&
            !named_state_list(s->state_dir, scheduler_session(s->scheduler), &list, &n, &err)) {
        reply_failure(call, NULL, &err);
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
                    list[i].n_tokens > 0 ? list[i].n_tokens : 0, list[i].size,
                    list[i].n_tokens >= 0 ? "true" : "false");
        }
        fputs("]}", t->out);
    }
    free(list);
    reply_json(call, 200, t);
}

// Makes prompts that begin with the tokens of a state continue from it.
void handle_state_load(struct server * s, struct http_call * call) {
    char              name[REQUEST_NAME_MAX + 1];
    struct state_file state;
    if (!states_find(s, call, name) || !load(s, call, name, &state)) {
        return;
    }
    const int64_t n_tokens = count_tokens(&state);
    const int64_t n_cached = state.length;
    const size_t  size = state.n_memory;
    if (state.tokens == NULL) {
        reply_error(call, 400, NULL,
                "state '%s' has no tokens that a prompt could begin with; continue it with the "
                "field \"state\"",
                name);
    } else if (n_cached > 0 && !scheduler_add_state(s->scheduler, &state)) {
        reply_error(call, 400, NULL,
                "state '%s' has %zu bytes, which do not fit the limit of --state-memory", name,
                size);
    } else {
        reply_state(call, name, n_tokens, size, n_cached);
    }
    state_file_free(&state);
}

// Copies a state to another name.
void handle_state_fork(struct server * s, struct http_call * call) {
    char                 name[REQUEST_NAME_MAX + 1], to[REQUEST_NAME_MAX + 1];
    struct lrnn_error    err;
    struct state_file    state;
    struct request_error error;
    if (!states_find(s, call, name)) {
        return;
    }
    if (!state_name_parse(to, http_body(call), "name", &error)) {
        reply_error(call, error.status, error.param, "%s", error.message);
        return;
    }
    if (load(s, call, name, &state)) {
        if (named_state_save(s->state_dir, to, &s->info, &state, &err)) {
            reply_state(call, to, count_tokens(&state), state.n_memory, state.length);
        } else {
            reply_failure(call, NULL, &err);
        }
        state_file_free(&state);
    }
}

void handle_state_delete(struct server * s, struct http_call * call) {
    char              name[REQUEST_NAME_MAX + 1];
    struct lrnn_error err;
    if (!states_find(s, call, name)) {
        return;
    }
    if (!named_state_delete(s->state_dir, name, &err)) {
        reply_failure(call, NULL, &err);
    } else {
        struct text * t = text_new();
        if (t != NULL) {
            fputs("{\"deleted\":", t->out);
            json_write_string(t->out, name);
            putc('}', t->out);
        }
        reply_json(call, 200, t);
    }
}
