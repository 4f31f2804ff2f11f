#pragma once

// Safe graphs with scans.
//
// A scan (ggml_is_scan: the ops of lrnn-ops.h) writes its first source, the state. ggml does not
// know such ops, and two things can go wrong silently:
//
//   placement   The scheduler may run the op on another backend than that of the state. The op then
//               updates a copy, and the update is lost.
//   order       Nodes are ordered by their sources only. Another reader or writer of the state may
//               run before or after the scan, or read an old copy.
//
// graph_alloc prevents both. Call it instead of ggml_backend_sched_alloc_graph. Its rules:
//
//   - A state has a buffer before the graph is allocated.
//   - Only scans write a state. Everything else reads it through ggml_scan_state_after of the last
//     scan that writes those bytes.
//   - Scans on the same bytes form a chain: the second takes ggml_scan_state_after of the first as
//     its state. Scans on different bytes, even of one tensor, are independent.
//   - A graph is given to a scheduler once, to reserve or to allocate: the scheduler replaces
//     sources by copies that exist only until the next graph. An allocated graph can be computed
//     any number of times. To allocate again, build again.

#include "lrnn.h"
#include "ggml.h"
#include "ggml-backend.h"

// Resets the scheduler, checks the rules, pins every scan to the backend of its state, allocates
// the graph, and verifies that every scan updates its state and not a copy. On failure the graph
// must not be computed.
//
// The graph_size of the scheduler must cover all nodes and leafs: ggml aborts on a larger graph and
// offers no way to ask. Other causes of an abort (a tensor or an op that no backend supports) are
// reported as errors.
bool graph_alloc(ggml_backend_sched_t sched, struct ggml_cgraph * graph, struct lrnn_error * err);

// ---- The steps of graph_alloc -------------------------------------------------------------------
//
// For callers that do something in between, such as ggml_backend_sched_set_tensor_backend or
// ggml_backend_sched_reserve:
//
//     find → ggml_backend_sched_reset → pin → ggml_backend_sched_alloc_graph → verify → free

struct graph_scans; // the scans of a graph, each with the state it was built on

// Checks the rules. Returns NULL if the graph breaks one; a graph without scans is valid.
struct graph_scans * graph_scans_find(struct ggml_cgraph * graph, struct lrnn_error * err);
void graph_scans_free(struct graph_scans * scans);

// Assigns every scan to the backend of its state. A reset of the scheduler undoes this.
bool graph_scans_pin(
        const struct graph_scans * scans, ggml_backend_sched_t sched, struct lrnn_error * err);

// Checks that every scan of the allocated graph updates its state and not a copy.
bool graph_scans_verify(
        const struct graph_scans * scans, ggml_backend_sched_t sched, struct lrnn_error * err);
