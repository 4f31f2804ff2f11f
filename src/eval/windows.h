#pragma once

// A stream of documents as windows of tokens: what is fed to a model from a fresh state, and what
// is scored.
//
// Window: tokens x_0 .. x_{W−1}; its targets are x_1 .. x_{W−1}. The position of target x_t is t,
// the number of tokens that the model has seen.
//
// One pass over the data makes all windows, and keeps them in a file without a name until they are
// asked for. So data can come from a pipe, memory does not grow with the data, and fingerprint and
// number of windows are known before the first is scored.

#include "eval/dataset.h"
#include "lrnn.h"

enum window_mode {
    WINDOW_PACKED,
    WINDOW_DOCUMENT,
    WINDOW_LLAMA
}; // --mode; llama: one text, x_0 replaced by BOS, second half scored
enum window_bos { WINDOW_BOS_AUTO, WINDOW_BOS_DOC, WINDOW_BOS_WINDOW, WINDOW_BOS_NONE };
enum window_eos { WINDOW_EOS_NONE, WINDOW_EOS_DOC };

enum {
    WINDOW_MAX_LENGTH   = 1 << 28,
    WINDOW_SAME_TARGETS = 2048, // targets that are scored after each of the contexts
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
    bool             skip_special;   // special tokens are neither scored nor counted
    // none: windows as above. Otherwise each gives n_contexts windows, in which its last
    // WINDOW_SAME_TARGETS tokens are scored after so many tokens: the same targets, whatever the
    // context
    int     n_contexts;
    int64_t contexts[WINDOW_CONTEXTS_MAX];
};

// A stretch of a window that comes from one document.
struct window_span {
    int64_t first; // token of the window
    int64_t document;
    int64_t byte;   // of the document, where the stretch begins
    int32_t source; // index into the sources of the run, −1: none
    int32_t file;   // index into the files of the run
};

struct window {
    int64_t         index;    // from 0, in the order of the stream
    int64_t         n_tokens; // W, or less in document mode
    const int32_t * tokens;
    const uint16_t *
            bytes; // that each token adds to the text: 0 for special ones; of one document they add up to its size
    const uint8_t *            scored; // 1: token t is a target (t ≥ 1)
    const struct window_span * spans;  // a span after the first begins where a document begins
    int32_t                    n_spans;
    void *                     memory; // all of the above lies in it
};

struct windows;

// What a pass over the data has found. Strings live as long as the windows.
struct windows_summary {
    int64_t               n_windows;
    int64_t               n_tokens;      // in them
    int64_t               n_targets;     // scored
    int64_t               n_bytes;       // of the targets
    int64_t               stream_tokens; // of all documents that were read
    int64_t               stream_bytes;
    int64_t               left_out;   // document mode: documents that are too short
    const char *          files;      // names without folders, separated by '\t'
    const char *          sources;    // the same; "" if records carry none
    const char *          bos;        // what the choice came to: "doc", "window", "none"
    const char *          complaints; // of the data set, "file:line: why", separated by '\t'
    struct dataset_counts counts;
    char                  fingerprint[65]; // of the documents that were read
};

// Called now and then while data is read. False stops.
typedef bool (*windows_progress)(const struct windows_summary * so_far, void * user);

// Reads data until there are enough windows or no documents.
// - folder: where the file without a name lies, on a disk with 7 bytes for each token of the
//   windows
// - progress: may be NULL
struct windows * windows_make(struct dataset * ds, const struct lrnn_model * model,
        const struct window_params * params, const char * folder, windows_progress progress,
        void * user, char * err, size_t err_size);
void windows_free(struct windows * ws);

const struct windows_summary * windows_get_summary(const struct windows * ws);

// A copy of window `index`; window_free gives it back.
bool windows_read(
        struct windows * ws, int64_t index, struct window * window, char * err, size_t err_size);
void window_free(struct window * window);
