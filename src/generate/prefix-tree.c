#include "generate/prefix-tree.h"

#include <stdlib.h>
#include <string.h>

struct node {
    struct node *  parent;   // NULL: the root
    struct node ** children; // [n_children], their edges begin with different tokens
    int64_t        n_children;
    int32_t *      edge; // [n_edge], from the parent to this node
    int64_t        n_edge;
    void *         data; // the state; NULL: none
    size_t         size;
    int32_t        rank;
    struct node *  newer; // in the list of nodes with a state
    struct node *  older;
};

struct prefix_tree {
    struct node              root;
    struct node *            newest;
    struct node *            oldest;
    struct prefix_tree_stats stats;
};

struct prefix_tree * prefix_tree_new(size_t max_bytes) {
    struct prefix_tree * tree = calloc(1, sizeof(*tree));
    if (tree != NULL) {
        tree->stats.max_bytes = max_bytes;
    }
    return tree;
}

// ---- Nodes --------------------------------------------------------------------------------------

static size_t edge_bytes(int64_t n) {
    return (size_t) n * sizeof(int32_t);
}

// A node and its place among the children of its parent.
static size_t node_bytes(const struct node * node) {
    return sizeof(*node) + sizeof(node) + edge_bytes(node->n_edge);
}

static struct node ** child_of(const struct node * node, int32_t token) {
    for (int64_t i = 0; i < node->n_children; ++i) {
        if (node->children[i]->edge[0] == token) {
            return &node->children[i];
        }
    }
    return NULL;
}

static struct node * node_new(
        struct prefix_tree * tree, struct node * parent, const int32_t * edge, int64_t n_edge) {
    struct node * node = calloc(1, sizeof(*node));
    int32_t *     copy = malloc(edge_bytes(n_edge));
    if (node == NULL || copy == NULL) {
        free(node);
        free(copy);
        return NULL;
    }
    memcpy(copy, edge, edge_bytes(n_edge));
    *node = (struct node) { .parent = parent, .edge = copy, .n_edge = n_edge };
    tree->stats.bytes += node_bytes(node);
    return node;
}

static bool add_child(struct node * parent, struct node * child) {
    struct node ** children =
            realloc(parent->children, (size_t) (parent->n_children + 1) * sizeof(*children));
    if (children == NULL) {
        return false;
    }
    children[parent->n_children++] = child;
    parent->children = children;
    return true;
}

static void node_free(struct prefix_tree * tree, struct node * node) {
    tree->stats.bytes -= node_bytes(node);
    free(node->children);
    free(node->edge);
    free(node);
}

// The number of equal tokens at the beginning of an edge and a sequence.
static int64_t common(const struct node * node, const int32_t * tokens, int64_t n) {
    const int64_t most = n < node->n_edge ? n : node->n_edge;
    int64_t       i = 0;
    while (i < most && node->edge[i] == tokens[i]) {
        i++;
    }
    return i;
}

// ---- The list of states, by their last use ------------------------------------------------------

static void unlink_state(struct prefix_tree * tree, struct node * node) {
    *(node->newer != NULL ? &node->newer->older : &tree->newest) = node->older;
    *(node->older != NULL ? &node->older->newer : &tree->oldest) = node->newer;
    node->newer = node->older = NULL;
}

static void link_newest(struct prefix_tree * tree, struct node * node) {
    node->older = tree->newest;
    *(tree->newest != NULL ? &tree->newest->newer : &tree->oldest) = node;
    tree->newest = node;
}

// Joins a node without a state with its only child. Fails silently without memory: the tree stays
// as it is, and correct.
static void join(struct prefix_tree * tree, struct node * node) {
    struct node * child = node->children[0];
    int32_t *     edge = malloc(edge_bytes(node->n_edge + child->n_edge));
    if (edge == NULL) {
        return;
    }
    memcpy(edge, node->edge, edge_bytes(node->n_edge));
    memcpy(edge + node->n_edge, child->edge, edge_bytes(child->n_edge));
    tree->stats.bytes += edge_bytes(node->n_edge);
    free(child->edge);
    child->edge = edge;
    child->n_edge += node->n_edge;
    child->parent = node->parent;

    *child_of(node->parent, edge[0]) = child;
    node_free(tree, node);
}

// Removes nodes that lead nowhere, from `node` upwards.
static void prune(struct prefix_tree * tree, struct node * node) {
    while (node->parent != NULL && node->data == NULL && node->n_children == 0) {
        struct node *  parent = node->parent;
        struct node ** place = child_of(parent, node->edge[0]);
        *place = parent->children[--parent->n_children];
        node_free(tree, node);
        node = parent;
    }
    if (node->parent != NULL && node->data == NULL && node->n_children == 1) {
        join(tree, node);
    }
}

static void drop_state(struct prefix_tree * tree, struct node * node) {
    unlink_state(tree, node);
    tree->stats.bytes -= node->size;
    tree->stats.n_states--;
    free(node->data);
    node->data = NULL;
    node->size = 0;
    prune(tree, node);
}

void prefix_tree_free(struct prefix_tree * tree) {
    while (tree != NULL && tree->oldest != NULL) {
        drop_state(tree, tree->oldest);
    }
    if (tree != NULL) {
        free(tree->root.children);
    }
    free(tree);
}

// ---- Search -------------------------------------------------------------------------------------

// The deepest node with a state of a rank on the path of the tokens, and its depth in tokens.
static struct node * deepest(const struct prefix_tree * tree, const int32_t * tokens, int64_t n,
        int32_t rank, int64_t * length) {
    const struct node * node = &tree->root;
    struct node *       found = NULL;
    int64_t             depth = 0;
    *length = 0;
    while (depth < n) {
        struct node ** next = child_of(node, tokens[depth]);
        if (next == NULL || common(*next, tokens + depth, n - depth) < (*next)->n_edge) {
            break;
        }
        node = *next;
        depth += node->n_edge;
        if (node->data != NULL && node->rank >= rank) {
            found = *next;
            *length = depth;
        }
    }
    return found;
}

int64_t prefix_tree_length(
        const struct prefix_tree * tree, const int32_t * tokens, int64_t n, int32_t rank) {
    int64_t length;
    deepest(tree, tokens, n, rank, &length);
    return length;
}

int64_t prefix_tree_common(const struct prefix_tree * tree, const int32_t * tokens, int64_t n) {
    const struct node * node = &tree->root;
    int64_t             depth = 0;
    while (depth < n) {
        struct node ** next = child_of(node, tokens[depth]);
        if (next == NULL) {
            break;
        }
        const int64_t same = common(*next, tokens + depth, n - depth);
        depth += same;
        if (same < (*next)->n_edge) {
            break;
        }
        node = *next;
    }
    return depth;
}

int64_t prefix_tree_find(struct prefix_tree * tree, const int32_t * tokens, int64_t n, int32_t rank,
        const void ** data) {
    int64_t       length;
    struct node * node = deepest(tree, tokens, n, rank, &length);
    if (node != NULL) {
        unlink_state(tree, node);
        link_newest(tree, node);
        *data = node->data;
    }
    return length;
}

// ---- Insertion ----------------------------------------------------------------------------------

// Splits the edge of a node after n tokens and returns the new node in the middle.
static struct node * split(struct prefix_tree * tree, struct node * node, int64_t n) {
    struct node ** place = child_of(node->parent, node->edge[0]);
    struct node *  middle = node_new(tree, node->parent, node->edge, n);
    if (middle == NULL || !add_child(middle, node)) {
        if (middle != NULL) {
            node_free(tree, middle);
        }
        return NULL;
    }
    tree->stats.bytes -= edge_bytes(n);
    node->n_edge -= n;
    memmove(node->edge, node->edge + n, edge_bytes(node->n_edge));
    node->parent = middle;
    *place = middle;
    return middle;
}

// The node of the tokens, with the nodes on its path; NULL: out of memory.
static struct node * make_path(struct prefix_tree * tree, const int32_t * tokens, int64_t n) {
    struct node * node = &tree->root;
    for (int64_t depth = 0; depth < n;) {
        struct node ** next = child_of(node, tokens[depth]);
        if (next == NULL) {
            struct node * leaf = node_new(tree, node, tokens + depth, n - depth);
            if (leaf == NULL || !add_child(node, leaf)) {
                if (leaf != NULL) {
                    node_free(tree, leaf);
                }
                return NULL;
            }
            return leaf;
        }
        const int64_t same = common(*next, tokens + depth, n - depth);
        node = same < (*next)->n_edge ? split(tree, *next, same) : *next;
        if (node == NULL) {
            return NULL;
        }
        depth += same;
    }
    return node;
}

bool prefix_tree_insert(struct prefix_tree * tree, const int32_t * tokens, int64_t n, int32_t rank,
        void * data, size_t size) {
    struct node * node = NULL;
    const size_t  most = size + edge_bytes(n) + 2 * (sizeof(*node) + sizeof(node));
    if (most <= tree->stats.max_bytes) {
        node = make_path(tree, tokens, n);
    }
    if (node == NULL) {
        free(data);
        return false;
    }
    if (node->data != NULL) {
        unlink_state(tree, node);
        tree->stats.bytes -= node->size;
        tree->stats.n_states--;
        free(node->data);
    }
    node->data = data;
    node->size = size;
    node->rank = rank;
    link_newest(tree, node);
    tree->stats.bytes += size;
    tree->stats.n_states++;
    while (tree->stats.bytes > tree->stats.max_bytes && tree->oldest != node) {
        drop_state(tree, tree->oldest);
        tree->stats.n_evicted++;
    }
    return true;
}

void prefix_tree_drop(struct prefix_tree * tree, const int32_t * tokens, int64_t n) {
    int64_t       length;
    struct node * node = deepest(tree, tokens, n, INT32_MIN, &length);
    if (node != NULL && length == n) {
        drop_state(tree, node);
    }
}

struct prefix_tree_stats prefix_tree_get_stats(const struct prefix_tree * tree) {
    return tree->stats;
}

// ---- States of sequences: their size, their bytes, the extra bytes ------------------------------

static char * allocate(size_t state_size, size_t n_extra, size_t * size) {
    *size = sizeof(state_size) + state_size + n_extra;
    char * data = malloc(*size);
    if (data != NULL) {
        memcpy(data, &state_size, sizeof(state_size));
    }
    return data;
}

void * stored_state_new(
        struct lrnn_session * session, int32_t seq, size_t n_extra, size_t * size, void ** extra) {
    const size_t state_size = lrnn_seq_size(session, seq);
    char *       data = allocate(state_size, n_extra, size);
    if (data != NULL && !lrnn_seq_get(session, seq, data + sizeof(state_size), state_size, NULL)) {
        free(data);
        return NULL;
    }
    *extra = data != NULL ? data + sizeof(state_size) + state_size : NULL;
    return data;
}

void * stored_state_of(const void * state, size_t state_size, size_t * size) {
    char * data = allocate(state_size, 0, size);
    if (data != NULL) {
        memcpy(data + sizeof(state_size), state, state_size);
    }
    return data;
}

const void * stored_state_restore(const void * data, struct lrnn_session * session, int32_t seq,
        int64_t length, struct lrnn_error * err) {
    const char * at = data;
    size_t       state_size;
    memcpy(&state_size, at, sizeof(state_size));
    at += sizeof(state_size);
    return lrnn_seq_set(session, seq, length, at, state_size, err) ? at + state_size : NULL;
}
