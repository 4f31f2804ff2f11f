#pragma once

// The body of a request for a completion: JSON in, checked values out. Knows nothing about models
// except the size of the vocabulary.

#include "base/json-read.h"
#include "base/slice.h"
#include "lrnn.h"
#include "options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REQUEST_CHOICES_MAX = 1024, // prompts times n
    REQUEST_STOPS_MAX = 16,
    REQUEST_TOP_MAX = 20, // alternatives per token
    REQUEST_BIASES_MAX = 1024,
    REQUEST_NAME_MAX = 64, // characters of the name of a state
};

enum request_kind {
    REQUEST_COMPLETION,
    REQUEST_CHAT,
    REQUEST_STATE, // a prompt whose state is saved
};

// A text, or token ids.
struct prompt {
    char *    text; // NULL: token ids
    size_t    size;
    int32_t * tokens;
    int64_t   n_tokens;
    bool      is_empty; // the only token is what the model begins with
};

struct message {
    char * role; // NUL-terminated
    char * content;
    size_t size;
};

struct token_bias {
    int32_t token;
    float   bias;
};

struct request {
    struct prompt *  prompts; // of a chat: none
    int64_t          n_prompts;
    struct message * messages; // of a chat
    int64_t          n_messages;
    char             state[REQUEST_NAME_MAX + 1]; // continue from this state; "": none

    int64_t                    n;          // choices per prompt
    int64_t                    max_tokens; // -1: not set
    bool                       special; // the names of special tokens in a text are special tokens
    bool                       echo;
    int32_t                    n_top; // alternatives per token; -1: no log-probabilities
    char *                     stop_text[REQUEST_STOPS_MAX];
    struct option_strings      stops; // point to stop_text
    bool                       has_seed;
    uint64_t                   seed;
    struct lrnn_sampler_params sampler; // without the seed
    double                     frequency_penalty;
    double                     presence_penalty;
    struct token_bias *        biases;
    int64_t                    n_biases;
    bool                       ignore_eos;
    bool                       no_thinking; // an answer without a thinking section
    char *                     grammar;     // the text; NULL: none
    size_t                     grammar_size;
    enum lrnn_grammar_kind     grammar_kind;
    const char *               grammar_field; // that it came from
    bool                       stream;
    bool                       include_usage; // a last chunk with the usage
};

struct request_error {
    char         message[512];
    const char * param;    // the field; NULL: the body as a whole
    char         name[64]; // of a field that we do not have
    int          status;   // of the reply
};

// Fills `r`, which request_free must free, also after an error.
bool request_parse(struct request * r, enum request_kind kind, struct slice body, int64_t n_vocab,
        struct request_error * error);
void request_free(struct request * r);

// The bodies of /tokenize and /detokenize, in the spellings of vLLM and llama-server.
struct tokenize_request {
    char * text;
    size_t size;
    bool   add_special;
    bool   parse_special;
};

bool tokenize_request_parse(
        struct tokenize_request * r, struct slice body, struct request_error * error);

bool detokenize_request_parse(
        struct prompt * tokens, struct slice body, int64_t n_vocab, struct request_error * error);

// The name of a state in field `key`; false if it is missing or not a valid name.
bool state_name_parse(char name[REQUEST_NAME_MAX + 1], struct slice body, const char * key,
        struct request_error * error);

// True for 1 to 64 letters, digits, '-', '_' and '.', not beginning with '.': a file name that
// cannot leave its folder.
bool state_name_is_valid(struct slice name);

// ---- request-fields.c: fields that the server does not have -------------------------------------

// Refuses fields that would change the result, and names that look like a misspelling of a known
// one; others are ignored.
// - body: an object
// - known: names, or paths that begin with one, ended by NULL
bool request_check_fields(
        struct json_value body, const char * const * known, struct request_error * error);

// True for a value that asks for nothing: a missing one, null, false, "", [], {}, or a word of
// `neutral`.
bool request_asks_nothing(struct json_value v, const char * neutral);

// Fills in the error and returns false. The second one is not the client's fault.
bool request_fail(struct request_error * error, const char * param, const char * format, ...)
        __attribute__((format(printf, 3, 4)));
bool request_no_memory(struct request_error * error);
