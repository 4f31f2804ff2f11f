// The names of a request's fields: which are refused, and which are ignored.

#include "request.h"

#include <stdlib.h>
#include <string.h>

// Fields of other servers that would change the result and are not implemented: a client must not
// believe that it got what it asked for. null, false, "", [] and {} ask for nothing.
static const struct {
    const char * name;
    const char * neutral; // further values that ask for nothing, separated by spaces
} REFUSED[] = {
    // the form of the answer
    { "json_schema", "" },
    { "guided_json", "" },
    { "guided_regex", "" },
    { "guided_choice", "" },
    { "guided_grammar", "" },
    { "structured_outputs", "" },
    { "modalities", "[\"text\"]" },
    // tools
    { "tools", "" },
    { "tool_choice", "\"none\" \"auto\"" },
    { "functions", "" },
    { "function_call", "\"none\" \"auto\"" },
    // the prompt
    { "suffix", "" },
    { "chat_template", "" },
    { "documents", "" },
    { "continue_final_message", "" },
    { "truncate_prompt_tokens", "-1" },
    // which tokens are sampled, and when that ends
    { "best_of", "1" },
    { "use_beam_search", "" },
    { "length_penalty", "1" },
    { "max_new_tokens", "" },
    { "min_tokens", "0" },
    { "stop_token_ids", "" },
    { "include_stop_str_in_output", "" },
    { "bad_words", "" },
    { "allowed_token_ids", "" },
    { "samplers", "" },
    { "mirostat", "0" },
    { "typical_p", "1" },
    { "tfs_z", "1" },
    { "top_a", "0" },
    { "top_n_sigma", "-1 0" },
    { "dynatemp_range", "0" },
    { "dry_multiplier", "0" },
    { "xtc_probability", "0" },
    // the content of the reply
    { "n_probs", "0" },
    { "prompt_logprobs", "" },
};

enum { N_REFUSED = sizeof(REFUSED) / sizeof(REFUSED[0]) };

enum {
    SHORTEST = 4,     // names that are shorter are similar to too many others
    FIELDS_MAX = 256, // each is compared with all names that we know
};

// The text of a value without spaces outside of strings; "" if it is longer than the buffer.
static void squeeze(struct json_value v, char * to, size_t size) {
    size_t n = 0;
    bool   in_string = false;
    for (size_t i = 0; i < v.size && n < size; ++i) {
        in_string ^= v.data[i] == '"'; // an escaped quote is in none of our values
        if (in_string || strchr(" \t\r\n", v.data[i]) == NULL) {
            to[n++] = v.data[i];
        }
    }
    to[n < size ? n : 0] = '\0';
}

bool request_asks_nothing(struct json_value v, const char * neutral) {
    static const char * const nothing = "null false \"\" [] {}";
    char                      text[32];
    bool                      found = v.kind == JSON_MISSING;
    squeeze(v, text, sizeof(text));
    for (int i = 0; i < 2; ++i) {
        for (const char * word = i == 0 ? nothing : neutral; *word != '\0' && !found;) {
            const size_t n = strcspn(word, " ");
            found = slice_is((struct slice) { word, n }, text) ||
                    (v.kind == JSON_NUMBER && strchr("-0123456789", *word) != NULL &&
                            strtod(text, NULL) == strtod(word, NULL));
            word += n + (word[n] == ' ' ? 1 : 0);
        }
    }
    return found;
}

// The part of a path before the first '.'.
static struct slice first_part(const char * path) {
    return (struct slice) { path, strcspn(path, ".") };
}

// The known name that was probably meant; no data: none, or the name is known.
static struct slice find_meant(struct slice name, const char * const * known) {
    struct slice meant = { 0 };
    int          best = name.size < 8 ? 1 : 2;
    for (; *known != NULL; ++known) {
        const struct slice word = first_part(*known);
        const size_t       more = name.size > word.size ? name.size - word.size : 0;
        const int          distance = more > (size_t) best ? SLICE_FAR : slice_distance(name, word);
        if (distance == 0) {
            return (struct slice) { 0 };
        }
        if (distance <= best && word.size >= SHORTEST) {
            best = distance - 1;
            meant = word;
        }
    }
    return meant;
}

// Copies the text of a key to error->name; "" if it is longer than any name.
static bool read_key(struct json_value key, struct request_error * error) {
    struct buffer b = { 0 };
    int64_t       n_lone = 0;
    const bool    ok = json_read_string(key, &b, &n_lone);
    const size_t  size = ok && b.n < sizeof(error->name) ? b.n : 0;
    if (size > 0) {
        memcpy(error->name, b.data, size);
    }
    error->name[size] = '\0';
    buffer_free(&b);
    return ok || request_no_memory(error);
}

static int find_refused(const char * name) {
    int i = 0;
    while (i < N_REFUSED && strcmp(REFUSED[i].name, name) != 0) {
        ++i;
    }
    return i;
}

bool request_check_fields(
        struct json_value body, const char * const * known, struct request_error * error) {
    struct json_value key, value;
    char              quoted[sizeof(error->name) + 8];
    for (int n = 0; json_object_next(&body, &key, &value); ++n) {
        if (n == FIELDS_MAX) {
            return request_fail(error, NULL, "the body has more than %d fields", FIELDS_MAX);
        }
        if (!read_key(key, error)) {
            return false;
        }
        const int i = find_refused(error->name);
        if (i < N_REFUSED) {
            if (!request_asks_nothing(value, REFUSED[i].neutral)) {
                return request_fail(error, REFUSED[i].name, "%s is not supported", REFUSED[i].name);
            }
            continue;
        }
        const struct slice name = slice_of(error->name);
        const struct slice meant = find_meant(name, known);
        if (meant.data != NULL) {
            return request_fail(error, error->name, "unknown field %s; did you mean %.*s?",
                    slice_quote(quoted, sizeof(quoted), name), (int) meant.size, meant.data);
        }
    }
    return true;
}
