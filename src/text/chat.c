// Conversations to tokens.
//
// The special tokens of a format occur only in its literals. The text between two of them, literals
// and messages alike, is tokenized as one text in which the names of special tokens are plain text.
// So the tokens are those of the reference library for the rendered conversation, and no message
// can forge the end of a turn.

#include "base/error.h"
#include "base/read-file.h"
#include "file/model-file.h"
#include "lrnn.h"
#include "text/chat.h"
#include "text/tokenizer-impl.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STOPS = CHAT_MAX_NAMES + 3 };

struct lrnn_chat {
    const struct tokenizer * tok;
    int64_t                  n_vocab;
    struct chat_format       format;
    int32_t                  special[CHAT_MAX_NAMES]; // ids of format.special
    int32_t                  stops[MAX_STOPS];        // tokens that end an answer
    int32_t                  n_stops;
};

// ---- Formats ------------------------------------------------------------------------------------

// The token with this name, or with these bytes; -1: none.
static int32_t find_token(const struct tokenizer * tok, struct slice name) {
    struct token_ids  ids = { 0 };
    struct lrnn_error err;
    int32_t           id = -1;
    if (tokenizer_encode(tok, name.data, name.size, LRNN_TOKENIZE_PARSE_SPECIAL, &ids, &err) &&
            ids.n == 1) {
        id = ids.data[0];
    }
    token_ids_free(&ids);
    return id;
}

static void add_stop(struct lrnn_chat * chat, int64_t id) {
    if (id >= 0 && id < tokenizer_n_tokens(chat->tok) && !lrnn_chat_is_end(chat, (int32_t) id)) {
        chat->stops[chat->n_stops++] = (int32_t) id;
    }
}

// The index of the longest special token of the format at the start of a literal; -1: none.
static int32_t special_at(const struct lrnn_chat * chat, const char * p, size_t size) {
    const struct chat_names * special = &chat->format.special;
    int32_t                   found = -1;
    for (int32_t i = 0; i < special->n; ++i) {
        const struct slice name = special->name[i];
        if (name.size <= size && memcmp(name.data, p, name.size) == 0 &&
                (found < 0 || name.size > special->name[found].size)) {
            found = i;
        }
    }
    return found;
}

static bool resolve_tokens(
        struct lrnn_chat * chat, const struct model_file * file, struct lrnn_error * err) {
    const struct tokenizer *   tok = chat->tok;
    const struct chat_format * f = &chat->format;
    const struct slice         answer = f->literal[CHAT_ASSISTANT_USER];
    char                       quote[QUOTE_SIZE];
    int64_t                    eot = -1;

    for (int32_t i = 0; i < f->special.n; ++i) {
        chat->special[i] = find_token(tok, f->special.name[i]);
        if (chat->special[i] < 0) {
            return error_bad_input(err, "the tokenizer has no token %s",
                    slice_quote(quote, sizeof(quote), f->special.name[i]));
        }
    }
    for (size_t at = 0; at < answer.size; ++at) {
        const int32_t i = special_at(chat, answer.data + at, answer.size - at);
        if (i >= 0) {
            add_stop(chat, chat->special[i]);
            break;
        }
    }
    for (int32_t i = 0; i < f->stop.n; ++i) {
        add_stop(chat, find_token(tok, f->stop.name[i])); // a model may lack some
    }
    add_stop(chat, tokenizer_eos_id(tok));
    model_file_int(file, "tokenizer.ggml.eot_token_id", 0, INT32_MAX, &eot, NULL);
    add_stop(chat, eot);
    return true;
}

// Finds the JSON of the format: by name, in a file, or in the model file. Sets *from to where it
// was found; *data is freed by the caller.
static bool find_format(const struct model_file * file, const char * format, const char ** from,
        struct slice * json, char ** data, struct lrnn_error * err) {
    *from = format;
    *data = NULL;
    if (format != NULL) {
        const char * named = chat_format_named(format);
        if (named != NULL) {
            *json = slice_of(named);
            return true;
        }
        struct lrnn_error why;
        if (!read_file(format, data, &json->size, &why)) {
            return error_bad_input(
                    err, "no chat format has the name %s, and: %s", format, why.text);
        }
        json->data = *data;
        return true;
    }
    *from = "lrnn.chat_format";
    if (model_file_text(file, *from, json, err) == KEY_OK) {
        return true;
    }
    struct slice jinja;
    if (model_file_text(file, "tokenizer.chat_template", &jinja, err) != KEY_OK) {
        return error_bad_model(
                err, "%s has no chat template; name a chat format", model_file_path(file));
    }
    *from = chat_format_recognize(jinja);
    if (*from == NULL) {
        return error_bad_model(err,
                "the chat template of %s is Jinja source of an unknown format; compile it with "
                "'lrnn-convert chat-format %s -o format.json' and name that file",
                model_file_path(file), model_file_path(file));
    }
    *json = slice_of(chat_format_named(*from));
    return true;
}

struct lrnn_chat * chat_new(const struct tokenizer * tok, const struct model_file * file,
        int64_t n_vocab, const char * format, struct lrnn_error * err) {
    const char *      from;
    struct slice      json;
    char *            data;
    struct lrnn_error why;

    if (tok == NULL || tok->kind == TOKENIZER_SYMBOLS) {
        error_bad_input(err, "chat needs a tokenizer for text, which the model does not have");
        return NULL;
    }
    struct lrnn_chat * chat = calloc(1, sizeof(*chat));
    if (chat == NULL) {
        error_no_memory(err, "a chat format");
        return NULL;
    }
    chat->tok = tok;
    chat->n_vocab = n_vocab;
    if (!find_format(file, format, &from, &json, &data, err)) {
        lrnn_chat_free(chat);
        free(data);
        return NULL;
    }
    if (!chat_format_parse(&chat->format, json.data, json.size, &why) ||
            !resolve_tokens(chat, file, &why)) {
        error_set(err, why.kind, "chat format %s: %s", from, why.text);
        lrnn_chat_free(chat);
        chat = NULL;
    }
    free(data);
    return chat;
}

void lrnn_chat_free(struct lrnn_chat * chat) {
    if (chat != NULL) {
        chat_format_free(&chat->format);
        free(chat);
    }
}

bool lrnn_chat_is_end(const struct lrnn_chat * chat, int32_t token) {
    for (int32_t i = 0; i < chat->n_stops; ++i) {
        if (chat->stops[i] == token) {
            return true;
        }
    }
    return false;
}

const char * lrnn_chat_thinking_mark(const struct lrnn_chat * chat, bool closing, size_t * size) {
    const struct slice mark = closing ? chat->format.think_close : chat->format.think_open;
    *size = mark.size;
    return mark.data;
}

static struct slice generation_literal(const struct chat_format * f, bool no_thinking) {
    const struct slice quiet = f->literal[CHAT_USER_GENERATION_NO_THINKING];
    return no_thinking && quiet.data != NULL ? quiet : f->literal[CHAT_USER_GENERATION];
}

bool lrnn_chat_begins_thinking(const struct lrnn_chat * chat, bool no_thinking) {
    const struct chat_format * f = &chat->format;
    struct slice               prompt = generation_literal(f, no_thinking);
    while (prompt.size > 0 && prompt.data[prompt.size - 1] == '\n') {
        --prompt.size;
    }
    return f->has_thinking && prompt.size >= f->think_open.size &&
           memcmp(prompt.data + prompt.size - f->think_open.size, f->think_open.data,
                   f->think_open.size) == 0;
}

// ---- Conversations ------------------------------------------------------------------------------

struct chat_writer {
    const struct lrnn_chat * chat;
    struct token_ids         ids;
    struct buffer            text;          // since the last special token
    size_t                   n_special_end; // number of tokens up to the last special one
};

static bool out_of_memory(struct lrnn_error * err) {
    return error_no_memory(err, "the tokens of a conversation");
}

static bool flush_text(struct chat_writer * w, struct lrnn_error * err) {
    const bool ok = w->text.n == 0 ||
                    tokenizer_encode(w->chat->tok, w->text.data, w->text.n, 0, &w->ids, err);
    w->text.n = 0;
    return ok;
}

static bool write_literal(struct chat_writer * w, struct slice literal, struct lrnn_error * err) {
    for (size_t at = 0; at < literal.size;) {
        const int32_t i = special_at(w->chat, literal.data + at, literal.size - at);
        if (i < 0) {
            if (!buffer_append(&w->text, literal.data + at, 1)) {
                return out_of_memory(err);
            }
            ++at;
            continue;
        }
        if (!flush_text(w, err)) {
            return false;
        }
        if (!token_ids_push(&w->ids, w->chat->special[i])) {
            return out_of_memory(err);
        }
        w->n_special_end = w->ids.n;
        at += w->chat->format.special.name[i].size;
    }
    return true;
}

static bool write_text(struct chat_writer * w, struct slice text, struct lrnn_error * err) {
    return buffer_append(&w->text, text.data, text.size) || out_of_memory(err);
}

// True if the prompt for an answer, followed by the generated tokens, is the text that the format
// shows for the answer later on: then the tokens stand for it.
static bool keeps_tokens(const struct lrnn_chat * chat, const struct lrnn_message * m,
        struct slice content, bool no_thinking) {
    const struct slice    shown = chat->format.literal[CHAT_USER_ASSISTANT];
    const struct slice    prompt = generation_literal(&chat->format, no_thinking);
    struct lrnn_decoder * d = m->tokens != NULL ? decoder_new(chat->tok, true) : NULL;
    struct buffer         a = { 0 }, b = { 0 };
    size_t                size;

    bool ok = d != NULL && buffer_append(&a, prompt.data, prompt.size) &&
              buffer_append(&b, shown.data, shown.size) &&
              buffer_append(&b, content.data, content.size);
    for (int64_t i = 0; ok && i < m->n_tokens; ++i) {
        const char * text = lrnn_decoder_push(d, m->tokens[i], &size);
        ok = buffer_append(&a, text, size);
    }
    if (ok) {
        const char * text = lrnn_decoder_end(d, &size);
        ok = buffer_append(&a, text, size) && a.n == b.n && memcmp(a.data, b.data, a.n) == 0;
    }
    lrnn_decoder_free(d);
    buffer_free(&a);
    buffer_free(&b);
    return ok;
}

static bool write_answer(struct chat_writer * w, const struct lrnn_message * m, bool no_thinking,
        struct lrnn_error * err) {
    const struct chat_format * f = &w->chat->format;
    const struct slice         content =
            chat_content(f, CHAT_ASSISTANT, (struct slice) { m->content, m->size });
    if (!keeps_tokens(w->chat, m, content, no_thinking)) {
        return write_literal(w, f->literal[CHAT_USER_ASSISTANT], err) &&
               write_text(w, content, err);
    }
    if (!write_literal(w, generation_literal(f, no_thinking), err) || !flush_text(w, err)) {
        return false;
    }
    for (int64_t i = 0; i < m->n_tokens; ++i) {
        if (!token_ids_push(&w->ids, m->tokens[i])) {
            return out_of_memory(err);
        }
    }
    return true;
}

static bool check_messages(const struct lrnn_chat * chat, const struct lrnn_message * messages,
        int64_t n, struct lrnn_error * err) {
    const struct chat_format * f = &chat->format;
    const bool                 system = n > 0 && strcmp(messages[0].role, "system") == 0;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t      turn = i - system;
        const char * const role = CHAT_ROLE_NAMES[turn < 0        ? CHAT_SYSTEM
                                                  : turn % 2 == 0 ? CHAT_USER
                                                                  : CHAT_ASSISTANT];
        char               quote[QUOTE_SIZE];
        if (strcmp(messages[i].role, role) != 0) {
            return error_bad_input(err,
                    "message %lld has the role %s; expected %s: an optional system message, then "
                    "user and assistant in turn",
                    (long long) i, slice_quote(quote, sizeof(quote), slice_of(messages[i].role)),
                    role);
        }
        for (int64_t k = 0; messages[i].tokens != NULL && k < messages[i].n_tokens; ++k) {
            const int32_t token = messages[i].tokens[k];
            if (token < 0 || token >= chat->n_vocab) {
                return error_bad_input(err, "message %lld has the token %d; expected 0 to %lld",
                        (long long) i, (int) token, (long long) chat->n_vocab - 1);
            }
        }
    }
    if (n == 0 || strcmp(messages[n - 1].role, "user") != 0) {
        return error_bad_input(err, n == 0 ? "the conversation has no message"
                                           : "the last message is not from the user");
    }
    if (system && f->literal[CHAT_BEGIN_SYSTEM].data == NULL) {
        return error_bad_input(err, "the chat format has no system messages");
    }
    return true;
}

static bool write_conversation(struct chat_writer * w, const struct lrnn_message * messages,
        int64_t n, bool no_thinking, struct lrnn_error * err) {
    static const enum chat_literal before_user[N_CHAT_ROLES + 1] = { CHAT_SYSTEM_USER,
        CHAT_BEGIN_USER, CHAT_ASSISTANT_USER, CHAT_BEGIN_USER };
    const struct chat_format *     f = &w->chat->format;
    enum chat_role                 last = N_CHAT_ROLES;

    for (int64_t i = 0; i < n; ++i) {
        const struct lrnn_message * m = &messages[i];
        enum chat_role              role = CHAT_SYSTEM;
        while (strcmp(m->role, CHAT_ROLE_NAMES[role]) != 0) {
            ++role;
        }
        const struct slice text = chat_content(f, role, (struct slice) { m->content, m->size });
        bool               ok = true;
        if (role == CHAT_ASSISTANT) {
            ok = write_answer(w, m, no_thinking, err);
        } else if (role == CHAT_USER || !f->omit_empty_system || text.size > 0) {
            const enum chat_literal literal =
                    role == CHAT_SYSTEM ? CHAT_BEGIN_SYSTEM : before_user[last];
            ok = write_literal(w, f->literal[literal], err) && write_text(w, text, err);
        } else {
            continue; // an empty system message
        }
        if (!ok) {
            return false;
        }
        last = role;
    }
    return true;
}

// The number of bytes with which the prompt for an answer begins like the text before an earlier
// answer; never the middle of a special token.
static size_t shared_size(const struct lrnn_chat * chat, struct slice prompt) {
    const struct slice earlier = chat->format.literal[CHAT_USER_ASSISTANT];
    size_t             at = 0;
    while (at < prompt.size) {
        const int32_t i = special_at(chat, prompt.data + at, prompt.size - at);
        const size_t  n = i < 0 ? 1 : chat->format.special.name[i].size;
        if (at + n > earlier.size || memcmp(prompt.data + at, earlier.data + at, n) != 0) {
            break;
        }
        at += n;
    }
    return at;
}

bool lrnn_chat_tokenize(const struct lrnn_chat * chat, const struct lrnn_message * messages,
        int64_t n_messages, bool no_thinking, int32_t ** tokens, int64_t * n_tokens,
        int64_t * n_stable, struct lrnn_error * err) {
    const struct slice prompt = generation_literal(&chat->format, no_thinking);
    const size_t       shared = shared_size(chat, prompt);
    struct chat_writer w = { .chat = chat };

    *tokens = NULL;
    *n_tokens = 0;
    // stable: up to the last special token shared by the answer prompt and the text before earlier
    // answers
    bool ok = check_messages(chat, messages, n_messages, err) &&
              write_conversation(&w, messages, n_messages, no_thinking, err) &&
              write_literal(&w, (struct slice) { prompt.data, shared }, err);
    const size_t n_end = w.n_special_end;
    ok = ok &&
         write_literal(&w, (struct slice) { prompt.data + shared, prompt.size - shared }, err) &&
         flush_text(&w, err);
    buffer_free(&w.text);
    if (!ok) {
        token_ids_free(&w.ids);
        return false;
    }
    *tokens = w.ids.data;
    *n_tokens = (int64_t) w.ids.n;
    if (n_stable != NULL) {
        *n_stable = (int64_t) n_end;
    }
    return true;
}
