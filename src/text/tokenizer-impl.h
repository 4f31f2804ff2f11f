#pragma once

// What the files of the tokenizer share. The interface is tokenizer.h.

#include "base/error.h"
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
struct trie {
    uint32_t n_nodes; // 0: an empty set
    uint32_t *
            first; // [n_nodes + 1] edges of node i are first[i] .. first[i + 1] − 1, sorted by byte
    int32_t * id;  // [n_nodes] -1: no string ends here
    uint8_t * byte;      // [n_nodes − 1] of the edge
    int32_t   root[256]; // child of the root by byte; 0: none
};

struct trie_entry {
    const char * data;
    uint32_t     len; // > 0
    int32_t      id;
};

// Sorts the entries. False: out of memory, or two entries are equal; then duplicate[0] and [1] are
// their ids, otherwise -1.
bool trie_build(struct trie * trie, struct trie_entry * entries, size_t n, int32_t duplicate[2]);
void trie_free(struct trie * trie);

// Length and id of the longest string of the set at p; 0 if there is none.
size_t trie_longest(const struct trie * trie, const char * p, const char * end, int32_t * id);

//
// Merges: (left, right) → (rank, result)
//

struct merges {       // hash table with open addressing
    uint64_t * key;   // left << 32 | right; all ones: free
    uint64_t * value; // rank << 32 | result
    size_t     size;  // power of two, or 0
    size_t     n;
};

bool merges_put(struct merges * m, int32_t left, int32_t right, uint32_t rank,
        int32_t result); // false: out of memory
bool merges_has(const struct merges * m, int32_t left, int32_t right);
void merges_free(struct merges * m);

#define SYMBOL_NONE   (-1)      // a symbol that no merge has
#define SYMBOL_FROZEN (1 << 30) // or-ed to an id: the symbol is final

struct symbol {
    int32_t  id;
    int32_t  prev;  // -1: first
    int32_t  next;  // -1: last
    uint32_t start; // of its text; merging keeps it
};

// Merges not yet done: the lowest rank first, among equals the leftmost.
struct merge_candidate {
    uint64_t order; // rank << 32 | index of the left symbol
    int32_t  result;
};

struct merge_work { // memory that grows and is used again; start with { 0 }
    struct symbol *          symbols;
    size_t                   n_symbols;
    size_t                   capacity;
    struct merge_candidate * heap;
    size_t                   n_heap;
    size_t                   heap_capacity;
};

bool merge_work_push(struct merge_work * w, int32_t id, uint32_t start); // false: out of memory
void merge_work_free(struct merge_work * w);

// Merges the symbols in n log n steps. What remains are the symbols reached from symbols[0] over
// `next`. False: out of memory.
bool merge_symbols(const struct merges * m, struct merge_work * w);

//
// Pre-tokenisers
//

enum pretokenizer {
    PRETOKENIZER_GPT2,
    PRETOKENIZER_LLAMA3,
    PRETOKENIZER_QWEN2,
};

// False if there is none of that name.
bool pretokenizer_find(const char * name, enum pretokenizer * pre);

// Where the piece ends that starts at p < end. Valid UTF-8 only.
const char * pretokenizer_next(enum pretokenizer pre, const char * p, const char * end);

//
// The tokenizer
//

enum tokenizer_kind {
    TOKENIZER_SPM,
    TOKENIZER_BPE,
    TOKENIZER_WORLD,
    TOKENIZER_BYTES,
    TOKENIZER_SYMBOLS,
};

struct tokenizer {
    enum tokenizer_kind kind;
    enum pretokenizer   pre;
    bool                nfc;

    int32_t n_tokens;
    int32_t n_symbols; // tokens, then single characters that tokens are made of without being tokens (SPM)
    struct buffer bytes;   // of all symbols, one behind the other
    uint32_t *    offset;  // [n_symbols + 1]
    uint8_t *     type;    // [n_tokens]
    uint32_t      max_len; // of a token

    int32_t bos_id, eos_id, unknown_id, padding_id;
    bool    add_bos, add_eos, add_space_prefix;

    uint32_t * slots;   // hash table of the symbols that text is made of: id + 1; 0: free
    size_t     n_slots; // power of two, or 0
    size_t     n_used;

    int32_t       byte_id[256]; // SPM, BPE: the token of a byte; -1: none
    struct merges merges;       // SPM, BPE
    struct merges
            joints; // SPM: pairs of characters that stand side by side in a token; ranks and results mean nothing
    struct trie words;   // World
    struct trie control; // control and unknown tokens
    struct trie user;    // user-defined tokens
};

static inline struct slice symbol_bytes(const struct tokenizer * tok, int32_t id) {
    return (struct slice) { tok->bytes.data + tok->offset[id],
        tok->offset[id + 1] - tok->offset[id] };
}

// Hash of bytes: h(s) = Σ (s_i + 1)·B^(n−1−i) mod 2^64, so that a piece of a string is hashed from
// two prefixes of it.
#define SYMBOL_HASH_BASE UINT64_C(0x9E3779B97F4A7C15)

uint64_t symbol_hash(const char * data, size_t len);

// The symbol with these bytes, or -1.
int32_t symbol_find(const struct tokenizer * tok, const char * data, size_t len);
int32_t symbol_find_hashed(
        const struct tokenizer * tok, const char * data, size_t len, uint64_t hash);

// Enters the symbol into the table. Refuses a second one with the same bytes.
bool symbol_insert(struct tokenizer * tok, int32_t id, char * err, size_t err_size);

// What is special to a kind: check the definition and complete the tokenizer, whose tokens and
// types are there.
bool spm_init(
        struct tokenizer * tok, const struct tokenizer_def * def, char * err, size_t err_size);
bool bpe_init(
        struct tokenizer * tok, const struct tokenizer_def * def, char * err, size_t err_size);
bool world_init(struct tokenizer * tok, char * err, size_t err_size);
bool bytes_init(struct tokenizer * tok, char * err, size_t err_size);
bool symbols_init(struct tokenizer * tok, char * err, size_t err_size);

// What a token of the file stands for, appended to `out`.
bool spm_token(struct slice text, int32_t id, enum token_type type, struct buffer * out, char * err,
        size_t err_size);
bool bpe_token(
        struct slice text, enum token_type type, struct buffer * out, char * err, size_t err_size);
bool world_token(struct slice text, int32_t id, enum token_type type, struct buffer * out,
        char * err, size_t err_size);

// What one call of tokenizer_encode works with.
struct tokenize_work {
    struct merge_work  merge;
    struct buffer      text;
    struct token_ids * ids;
};

bool token_ids_push(struct token_ids * ids, int32_t id); // false: out of memory

// Ids of text between special tokens. False: out of memory.
bool spm_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w);
bool bpe_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w);
bool world_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w);
bool bytes_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w);

// Symbols keep their special tokens among themselves, and may fail.
bool symbols_encode(const struct tokenizer * tok, const char * text, size_t len, bool parse_special,
        struct tokenize_work * w, char * err, size_t err_size);

#define QUOTE_SIZE 64

#ifdef __cplusplus
}
#endif
