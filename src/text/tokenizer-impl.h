#pragma once

// What the files of the tokenizer share. The interface is tokenizer.h.

#include "text/tokenizer.h"
#include "base/unicode.h"

#ifdef __cplusplus
extern "C" {
#endif

//
// Sets of byte strings
//

// Longest match: a trie in breadth-first order. Edge e leads to node e + 1, so a node is where its
// edges begin.
struct lrnn_trie {
    uint32_t n_nodes; // 0: an empty set
    uint32_t *
            first; // [n_nodes + 1] edges of node i are first[i] .. first[i + 1] − 1, sorted by byte
    int32_t * id;  // [n_nodes] -1: no string ends here
    uint8_t * byte;      // [n_nodes − 1] of the edge
    int32_t   root[256]; // child of the root by byte; 0: none
};

struct lrnn_trie_entry {
    const char * data;
    uint32_t     len; // > 0
    int32_t      id;
};

// Sorts the entries. False: out of memory, or two entries are equal; then duplicate[0] and [1] are
// their ids, otherwise -1.
bool lrnn_trie_build(
        struct lrnn_trie * trie, struct lrnn_trie_entry * entries, size_t n, int32_t duplicate[2]);
void lrnn_trie_free(struct lrnn_trie * trie);

// Length and id of the longest string of the set at p; 0 if there is none.
size_t lrnn_trie_longest(
        const struct lrnn_trie * trie, const char * p, const char * end, int32_t * id);

//
// Merges: (left, right) → (rank, result)
//

struct lrnn_merges {  // hash table with open addressing
    uint64_t * key;   // left << 32 | right; all ones: free
    uint64_t * value; // rank << 32 | result
    size_t     size;  // power of two, or 0
    size_t     n;
};

bool lrnn_merges_put(struct lrnn_merges * m, int32_t left, int32_t right, uint32_t rank,
        int32_t result); // false: out of memory
bool lrnn_merges_has(const struct lrnn_merges * m, int32_t left, int32_t right);
void lrnn_merges_free(struct lrnn_merges * m);

#define LRNN_SYMBOL_NONE   (-1)      // a symbol that no merge has
#define LRNN_SYMBOL_FROZEN (1 << 30) // or-ed to an id: the symbol is final

struct lrnn_symbol {
    int32_t  id;
    int32_t  prev;  // -1: first
    int32_t  next;  // -1: last
    uint32_t start; // of its text; merging keeps it
};

// Merges not yet done: the lowest rank first, among equals the leftmost.
struct lrnn_merge_candidate {
    uint64_t order; // rank << 32 | index of the left symbol
    int32_t  result;
};

struct lrnn_merge_work { // memory that grows and is used again; start with { 0 }
    struct lrnn_symbol *          symbols;
    size_t                        n_symbols;
    size_t                        capacity;
    struct lrnn_merge_candidate * heap;
    size_t                        n_heap;
    size_t                        heap_capacity;
};

bool lrnn_merge_work_push(
        struct lrnn_merge_work * w, int32_t id, uint32_t start); // false: out of memory
void lrnn_merge_work_free(struct lrnn_merge_work * w);

// Merges the symbols in n log n steps. What remains are the symbols reached from symbols[0] over
// `next`. False: out of memory.
bool lrnn_merge(const struct lrnn_merges * m, struct lrnn_merge_work * w);

//
// Pre-tokenisers
//

enum lrnn_pretok {
    LRNN_PRETOK_GPT2,
    LRNN_PRETOK_LLAMA3,
    LRNN_PRETOK_QWEN2,
};

// False if there is none of that name.
bool lrnn_pretok_find(const char * name, enum lrnn_pretok * pre);

// Where the piece ends that starts at p < end. Valid UTF-8 only.
const char * lrnn_pretok_next(enum lrnn_pretok pre, const char * p, const char * end);

//
// The tokenizer
//

enum lrnn_tokenizer_kind {
    LRNN_TOKENIZER_SPM,
    LRNN_TOKENIZER_BPE,
    LRNN_TOKENIZER_WORLD,
    LRNN_TOKENIZER_BYTES,
    LRNN_TOKENIZER_SYMBOLS,
};

struct lrnn_tokenizer {
    enum lrnn_tokenizer_kind kind;
    enum lrnn_pretok         pre;
    bool                     nfc;

    int32_t n_tokens;
    int32_t n_symbols; // tokens, then single characters that tokens are made of without being tokens (SPM)
    struct lrnn_buffer bytes;   // of all symbols, one behind the other
    uint32_t *         offset;  // [n_symbols + 1]
    uint8_t *          type;    // [n_tokens]
    uint32_t           max_len; // of a token

    int32_t bos_id, eos_id, unknown_id, padding_id;
    bool    add_bos, add_eos, add_space_prefix;

    uint32_t * slots;   // hash table of the symbols that text is made of: id + 1; 0: free
    size_t     n_slots; // power of two, or 0
    size_t     n_used;

    int32_t            byte_id[256]; // SPM, BPE: the token of a byte; -1: none
    struct lrnn_merges merges;       // SPM, BPE
    struct lrnn_merges
            joints; // SPM: pairs of characters that stand side by side in a token; ranks and results mean nothing
    struct lrnn_trie words;   // World
    struct lrnn_trie control; // control and unknown tokens
    struct lrnn_trie user;    // user-defined tokens
};

static inline struct lrnn_text lrnn_symbol_bytes(const struct lrnn_tokenizer * tok, int32_t id) {
    return (struct lrnn_text) { tok->bytes.data + tok->offset[id],
        tok->offset[id + 1] - tok->offset[id] };
}

// Hash of bytes: h(s) = Σ (s_i + 1)·B^(n−1−i) mod 2^64, so that a piece of a string is hashed from
// two prefixes of it.
#define LRNN_HASH_BASE UINT64_C(0x9E3779B97F4A7C15)

uint64_t lrnn_hash(const char * data, size_t len);

// The symbol with these bytes, or -1.
int32_t lrnn_symbol_find(const struct lrnn_tokenizer * tok, const char * data, size_t len);
int32_t lrnn_symbol_find_hashed(
        const struct lrnn_tokenizer * tok, const char * data, size_t len, uint64_t hash);

// Enters the symbol into the table. Refuses a second one with the same bytes.
bool lrnn_symbol_insert(struct lrnn_tokenizer * tok, int32_t id, char * err, size_t err_size);

// What is special to a kind: check the definition and complete the tokenizer, whose tokens and
// types are there.
bool lrnn_spm_init(struct lrnn_tokenizer * tok, const struct lrnn_tokenizer_def * def, char * err,
        size_t err_size);
bool lrnn_bpe_init(struct lrnn_tokenizer * tok, const struct lrnn_tokenizer_def * def, char * err,
        size_t err_size);
bool lrnn_world_init(struct lrnn_tokenizer * tok, char * err, size_t err_size);
bool lrnn_bytes_init(struct lrnn_tokenizer * tok, char * err, size_t err_size);
bool lrnn_symbols_init(struct lrnn_tokenizer * tok, char * err, size_t err_size);

// What a token of the file stands for, appended to `out`.
bool lrnn_spm_token(struct lrnn_text text, int32_t id, enum lrnn_token_type type,
        struct lrnn_buffer * out, char * err, size_t err_size);
bool lrnn_bpe_token(struct lrnn_text text, enum lrnn_token_type type, struct lrnn_buffer * out,
        char * err, size_t err_size);
bool lrnn_world_token(struct lrnn_text text, int32_t id, enum lrnn_token_type type,
        struct lrnn_buffer * out, char * err, size_t err_size);

// What one call of lrnn_tokenize works with.
struct lrnn_tokenize_work {
    struct lrnn_merge_work merge;
    struct lrnn_buffer     text;
    struct lrnn_ids *      ids;
};

bool lrnn_ids_push(struct lrnn_ids * ids, int32_t id); // false: out of memory

// Ids of text between special tokens. False: out of memory.
bool lrnn_spm_encode(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        struct lrnn_tokenize_work * w);
bool lrnn_bpe_encode(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        struct lrnn_tokenize_work * w);
bool lrnn_world_encode(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        struct lrnn_tokenize_work * w);
bool lrnn_bytes_encode(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        struct lrnn_tokenize_work * w);

// Symbols keep their special tokens among themselves, and may fail.
bool lrnn_symbols_encode(const struct lrnn_tokenizer * tok, const char * text, size_t len,
        bool parse_special, struct lrnn_tokenize_work * w, char * err, size_t err_size);

// Fills err and returns false.
bool lrnn_refuse(char * err, size_t err_size, const char * fmt, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 3, 4)))
#endif
        ;

#define LRNN_QUOTE_SIZE 64

#ifdef __cplusplus
}
#endif
