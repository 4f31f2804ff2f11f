// The prefix tree of lrnn-server: against a list of sequences that is searched one by one, with
// random insertions and a limit that evicts the least recently used.

#include "kit/check.h"
#include "kit/rng.h"
#include "generate/prefix-tree.h"

enum { MAX_LENGTH = 12, MAX_ENTRIES = 4096, ROUNDS = 20000, SIZE = 64 };

struct entry {
    int32_t tokens[MAX_LENGTH];
    int64_t n;
    int64_t used; // time of the last use
    int32_t mark; // content of the state
    int32_t rank;
};

static struct test  t;
static struct entry entries[MAX_ENTRIES]; // what the tree should hold
static int          n_entries;

static void random_tokens(struct test_rng * rng, int32_t * tokens, int64_t * n) {
    *n = 1 + (int64_t) test_below(rng, MAX_LENGTH);
    for (int64_t i = 0; i < *n; ++i) {
        tokens[i] = (int32_t) test_below(rng, 2);
    }
}

static struct entry * longest(const int32_t * tokens, int64_t n, int32_t rank) {
    struct entry * best = NULL;
    for (int i = 0; i < n_entries; ++i) {
        struct entry * e = &entries[i];
        if (e->n <= n && e->rank >= rank &&
                memcmp(e->tokens, tokens, (size_t) e->n * sizeof(*tokens)) == 0 &&
                (best == NULL || e->n > best->n)) {
            best = e;
        }
    }
    return best;
}

// The number of tokens that an entry begins with.
static int64_t common_with_any(const int32_t * tokens, int64_t n) {
    int64_t best = 0;
    for (int i = 0; i < n_entries; ++i) {
        int64_t same = 0;
        while (same < n && same < entries[i].n && entries[i].tokens[same] == tokens[same]) {
            same++;
        }
        best = same > best ? same : best;
    }
    return best;
}

static void insert(
        struct prefix_tree * tree, const int32_t * tokens, int64_t n, int32_t rank, int64_t now) {
    int32_t * data = calloc(1, SIZE);
    data[0] = (int32_t) now;
    test_check(&t, prefix_tree_insert(tree, tokens, n, rank, data, SIZE), "a state is not stored");
    struct entry * e = longest(tokens, n, 0);
    if (e == NULL || e->n < n) {
        e = &entries[n_entries++];
    }
    *e = (struct entry) { .n = n, .used = now, .mark = (int32_t) now, .rank = rank };
    memcpy(e->tokens, tokens, (size_t) n * sizeof(*tokens));
    // what the tree has evicted: the states that were not used for the longest time
    while (n_entries > prefix_tree_get_stats(tree).n_states) {
        int oldest = 0;
        for (int i = 1; i < n_entries; ++i) {
            oldest = entries[i].used < entries[oldest].used ? i : oldest;
        }
        entries[oldest] = entries[--n_entries];
    }
}

static void find(
        struct prefix_tree * tree, const int32_t * tokens, int64_t n, int32_t rank, int64_t now) {
    const void *   data = NULL;
    struct entry * expected = longest(tokens, n, rank);
    const int64_t  length = prefix_tree_find(tree, tokens, n, rank, &data);
    test_check(&t, length == (expected != NULL ? expected->n : 0),
            "the longest prefix has %lld tokens; expected %lld", (long long) length,
            expected != NULL ? (long long) expected->n : 0);
    test_check(&t, length == prefix_tree_length(tree, tokens, n, rank), "two lengths differ");
    test_check(&t, prefix_tree_common(tree, tokens, n) == common_with_any(tokens, n),
            "the common prefix has %lld tokens; expected %lld",
            (long long) prefix_tree_common(tree, tokens, n),
            (long long) common_with_any(tokens, n));
    if (expected != NULL && data != NULL) {
        test_check(&t, *(const int32_t *) data == expected->mark,
                "the state of another sequence is found");
        expected->used = now;
    }
}

static void drop(struct prefix_tree * tree, const int32_t * tokens, int64_t n) {
    struct entry * e = longest(tokens, n, 0);
    prefix_tree_drop(tree, tokens, n);
    if (e != NULL && e->n == n) {
        *e = entries[--n_entries];
    }
}

static void test_random(size_t max_bytes, uint64_t seed) {
    struct test_rng      rng = { seed };
    struct prefix_tree * tree = prefix_tree_new(max_bytes);
    n_entries = 0;
    for (int64_t now = 1; now <= ROUNDS; ++now) {
        int32_t tokens[MAX_LENGTH];
        int64_t n;
        random_tokens(&rng, tokens, &n);
        if (test_below(&rng, 10) == 0) {
            drop(tree, tokens, n);
        } else if (test_below(&rng, 3) == 0) {
            insert(tree, tokens, n, (int32_t) test_below(&rng, 3), now);
        } else {
            find(tree, tokens, n, (int32_t) test_below(&rng, 3), now);
        }
        const struct prefix_tree_stats stats = prefix_tree_get_stats(tree);
        test_check(&t, stats.bytes <= max_bytes && stats.n_states == n_entries,
                "the tree has %zu bytes of %zu, %lld states; expected %d", stats.bytes, max_bytes,
                (long long) stats.n_states, n_entries);
    }
    const struct prefix_tree_stats stats = prefix_tree_get_stats(tree);
    printf("limit of %zu bytes: %lld states in %zu bytes, %lld evicted\n", max_bytes,
            (long long) stats.n_states, stats.bytes, (long long) stats.n_evicted);
    prefix_tree_free(tree);
}

// States that do not fit are refused and freed.
static void test_limits(void) {
    const int32_t        tokens[2] = { 1, 2 };
    struct prefix_tree * none = prefix_tree_new(0);
    struct prefix_tree * small = prefix_tree_new(1000);
    test_check(&t, !prefix_tree_insert(none, tokens, 2, 0, malloc(1), 1), "0 bytes hold a state");
    test_check(&t, !prefix_tree_insert(small, tokens, 2, 0, malloc(1000), 1000),
            "1000 bytes hold a state of 1000 bytes and its tokens");
    test_check(
            &t, prefix_tree_insert(small, tokens, 2, 0, malloc(500), 500), "500 bytes do not fit");
    test_check(&t, prefix_tree_length(small, tokens, 1, 0) == 0, "a longer sequence is found");
    prefix_tree_free(none);
    prefix_tree_free(small);
    prefix_tree_free(NULL);
}

int main(void) {
    test_random(1 << 30, 1); // nothing is evicted
    test_random(20000, 2);
    test_random(3000, 3);
    test_limits();
    return test_end(&t, "test-prefix-tree");
}
