// Chat formats, as model files and --chat-format bring them, and messages for them. The input is
// the JSON of a format up to the first zero byte, then a message. A format is refused with a
// message, or its texts are inside its buffer and it shows a part of any message. The same bytes
// are also the Jinja source of a template.

#include "fuzz/fuzz.h"
#include "text/chat.h"

static bool is_inside(struct slice part, const char * data, size_t size) {
    return part.size == 0 || (part.data >= data && part.size <= size &&
                                     (size_t) (part.data - data) <= size - part.size);
}

static void check_names(const struct chat_format * f, const struct chat_names * names) {
    require(names->n >= 0 && names->n <= CHAT_MAX_NAMES, "too many names");
    for (int32_t i = 0; i < names->n; ++i) {
        require(is_inside(names->name[i], f->text.data, f->text.n), "a name is elsewhere");
    }
}

static void check_format(const struct chat_format * f, struct slice message) {
    for (int i = 0; i < N_CHAT_LITERALS; ++i) {
        require(is_inside(f->literal[i], f->text.data, f->text.n), "a literal is elsewhere");
    }
    require(f->literal[CHAT_BEGIN_USER].data != NULL && f->literal[CHAT_USER_GENERATION].data,
            "a literal is missing");
    require(is_inside(f->think_open, f->text.data, f->text.n) &&
                    is_inside(f->think_close, f->text.data, f->text.n),
            "a mark is elsewhere");
    require(f->has_thinking || !f->drop_thinking, "nothing to drop");
    check_names(f, &f->special);
    check_names(f, &f->stop);
    for (int role = 0; role < N_CHAT_ROLES; ++role) {
        const struct slice shown = chat_content(f, (enum chat_role) role, message);
        require(is_inside(shown, message.data, message.size), "the content is elsewhere");
        require(role == CHAT_ASSISTANT || f->trim[role] || shown.size == message.size,
                "a message was cut");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    const char *       json = (const char *) data;
    const char *       zero = size > 0 ? memchr(json, '\0', size) : NULL;
    const size_t       json_size = zero != NULL ? (size_t) (zero - json) : size;
    const size_t       first = zero != NULL ? json_size + 1 : 0;
    const struct slice message = { json + first, size - first };
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    struct chat_format format;

    if (chat_format_parse(&format, json, json_size, &err)) {
        check_format(&format, message);
        chat_format_free(&format);
    } else {
        require(err.text[0] != '\0' && strpbrk(err.text, "\n\x1b") == NULL,
                "a format was refused without a proper message");
        require(format.text.data == NULL, "a refused format has memory");
    }
    const char * name = chat_format_recognize((struct slice) { json, size });
    require(name == NULL || chat_format_named(name) != NULL, "an unknown format was recognized");
    return 0;
}
