// Reads chat formats, and applies their conditions to a message.

#include "base/error.h"
#include "base/json-read.h"
#include "base/unicode.h"
#include "text/chat.h"

#include <string.h>

enum { VERSION = 1 };

const char * const CHAT_ROLE_NAMES[N_CHAT_ROLES] = { "system", "user", "assistant" };

// The keys: the literals first, in the order of enum chat_literal.
enum {
    KEY_VERSION = N_CHAT_LITERALS,
    KEY_TRIM,
    KEY_OMIT,
    KEY_THINKING,
    KEY_DROP,
    KEY_SPECIAL,
    KEY_STOP,
    N_KEYS
};

static const char * const KEYS[N_KEYS] = { "begin_system", "system_user", "begin_user",
    "user_assistant", "assistant_user", "user_generation", "user_generation_no_thinking", "version",
    "trim", "omit_empty_system", "thinking", "drop_thinking", "special", "stop" };

static bool wrong(
        const char * key, struct json_value v, const char * expected, struct lrnn_error * err) {
    return error_bad_file(err, "\"%s\" is %s; expected %s", key, json_kind_name(v.kind), expected);
}

// Appends a string to f->text, which has room for it: the slices point into it.
static bool take_string(struct chat_format * f, const char * key, struct json_value v,
        struct slice * out, struct lrnn_error * err) {
    const size_t at = f->text.n;
    int64_t      n_lone = 0;
    if (v.kind != JSON_STRING) {
        return wrong(key, v, "a string", err);
    }
    if (!json_read_string(v, &f->text, &n_lone)) {
        return error_no_memory(err, "\"%s\"", key);
    }
    *out = (struct slice) { f->text.data + at, f->text.n - at };
    return true;
}

static bool take_names(struct chat_format * f, const char * key, struct json_value v,
        struct chat_names * names, struct lrnn_error * err) {
    struct json_value item;
    if (v.kind == JSON_MISSING) {
        return true;
    }
    if (v.kind != JSON_ARRAY) {
        return wrong(key, v, "an array of strings", err);
    }
    while (json_array_next(&v, &item)) {
        if (names->n == CHAT_MAX_NAMES) {
            return error_bad_file(err, "\"%s\" has more than %d names", key, CHAT_MAX_NAMES);
        }
        struct slice * name = &names->name[names->n++];
        if (!take_string(f, key, item, name, err)) {
            return false;
        }
        if (name->size == 0) {
            return error_bad_file(err, "\"%s\" has an empty name", key);
        }
    }
    return true;
}

static bool take_trim(struct chat_format * f, struct json_value v, struct lrnn_error * err) {
    struct chat_names names = { .n = 0 };
    if (!take_names(f, "trim", v, &names, err)) {
        return false;
    }
    for (int32_t i = 0; i < names.n; ++i) {
        int role = 0;
        while (role < N_CHAT_ROLES && !slice_is(names.name[i], CHAT_ROLE_NAMES[role])) {
            ++role;
        }
        if (role == N_CHAT_ROLES) {
            char quote[64];
            return error_bad_file(err, "\"trim\" has %s; expected system, user or assistant",
                    slice_quote(quote, sizeof(quote), names.name[i]));
        }
        f->trim[role] = true;
    }
    return true;
}

static bool take_thinking(struct chat_format * f, struct json_value thinking,
        struct json_value drop, struct lrnn_error * err) {
    struct chat_names marks = { .n = 0 };
    if (!take_names(f, "thinking", thinking, &marks, err)) {
        return false;
    }
    if (thinking.kind != JSON_MISSING) {
        if (marks.n != 2) {
            return error_bad_file(err, "\"thinking\" has %d strings; expected 2", (int) marks.n);
        }
        f->has_thinking = true;
        f->think_open = marks.name[0];
        f->think_close = marks.name[1];
    }
    if (drop.kind == JSON_MISSING) {
        return true;
    }
    if (!f->has_thinking) {
        return error_bad_file(err, "\"drop_thinking\" without \"thinking\"");
    }
    f->drop_thinking = true;
    f->drop_newlines = json_string_is(drop, "\n", 1);
    f->drop_space = json_string_is(drop, " ", 1);
    if (!f->drop_newlines && !f->drop_space && !json_string_is(drop, "", 0)) {
        return wrong("drop_thinking", drop, "\"\", \"\\n\" or \" \"", err);
    }
    return true;
}

static bool parse(struct chat_format * f, const char * json, size_t size, struct lrnn_error * err) {
    struct json_path  paths[N_KEYS];
    struct json_value v[N_KEYS];
    struct json_error error;

    for (int i = 0; i < N_KEYS; ++i) {
        json_path_parse(KEYS[i], strlen(KEYS[i]), &paths[i]);
    }
    const enum json_kind kind = json_read(json, size, paths, N_KEYS, v, &error);
    if (kind == JSON_MISSING) {
        return error_bad_file(err, "not JSON: %s at byte %zu", error.what, error.at);
    }
    if (kind != JSON_OBJECT) {
        return error_bad_file(err, "the JSON is %s; expected an object", json_kind_name(kind));
    }
    if (v[KEY_VERSION].kind != JSON_NUMBER || v[KEY_VERSION].size != 1 ||
            v[KEY_VERSION].data[0] != '0' + VERSION) {
        const struct slice found = { v[KEY_VERSION].data, v[KEY_VERSION].size };
        char               quote[64];
        return error_bad_file(err, "\"version\" is %s; expected %d",
                v[KEY_VERSION].kind == JSON_MISSING ? "missing"
                                                    : slice_quote(quote, sizeof(quote), found),
                VERSION);
    }
    // strings only shrink when they are decoded: no slice into f->text ever moves
    if (!buffer_append(&f->text, json, size)) {
        return error_no_memory(err, "a chat format of %zu bytes", size);
    }
    f->text.n = 0;
    for (int i = 0; i < N_CHAT_LITERALS; ++i) {
        const bool is_optional = i == CHAT_BEGIN_SYSTEM || i == CHAT_SYSTEM_USER ||
                                 i == CHAT_USER_GENERATION_NO_THINKING;
        if (v[i].kind == JSON_MISSING && is_optional) {
            continue;
        }
        if (!take_string(f, KEYS[i], v[i], &f->literal[i], err)) {
            return false;
        }
    }
    if ((f->literal[CHAT_BEGIN_SYSTEM].data == NULL) !=
            (f->literal[CHAT_SYSTEM_USER].data == NULL)) {
        return error_bad_file(
                err, "only one of \"begin_system\" and \"system_user\"; expected both");
    }
    f->omit_empty_system = v[KEY_OMIT].kind == JSON_TRUE;
    return take_trim(f, v[KEY_TRIM], err) && take_thinking(f, v[KEY_THINKING], v[KEY_DROP], err) &&
           take_names(f, "special", v[KEY_SPECIAL], &f->special, err) &&
           take_names(f, "stop", v[KEY_STOP], &f->stop, err);
}

bool chat_format_parse(
        struct chat_format * f, const char * json, size_t size, struct lrnn_error * err) {
    *f = (struct chat_format) { .has_thinking = false };
    if (!parse(f, json, size, err)) {
        chat_format_free(f);
        return false;
    }
    return true;
}

void chat_format_free(struct chat_format * f) {
    buffer_free(&f->text);
    *f = (struct chat_format) { .has_thinking = false };
}

// White space as Python's strip(): the property White_Space and the four separators.
static bool is_space(uint32_t cp) {
    return (cp >= 0x1c && cp <= 0x1f) || char_class_of(cp) == CHAR_CLASS_SPACE;
}

static struct slice strip_left(struct slice s) {
    uint32_t cp;
    int      bad, n;
    while (s.size > 0 && (n = utf8_decode(s.data, s.data + s.size, &cp, &bad)) > 0 &&
            is_space(cp)) {
        s.data += n;
        s.size -= (size_t) n;
    }
    return s;
}

static struct slice strip_right(struct slice s) {
    while (s.size > 0) {
        uint32_t cp;
        int      bad;
        size_t   at = s.size - 1;
        while (at > 0 && s.size - at < 4 && ((unsigned char) s.data[at] & 0xC0) == 0x80) {
            --at;
        }
        if (utf8_decode(s.data + at, s.data + s.size, &cp, &bad) != (int) (s.size - at) ||
                !is_space(cp)) {
            break;
        }
        s.size = at;
    }
    return s;
}

// The text after the last occurrence of `mark`, or all of it.
static struct slice after_last(struct slice s, struct slice mark) {
    for (size_t at = s.size; at >= mark.size; --at) {
        if (memcmp(s.data + at - mark.size, mark.data, mark.size) == 0) {
            return (struct slice) { s.data + at, s.size - at };
        }
    }
    return s;
}

struct slice chat_content(const struct chat_format * f, enum chat_role role, struct slice text) {
    if (f->trim[role]) {
        text = strip_right(strip_left(text));
    }
    if (role != CHAT_ASSISTANT || !f->drop_thinking) {
        return text;
    }
    const struct slice rest = after_last(text, f->think_close);
    if (rest.size == text.size) {
        return text;
    }
    text = rest;
    if (f->drop_space) {
        return strip_left(text);
    }
    while (f->drop_newlines && text.size > 0 && text.data[0] == '\n') {
        ++text.data;
        --text.size;
    }
    return text;
}
