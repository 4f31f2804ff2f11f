#pragma once

// Cuts a stream of documents into windows of tokens: what a model is fed from an empty state, and
// which tokens are scored.
//
// A window is tokens x_0 … x_{W−1}; its targets are x_1 … x_{W−1}. The position of target x_t is t,
// the number of tokens that the model has seen.
//
// All windows are made in one pass over the data and stored in a temporary file. So data can come
// from a pipe, memory does not grow with the data, and fingerprint and number of windows are known
// before the first window is scored.

#include "eval/data/dataset.h"
#include "lrnn.h"

enum window_mode {
    WINDOW_PACKED,   // cut the stream of all documents
    WINDOW_DOCUMENT, // the first W tokens of each document
    WINDOW_LLAMA,    // packed; x_0 is replaced by the bos and only the second half is scored
};
enum window_bos { WINDOW_BOS_AUTO, WINDOW_BOS_DOC, WINDOW_BOS_WINDOW, WINDOW_BOS_NONE };
enum window_eos { WINDOW_EOS_NONE, WINDOW_EOS_DOC };

enum {
    WINDOW_MAX_LENGTH = 1 << 28,
    WINDOW_SAME_TARGETS = 2048, // targets scored after each context
    WINDOW_CONTEXTS_MAX = 64,
};

struct window_params {
    enum window_mode mode;
    enum window_bos  bos;
    enum window_eos  eos;
    int64_t          length;         // W
    int64_t          min_doc_tokens; // document mode; 0: W
    int64_t          max_windows;    // 0: all
    int64_t          max_tokens;     // 0: all
    bool             skip_special;   // special tokens are not scored
    // if n_contexts > 0, each window gives n_contexts windows, in which its last
    // WINDOW_SAME_TARGETS tokens are scored after contexts of these lengths
    int     n_contexts;
    int64_t contexts[WINDOW_CONTEXTS_MAX];
};

// A part of a window that comes from one document.
struct window_span {
    int64_t first; // token of the window
    int64_t document;
    int64_t byte;   // of the document, where the part begins
    int32_t source; // index in the sources of the run; −1: none
    int32_t file;   // index in the files of the run
};

struct window {
    int64_t                    index;    // from 0, in the order of the stream
    int64_t                    n_tokens; // W, or less in document mode
    const int32_t *            tokens;
    const uint16_t *           bytes;  // of text per token; 0: special tokens
    const uint8_t *            scored; // 1: token t is a target (t ≥ 1)
    const struct window_span * spans;  // all but the first begin where a document begins
    int32_t                    n_spans;
    void *                     memory; // holds all of the above
};

struct windows;

// Results of the pass over the data. Strings live as long as the windows.
struct windows_summary {
    int64_t               n_windows;
    int64_t               n_tokens;      // in the windows
    int64_t               n_targets;     // in the windows
    int64_t               n_bytes;       // of the targets
    int64_t               stream_tokens; // of all documents read
    int64_t               stream_bytes;
    int64_t               left_out;   // document mode: documents that are too short
    const char *          files;      // names without folders, separated by '\t'
    const char *          sources;    // the same; "": records have none
    const char *          bos;        // "doc", "window" or "none"; never auto
    const char *          complaints; // of the data set, "file:line: why", separated by '\t'
    struct dataset_counts counts;
    char                  fingerprint[65]; // of the documents read
};

// Called now and then while data is read. Return false to stop.
typedef bool (*windows_progress)(const struct windows_summary * so_far, void * user);

// Reads data until there are enough windows or no more documents.
// - folder: for the temporary file, 7 bytes per token
// - progress: may be NULL
struct windows * windows_make(struct dataset * ds, const struct lrnn_model * model,
        const struct window_params * params, const char * folder, windows_progress progress,
        void * user, struct lrnn_error * err);
void windows_free(struct windows * ws);

const struct windows_summary * windows_get_summary(const struct windows * ws);

// Reads a window from the temporary file. Free it with window_free.
bool windows_read(
        struct windows * ws, int64_t index, struct window * window, struct lrnn_error * err);
void window_free(struct window * window);
