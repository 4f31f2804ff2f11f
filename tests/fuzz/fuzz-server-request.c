// Bodies of requests to lrnn-server. A body is refused with a message, or all its values are in
// range.

#include "fuzz/fuzz.h"
#include "request.h"

enum { N_VOCAB = 300 };

static void check_tokens(const struct prompt * p) {
    for (int64_t i = 0; i < p->n_tokens; ++i) {
        require(p->tokens[i] >= 0 && p->tokens[i] < N_VOCAB, "a token is out of range");
    }
}

static void check_error(struct request_error * error) {
    require(error->message[0] != '\0' && strchr(error->message, '\n') == NULL,
            "a body was refused without a message");
}

static void check(struct slice body, enum request_kind kind) {
    struct request       r;
    struct request_error error = { 0 };
    if (request_parse(&r, kind, body, N_VOCAB, &error)) {
        require(r.n >= 1 && r.n_prompts * r.n <= REQUEST_CHOICES_MAX, "too many choices");
        require(r.n_top >= -1 && r.n_top <= REQUEST_TOP_MAX, "logprobs is out of range");
        require(r.sampler.temperature >= 0.0f && r.sampler.drop_p >= 0.0f &&
                        r.sampler.drop_p <= 1.0f,
                "sampling");
        require(kind == REQUEST_CHAT ? r.n_messages > 0 : r.n_prompts > 0, "nothing to do");
        require(r.state[0] == '\0' ||
                        state_name_is_valid((struct slice) { r.state, strlen(r.state) }),
                "the name of a state is invalid");
        for (int64_t i = 0; i < r.n_prompts; ++i) {
            check_tokens(&r.prompts[i]);
        }
        for (int64_t i = 0; i < r.n_biases; ++i) {
            require(r.biases[i].token >= 0 && r.biases[i].token < N_VOCAB, "a bias");
        }
        for (int i = 0; i < r.stops.n; ++i) {
            require(r.stops.v[i][0] != '\0', "an empty stop string");
        }
    } else {
        check_error(&error);
    }
    request_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    const struct slice      body = { (const char *) data, size };
    struct request_error    error = { 0 };
    struct tokenize_request text;
    struct prompt           tokens;
    char                    name[REQUEST_NAME_MAX + 1];
    check(body, REQUEST_COMPLETION);
    check(body, REQUEST_CHAT);
    check(body, REQUEST_STATE);
    if (!tokenize_request_parse(&text, body, &error)) {
        check_error(&error);
    }
    free(text.text);
    if (detokenize_request_parse(&tokens, body, N_VOCAB, &error)) {
        check_tokens(&tokens);
    } else {
        check_error(&error);
    }
    free(tokens.tokens);
    if (state_name_parse(name, body, "name", &error)) {
        require(state_name_is_valid((struct slice) { name, strlen(name) }), "a name");
    }
    return 0;
}
