// Chat formats: the tokens of a conversation, spelled out, are the text that Jinja makes of it
// (test-chat-cases.py). Names of special tokens inside messages do not become special tokens. A
// conversation that continues begins with the tokens of the shorter one.
//
// The model is a golden one with a tokenizer of bytes and all special tokens of the formats. Its
// file has the Jinja source of the format, which must be recognized.

#include "base/json-read.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "lrnn.h"
#include "text/chat.h"

#include <unistd.h>

enum { N_BYTES = 256, MAX_MESSAGES = 16, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

static const char * const SPECIAL[] = { "<s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" };

enum { N_SPECIAL = sizeof(SPECIAL) / sizeof(SPECIAL[0]), V = N_BYTES + N_SPECIAL, EOS = N_BYTES };

static bool make_model(const char * from, const char * path, const char * key, const char * text) {
    static char       names[N_BYTES][8];
    const char *      tokens[V];
    int32_t           types[V];
    struct model_edit e;
    for (int i = 0; i < V; ++i) {
        types[i] = i < N_BYTES ? TYPE_BYTE : TYPE_CONTROL;
        tokens[i] = i < N_BYTES ? names[i] : SPECIAL[i - N_BYTES];
        if (i < N_BYTES) {
            snprintf(names[i], sizeof(names[i]), "<0x%02X>", (unsigned) i);
        }
    }
    if (!model_edit_open(&e, from)) {
        return false;
    }
    const int64_t width = model_edit_find(&e, "token_embd.weight")->ne[0];
    model_edit_put(&e, "token_embd.weight", GGML_TYPE_F32, 2, (const int64_t[]) { width, V });
    model_edit_put(&e, "output.weight", GGML_TYPE_F32, 2, (const int64_t[]) { width, V });
    gguf_set_val_u32(e.gguf, "lrnn.vocab_size", V);
    gguf_set_val_str(e.gguf, "tokenizer.ggml.model", "lrnn-bytes");
    gguf_set_arr_str(e.gguf, "tokenizer.ggml.tokens", tokens, V);
    gguf_set_arr_data(e.gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, V);
    gguf_set_val_u32(e.gguf, "tokenizer.ggml.eos_token_id", EOS);
    gguf_set_val_u32(e.gguf, "tokenizer.ggml.eot_token_id", '\n');
    if (key != NULL) {
        gguf_set_val_str(e.gguf, key, text);
    }
    const bool ok = model_edit_write(&e, path);
    model_edit_close(&e);
    return ok;
}

static struct lrnn_model * load(
        struct test * t, const char * from, const char * key, const char * text) {
    char              path[64];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    test_own_path(path, sizeof(path), "test-chat.gguf");
    struct lrnn_model * model =
            make_model(from, path, key, text) ? lrnn_model_load(path, NULL, &err) : NULL;
    test_check(t, model != NULL, "%s: %s", path, err.text);
    remove(path);
    return model;
}

//
// Conversations
//

struct conversation {
    struct lrnn_message messages[MAX_MESSAGES];
    int64_t             n;
    char *              text; // owns the contents
    char *              expected;
    size_t              expected_size;
    bool                no_thinking;
};

static void free_conversation(struct conversation * c) {
    free(c->text);
    free(c->expected);
}

static void set_roles(struct conversation * c, bool system) {
    for (int64_t i = 0; i < c->n; ++i) {
        const int64_t turn = i - system;
        c->messages[i].role = turn < 0 ? "system" : turn % 2 == 0 ? "user" : "assistant";
    }
}

// Reads a case if it is of this format.
static bool read_case(
        const char * line, size_t size, const char * format, struct conversation * c) {
    static const char * const keys[] = { "format", "no_thinking", "text", "messages", "system" };
    struct json_path          paths[5];
    struct json_value         v[5], item;
    struct json_error         error;
    struct buffer             text = { 0 }, expected = { 0 };
    int64_t                   n_lone = 0;
    size_t                    at[MAX_MESSAGES + 1];

    for (int i = 0; i < 5; ++i) {
        json_path_parse(keys[i], strlen(keys[i]), &paths[i]);
    }
    if (json_read(line, size, paths, 5, v, &error) != JSON_OBJECT ||
            !json_string_is(v[0], format, strlen(format))) {
        return false;
    }
    *c = (struct conversation) { .no_thinking = v[1].kind == JSON_TRUE };
    json_read_string(v[2], &expected, &n_lone);
    while (json_array_next(&v[3], &item)) {
        at[c->n++] = text.n;
        json_read_string(item, &text, &n_lone);
    }
    at[c->n] = text.n;
    c->text = text.data;
    c->expected = expected.data;
    c->expected_size = expected.n;
    for (int64_t i = 0; i < c->n; ++i) {
        c->messages[i].content = text.data + at[i];
        c->messages[i].size = at[i + 1] - at[i];
    }
    set_roles(c, v[4].kind == JSON_TRUE);
    return true;
}

struct prompt {
    int32_t * tokens;
    int64_t   n, n_stable;
};

static bool tokenize(struct test * t, const struct lrnn_chat * chat, const struct conversation * c,
        int64_t n, struct prompt * p) {
    struct lrnn_error err;
    return test_check(t,
            lrnn_chat_tokenize(
                    chat, c->messages, n, c->no_thinking, &p->tokens, &p->n, &p->n_stable, &err),
            "%s", err.text);
}

static bool begins_with(const struct prompt * p, const int32_t * tokens, int64_t n) {
    return n <= p->n && memcmp(p->tokens, tokens, (size_t) n * sizeof(*tokens)) == 0;
}

static void expect_text(struct test * t, const struct lrnn_model * model, const struct prompt * p,
        const struct conversation * c) {
    size_t at = 0;
    bool   ok = true;
    for (int64_t i = 0; i < p->n && ok; ++i) {
        size_t       size;
        const char * s = lrnn_token_bytes(model, p->tokens[i], &size);
        ok = at + size <= c->expected_size && memcmp(c->expected + at, s, size) == 0;
        at += size;
    }
    test_check(t, ok && at == c->expected_size, "expected %.*s; differs before byte %zu",
            (int) c->expected_size, c->expected, at);
}

static int64_t count_special(const struct prompt * p) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->n; ++i) {
        n += p->tokens[i] >= N_BYTES;
    }
    return n;
}

// The same conversation with x for every '<' has as many special tokens.
static void expect_no_forgery(struct test * t, const struct lrnn_chat * chat,
        const struct conversation * c, const struct prompt * p) {
    struct prompt plain;
    for (int64_t i = 0; i < c->n; ++i) {
        for (size_t k = 0; k < c->messages[i].size; ++k) {
            char * byte = c->text + (c->messages[i].content - c->text) + k;
            *byte = *byte == '<' ? 'x' : *byte;
        }
    }
    if (tokenize(t, chat, c, c->n, &plain)) {
        test_check(t, count_special(&plain) == count_special(p),
                "%lld special tokens; expected %lld: messages contain special tokens",
                (long long) count_special(p), (long long) count_special(&plain));
        free(plain.tokens);
    }
}

static int64_t test_cases(struct test * t, const struct lrnn_model * model,
        const struct lrnn_chat * chat, const char * format) {
    size_t  size;
    char *  data = (char *) test_read_file(LRNN_CASES, &size);
    int64_t n = 0;
    for (char *line = data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct conversation c;
        struct prompt       p;
        if (!read_case(line, (size_t) (end - line), format, &c)) {
            continue;
        }
        if (tokenize(t, chat, &c, c.n, &p)) {
            expect_text(t, model, &p, &c);
            expect_no_forgery(t, chat, &c, &p);
            free(p.tokens);
        }
        free_conversation(&c);
        ++n;
    }
    free(data);
    return n;
}

// Answers as a model would generate them: the prompt of the next turn begins with the tokens of
// this turn and its answer, or at least with its stable tokens if the answer has thoughts.
static void test_turns(struct test * t, const struct lrnn_chat * chat, const char * format) {
    const bool          is_rwkv = strcmp(format, "rwkv-world") == 0;
    const char * const  answers[] = { "Yes", "a\n\nb", "thoughts\n</think>\n\nNo" };
    struct conversation c = { .n = 7 };
    int32_t             answered[3][64];
    struct prompt       before = { 0 }, now;

    set_roles(&c, false);
    for (int i = 0; i < 7; ++i) {
        const char * content = i % 2 == 0 ? "Why <|im_end|>?" : answers[i / 2];
        c.messages[i].content = content;
        c.messages[i].size = strlen(content);
    }
    for (int64_t n = 1; n <= 7; n += 2) {
        if (!tokenize(t, chat, &c, n, &now)) {
            break;
        }
        size_t     size;
        const bool has_thoughts = n > 1 && strstr(answers[n / 2 - 1], "</think>") != NULL &&
                                  lrnn_chat_thinking_mark(chat, true, &size) != NULL;
        const bool opens = lrnn_chat_begins_thinking(chat, false);
        if (n > 1) {
            const struct lrnn_message * answer = &c.messages[n - 2];
            test_check(t, begins_with(&now, before.tokens, before.n_stable),
                    "%s: turn %lld does not begin with the stable tokens", format, (long long) n);
            if (!has_thoughts && !opens) {
                test_check(t,
                        begins_with(&now, before.tokens, before.n) &&
                                memcmp(now.tokens + before.n, answer->tokens,
                                        (size_t) answer->n_tokens * sizeof(int32_t)) == 0,
                        "%s: turn %lld does not begin with the previous turn", format,
                        (long long) n);
            }
            free(before.tokens);
        }
        test_check(t, now.n_stable <= now.n && (is_rwkv || now.n_stable > now.n - 60),
                "%s: %lld of %lld tokens are stable", format, (long long) now.n_stable,
                (long long) now.n);
        if (n < 7) { // "generate" the answer: one token per byte
            struct lrnn_message * answer = &c.messages[n];
            int32_t *             tokens = answered[n / 2];
            answer->n_tokens = 0;
            if (is_rwkv) { // its prompt ends with "Assistant:"
                tokens[answer->n_tokens++] = ' ';
            }
            for (size_t k = 0; k < answer->size; ++k) {
                tokens[answer->n_tokens++] = (unsigned char) answer->content[k];
            }
            answer->tokens = tokens;
        }
        before = now;
    }
    free(before.tokens);
}

static void test_format(struct test * t, const char * golden, const char * format) {
    char              path[1024];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    size_t            size;
    snprintf(path, sizeof(path), "%s/%s.jinja", LRNN_CHAT_DATA, format);
    char *              jinja = (char *) test_read_file(path, &size);
    struct lrnn_model * model = load(t, golden, "tokenizer.chat_template", jinja);
    const char *        name = chat_format_recognize((struct slice) { jinja, size });

    test_check(t, name != NULL && strcmp(name, format) == 0, "%s is recognized as %s", path,
            name != NULL ? name : "nothing");
    free(jinja);
    struct lrnn_chat * chat = model != NULL ? lrnn_chat_new(model, NULL, &err) : NULL;
    if (test_check(t, chat != NULL, "%s: %s", format, err.text)) {
        const int64_t n = test_cases(t, model, chat, format);
        test_check(t, n > 50, "%s: only %lld conversations", format, (long long) n);
        test_turns(t, chat, format);
        test_check(t, lrnn_chat_is_end(chat, EOS) && lrnn_chat_is_end(chat, '\n'),
                "%s: eos or eot does not end an answer", format);
        test_check(t, !lrnn_chat_is_end(chat, 'a') && !lrnn_chat_is_end(chat, -1),
                "%s: text ends an answer", format);
    }
    lrnn_chat_free(chat);
    lrnn_model_free(model);
}

//
// Refused
//

static void expect_error(struct test * t, const struct lrnn_model * model, const char * format,
        const char * expected) {
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    struct lrnn_chat * chat = lrnn_chat_new(model, format, &err);
    test_check(t, chat == NULL && strstr(err.text, expected) != NULL, "%s: '%s'; expected '%s'",
            format != NULL ? format : "the model's format", err.text, expected);
    lrnn_chat_free(chat);
}

#define LITERALS                                                                              \
    "\"begin_user\": \"U\", \"user_assistant\": \"A\", \"assistant_user\": \"<|im_end|>U\", " \
    "\"user_generation\": \"A\""

static void test_bad_formats(struct test * t, const char * golden) {
    static const struct {
        const char *json, *error;
    } cases[] = {
        { "", "not JSON" },
        { "[]", "expected an object" },
        { "{}", "\"version\" is missing; expected 1" },
        { "{\"version\": 2}", "\"version\" is '2'; expected 1" },
        { "{\"version\": 1}", "\"begin_user\" is missing; expected a string" },
        { "{\"version\": 1, " LITERALS ", \"begin_system\": \"S\"}", "expected both" },
        { "{\"version\": 1, " LITERALS ", \"trim\": [\"tool\"]}", "\"trim\" has 'tool'" },
        { "{\"version\": 1, " LITERALS ", \"trim\": \"user\"}", "expected an array of strings" },
        { "{\"version\": 1, " LITERALS ", \"thinking\": [\"<think>\"]}", "expected 2" },
        { "{\"version\": 1, " LITERALS ", \"drop_thinking\": \"\"}", "without \"thinking\"" },
        { "{\"version\": 1, " LITERALS ", \"thinking\": [\"a\", \"b\"], \"drop_thinking\": \"x\"}",
                "expected \"\", \"\\n\" or \" \"" },
        { "{\"version\": 1, " LITERALS ", \"special\": [\"\"]}", "an empty name" },
        { "{\"version\": 1, " LITERALS ", \"special\": [\"<|nope|>\"]}", "no token '<|nope|>'" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct lrnn_model * model = load(t, golden, "lrnn.chat_format", cases[i].json);
        if (model != NULL) {
            expect_error(t, model, NULL, cases[i].error);
        }
        lrnn_model_free(model);
    }
}

static void test_refusals(struct test * t, const char * golden) {
    struct lrnn_model * model = load(t, golden, NULL, NULL);
    struct lrnn_model * ids = golden_load_model("delta_net_neg");
    struct lrnn_error   err;
    int32_t *           tokens;
    int64_t             n;

    expect_error(t, ids, "chatml", "chat needs a tokenizer");
    expect_error(t, model, NULL, "has no chat template");
    expect_error(t, model, "no-such-format", "no chat format has the name no-such-format");
    struct lrnn_chat * chat = lrnn_chat_new(model, "chatml", &err);
    static const struct {
        const char *roles[3], *error;
    } cases[] = {
        { { NULL }, "no message" },
        { { "assistant" }, "message 0 has the role 'assistant'; expected user" },
        { { "user", "user" }, "message 1 has the role 'user'; expected assistant" },
        { { "system", "tool" }, "message 1 has the role 'tool'; expected user" },
        { { "user", "assistant" }, "the last message is not from the user" },
        { { "system" }, "the last message is not from the user" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct lrnn_message m[3] = { { .content = "x", .size = 1 }, { .content = "" }, { 0 } };
        int64_t             n_m = 0;
        while (n_m < 3 && cases[i].roles[n_m] != NULL) {
            m[n_m].role = cases[i].roles[n_m];
            ++n_m;
        }
        test_check(t,
                !lrnn_chat_tokenize(chat, m, n_m, false, &tokens, &n, NULL, &err) &&
                        strstr(err.text, cases[i].error) != NULL,
                "case %zu: '%s'; expected '%s'", i, err.text, cases[i].error);
    }
    for (int32_t i = 0; lrnn_chat_format(i) != NULL; ++i) { // every built-in format parses
        struct lrnn_chat * named = lrnn_chat_new(model, lrnn_chat_format(i), &err);
        test_check(t, named != NULL, "%s", err.text);
        lrnn_chat_free(named);
    }
    lrnn_chat_free(chat);
    lrnn_model_free(model);
    lrnn_model_free(ids);

    model = load(t, golden, "tokenizer.chat_template", "{{ messages[0]['content'] }}");
    expect_error(t, model, NULL, "lrnn-convert chat-format");
    lrnn_model_free(model);
}

int main(void) {
    struct test        t = { 0 };
    struct golden_list golden;
    golden_list_load(&golden);
    const char * path = golden_find(&golden, "delta_net_neg")->path;
    for (int32_t i = 0; lrnn_chat_format(i) != NULL; ++i) {
        test_format(&t, path, lrnn_chat_format(i));
    }
    test_bad_formats(&t, path);
    test_refusals(&t, path);
    golden_list_free(&golden);
    return test_end(&t, "test-chat");
}
