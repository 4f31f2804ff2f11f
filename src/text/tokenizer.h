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

#define TOKENIZER_MAX_TOKENS    (1 << 24)
#define TOKENIZER_MAX_TOKEN_LEN 4096 // bytes as written in the file; GPT-NeoX has a token of 1024
#define TOKENIZER_MAX_TEXT_LEN  (1 << 29) // bytes that one call accepts

// types of tokens, numbered as in `tokenizer.ggml.token_type`
enum token_type {
    TOKEN_NORMAL       = 1,
    TOKEN_UNKNOWN      = 2,
    TOKEN_CONTROL      = 3, // found in text only when asked for (LRNN_TOKENIZE_PARSE_SPECIAL)
    TOKEN_USER_DEFINED = 4, // found in text always, before anything else
    TOKEN_UNUSED       = 5, // never made from text
    TOKEN_BYTE         = 6, // "<0xNN>"
};

struct tokenizer_def {
    const char * model;
    const char * pre;        // gpt2 only; NULL otherwise
    const char * normalizer; // "nfc" or NULL; gpt2 only

    const struct slice *
            tokens; // [n_tokens]; gpt2: normal tokens in GPT-2's printable alphabet; rwkv: normal tokens escaped
    size_t               n_tokens;
    const float *        scores; // [n_scores]: llama needs one a token; others ignore them
    size_t               n_scores;
    const int32_t *      types; // [n_types]: one a token; NULL: all normal
    size_t               n_types;
    const struct slice * merges; // [n_merges] "left right", best first; gpt2 only
    size_t               n_merges;

    int64_t bos_id; // -1: none
    int64_t eos_id;
    int64_t unknown_id; // lrnn-symbols: what an unknown symbol becomes; without it, it is an error
    int64_t padding_id;

    int add_bos;          // 1, 0, or -1: as the model does (llama: 1, others: 0)
    int add_eos;          // 1, 0, or -1: 0
    int add_space_prefix; // 1, 0, or -1: as the model does (llama: 1); llama only
};

#define TOKENIZER_DEF_NONE      \
    { .bos_id             = -1, \
        .eos_id           = -1, \
        .unknown_id       = -1, \
        .padding_id       = -1, \
        .add_bos          = -1, \
        .add_eos          = -1, \
        .add_space_prefix = -1 }

struct tokenizer;

// Copies what it needs of the definition. False and a sentence in `err` if the definition is wrong;
// *tok is then NULL.
bool tokenizer_new(
        const struct tokenizer_def * def, struct tokenizer ** tok, char * err, size_t err_size);
void tokenizer_free(struct tokenizer * tok);

int32_t tokenizer_n_tokens(const struct tokenizer * tok);
int32_t tokenizer_bos_id(const struct tokenizer * tok); // -1: none; so are the others
int32_t tokenizer_eos_id(const struct tokenizer * tok);
int32_t tokenizer_unknown_id(const struct tokenizer * tok);
int32_t tokenizer_padding_id(const struct tokenizer * tok);
bool tokenizer_adds_bos(const struct tokenizer * tok);
bool tokenizer_adds_eos(const struct tokenizer * tok);

//
// Text to ids
//

struct token_ids { // grows; start with { 0 }
    int32_t * data;
    size_t    n;
    size_t    capacity;
};

void token_ids_free(struct token_ids * ids);

// Appends the ids of the text to `ids`; flags as in lrnn_tokenize. False and a sentence in `err` if the text is too long, if
// memory is out, or if a symbol is unknown (lrnn-symbols); `ids` is then as it was.
bool tokenizer_encode(const struct tokenizer * tok, const char * text, size_t len, unsigned flags,
        struct token_ids * ids, char * err, size_t err_size);

//
// Ids to text
//

// TOKEN_UNUSED for an id outside the vocabulary.
enum token_type tokenizer_token_type(const struct tokenizer * tok, int32_t id);

// The bytes that the token stands for; for a control token its name. An empty string for an id
// outside the vocabulary.
struct slice tokenizer_token_bytes(const struct tokenizer * tok, int32_t id);

// True for a token that comes out of the detokenizer as nothing: control, unknown, unused.
bool tokenizer_is_special(const struct tokenizer * tok, int32_t id);

// Bytes that the token adds to text behind other text.
size_t tokenizer_text_size(const struct tokenizer * tok, int32_t id);

// Joins tokens to text, in pieces that never end inside a UTF-8 character: a character that lies on
// several tokens comes out with the last. Bytes that are no UTF-8 come out as they are.
//
// The text begins without the space that llama puts before it. Symbols come out with a space
// between them. Control, unknown and unused tokens come out as nothing, but see the flags.
struct lrnn_decoder;

enum decoder_flags {
    DECODER_SPECIAL  = 1, // control, unknown and unused tokens come out by name
    DECODER_CONTINUE = 2, // the text goes on behind other text: its first space stays
};

struct lrnn_decoder * decoder_new(
        const struct tokenizer * tok, unsigned flags); // NULL: out of memory
void decoder_reset(struct lrnn_decoder * d);

#ifdef __cplusplus
}
#endif
