// SentencePiece BPE (llama): each character of the text is a symbol. Of all neighbors that together
// form a token, the pair whose token has the highest score is merged first. Remaining symbols that
// are not tokens become one byte token per byte.
//
// SentencePiece writes spaces as U+2581 in its tokens and in the text. We do the opposite and write
// U+2581 as a space in both, which gives the same ids.

#include "base/error.h"
#include "text/tokenizer-impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Appends the text, replacing U+2581 by spaces. Returns false if out of memory.
static bool append_spaced(const char * text, size_t len, struct buffer * out) {
    const char * end = text + len;
    while (text < end) {
        const char * mark = text;
        do {
            mark = memchr(mark, SPACE_MARK[0], (size_t) (end - mark));
        } while (mark != NULL &&
                 (end - mark < SPACE_MARK_LEN || memcmp(mark, SPACE_MARK, SPACE_MARK_LEN) != 0) &&
                 ++mark < end);
        if (mark == NULL || mark == end) {
            return buffer_append(out, text, (size_t) (end - text));
        }
        if (!buffer_append(out, text, (size_t) (mark - text)) || !buffer_append(out, " ", 1)) {
            return false;
        }
        text = mark + SPACE_MARK_LEN;
    }
    return true;
}

// ---- Definition ---------------------------------------------------------------------------------

bool spm_token(struct slice text, int32_t id, enum token_type type, struct buffer * out,
        struct lrnn_error * err) {
    char quote[QUOTE_SIZE];
    bool ok;
    if (type == TOKEN_BYTE) {
        const bool formed = text.size == 6 && memcmp(text.data, "<0x", 3) == 0 &&
                            text.data[5] == '>' && hex_digit(text.data[3]) >= 0 &&
                            hex_digit(text.data[4]) >= 0;
        if (!formed) {
            return error_bad_model(err,
                    "tokenizer.ggml.tokens[%d] is the byte token %s; expected <0x00> to <0xFF>",
                    (int) id, slice_quote(quote, sizeof(quote), text));
        }
        const char byte = (char) (hex_digit(text.data[3]) * 16 + hex_digit(text.data[4]));
        ok = buffer_append(out, &byte, 1);
    } else if (type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED) {
        if (utf8_valid(text.data, text.size) != text.size) {
            return error_bad_model(err, "tokenizer.ggml.tokens[%d] is %s, which is not UTF-8",
                    (int) id, slice_quote(quote, sizeof(quote), text));
        }
        ok = append_spaced(text.data, text.size, out);
    } else {
        ok = buffer_append(out, text.data, text.size);
    }
    return ok ? true : error_no_memory(err, "the tokens");
}

static bool is_text(const struct tokenizer * tok, int32_t id) {
    return tok->type[id] == TOKEN_NORMAL || tok->type[id] == TOKEN_USER_DEFINED;
}

// Adds the characters of tokens that are not tokens themselves as symbols, because merging starts
// from single characters. Their ids follow those of the tokens.
static bool add_characters(struct tokenizer * tok, struct lrnn_error * err) {
    size_t capacity = (size_t) tok->n_tokens + 2; // of tok->offset
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        if (!is_text(tok, id)) {
            continue;
        }
        const uint32_t end = tok->offset[id + 1];
        for (uint32_t at = tok->offset[id]; at < end;) {
            const char * start = tok->bytes.data + at;
            const char * next = start;
            utf8_next(&next);
            const size_t len = (size_t) (next - start);
            at += (uint32_t) len;
            if (symbol_find(tok, start, len) >= 0) {
                continue;
            }
            char copy[4];
            memcpy(copy, start, len); // appending may move the bytes
            if (!array_grow(&tok->offset, &capacity, (size_t) tok->n_symbols + 2,
                        sizeof(*tok->offset)) ||
                    !buffer_append(&tok->bytes, copy, len)) {
                return error_no_memory(err, "the characters of the tokens");
            }
            tok->offset[++tok->n_symbols] = (uint32_t) tok->bytes.n;
            if (!symbol_insert(tok, tok->n_symbols - 1, err)) {
                return false;
            }
        }
    }
    return true;
}

// Records the pairs of adjacent characters of a token. Where two characters of the text are
// adjacent in no token, no merge can join them, so the text can be cut there before merging.
static bool add_joints(struct tokenizer * tok, int32_t id) {
    const struct slice text = symbol_bytes(tok, id);
    const char *       end = text.data + text.size;
    int32_t            left = SYMBOL_NONE;
    for (const char * p = text.data; p < end;) {
        const char * start = p;
        utf8_next(&p);
        const int32_t right = symbol_find(tok, start, (size_t) (p - start));
        if (left >= 0 && !merges_put(&tok->joints, left, right, 0, 0)) {
            return false;
        }
        left = right;
    }
    return true;
}

static int score_compare(const void * a, const void * b) { // highest first
    const float x = *(const float *) a;
    const float y = *(const float *) b;
    return x > y ? -1 : x < y;
}

// Returns the rank of a score: the number of higher scores.
static uint32_t rank_of(const float * sorted, size_t n, float score) {
    size_t lo = 0, hi = n;
    while (lo < hi) { // finds the first score that is not higher
        const size_t mid = lo + (hi - lo) / 2;
        if (sorted[mid] > score) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return (uint32_t) lo;
}

// Adds a merge for every cut of a token into two symbols.
static bool add_merges(struct tokenizer * tok, int32_t id, uint32_t rank) {
    uint64_t hash[TOKENIZER_MAX_TOKEN_LEN + 1];  // of the first i bytes
    uint64_t power[TOKENIZER_MAX_TOKEN_LEN + 1]; // B^i

    const struct slice text = symbol_bytes(tok, id);
    hash[0] = 0;
    power[0] = 1;
    for (size_t i = 0; i < text.size; ++i) {
        hash[i + 1] = hash[i] * SYMBOL_HASH_BASE + (uint8_t) text.data[i] + 1;
        power[i + 1] = power[i] * SYMBOL_HASH_BASE;
    }
    for (size_t cut = 1; cut < text.size; ++cut) {
        if (((uint8_t) text.data[cut] & 0xC0) == 0x80) {
            continue; // inside a character
        }
        const int32_t left = symbol_find_hashed(tok, text.data, cut, hash[cut]);
        if (left < 0) {
            continue;
        }
        const uint64_t tail = hash[text.size] - hash[cut] * power[text.size - cut];
        const int32_t  right = symbol_find_hashed(tok, text.data + cut, text.size - cut, tail);
        if (right >= 0 && !merges_put(&tok->merges, left, right, rank, id)) {
            return false;
        }
    }
    return true;
}

bool spm_init(struct tokenizer * tok, const struct tokenizer_def * def, struct lrnn_error * err) {
    if (def->scores == NULL || def->n_scores != def->n_tokens) {
        return error_bad_model(err,
                "tokenizer.ggml.scores has %zu numbers; expected %zu, one per token",
                def->scores != NULL ? def->n_scores : 0, def->n_tokens);
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        tok->byte_id[byte] = -1;
    }
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        if (isnan(def->scores[id])) {
            return error_bad_model(err, "tokenizer.ggml.scores[%d] is not a number", (int) id);
        }
        if (tok->type[id] == TOKEN_BYTE) {
            const uint8_t byte = (uint8_t) symbol_bytes(tok, id).data[0];
            if (tok->byte_id[byte] >= 0) {
                return error_bad_model(err, "tokenizer.ggml.tokens[%d] and [%d] are both <0x%02X>",
                        (int) tok->byte_id[byte], (int) id, byte);
            }
            tok->byte_id[byte] = id;
        } else if (is_text(tok, id) && !symbol_insert(tok, id, err)) {
            return false;
        }
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        if (tok->byte_id[byte] < 0) {
            return error_bad_model(err,
                    "tokenizer.ggml.tokens has no byte token <0x%02X>; expected all 256 of them",
                    byte);
        }
    }

    if (!add_characters(tok, err)) {
        return false;
    }
    float * sorted = malloc(def->n_scores * sizeof(*sorted));
    bool    ok = sorted != NULL;
    if (ok) {
        memcpy(sorted, def->scores, def->n_scores * sizeof(*sorted));
        qsort(sorted, def->n_scores, sizeof(*sorted), score_compare);
        for (int32_t id = 0; ok && id < tok->n_tokens; ++id) {
            if (is_text(tok, id)) {
                ok = add_merges(tok, id, rank_of(sorted, def->n_scores, def->scores[id])) &&
                     add_joints(tok, id);
            }
        }
    }
    free(sorted);
    return ok ? true : error_no_memory(err, "the merges of %d tokens", (int) tok->n_tokens);
}

// ---- Text ---------------------------------------------------------------------------------------

static void push_bytes(
        const struct tokenizer * tok, const char * data, size_t len, struct tokenize_work * w) {
    if (len == 1 && *data == ' ') {
        data = SPACE_MARK;
        len = SPACE_MARK_LEN;
    }
    for (size_t i = 0; i < len; ++i) {
        work_push(w, tok->byte_id[(uint8_t) data[i]]);
    }
}

// Merges the symbols collected so far, which end at byte `end` of the text, and appends their ids.
static void encode_run(const struct tokenizer * tok, size_t end, struct tokenize_work * w) {
    w->no_memory |= !merge_symbols(&tok->merges, &w->merge);
    for (int32_t i = w->merge.n_symbols > 0 ? 0 : -1; i >= 0; i = w->merge.symbols[i].next) {
        const struct symbol * s = &w->merge.symbols[i];
        const int32_t         id = s->id >= 0 ? s->id & ~SYMBOL_FROZEN : s->id;
        if (id >= 0 && id < tok->n_tokens) {
            work_push(w, id);
        } else {
            const size_t stop = s->next >= 0 ? w->merge.symbols[s->next].start : end;
            push_bytes(tok, w->text.data + s->start, stop - s->start, w);
        }
    }
    w->merge.n_symbols = 0;
}

void spm_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w) {
    w->text.n = 0;
    w->merge.n_symbols = 0;
    if (len == 0) {
        return;
    }
    w->no_memory |= (tok->add_space_prefix && !buffer_append(&w->text, " ", 1)) ||
                    !append_spaced(text, len, &w->text);

    const char * start = w->text.data;
    const char * end = start + w->text.n;
    int32_t      left = SYMBOL_NONE;
    for (const char * p = start; p < end && !w->no_memory;) {
        const char * next = p;
        int32_t      id;
        const size_t n_user = trie_longest(&tok->user, p, end, &id);
        if (n_user > 0) {
            next = p + n_user;
            id |= SYMBOL_FROZEN;
        } else {
            utf8_next(&next);
            id = symbol_find(tok, p, (size_t) (next - p));
        }
        const size_t at = (size_t) (p - start);
        if (!merges_has(&tok->joints, left, id)) {
            encode_run(tok, at, w);
        }
        w->no_memory |= !merge_work_push(&w->merge, id, (uint32_t) at);
        left = id;
        p = next;
    }
    encode_run(tok, w->text.n, w);
}
