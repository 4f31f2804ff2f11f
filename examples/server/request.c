#include "request.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool request_fail(struct request_error * error, const char * param, const char * format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
    error->param = param;
    error->status = 400;
    return false;
}

bool request_no_memory(struct request_error * error) {
    request_fail(error, NULL, "out of memory for the request");
    error->status = 500;
    return false;
}

//
// Values
//

// The value as in the request, cut to fit a message.
static const char * shown(struct json_value v, char buf[48]) {
    return v.kind == JSON_MISSING ? "missing"
                                  : slice_quote(buf, 48, (struct slice) { v.data, v.size });
}

static bool wrong(struct request_error * error, const char * param, struct json_value v,
        const char * expected) {
    char buf[48];
    return request_fail(error, param, "%s is %s; expected %s", param, shown(v, buf), expected);
}

static bool is_set(struct json_value v) {
    return v.kind != JSON_MISSING && v.kind != JSON_NULL;
}

// NaN if the value is not a number. Also for keys that should be one.
static double number_of(struct json_value v) {
    char   text[64];
    char * end;
    if (v.kind != JSON_NUMBER || v.size == 0 || v.size >= sizeof(text)) {
        return (double) NAN;
    }
    memcpy(text, v.data, v.size);
    text[v.size] = '\0';
    const double x = strtod(text, &end);
    return end == text + v.size && strspn(text, "+-.0123456789eE") == v.size ? x : (double) NAN;
}

static bool read_number(struct json_value v, const char * param, double min, double max,
        double * number, struct request_error * error) {
    char buf[48];
    if (!is_set(v)) {
        return true;
    }
    const double x = number_of(v);
    if (!(x >= min && x <= max)) {
        return request_fail(error, param, "%s is %s; expected a number from %g to %g", param,
                shown(v, buf), min, max);
    }
    *number = x;
    return true;
}

static bool read_integer(struct json_value v, const char * param, int64_t min, int64_t max,
        int64_t * number, struct request_error * error) {
    char buf[48];
    if (!is_set(v)) {
        return true;
    }
    const double x = number_of(v);
    if (!(x >= (double) min && x <= (double) max && x == floor(x))) {
        return request_fail(error, param,
                "%s is %s; expected an integer from %" PRId64 " to %" PRId64, param, shown(v, buf),
                min, max);
    }
    *number = (int64_t) x;
    return true;
}

static bool read_bool(
        struct json_value v, const char * param, bool * value, struct request_error * error) {
    if (!is_set(v)) {
        return true;
    }
    if (v.kind != JSON_TRUE && v.kind != JSON_FALSE) {
        return wrong(error, param, v, "true or false");
    }
    *value = v.kind == JSON_TRUE;
    return true;
}

// Sets *text to a copy with a NUL after it.
static bool read_text(
        struct json_value v, char ** text, size_t * size, struct request_error * error) {
    struct buffer b = { 0 };
    int64_t       n_lone = 0;
    if (!json_read_string(v, &b, &n_lone) || !buffer_append(&b, "", 1)) {
        buffer_free(&b);
        return request_no_memory(error);
    }
    *text = b.data;
    *size = b.n - 1;
    return true;
}

// Grows an array to hold one more element.
static bool make_room(void ** array, int64_t n, size_t size) {
    if ((n & (n - 1)) == 0) { // at 0, 1, 2, 4, 8, ...
        void * more = realloc(*array, (size_t) (n > 0 ? 2 * n : 1) * size);
        if (more == NULL) {
            return false;
        }
        *array = more;
    }
    return true;
}

//
// Fields
//

static bool read_token(struct json_value v, const char * param, int64_t n_vocab, int32_t * token,
        struct request_error * error) {
    char         buf[48];
    const double x = number_of(v);
    if (!(x >= 0.0 && x < (double) n_vocab && x == floor(x))) {
        return request_fail(error, param,
                "%s contains the token %s; expected an integer from 0 to %" PRId64, param,
                shown(v, buf), n_vocab - 1);
    }
    *token = (int32_t) x;
    return true;
}

static bool read_tokens(struct json_value array, const char * param, int64_t n_vocab,
        struct prompt * prompt, struct request_error * error) {
    struct json_value item;
    while (json_array_next(&array, &item)) {
        if (!make_room((void **) &prompt->tokens, prompt->n_tokens, sizeof(int32_t))) {
            return request_no_memory(error);
        }
        if (!read_token(item, param, n_vocab, &prompt->tokens[prompt->n_tokens], error)) {
            return false;
        }
        prompt->n_tokens++;
    }
    return true;
}

static const char PROMPT_FORMS[] = "a string, an array of token ids, or an array of either";

static bool add_prompt(
        struct request * r, struct json_value v, int64_t n_vocab, struct request_error * error) {
    if (r->n_prompts == REQUEST_CHOICES_MAX) {
        return request_fail(error, "prompt", "prompt has more than %d items", REQUEST_CHOICES_MAX);
    }
    if (!make_room((void **) &r->prompts, r->n_prompts, sizeof(*r->prompts))) {
        return request_no_memory(error);
    }
    struct prompt * prompt = &r->prompts[r->n_prompts++];
    *prompt = (struct prompt) { 0 };
    if (v.kind == JSON_STRING) {
        return read_text(v, &prompt->text, &prompt->size, error);
    }
    if (v.kind == JSON_ARRAY) {
        return read_tokens(v, "prompt", n_vocab, prompt, error);
    }
    return wrong(error, "prompt", v, PROMPT_FORMS);
}

static bool read_prompts(
        struct request * r, struct json_value v, int64_t n_vocab, struct request_error * error) {
    struct json_value first = v, item;
    if (v.kind != JSON_ARRAY || !json_array_next(&first, &item) || item.kind == JSON_NUMBER) {
        return add_prompt(r, v, n_vocab, error);
    }
    while (json_array_next(&v, &item)) {
        if (!add_prompt(r, item, n_vocab, error)) {
            return false;
        }
    }
    return true;
}

static bool read_stop(struct request * r, struct json_value v, struct request_error * error) {
    size_t size = 0;
    if (v.kind != JSON_STRING) {
        return wrong(error, "stop", v, "a string or an array of strings");
    }
    if (r->stops.n == REQUEST_STOPS_MAX) {
        return request_fail(error, "stop", "stop has more than %d strings", REQUEST_STOPS_MAX);
    }
    char ** text = &r->stop_text[r->stops.n];
    if (!read_text(v, text, &size, error)) {
        return false;
    }
    r->stops.v[r->stops.n++] = *text;
    if (size == 0 || strlen(*text) < size) {
        return request_fail(error, "stop",
                size == 0 ? "stop contains an empty string"
                          : "stop contains a string with the character U+0000");
    }
    return true;
}

static bool read_stops(struct request * r, struct json_value v, struct request_error * error) {
    struct json_value item;
    if (!is_set(v)) {
        return true;
    }
    if (v.kind != JSON_ARRAY) {
        return read_stop(r, v, error);
    }
    while (json_array_next(&v, &item)) {
        if (!read_stop(r, item, error)) {
            return false;
        }
    }
    return true;
}

static bool add_bias(struct request * r, struct json_value token, struct json_value bias,
        int64_t n_vocab, struct request_error * error) {
    struct token_bias b;
    double            x = 0.0;
    if (r->n_biases == REQUEST_BIASES_MAX) {
        return request_fail(
                error, "logit_bias", "logit_bias has more than %d tokens", REQUEST_BIASES_MAX);
    }
    if (!read_token(token, "logit_bias", n_vocab, &b.token, error) ||
            !read_number(bias, "logit_bias", -1e6, 1e6, &x, error)) {
        return false;
    }
    if (!make_room((void **) &r->biases, r->n_biases, sizeof(*r->biases))) {
        return request_no_memory(error);
    }
    b.bias = (float) x;
    r->biases[r->n_biases++] = b;
    return true;
}

// OpenAI's {"50256": -100} or llama-server's [[50256, -100]].
static bool read_biases(
        struct request * r, struct json_value v, int64_t n_vocab, struct request_error * error) {
    struct json_value key, item, token, bias;
    if (!is_set(v)) {
        return true;
    }
    if (v.kind != JSON_OBJECT && v.kind != JSON_ARRAY) {
        return wrong(error, "logit_bias", v, "an object with token ids as keys");
    }
    while (v.kind == JSON_OBJECT && json_object_next(&v, &key, &item)) {
        token = (struct json_value) { JSON_NUMBER, key.data + 1, key.size - 2 };
        if (!add_bias(r, token, item, n_vocab, error)) {
            return false;
        }
    }
    while (v.kind == JSON_ARRAY && json_array_next(&v, &item)) {
        struct json_value pair = item;
        if (!json_array_next(&pair, &token) || !json_array_next(&pair, &bias)) {
            return wrong(error, "logit_bias", item, "a pair of a token id and a number");
        }
        if (!add_bias(r, token, bias, n_vocab, error)) {
            return false;
        }
    }
    return true;
}

// Appends the text of a message: a string, or an array of parts of the type "text".
static bool read_content(struct message * m, struct json_value v, struct request_error * error) {
    static const char         expected[] = "a string or an array of parts of the type \"text\"";
    static const char * const names[2] = { "type", "text" };
    struct json_path          paths[2];
    struct json_value         rest = v, item, values[2];
    struct json_error         unused;
    struct buffer             b = { 0 };
    int64_t                   n_lone = 0;
    bool                      ok = v.kind == JSON_STRING || v.kind == JSON_ARRAY;

    for (int i = 0; i < 2; ++i) {
        json_path_parse(names[i], strlen(names[i]), &paths[i]);
    }
    if (v.kind == JSON_STRING && !json_read_string(v, &b, &n_lone)) {
        return request_no_memory(error);
    }
    while (ok && json_array_next(&rest, &item)) {
        ok = json_read(item.data, item.size, paths, 2, values, &unused) == JSON_OBJECT &&
             values[0].kind == JSON_STRING && json_string_is(values[0], "text", 4) &&
             values[1].kind == JSON_STRING;
        if (ok && !json_read_string(values[1], &b, &n_lone)) {
            buffer_free(&b);
            return request_no_memory(error);
        }
    }
    if (!ok) {
        buffer_free(&b);
        return wrong(error, "messages.content", v, expected);
    }
    if (!buffer_append(&b, "", 1)) {
        buffer_free(&b);
        return request_no_memory(error);
    }
    m->content = b.data;
    m->size = b.n - 1;
    return true;
}

static bool read_message(struct request * r, struct json_value v, struct request_error * error) {
    static const char * const names[3] = { "role", "content", "tool_calls" };
    struct json_path          paths[3];
    struct json_value         values[3];
    struct json_error         unused;
    size_t                    size;
    for (int i = 0; i < 3; ++i) {
        json_path_parse(names[i], strlen(names[i]), &paths[i]);
    }
    if (v.kind != JSON_OBJECT) {
        return wrong(error, "messages", v, "an array of objects with role and content");
    }
    json_read(v.data, v.size, paths, 3, values, &unused);
    if (!request_asks_nothing(values[2], "")) {
        return request_fail(error, "messages.tool_calls", "messages.tool_calls is not supported");
    }
    if (!make_room((void **) &r->messages, r->n_messages, sizeof(*r->messages))) {
        return request_no_memory(error);
    }
    struct message * m = &r->messages[r->n_messages++];
    *m = (struct message) { 0 };
    if (values[0].kind != JSON_STRING) {
        return wrong(error, "messages.role", values[0], "a string");
    }
    if (!read_text(values[0], &m->role, &size, error) || !read_content(m, values[1], error)) {
        return false;
    }
    if (strcmp(m->role, "developer") == 0) { // OpenAI's newer name
        strcpy(m->role, "system");
    }
    return true;
}

static bool read_messages(struct request * r, struct json_value v, struct request_error * error) {
    struct json_value item;
    if (v.kind != JSON_ARRAY) {
        return wrong(error, "messages", v, "an array of messages");
    }
    while (json_array_next(&v, &item)) {
        if (!read_message(r, item, error)) {
            return false;
        }
    }
    return r->n_messages > 0 || request_fail(error, "messages", "messages is empty");
}

//
// Names of states
//

bool state_name_is_valid(struct slice name) {
    bool ok = name.size > 0 && name.size <= REQUEST_NAME_MAX && name.data[0] != '.';
    for (size_t i = 0; ok && i < name.size; ++i) {
        const char c = name.data[i];
        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '_' || c == '.';
    }
    return ok;
}

static bool read_name(struct json_value v, const char * param, char name[REQUEST_NAME_MAX + 1],
        struct request_error * error) {
    if (v.kind != JSON_STRING || v.size < 2 ||
            !state_name_is_valid((struct slice) { v.data + 1, v.size - 2 })) {
        return wrong(error, param, v,
                "1 to 64 letters, digits, '-', '_' and '.', not beginning with '.'");
    }
    memcpy(name, v.data + 1, v.size - 2);
    name[v.size - 2] = '\0';
    return true;
}

//
// Bodies
//

// Reads the values of the fields, which are NULL-terminated. The body must be an object.
static bool read_body(struct slice body, const char * const * names, struct json_value * values,
        struct request_error * error) {
    struct json_path  paths[JSON_MAX_PATHS];
    struct json_error where = { 0 };
    int               n = 0;
    for (; names[n] != NULL; ++n) {
        json_path_parse(names[n], strlen(names[n]), &paths[n]);
    }
    const enum json_kind kind = json_read(body.data, body.size, paths, n, values, &where);
    if (kind == JSON_MISSING) {
        return request_fail(
                error, NULL, "the body is not JSON: %s at byte %zu", where.what, where.at);
    }
    return kind == JSON_OBJECT ||
           request_fail(error, NULL, "the body is %s; expected an object", json_kind_name(kind));
}

// The object that a body is.
static struct json_value object_of(struct slice body) {
    const char * begin = memchr(body.data, '{', body.size);
    return (struct json_value) { JSON_OBJECT, begin, body.size - (size_t) (begin - body.data) };
}

enum field {
    PROMPT,
    MESSAGES,
    STATE,
    N,
    MAX_TOKENS,
    MAX_COMPLETION_TOKENS,
    N_PREDICT,
    SPECIAL,
    PARSE_SPECIAL,
    ECHO,
    LOGPROBS,
    TOP_LOGPROBS,
    STOP,
    SEED,
    TEMPERATURE, // the first sampling option
    TOP_P,
    MIN_P,
    REPEAT_PENALTY,
    REPETITION_PENALTY,
    REPEAT_LAST,
    REPEAT_LAST_N,
    TOP_K, // the last one
    FREQUENCY_PENALTY,
    PRESENCE_PENALTY,
    LOGIT_BIAS,
    IGNORE_EOS,
    ENABLE_THINKING,
    STREAM,
    INCLUDE_USAGE,
    GRAMMAR,
    REGEX,
    RESPONSE_FORMAT,
    N_FIELDS,
};

static const char * const FIELDS[N_FIELDS + 1] = {
    [PROMPT] = "prompt",
    [MESSAGES] = "messages",
    [STATE] = "state",
    [N] = "n",
    [MAX_TOKENS] = "max_tokens",
    [MAX_COMPLETION_TOKENS] = "max_completion_tokens",
    [N_PREDICT] = "n_predict",
    [SPECIAL] = "special",
    [PARSE_SPECIAL] = "parse_special",
    [ECHO] = "echo",
    [LOGPROBS] = "logprobs",
    [TOP_LOGPROBS] = "top_logprobs",
    [STOP] = "stop",
    [SEED] = "seed",
    [TEMPERATURE] = "temperature",
    [TOP_P] = "top_p",
    [MIN_P] = "min_p",
    [REPEAT_PENALTY] = "repeat_penalty",
    [REPETITION_PENALTY] = "repetition_penalty",
    [REPEAT_LAST] = "repeat_last",
    [REPEAT_LAST_N] = "repeat_last_n",
    [TOP_K] = "top_k",
    [FREQUENCY_PENALTY] = "frequency_penalty",
    [PRESENCE_PENALTY] = "presence_penalty",
    [LOGIT_BIAS] = "logit_bias",
    [IGNORE_EOS] = "ignore_eos",
    [ENABLE_THINKING] = "chat_template_kwargs.enable_thinking",
    [STREAM] = "stream",
    [INCLUDE_USAGE] = "stream_options.include_usage",
    [GRAMMAR] = "grammar",
    [REGEX] = "regex",
    [RESPONSE_FORMAT] = "response_format",
};

_Static_assert((int) N_FIELDS <= (int) JSON_MAX_PATHS, "fields are read in one pass");

// Completions: logprobs is a number. Chats: logprobs is a flag, top_logprobs the number.
static bool read_logprobs(struct request * r, enum request_kind kind, const struct json_value * v,
        struct request_error * error) {
    int64_t n_top = 0;
    bool    on = false;
    if (kind == REQUEST_CHAT || v[LOGPROBS].kind == JSON_TRUE || v[LOGPROBS].kind == JSON_FALSE) {
        if (!read_bool(v[LOGPROBS], "logprobs", &on, error) ||
                !read_integer(v[TOP_LOGPROBS], "top_logprobs", 0, REQUEST_TOP_MAX, &n_top, error)) {
            return false;
        }
    } else {
        on = is_set(v[LOGPROBS]);
        if (!read_integer(v[LOGPROBS], "logprobs", 0, REQUEST_TOP_MAX, &n_top, error)) {
            return false;
        }
    }
    r->n_top = on ? (int32_t) n_top : -1;
    return true;
}

static bool read_grammar(struct request * r, const char * field, struct json_value v,
        enum lrnn_grammar_kind kind, struct request_error * error) {
    const bool is_schema = kind == LRNN_GRAMMAR_JSON_SCHEMA;
    if (!is_set(v) || (v.kind == JSON_STRING && v.size == 2 && !is_schema)) { // "": no grammar
        return true;
    }
    if (r->grammar != NULL) {
        return request_fail(error, field,
                "%s and %s both determine the form of the answer; expected one of them",
                r->grammar_field, field);
    }
    r->grammar_kind = kind;
    r->grammar_field = field;
    if (is_schema) { // the JSON text as it is
        r->grammar = malloc(v.size + 1);
        if (r->grammar == NULL) {
            return request_no_memory(error);
        }
        memcpy(r->grammar, v.data, v.size);
        r->grammar_size = v.size;
        return true;
    }
    if (v.kind != JSON_STRING) {
        return wrong(error, field, v, "a string");
    }
    return read_text(v, &r->grammar, &r->grammar_size, error);
}

// OpenAI's {"type": "json_schema", "json_schema": {"schema": ...}}, or "schema" directly in it.
static bool read_response_format(
        struct request * r, struct json_value v, struct request_error * error) {
    static const char * const names[] = { "type", "json_schema.schema", "schema", NULL };
    static const char         field[] = "response_format";
    static const char         types[] = "an object with the type text, json_object or json_schema";
    struct json_value         f[3];
    if (!is_set(v)) {
        return true;
    }
    if (v.kind != JSON_OBJECT || !read_body((struct slice) { v.data, v.size }, names, f, error) ||
            f[0].kind != JSON_STRING) {
        return wrong(error, field, v, types);
    }
    const struct json_value schema = is_set(f[1]) ? f[1] : f[2];
    if (json_string_is(f[0], "text", 4)) {
        return true;
    }
    if (json_string_is(f[0], "json_object", 11) && !is_set(schema)) {
        return read_grammar(r, field, f[0], LRNN_GRAMMAR_JSON, error);
    }
    if (!json_string_is(f[0], "json_schema", 11) && !json_string_is(f[0], "json_object", 11)) {
        return wrong(error, field, v, types);
    }
    return is_set(schema) ? read_grammar(r, field, schema, LRNN_GRAMMAR_JSON_SCHEMA, error)
                          : request_fail(error, field, "response_format has no json_schema.schema");
}

// The options of the sampler. Some have a second name, and -1 is another word for all tokens.
static bool read_sampler(
        struct request * r, const struct json_value * v, struct request_error * error) {
    struct lrnn_error err;
    for (int i = TEMPERATURE; i <= TOP_K; ++i) {
        const char * option = i == REPETITION_PENALTY ? FIELDS[REPEAT_PENALTY]
                              : i == REPEAT_LAST_N    ? FIELDS[REPEAT_LAST]
                                                      : FIELDS[i];
        if (!is_set(v[i])) {
            continue;
        }
        const double x = number_of(v[i]);
        if (isnan(x)) {
            return wrong(error, FIELDS[i], v[i], "a number");
        }
        if (!lrnn_sampler_set(&r->sampler, option, i == TOP_K && x == -1.0 ? 0.0 : x, &err)) {
            return request_fail(error, FIELDS[i], "%s", err.text);
        }
    }
    return true;
}

static bool read_sampling(struct request * r, enum request_kind kind, const struct json_value * v,
        int64_t n_vocab, struct request_error * error) {
    const int64_t most = INT64_C(1) << 53; // integers that a number of JSON holds
    int64_t       seed = 0;
    r->has_seed = is_set(v[SEED]);
    if (!read_integer(v[SEED], "seed", -most, most, &seed, error)) {
        return false;
    }
    r->seed = (uint64_t) seed;
    return read_integer(v[N], "n", 1, REQUEST_CHOICES_MAX, &r->n, error) &&
           read_integer(v[N_PREDICT], "n_predict", 0, INT32_MAX, &r->max_tokens, error) &&
           read_integer(v[MAX_TOKENS], "max_tokens", 0, INT32_MAX, &r->max_tokens, error) &&
           read_integer(v[MAX_COMPLETION_TOKENS], "max_completion_tokens", 0, INT32_MAX,
                   &r->max_tokens, error) &&
           read_sampler(r, v, error) &&
           read_number(v[FREQUENCY_PENALTY], "frequency_penalty", -2.0, 2.0, &r->frequency_penalty,
                   error) &&
           read_number(v[PRESENCE_PENALTY], "presence_penalty", -2.0, 2.0, &r->presence_penalty,
                   error) &&
           read_bool(v[IGNORE_EOS], "ignore_eos", &r->ignore_eos, error) &&
           read_bool(v[STREAM], "stream", &r->stream, error) &&
           read_bool(v[INCLUDE_USAGE], "stream_options.include_usage", &r->include_usage, error) &&
           read_logprobs(r, kind, v, error) && read_stops(r, v[STOP], error) &&
           read_grammar(r, "grammar", v[GRAMMAR], LRNN_GRAMMAR_GBNF, error) &&
           read_grammar(r, "regex", v[REGEX], LRNN_GRAMMAR_REGEX, error) &&
           read_response_format(r, v[RESPONSE_FORMAT], error) &&
           read_biases(r, v[LOGIT_BIAS], n_vocab, error);
}

bool request_parse(struct request * r, enum request_kind kind, struct slice body, int64_t n_vocab,
        struct request_error * error) {
    struct json_value v[N_FIELDS];
    *r = (struct request) {
        .n = 1, .max_tokens = -1, .n_top = -1, .sampler = { .temperature = 1.0f }
    };
    if (!read_body(body, FIELDS, v, error) ||
            !request_check_fields(object_of(body), FIELDS, error) ||
            !read_sampling(r, kind, v, n_vocab, error) ||
            !read_bool(v[SPECIAL], "special", &r->special, error) ||
            !read_bool(v[PARSE_SPECIAL], "parse_special", &r->special, error) ||
            !read_bool(v[ECHO], "echo", &r->echo, error)) {
        return false;
    }
    if (is_set(v[STATE]) && !read_name(v[STATE], "state", r->state, error)) {
        return false;
    }
    if (kind == REQUEST_CHAT) {
        bool thinking = true;
        if (r->echo || r->state[0] != '\0') {
            const char * field = r->echo ? "echo" : "state";
            return request_fail(error, field, "%s is not supported in chats", field);
        }
        if (!read_bool(
                    v[ENABLE_THINKING], "chat_template_kwargs.enable_thinking", &thinking, error) ||
                !read_messages(r, v[MESSAGES], error)) {
            return false;
        }
        r->no_thinking = !thinking || r->grammar != NULL; // the grammar is that of the whole answer
        return true;
    }
    if (!is_set(v[PROMPT])) {
        return request_fail(error, "prompt", "prompt is missing; expected %s", PROMPT_FORMS);
    }
    if (!read_prompts(r, v[PROMPT], n_vocab, error)) {
        return false;
    }
    if (kind == REQUEST_STATE && (r->n_prompts != 1 || r->n != 1)) {
        return request_fail(error, "prompt", "a state has %" PRId64 " prompts; expected 1",
                r->n_prompts * r->n);
    }
    if (r->n_prompts * r->n > REQUEST_CHOICES_MAX) {
        return request_fail(error, "n",
                "%" PRId64 " prompts with n = %" PRId64 " make more than %d choices", r->n_prompts,
                r->n, REQUEST_CHOICES_MAX);
    }
    return true;
}

void request_free(struct request * r) {
    for (int64_t i = 0; i < r->n_prompts; ++i) {
        free(r->prompts[i].text);
        free(r->prompts[i].tokens);
    }
    for (int64_t i = 0; i < r->n_messages; ++i) {
        free(r->messages[i].role);
        free(r->messages[i].content);
    }
    for (int i = 0; i < REQUEST_STOPS_MAX; ++i) {
        free(r->stop_text[i]);
    }
    free(r->prompts);
    free(r->messages);
    free(r->biases);
    free(r->grammar);
    *r = (struct request) { 0 };
}

bool tokenize_request_parse(
        struct tokenize_request * r, struct slice body, struct request_error * error) {
    static const char * const names[] = { "prompt", "content", "add_special_tokens", "add_special",
        "parse_special", "special", NULL };
    struct json_value         v[6];
    *r = (struct tokenize_request) { 0 };
    if (!read_body(body, names, v, error)) {
        return false;
    }
    const struct json_value text = is_set(v[0]) ? v[0] : v[1];
    if (text.kind != JSON_STRING) {
        return request_fail(error, "prompt", "prompt (or content) is %s; expected a string",
                json_kind_name(text.kind));
    }
    return read_bool(v[2], "add_special_tokens", &r->add_special, error) &&
           read_bool(v[3], "add_special", &r->add_special, error) &&
           read_bool(v[4], "parse_special", &r->parse_special, error) &&
           read_bool(v[5], "special", &r->parse_special, error) &&
           read_text(text, &r->text, &r->size, error);
}

bool detokenize_request_parse(
        struct prompt * tokens, struct slice body, int64_t n_vocab, struct request_error * error) {
    static const char * const names[] = { "tokens", NULL };
    struct json_value         v[1];
    *tokens = (struct prompt) { 0 };
    if (!read_body(body, names, v, error)) {
        return false;
    }
    if (v[0].kind != JSON_ARRAY) {
        return request_fail(error, "tokens", "tokens is %s; expected an array of token ids",
                json_kind_name(v[0].kind));
    }
    return read_tokens(v[0], "tokens", n_vocab, tokens, error);
}

bool state_name_parse(char name[REQUEST_NAME_MAX + 1], struct slice body, const char * key,
        struct request_error * error) {
    const char * const names[] = { key, NULL };
    struct json_value  v[1];
    return read_body(body, names, v, error) && read_name(v[0], key, name, error);
}
