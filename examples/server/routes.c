// Every request arrives here: access, the table of routes, and the small endpoints.

#include "lrnn.h"
#include "json-write.h"
#include "reply.h"
#include "server.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

//
// Information
//

static void handle_health(struct server * s, struct http_call * call) {
    static const char ok[] = "{\"status\":\"ok\"}";
    (void) s;
    http_reply(call, 200, "application/json", ok, strlen(ok));
}

static void write_model(FILE * out, const struct server * s) {
    fputs("{\"id\":", out);
    json_write_string(out, s->model_name);
    fprintf(out, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"lrnn\"}",
            s->start_s);
}

static void handle_models(struct server * s, struct http_call * call) {
    struct text * t = text_new();
    if (t != NULL) {
        fputs("{\"object\":\"list\",\"data\":[", t->out);
        write_model(t->out, s);
        fputs("]}", t->out);
    }
    reply_json(call, 200, t);
}

static void handle_model(struct server * s, struct http_call * call) {
    char               quoted[2][96];
    const struct slice asked = slice_of(http_path(call) + strlen("/v1/models/"));
    if (!slice_is(asked, s->model_name)) {
        reply_error(call, 404, "model", "there is no model %s; expected %s",
                slice_quote(quoted[0], sizeof(quoted[0]), asked),
                slice_quote(quoted[1], sizeof(quoted[1]), slice_of(s->model_name)));
        return;
    }
    struct text * t = text_new();
    if (t != NULL) {
        write_model(t->out, s);
    }
    reply_json(call, 200, t);
}

// The marks of a thinking section, and whether the prompt for an answer opens it.
static void write_thinking(FILE * out, const struct lrnn_chat * chat) {
    static const char * const keys[2] = { "{\"open\":", ",\"close\":" };
    size_t                    size;
    if (chat == NULL || lrnn_chat_thinking_mark(chat, true, &size) == NULL) {
        fputs("null", out);
        return;
    }
    for (int i = 0; i < 2; ++i) {
        const char * mark = lrnn_chat_thinking_mark(chat, i == 1, &size);
        fputs(keys[i], out);
        json_write_bytes(out, mark, size);
    }
    fprintf(out, ",\"begins\":%s}", lrnn_chat_begins_thinking(chat, false) ? "true" : "false");
}

static void handle_props(struct server * s, struct http_call * call) {
    struct text * t = text_new();
    if (t != NULL) {
        fprintf(t->out, "{\"total_slots\":%d,\"model_path\":", s->params.n_seqs);
        json_write_string(t->out, s->file_name);
        fputs(",\"model\":", t->out);
        json_write_string(t->out, s->model_name);
        fputs(",\"family\":", t->out);
        json_write_string(t->out, s->info.family);
        fputs(",\"eigenvalues\":", t->out);
        json_write_string(t->out, s->info.eigenvalues);
        fprintf(t->out,
                ",\"n_vocab\":%" PRId64 ",\"n_layer\":%" PRId64 ",\"trained_length\":%" PRId64
                ",\"state_bytes\":%" PRId64 ",\"cache_bytes_per_token\":%" PRId64
                ",\"max_tokens\":%" PRId64 ",\"has_tokenizer\":%s,\"has_chat\":%s,\"build_info\":",
                s->info.n_vocab, s->info.n_layer, s->info.trained_length, s->info.state_bytes,
                s->info.cache_bytes, s->max_tokens, s->info.has_tokenizer ? "true" : "false",
                s->chat != NULL ? "true" : "false");
        json_write_string(t->out, lrnn_version());
        fputs(",\"thinking\":", t->out);
        write_thinking(t->out, s->chat);
        putc('}', t->out);
    }
    reply_json(call, 200, t);
}

static void handle_slots(struct server * s, struct http_call * call) {
    struct slot_info * slots = calloc((size_t) s->params.n_seqs, sizeof(*slots));
    struct text *      t = slots != NULL ? text_new() : NULL;
    if (t != NULL) {
        scheduler_get_slots(s->scheduler, slots);
        putc('[', t->out);
        for (int32_t i = 0; i < s->params.n_seqs; ++i) {
            fprintf(t->out,
                    "%s{\"id\":%d,\"is_processing\":%s,\"n_prompt_tokens\":%" PRId64
                    ",\"n_tokens\":%" PRId64 ",\"n_generated\":%" PRId64 "}",
                    i > 0 ? "," : "", i, slots[i].is_busy ? "true" : "false", slots[i].n_prompt,
                    slots[i].n_fed, slots[i].n_new);
        }
        putc(']', t->out);
    }
    free(slots);
    reply_json(call, 200, t);
}

static void handle_metrics(struct server * s, struct http_call * call) {
    const struct scheduler_stats st = scheduler_get_stats(s->scheduler);
    const double                 calls = st.n_calls > 0 ? (double) st.n_calls : 1.0;
    const struct {
        const char * name;
        const char * type;
        const char * help;
        double       value;
    } rows[] = {
        { "requests_total", "counter", "Requests", (double) atomic_load(&s->n_requests) },
        { "requests_refused_total", "counter", "Requests refused because the queue was full",
                (double) atomic_load(&s->n_refused) },
        { "prompt_tokens_total", "counter", "Prompt tokens computed", (double) st.n_prompt_tokens },
        { "prompt_tokens_cached_total", "counter", "Prompt tokens taken from a stored state",
                (double) st.n_cached_tokens },
        { "tokens_predicted_total", "counter", "Generated tokens", (double) st.n_new_tokens },
        { "eval_calls_total", "counter", "Calls of the model", (double) st.n_calls },
        { "eval_seconds_total", "counter", "Time in calls of the model", st.seconds },
        { "n_busy_slots_per_decode", "gauge", "Mean number of generations per call",
                (double) st.n_decoded / calls },
        { "requests_processing", "gauge", "Choices that run", (double) st.n_running },
        { "requests_deferred", "gauge", "Choices that wait", (double) st.n_waiting },
        { "states", "gauge", "Stored states", (double) st.states.n_states },
        { "states_bytes", "gauge", "Memory of the stored states", (double) st.states.bytes },
        { "states_bytes_max", "gauge", "Limit of --state-memory", (double) st.states.max_bytes },
        { "states_evicted_total", "counter", "States dropped to make room",
                (double) st.states.n_evicted },
    };
    struct text * t = text_new();
    for (size_t i = 0; t != NULL && i < sizeof(rows) / sizeof(rows[0]); ++i) {
        fprintf(t->out, "# HELP lrnn:%s %s.\n# TYPE lrnn:%s %s\nlrnn:%s %.17g\n", rows[i].name,
                rows[i].help, rows[i].name, rows[i].type, rows[i].name, rows[i].value);
    }
    reply_text(call, 200, "text/plain; version=0.0.4", t);
}

static void handle_page(struct server * s, struct http_call * call) {
    (void) s;
    http_reply(call, 200, "text/html; charset=utf-8", (const char *) PAGE, PAGE_SIZE);
}

//
// Text
//

static bool has_tokenizer(const struct server * s, struct http_call * call) {
    if (!s->info.has_tokenizer) {
        reply_error(call, 400, NULL, "the model has no tokenizer");
    }
    return s->info.has_tokenizer;
}

static void write_special(FILE * out, const struct server * s, const char * key, int32_t token) {
    size_t       size;
    const char * bytes = token >= 0 ? lrnn_token_bytes(s->model, token, &size) : NULL;
    fprintf(out, "\"%s\":", key);
    if (bytes != NULL) {
        json_write_bytes(out, bytes, size);
    } else {
        fputs("null", out);
    }
}

static void handle_tokenizer_info(struct server * s, struct http_call * call) {
    struct text * t = has_tokenizer(s, call) ? text_new() : NULL;
    if (!s->info.has_tokenizer) {
        return;
    }
    if (t != NULL) {
        putc('{', t->out);
        if (s->info.eos >= 0 || s->info.bos >= 0) {
            write_special(t->out, s, "bos_token", s->info.bos);
        } else { // evaluations begin texts with one of them; eos would also end texts
            fputs("\"bos_token\":\"\\n\"", t->out);
        }
        putc(',', t->out);
        write_special(t->out, s, "eos_token", s->info.eos);
        fprintf(t->out,
                ",\"pad_token\":null,\"chat_template\":null,\"add_bos_token\":%s,"
                "\"add_eos_token\":%s}",
                s->info.add_bos ? "true" : "false", s->info.add_eos ? "true" : "false");
    }
    reply_json(call, 200, t);
}

static void handle_tokenize(struct server * s, struct http_call * call) {
    struct tokenize_request r;
    struct request_error    error;
    int32_t *               tokens = NULL;
    int64_t                 n_tokens = 0;
    struct lrnn_error       err;
    if (!has_tokenizer(s, call)) {
        return;
    }
    if (!tokenize_request_parse(&r, http_body(call), &error)) {
        reply_error(call, error.status, error.param, "%s", error.message);
        return;
    }
    const unsigned flags = (r.parse_special ? LRNN_TOKENIZE_PARSE_SPECIAL : 0u) |
                           (r.add_special ? LRNN_TOKENIZE_ADD_BOS | LRNN_TOKENIZE_ADD_EOS : 0u);
    const bool ok = lrnn_tokenize(s->model, r.text, r.size, flags, &tokens, &n_tokens, &err);
    free(r.text);
    if (!ok) {
        reply_failure(call, "prompt", &err);
        return;
    }
    struct text * t = text_new();
    if (t != NULL) {
        fprintf(t->out, "{\"count\":%" PRId64 ",\"tokens\":[", n_tokens);
        for (int64_t i = 0; i < n_tokens; ++i) {
            fprintf(t->out, "%s%d", i > 0 ? "," : "", tokens[i]);
        }
        fputs("]}", t->out);
    }
    free(tokens);
    reply_json(call, 200, t);
}

enum { DETOKENIZE_MAX = 4 << 20 };

static void handle_detokenize(struct server * s, struct http_call * call) {
    struct prompt        tokens;
    struct request_error error;
    if (!has_tokenizer(s, call)) {
        return;
    }
    if (!detokenize_request_parse(&tokens, http_body(call), s->info.n_vocab, &error)) {
        free(tokens.tokens);
        reply_error(call, error.status, error.param, "%s", error.message);
        return;
    }
    size_t n_bytes = 0; // of the text, or more
    for (int64_t i = 0; i < tokens.n_tokens && n_bytes <= DETOKENIZE_MAX; ++i) {
        size_t size = 0;
        lrnn_token_bytes(s->model, tokens.tokens[i], &size);
        n_bytes += size + 1; // a model of symbols separates them
    }
    if (n_bytes > DETOKENIZE_MAX) {
        free(tokens.tokens);
        reply_error(call, 400, "tokens",
                "the text of the tokens may have more than %d bytes; send fewer of them",
                DETOKENIZE_MAX);
        return;
    }
    struct text * text = text_new();
    struct text * t = text_new();
    if (text != NULL && t != NULL) {
        text_detokenize(text, s->model, tokens.tokens, tokens.n_tokens);
        t->failed = !text_flush(text);
        fputs("{\"prompt\":", t->out);
        json_write_bytes(t->out, text->data, text->size);
        fputs(",\"content\":", t->out);
        json_write_bytes(t->out, text->data, text->size);
        putc('}', t->out);
        reply_json(call, 200, t);
    } else {
        text_free(t);
        reply_json(call, 500, NULL);
    }
    text_free(text);
    free(tokens.tokens);
}

//
// Routes
//

static const struct {
    const char * method;
    const char * path;
    void (*handle)(struct server * s, struct http_call * call);
    bool is_open; // needs no API key
} ROUTES[] = {
    { "GET", "/", handle_page, true },
    { "GET", "/health", handle_health, true },
    { "GET", "/v1/models", handle_models, false },
    { "GET", "/v1/models/**", handle_model, false },
    { "GET", "/props", handle_props, false },
    { "GET", "/slots", handle_slots, false },
    { "GET", "/metrics", handle_metrics, false },
    { "GET", "/tokenizer_info", handle_tokenizer_info, false },
    { "POST", "/tokenize", handle_tokenize, false },
    { "POST", "/detokenize", handle_detokenize, false },
    { "POST", "/v1/completions", handle_completion, false },
    { "POST", "/v1/chat/completions", handle_chat, false },
    { "GET", "/states", handle_state_list, false },
    { "POST", "/states/*", handle_state_save, false },
    { "POST", "/states/*/load", handle_state_load, false },
    { "POST", "/states/*/fork", handle_state_fork, false },
    { "DELETE", "/states/*", handle_state_delete, false },
};

// True if the path matches the pattern, in which '*' is a part without '/', and "**" any rest.
static bool matches(const char * pattern, const char * path) {
    for (; *pattern != '\0'; ++pattern) {
        if (strcmp(pattern, "**") == 0) {
            return true;
        }
        if (*pattern == '*') {
            path += strcspn(path, "/");
        } else if (*pattern != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

// The index of the route of a request; -1: none. Sets *has_path if the path has other methods.
static int find_route(const struct http_call * call, bool * has_path) {
    *has_path = false;
    for (int i = 0; i < (int) (sizeof(ROUTES) / sizeof(ROUTES[0])); ++i) {
        if (matches(ROUTES[i].path, http_path(call))) {
            *has_path = true;
            if (strcmp(ROUTES[i].method, http_method(call)) == 0) {
                return i;
            }
        }
    }
    return -1;
}

bool server_check(struct http_call * call, void * user) {
    struct server * s = user;
    bool            has_path;
    const int       i = find_route(call, &has_path);
    atomic_fetch_add(&s->n_requests, 1);
    const bool is_open = i >= 0 && ROUTES[i].is_open;
    if (!access_check_page(&s->access, call) || (!is_open && !access_check_key(&s->access, call))) {
        return false;
    }
    if (i >= 0) {
        return true;
    }
    if (has_path) {
        reply_error(call, 405, NULL, "%s does not have the method %s", http_path(call),
                http_method(call));
    } else {
        reply_error(call, 404, NULL, "there is no path %s", http_path(call));
    }
    return false;
}

void server_handle(struct http_call * call, void * user) {
    bool has_path;
    ROUTES[find_route(call, &has_path)].handle(user, call);
}
