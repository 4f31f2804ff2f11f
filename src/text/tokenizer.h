#pragma once

// Tokenizers: text to token ids and back.
//
// A tokenizer is made from a definition, which holds the arrays of the model file unchanged. The
// definition is untrusted: everything in it is checked before use. A tokenizer never changes after
// it was made, so threads may share it.
//
//     model         pre-tokenizer            algorithm
//     llama         -                        SentencePiece BPE: merges by score
//     gpt2          gpt-2 gpt-neox           byte-level BPE: merges by rank
//                   llama-bpe qwen2 qwen35
//     rwkv          -                        RWKV World: longest match over bytes
//     lrnn-bytes    -                        ids 0 to 255 are bytes; the rest is special
//     lrnn-symbols  -                        symbols separated by white space
//
// "mpt" is another name of the pre-tokenizer gpt-neox.
//
// Text that is not UTF-8: rwkv, lrnn-bytes and lrnn-symbols keep the bytes. llama
// replaces each invalid byte by U+FFFD, as SentencePiece does. gpt2 replaces each maximal subpart
// of a character (Unicode standard, section 3.9) by one U+FFFD, as the languages do in which its
// reference library is called.

#include "lrnn.h"
#include "base/slice.h"

#define TOKENIZER_MAX_TOKENS    (1 << 24)
#define TOKENIZER_MAX_TOKEN_LEN 4096      // bytes in the file; GPT-NeoX has a token of 1024
#define TOKENIZER_MAX_TEXT_LEN  (1 << 29) // bytes per call

// types of tokens, numbered as in tokenizer.ggml.token_type
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      // found in text only with LRNN_TOKENIZE_PARSE_SPECIAL
    TOKEN_USER_DEFINED = 4, // always found in text, before anything else
    TOKEN_UNUSED = 5,       // never found in text
    TOKEN_BYTE = 6,         // "<0xNN>"
};

struct tokenizer_def {
    const char * model;
    const char * pre;        // gpt2 only; NULL otherwise
    const char * normalizer; // "nfc" or NULL; gpt2 only

    // [n_tokens] Normal tokens of gpt2 use GPT-2's printable alphabet; those of rwkv are escaped.
    const struct slice * tokens;
    size_t               n_tokens;
    const float *        scores; // [n_scores] one per token for llama; ignored by others
    size_t               n_scores;
    const int32_t *      types; // [n_types] one per token; NULL: all are normal
    size_t               n_types;
    const struct slice * merges; // [n_merges] "left right", best first; gpt2 only
    size_t               n_merges;

    int64_t bos_id; // -1: none
    int64_t eos_id;
    int64_t unknown_id; // lrnn-symbols: replaces unknown symbols; -1: they are an error
    int64_t padding_id;

    int add_bos;          // 1, 0, or -1: default of the model (llama: 1, others: 0)
    int add_eos;          // 1, 0, or -1: default (0)
    int add_space_prefix; // 1, 0, or -1: default (1); llama only
};

#define TOKENIZER_DEF_NONE \
    { .bos_id = -1,        \
        .eos_id = -1,      \
        .unknown_id = -1,  \
        .padding_id = -1,  \
        .add_bos = -1,     \
        .add_eos = -1,     \
        .add_space_prefix = -1 }

struct tokenizer;
struct loader;

// Makes a tokenizer; the definition may be freed afterwards. If the definition is wrong, returns
// false and sets *tok to NULL.
bool tokenizer_new(
        const struct tokenizer_def * def, struct tokenizer ** tok, struct lrnn_error * err);
void tokenizer_free(struct tokenizer * tok);

// Makes a tokenizer of at most n_vocab tokens from the keys of a model file. *tok is NULL if the
// file has none: the key tokenizer.ggml.model is missing, "none" or "no_vocab".
bool tokenizer_load(struct loader * l, int64_t n_vocab, struct tokenizer ** tok);

int32_t tokenizer_n_tokens(const struct tokenizer * tok);
int32_t tokenizer_bos_id(const struct tokenizer * tok); // -1: none
int32_t tokenizer_eos_id(const struct tokenizer * tok); // -1: none
bool tokenizer_adds_bos(const struct tokenizer * tok);
bool tokenizer_adds_eos(const struct tokenizer * tok);

// SHA-256 of all keys that determine the tokens of a text, in hexadecimal. tok may be NULL.
struct model_file;
void tokenizer_hash(const struct tokenizer * tok, const struct model_file * file, char hex[65]);

// ---- Text to ids --------------------------------------------------------------------------------

struct token_ids { // initialize with { 0 }
    int32_t * data;
    size_t    n;
    size_t    capacity;
};

void token_ids_free(struct token_ids * ids);

// Appends the ids of the text; flags as in lrnn_tokenize. Fails if the text is too long, if a
// symbol is unknown (lrnn-symbols) or if memory runs out; `ids` is then unchanged.
bool tokenizer_encode(const struct tokenizer * tok, const char * text, size_t len, unsigned flags,
        struct token_ids * ids, struct lrnn_error * err);

// ---- Ids to text --------------------------------------------------------------------------------

// Returns TOKEN_UNUSED for an id outside the vocabulary.
enum token_type tokenizer_token_type(const struct tokenizer * tok, int32_t id);

// Returns the bytes of a token or the name of a special token; empty outside the vocabulary.
struct slice tokenizer_token_bytes(const struct tokenizer * tok, int32_t id);

// Returns true if the decoder drops the token: control, unknown and unused tokens.
bool tokenizer_is_special(const struct tokenizer * tok, int32_t id);

// The number of bytes a token adds to decoded text that it does not begin.
size_t tokenizer_text_size(const struct tokenizer * tok, int32_t id);

// token-spans.c: see lrnn_token_spans.
bool tokenizer_spans(const struct tokenizer * tok, const char * text, size_t size,
        const int32_t * tokens, int64_t n_tokens, size_t * n_bytes, struct lrnn_error * err);

// Makes a decoder; see lrnn_decoder_new. NULL: out of memory.
struct lrnn_decoder * decoder_new(const struct tokenizer * tok, bool continues);
