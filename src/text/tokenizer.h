#pragma once

// Text to token ids and back.
//
// A tokenizer is made from a definition: the arrays of the model file as they are. Everything in a
// definition is checked before it is used, and a definition that is wrong is refused with one
// sentence. A tokenizer never changes after it was made, so threads may share it.
//
//     model          pre                            what
//     "llama"        -                              SentencePiece BPE: merges by score, byte fallback
//     "gpt2"         gpt-2 gpt-neox llama-bpe qwen2 byte-level BPE: merges by rank ("mpt" is another name of gpt-neox)
//     "rwkv"         -                              RWKV World: greedy longest match over bytes
//     "lrnn-bytes"   -                              ids 0 to 255 are the bytes; what comes after them is special
//     "lrnn-symbols" -                              symbols separated by white space
//
// Text that is not UTF-8: rwkv and lrnn-bytes keep the bytes. llama replaces each byte that is not
// part of a character by U+FFFD, as SentencePiece does; gpt2 replaces each maximal piece of a
// character by one U+FFFD, as strings do in the languages in which its reference library is called
// (the Unicode standard, section 3.9, "substitution of maximal subparts").

#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LRNN_TOKENIZER_MAX_TOKENS (1 << 24)
#define LRNN_TOKENIZER_MAX_TOKEN_LEN \
    4096 // bytes as written in the file; GPT-NeoX has a token of 1024
#define LRNN_TOKENIZER_MAX_TEXT_LEN (1 << 29) // bytes that one call accepts

// types of tokens, numbered as in `tokenizer.ggml.token_type`
enum lrnn_token_type {
    LRNN_TOKEN_NORMAL       = 1,
    LRNN_TOKEN_UNKNOWN      = 2,
    LRNN_TOKEN_CONTROL      = 3, // found in text only when asked for (LRNN_TOKENIZE_PARSE_SPECIAL)
    LRNN_TOKEN_USER_DEFINED = 4, // found in text always, before anything else
    LRNN_TOKEN_UNUSED       = 5, // never made from text
    LRNN_TOKEN_BYTE         = 6, // "<0xNN>"
};

struct lrnn_tokenizer_def {
    const char * model;
    const char * pre;        // gpt2 only; NULL otherwise
    const char * normalizer; // "nfc" or NULL; gpt2 only

    const struct lrnn_text *
            tokens; // [n_tokens]; gpt2: normal tokens in GPT-2's printable alphabet; rwkv: normal tokens escaped
    size_t                   n_tokens;
    const float *            scores; // [n_scores]: llama needs one a token; others ignore them
    size_t                   n_scores;
    const int32_t *          types; // [n_types]: one a token; NULL: all normal
    size_t                   n_types;
    const struct lrnn_text * merges; // [n_merges] "left right", best first; gpt2 only
    size_t                   n_merges;

    int64_t bos_id; // -1: none
    int64_t eos_id;
    int64_t unknown_id; // lrnn-symbols: what an unknown symbol becomes; without it, it is an error
    int64_t padding_id;

    int add_bos;          // 1, 0, or -1: as the model does (llama: 1, others: 0)
    int add_eos;          // 1, 0, or -1: 0
    int add_space_prefix; // 1, 0, or -1: as the model does (llama: 1); llama only
};

#define LRNN_TOKENIZER_DEF_NONE \
    { .bos_id             = -1, \
        .eos_id           = -1, \
        .unknown_id       = -1, \
        .padding_id       = -1, \
        .add_bos          = -1, \
        .add_eos          = -1, \
        .add_space_prefix = -1 }

struct lrnn_tokenizer;

// Copies what it needs of the definition. False and a sentence in `err` if the definition is wrong;
// *tok is then NULL.
bool lrnn_tokenizer_new(const struct lrnn_tokenizer_def * def, struct lrnn_tokenizer ** tok,
        char * err, size_t err_size);
void lrnn_tokenizer_free(struct lrnn_tokenizer * tok);

int32_t lrnn_tokenizer_n_tokens(const struct lrnn_tokenizer * tok);
int32_t lrnn_tokenizer_bos_id(const struct lrnn_tokenizer * tok); // -1: none; so are the others
int32_t lrnn_tokenizer_eos_id(const struct lrnn_tokenizer * tok);
int32_t lrnn_tokenizer_unknown_id(const struct lrnn_tokenizer * tok);
int32_t lrnn_tokenizer_padding_id(const struct lrnn_tokenizer * tok);
bool lrnn_tokenizer_adds_bos(const struct lrnn_tokenizer * tok);
bool lrnn_tokenizer_adds_eos(const struct lrnn_tokenizer * tok);

//
// Text to ids
//

struct lrnn_ids { // grows; start with { 0 }
    int32_t * data;
    size_t    n;
    size_t    capacity;
};

void lrnn_ids_free(struct lrnn_ids * ids);

enum lrnn_tokenize_flags {
    LRNN_TOKENIZE_ADD_BOS       = 1, // bos before the text, if the model has it so
    LRNN_TOKENIZE_PARSE_SPECIAL = 2, // control tokens written out in the text become their ids
    LRNN_TOKENIZE_ADD_EOS       = 4, // eos after the text, if the model has it so
    LRNN_TOKENIZE_ADD_SPECIAL   = LRNN_TOKENIZE_ADD_BOS | LRNN_TOKENIZE_ADD_EOS,
};

// Appends the ids of the text to `ids`. False and a sentence in `err` if the text is too long, if
// memory is out, or if a symbol is unknown (lrnn-symbols); `ids` is then as it was.
bool lrnn_tokenize(const struct lrnn_tokenizer * tok, const char * text, size_t len, unsigned flags,
        struct lrnn_ids * ids, char * err, size_t err_size);

//
// Ids to text
//

// LRNN_TOKEN_UNUSED for an id outside the vocabulary.
enum lrnn_token_type lrnn_token_type_of(const struct lrnn_tokenizer * tok, int32_t id);

// The bytes that the token stands for; for a control token its name. An empty string for an id
// outside the vocabulary.
struct lrnn_text lrnn_token_bytes(const struct lrnn_tokenizer * tok, int32_t id);

// True for a token that comes out of the detokenizer as nothing: control, unknown, unused.
bool lrnn_token_is_hidden(const struct lrnn_tokenizer * tok, int32_t id);

// Bytes that the token adds to text behind other text.
size_t lrnn_token_n_bytes(const struct lrnn_tokenizer * tok, int32_t id);

// Joins tokens to text, in pieces that never end inside a UTF-8 character: a character that lies on
// several tokens comes out with the last. Bytes that are no UTF-8 come out as they are.
//
// The text begins without the space that llama puts before it. Symbols come out with a space
// between them. Control, unknown and unused tokens come out as nothing, but see the flags.
struct lrnn_detokenizer;

enum lrnn_detokenize_flags {
    LRNN_DETOKENIZE_SPECIAL  = 1, // control, unknown and unused tokens come out by name
    LRNN_DETOKENIZE_CONTINUE = 2, // the text goes on behind other text: its first space stays
};

struct lrnn_detokenizer * lrnn_detokenizer_new(
        const struct lrnn_tokenizer * tok, unsigned flags); // NULL: out of memory
void lrnn_detokenizer_free(struct lrnn_detokenizer * d);
void lrnn_detokenizer_reset(struct lrnn_detokenizer * d);

// What can be printed now. The bytes stay valid until the next call.
struct lrnn_text lrnn_detokenizer_push(struct lrnn_detokenizer * d, int32_t id);

// What is left at the end: the beginning of a character that was never completed.
struct lrnn_text lrnn_detokenizer_end(struct lrnn_detokenizer * d);

#ifdef __cplusplus
}
#endif
