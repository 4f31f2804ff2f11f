#pragma once

// Scans inside a ggml graph.
//
// A scan (ggml_is_scan: the ops of ops/lrnn-ops.h) writes its first source, the state. ggml knows
// nothing of such an op, and two things can go wrong without a word:
//
//   place   The scheduler may compute the op on another backend than the one that holds the state. It then hands the op a copy of the
//           state, and the update is lost with the copy.
//   order   Nodes are ordered by their sources alone. Whatever else reads or writes the state in the same graph comes before or after the
//           scan as the graph happened to be built; on another backend it may even read a copy that was made before the scan ran.
//
// graph_alloc takes care of both and stands where ggml_backend_sched_alloc_graph would stand.
// Its rules for a graph:
//
//   - a state has a buffer of its own before the graph is allocated;
//   - only scans write a state, and whatever reads it in the graph reads it through ggml_scan_state_after of the last scan that writes
//     those bytes;
//   - scans on the same bytes form a chain: the second takes as its state ggml_scan_state_after of the first. Scans on separate bytes, of
//     one tensor too, are free;
//   - a graph is given to a scheduler once, be it to reserve or to allocate: the scheduler rewrites the sources of the nodes, to copies of
//     its own that are gone with the next graph. Compute an allocated graph as often as you like; to allocate again, build again.

#include "ggml.h"
#include "ggml-backend.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Resets the scheduler, checks the rules, pins every scan to the backend of its state, allocates
// the graph, and makes sure that every scan works on its state and not on a copy. False with one
// sentence in `err` otherwise; a refused graph must not be computed.
//
// The scheduler must have been made for a graph_size of at least the nodes and leafs of the graph:
// it aborts on a larger one and there is no way to ask. What else would make it abort (a tensor in
// a buffer, or an op, that none of its backends can handle) is refused here.
bool graph_alloc(
        ggml_backend_sched_t sched, struct ggml_cgraph * graph, char * err, size_t err_size);

//
// The steps of graph_alloc, for a caller who does something between them: his own
// ggml_backend_sched_set_tensor_backend, or ggml_backend_sched_reserve, which plans for other
// places than the real ones unless the scans are pinned.
//
//     find → ggml_backend_sched_reset → pin → ggml_backend_sched_alloc_graph → verify → free
//

struct graph_scans; // the scans of a graph, each with the state it was built on

// Checks the rules. NULL if the graph breaks one; never NULL for a graph without scans.
struct graph_scans * graph_scans_find(struct ggml_cgraph * graph, char * err, size_t err_size);
void graph_scans_free(struct graph_scans * scans);

// Assigns every scan to the backend of its state, after a reset of the scheduler: a reset forgets
// assignments.
bool graph_scans_pin(
        const struct graph_scans * scans, ggml_backend_sched_t sched, char * err, size_t err_size);

// True if every scan of the allocated graph works on its state itself.
bool graph_scans_verify(
        const struct graph_scans * scans, ggml_backend_sched_t sched, char * err, size_t err_size);

#ifdef __cplusplus
}
#endif
