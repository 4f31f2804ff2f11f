#pragma once

// Shared by the files of src/text. The interface for the rest of the library is tokenizer.h.

#include "base/error.h"
#include "base/unicode.h"
#include "text/tokenizer.h"

#define SPACE_MARK     "\xE2\x96\x81" // U+2581, a space in tokens of SentencePiece
#define SPACE_MARK_LEN 3

// ---- Sets of byte strings -----------------------------------------------------------------------

// A trie in breadth-first order, for longest matches. Edge e leads to node e + 1, so a node is the
// index of its first edge.
struct trie {
    uint32_t   n_nodes;   // 0: the empty set
    uint32_t * first;     // [n_nodes + 1] node i has edges first[i] .. first[i + 1] − 1, by byte
    int32_t *  id;        // [n_nodes] id of the string that ends here; -1: none
    uint8_t *  byte;      // [n_nodes − 1] byte of an edge
    int32_t    root[256]; // child of the root for each byte; 0: none
};

struct trie_entry {
    const char * data;
    uint32_t     len; // > 0
    int32_t      id;
};

// Builds a trie; sorts the entries. Returns false if out of memory or if two entries are equal:
// then duplicate[0] and duplicate[1] are their ids, otherwise -1.
bool trie_build(struct trie * trie, struct trie_entry * entries, size_t n, int32_t duplicate[2]);
void trie_free(struct trie * trie);

// Returns the length of the longest string of the set at p and sets *id; 0 if there is none.
size_t trie_longest(const struct trie * trie, const char * p, const char * end, int32_t * id);

// ---- Merges: (left, right) → (rank, result) -----------------------------------------------------

struct merges {       // hash table with open addressing
    uint64_t * key;   // left << 32 | right; all ones: free
    uint64_t * value; // rank << 32 | result
    size_t     size;  // power of two, or 0
    size_t     n;
};

// Returns false if out of memory.
bool merges_put(struct merges * m, int32_t left, int32_t right, uint32_t rank, int32_t result);
bool merges_has(const struct merges * m, int32_t left, int32_t right);
void merges_free(struct merges * m);

#define SYMBOL_NONE   (-1)      // a symbol without merges
#define SYMBOL_FROZEN (1 << 30) // flag of an id: the symbol is never merged

struct symbol {
    int32_t  id;
    int32_t  prev;  // -1: first
    int32_t  next;  // -1: last
    uint32_t start; // of its text; a merge keeps the start of the left symbol
};

// Possible merges, ordered by rank, then from left to right.
struct merge_candidate {
    uint64_t order; // rank << 32 | index of the left symbol
    int32_t  result;
};

struct merge_work { // memory that is reused; initialize with { 0 }
    struct symbol *          symbols;
    size_t                   n_symbols;
    size_t                   capacity;
    struct merge_candidate * heap;
    size_t                   n_heap;
    size_t                   heap_capacity;
};

bool merge_work_push(struct merge_work * w, int32_t id, uint32_t start); // false: out of memory
void merge_work_free(struct merge_work * w);

// Merges the symbols in O(n log n). The remaining symbols are a list that starts at symbols[0] and
// is linked by `next`. Returns false if out of memory.
bool merge_symbols(const struct merges * m, struct merge_work * w);

// ---- Pre-tokenizers -----------------------------------------------------------------------------

enum pre_tokenizer {
    PRE_TOKENIZER_GPT2,
    PRE_TOKENIZER_LLAMA3,
    PRE_TOKENIZER_QWEN2,
    PRE_TOKENIZER_QWEN35,
    PRE_TOKENIZER_KIMI,
};

// A name of the key tokenizer.ggml.pre.
struct named_pre_tokenizer {
    const char *       name;
    enum pre_tokenizer pre;
    bool               nfc; // normalizes, unless the file says otherwise: llama.cpp has no such key
    bool               whole; // a piece may be a token as a whole
    bool               bos;   // added, unless the file says otherwise
};

const struct named_pre_tokenizer * pre_tokenizer_find(const char * name); // NULL: unknown
const char * pre_tokenizer_names(char * text, size_t size);               // "gpt-2, … or qwen35"

// Returns the end of the piece that starts at p < end. The text must be valid UTF-8.
const char * pre_tokenizer_next(enum pre_tokenizer pre, const char * p, const char * end);

// ---- The tokenizer ------------------------------------------------------------------------------

enum tokenizer_kind {
    TOKENIZER_SPM,
    TOKENIZER_BPE,
    TOKENIZER_WORLD,
    TOKENIZER_BYTES,
    TOKENIZER_SYMBOLS,
};

// A symbol is a string that has an id: the tokens come first. SPM adds the single characters of
// tokens that are not tokens themselves.
struct tokenizer {
    enum tokenizer_kind kind;
    enum pre_tokenizer  pre;
    bool                nfc;
    bool                whole, bos; // of struct named_pre_tokenizer

    int32_t       n_tokens;
    int32_t       n_symbols;
    struct buffer bytes;   // of all symbols, concatenated
    uint32_t *    offset;  // [n_symbols + 1]
    uint8_t *     type;    // [n_tokens]
    uint32_t      max_len; // of a token

    int32_t bos_id, eos_id, unknown_id, padding_id; // -1: none
    bool    add_bos, add_eos, add_space_prefix;

    uint32_t * slots;   // hash table of the symbols that occur in text: id + 1; 0: free
    size_t     n_slots; // power of two, or 0
    size_t     n_used;

    int32_t       byte_id[256]; // SPM, BPE: the token of a byte; -1: none
    struct merges merges;       // SPM, BPE
    struct merges joints;       // SPM: pairs of adjacent characters in tokens; only the keys count
    struct trie   words;        // World
    struct trie   control;      // control and unknown tokens
    struct trie   user;         // user-defined tokens
};

static inline struct slice symbol_bytes(const struct tokenizer * tok, int32_t id) {
    return (struct slice) { tok->bytes.data + tok->offset[id],
        tok->offset[id + 1] - tok->offset[id] };
}

// The polynomial hash h(s) = Σ (s_i + 1)·B^(n−1−i) mod 2^64. Unlike FNV-1a (base/hash.h) it gives
// the hash of any substring from the hashes of two prefixes:
//
//     h(s[i:j]) = h(s[:j]) − h(s[:i])·B^(j−i)
//
// So SPM gets the hashes of both parts of every cut of a token cheaply.
#define SYMBOL_HASH_BASE UINT64_C(0x9E3779B97F4A7C15)

uint64_t symbol_hash(const char * data, size_t len);

// Returns the symbol with these bytes, or -1.
int32_t symbol_find(const struct tokenizer * tok, const char * data, size_t len);
int32_t symbol_find_hashed(
        const struct tokenizer * tok, const char * data, size_t len, uint64_t hash);

// Adds a symbol to the hash table. Fails if another symbol has the same bytes.
bool symbol_insert(struct tokenizer * tok, int32_t id, struct lrnn_error * err);

// Builds the trie of the tokens of two types, which may be equal. Fails if two have the same bytes.
bool tokens_trie(const struct tokenizer * tok, enum token_type type_a, enum token_type type_b,
        struct trie * trie, struct lrnn_error * err);

// Check the definition and complete a tokenizer that already has its tokens and types.
bool spm_init(struct tokenizer * tok, const struct tokenizer_def * def, struct lrnn_error * err);
bool bpe_init(struct tokenizer * tok, const struct tokenizer_def * def, struct lrnn_error * err);
bool world_init(struct tokenizer * tok, struct lrnn_error * err);
bool bytes_init(struct tokenizer * tok, struct lrnn_error * err);
bool symbols_init(struct tokenizer * tok, struct lrnn_error * err);

// Append the bytes of a token, given its text in the file.
bool spm_token(struct slice text, int32_t id, enum token_type type, struct buffer * out,
        struct lrnn_error * err);
bool bpe_token(
        struct slice text, enum token_type type, struct buffer * out, struct lrnn_error * err);
bool world_token(struct slice text, int32_t id, enum token_type type, struct buffer * out,
        struct lrnn_error * err);

// Memory of one call of tokenizer_encode. Errors are sticky: the caller checks once, at the end.
struct tokenize_work {
    struct merge_work  merge;
    struct buffer      text;
    struct token_ids * ids;
    bool               no_memory;
};

bool token_ids_push(struct token_ids * ids, int32_t id); // false: out of memory
void work_push(struct tokenize_work * w, int32_t id);

// Append the ids of text between special tokens.
typedef void encode_function(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w);
encode_function spm_encode, bpe_encode, world_encode, bytes_encode;

// For symbols, special tokens are words like others. Fails if a symbol is unknown.
bool symbols_encode(const struct tokenizer * tok, const char * text, size_t len, bool parse_special,
        struct tokenize_work * w, struct lrnn_error * err);
bool symbols_is_space(char c); // white space between symbols

#define QUOTE_SIZE 64 // of a buffer for slice_quote
