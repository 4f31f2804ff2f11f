// Pre-tokenizers cut text into pieces; merges never cross their boundaries. They are published as
// regular expressions, quoted above each function: an alternative is a few lines of code, and they
// are tried in the same order.

#include "text/tokenizer-impl.h"

#include <stdio.h>
#include <string.h>

// Returns the class of the character at p and sets *next to the one after it. At the end of the
// text the class is OTHER and *next is p.
static enum char_class class_at(const char * p, const char * end, const char ** next) {
    if (p == end) {
        *next = p;
        return CHAR_CLASS_OTHER;
    }
    *next = p;
    return char_class_of(utf8_next(next));
}

// The same, but with `marks` a mark (\p{M}) is a letter.
static enum char_class word_class_at(
        const char * p, const char * end, bool marks, const char ** next) {
    const enum char_class class = class_at(p, end, next);
    const char * q = p;
    return marks && class == CHAR_CLASS_OTHER && p < end && char_is_mark(utf8_next(&q))
                   ? CHAR_CLASS_LETTER
                   : class;
}

// Skips characters of a class, at most `max`.
static const char * skip_class(
        const char * p, const char * end, enum char_class class, bool marks, size_t max) {
    const char * next;
    for (; max > 0 && p < end && word_class_at(p, end, marks, &next) == class; --max) {
        p = next;
    }
    return p;
}

//  's|'t|'re|'ve|'m|'ll|'d
//
// Returns the end of the contraction at p, or NULL. `fold` ignores case, where the long s (U+017F)
// is an s.
static const char * contraction(const char * p, const char * end, bool fold) {
    static const char * const endings[] = { "s", "t", "re", "ve", "m", "ll", "d" };

    if (*p != '\'') {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); ++i) {
        const char * e = endings[i];
        const char * q = p + 1;
        for (; *e != '\0' && q < end; ++e) {
            uint32_t cp = utf8_next(&q);
            if (fold) {
                cp = cp - 'A' < 26 ? cp + ('a' - 'A') : cp == 0x17F ? 's' : cp;
            }
            if (cp != (uint32_t) *e) {
                break;
            }
        }
        if (*e == '\0') {
            return q;
        }
    }
    return NULL;
}

//  \s+(?!\S)|\s+
//
// Skips white space, except for its last character if a word follows.
static const char * space_run(const char * p, const char * end) {
    const char * last = p;
    const char * q = p;
    const char * next;
    while (q < end && class_at(q, end, &next) == CHAR_CLASS_SPACE) {
        last = q;
        q = next;
    }
    return q == end || last == p ? q : last;
}

// GPT-2, GPT-NeoX
//
//  's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
static const char * gpt2_next(const char * p, const char * end) {
    const char * q = contraction(p, end, false);
    if (q != NULL) {
        return q;
    }
    const char * word = p + (*p == ' ' && p + 1 < end);
    const char * next;
    enum char_class class = class_at(word, end, &next);
    return class == CHAR_CLASS_SPACE ? space_run(p, end)
                                     : skip_class(word, end, class, false, SIZE_MAX);
}

static const char * skip_newlines(const char * p, const char * end) {
    while (p < end && (*p == '\r' || *p == '\n')) {
        p++;
    }
    return p;
}

//  \p{N}{1,n_digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// The alternatives after words
static const char * rest_next(const char * p, const char * end, size_t n_digits, bool marks) {
    const char * second; // the second character
    const char * third;
    const enum char_class class = word_class_at(p, end, marks, &second);

    if (class == CHAR_CLASS_NUMBER) {
        return skip_class(p, end, CHAR_CLASS_NUMBER, marks, n_digits);
    }
    if (class == CHAR_CLASS_OTHER) {
        return skip_newlines(skip_class(p, end, CHAR_CLASS_OTHER, marks, SIZE_MAX), end);
    }
    if (*p == ' ' && second < end &&
            word_class_at(second, end, marks, &third) == CHAR_CLASS_OTHER) {
        return skip_newlines(skip_class(second, end, CHAR_CLASS_OTHER, marks, SIZE_MAX), end);
    }
    // \s*[\r\n]+ ends after the last line break in the white space
    const char * line_end = NULL;
    const char * next;
    for (const char * q = p; q < end && class_at(q, end, &next) == CHAR_CLASS_SPACE; q = next) {
        if (*q == '\r' || *q == '\n') {
            line_end = next;
        }
    }
    return line_end != NULL ? line_end : space_run(p, end);
}

// Llama-3 (n_digits = 3), Qwen2 (n_digits = 1)
//
//  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,n_digits}|
//   ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// Qwen3.5 (n_digits = 1, marks): a mark is a letter, except before a word, where it is any other
// character; but there it is part of the word in either case.
//
//  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|
//   ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
static const char * llama3_next(const char * p, const char * end, size_t n_digits, bool marks) {
    const char * q = contraction(p, end, true);
    if (q != NULL) {
        return q;
    }
    const char * second; // the second character
    const char * third;
    const enum char_class class = word_class_at(p, end, marks, &second);
    const enum char_class after = word_class_at(second, end, marks, &third);

    if (class == CHAR_CLASS_LETTER) {
        return skip_class(p, end, CHAR_CLASS_LETTER, marks, SIZE_MAX);
    }
    if (class != CHAR_CLASS_NUMBER && *p != '\r' && *p != '\n' && after == CHAR_CLASS_LETTER) {
        return skip_class(second, end, CHAR_CLASS_LETTER, marks, SIZE_MAX);
    }
    return rest_next(p, end, n_digits, marks);
}

// Skips characters of the parts of a word, CHAR_FRONT or CHAR_REST, without \p{Han}.
static const char * skip_part(const char * p, const char * end, int part) {
    for (const char * next = p; p < end; p = next) {
        const uint32_t cp = utf8_next(&next);
        if (!(char_word_parts(cp) & part) || char_is_han(cp)) {
            break;
        }
    }
    return p;
}

// [front]*[rest]+; NULL if there is no match
static const char * front_and_rest(const char * p, const char * end) {
    const char * q = skip_part(p, end, CHAR_FRONT);
    const char * r = skip_part(q, end, CHAR_REST);
    if (r > q) {
        return r;
    }
    const char * last = NULL; // [rest]+ takes the last character of [front]* that it can
    while (p < q) {
        const uint32_t cp = utf8_next(&p);
        last = char_word_parts(cp) & CHAR_REST ? p : last;
    }
    return last;
}

// Kimi, with front = \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M} and rest = \p{Ll}\p{Lm}\p{Lo}\p{M}, both without
// \p{Han}
//
//  \p{Han}+|[^\r\n\p{L}\p{N}]?[front]*[rest]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//  [^\r\n\p{L}\p{N}]?[front]+[rest]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//  \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
static const char * kimi_next(const char * p, const char * end) {
    const char * q = p;
    for (const char * next = p; q < end && char_is_han(utf8_next(&next)); q = next) {
    }
    if (q > p) {
        return q;
    }
    const char * word = p;
    const enum char_class class = class_at(p, end, &q);
    if (class != CHAR_CLASS_LETTER && class != CHAR_CLASS_NUMBER && *p != '\r' && *p != '\n') {
        word = q;
    }
    q = front_and_rest(word, end);
    if (q == NULL && word > p) { // a mark may be the word
        q = front_and_rest(p, end);
    }
    if (q == NULL) {
        q = skip_part(word, end, CHAR_FRONT);
    }
    if (q == word) {
        return rest_next(p, end, 3, false);
    }
    const char * contracted = q < end ? contraction(q, end, true) : NULL;
    return contracted != NULL ? contracted : q;
}

const char * pre_tokenizer_next(enum pre_tokenizer pre, const char * p, const char * end) {
    switch (pre) {
        case PRE_TOKENIZER_LLAMA3: return llama3_next(p, end, 3, false);
        case PRE_TOKENIZER_QWEN2: return llama3_next(p, end, 1, false);
        case PRE_TOKENIZER_QWEN35: return llama3_next(p, end, 1, true);
        case PRE_TOKENIZER_KIMI: return kimi_next(p, end);
        case PRE_TOKENIZER_GPT2: break;
    }
    return gpt2_next(p, end);
}

static const struct named_pre_tokenizer TABLE[] = {
    { "gpt-2", PRE_TOKENIZER_GPT2, .nfc = false },
    { "gpt-neox", PRE_TOKENIZER_GPT2, .nfc = true },
    { "mpt", PRE_TOKENIZER_GPT2, .nfc = true }, // gpt-neox in files of llama.cpp
    { "llama-bpe", PRE_TOKENIZER_LLAMA3, .whole = true, .bos = true },
    { "pixtral", PRE_TOKENIZER_LLAMA3, .whole = true, .bos = true },   // Nemotron
    { "falcon-h1", PRE_TOKENIZER_LLAMA3, .whole = true, .bos = true }, // as llama.cpp reads it
    { "lfm2", PRE_TOKENIZER_LLAMA3, .whole = true, .bos = true },
    { "dbrx", PRE_TOKENIZER_LLAMA3, .whole = false }, // Granite-4
    { "qwen2", PRE_TOKENIZER_QWEN2, .whole = false },
    { "bailingmoe2", PRE_TOKENIZER_QWEN2, .whole = false }, // Ling: another expression, same pieces
    { "qwen35", PRE_TOKENIZER_QWEN35, .nfc = true },
    { "kimi-k2", PRE_TOKENIZER_KIMI, .whole = true },
};

enum { N_NAMES = sizeof(TABLE) / sizeof(TABLE[0]) };

const struct named_pre_tokenizer * pre_tokenizer_find(const char * name) {
    for (int i = 0; i < N_NAMES; ++i) {
        if (strcmp(name, TABLE[i].name) == 0) {
            return &TABLE[i];
        }
    }
    return NULL;
}

const char * pre_tokenizer_names(char * text, size_t size) {
    size_t n = 0;
    for (int i = 0; i < N_NAMES && n < size; ++i) {
        const char * before = i == 0 ? "" : i < N_NAMES - 1 ? ", " : " or ";
        n += (size_t) snprintf(text + n, size - n, "%s%s", before, TABLE[i].name);
    }
    return text;
}
