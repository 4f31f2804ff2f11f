#pragma once

// States by the tokens that lead to them. A radix tree: an edge holds several tokens, and sequences
// share the edges of their common prefix. The memory is bounded; the state that was not used for
// the longest time is dropped first.

#include "lrnn.h"

struct prefix_tree;

// NULL: out of memory.
// - max_bytes: limit on states, tokens and nodes together; 0: store nothing
struct prefix_tree * prefix_tree_new(size_t max_bytes);
void prefix_tree_free(struct prefix_tree * tree);

// The length of the longest prefix of the tokens that has a state of at least this rank; 0: none.
// Sets *data to the state, which is valid until the next call, and marks it as used.
int64_t prefix_tree_find(struct prefix_tree * tree, const int32_t * tokens, int64_t n, int32_t rank,
        const void ** data);

// The same without marking it.
int64_t prefix_tree_length(
        const struct prefix_tree * tree, const int32_t * tokens, int64_t n, int32_t rank);

// The length of the longest prefix of the tokens that a sequence with a state begins with.
int64_t prefix_tree_common(const struct prefix_tree * tree, const int32_t * tokens, int64_t n);

// Stores the state after n > 0 tokens, and drops others to make room. Takes `data`, made by malloc,
// in any case. False: not stored, because it is larger than the limit or memory is short.
// - rank: what the state can be used for; the caller gives it a meaning
bool prefix_tree_insert(struct prefix_tree * tree, const int32_t * tokens, int64_t n, int32_t rank,
        void * data, size_t size);

// Drops the state after these tokens, if there is one.
void prefix_tree_drop(struct prefix_tree * tree, const int32_t * tokens, int64_t n);

struct prefix_tree_stats {
    int64_t n_states;
    int64_t n_evicted; // since the start
    size_t  bytes;
    size_t  max_bytes;
};

struct prefix_tree_stats prefix_tree_get_stats(const struct prefix_tree * tree);

// What programs store: the state of a sequence, and n_extra bytes of their own after it. Returns a
// copy made by malloc, in which the caller fills *extra; NULL: out of memory.
void * stored_state_new(
        struct lrnn_session * session, int32_t seq, size_t n_extra, size_t * size, void ** extra);

// The same from the bytes of lrnn_seq_get, without extra bytes.
void * stored_state_of(const void * state, size_t state_size, size_t * size);

// Makes `seq` the sequence of `length` tokens that was stored. Returns the extra bytes; NULL:
// error.
const void * stored_state_restore(const void * data, struct lrnn_session * session, int32_t seq,
        int64_t length, struct lrnn_error * err);
