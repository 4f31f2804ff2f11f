#pragma once

// lrnn: linear recurrent language models whose state transitions may have negative eigenvalues, on
// ggml.
//
// A model is what a GGUF file holds: immutable once loaded, shared by any number of sessions and
// threads. A session computes: it owns the states of some sequences and the buffers to advance
// them. A session is used by one thread at a time; two threads use two sessions.
//
//     struct lrnn_model   * model   = lrnn_model_load("model.gguf", NULL, err, sizeof(err));
//     struct lrnn_session * session = lrnn_session_new(model, NULL, err, sizeof(err));
//     lrnn_eval(session, &(struct lrnn_input) { .seq = 0, .tokens = tokens, .n_tokens = n, .n_logits = 1 }, 1, err, sizeof(err));
//     const float * logits = lrnn_logits(session, 0);
//
// A recurrent model has no context window: a sequence is as long as it gets, and its memory does
// not grow. Only attention layers of a hybrid keep a cache, as long as the session was told to make
// it.
//
// Every function that can fail takes `err` and fills it with one sentence: what was found, where,
// and what was expected. No function ends the process, prints, or keeps global state.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(LRNN_SHARED)
#    ifdef LRNN_BUILD
#        define LRNN_API __declspec(dllexport)
#    else
#        define LRNN_API __declspec(dllimport)
#    endif
#elif defined(__GNUC__)
#    define LRNN_API __attribute__((visibility("default")))
#else
#    define LRNN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The version of this library, "0.1.0".
LRNN_API const char * lrnn_version(void);

// The version and commit of the ggml it was built with, "0.25.3 (353b63b4+lrnn)"; "+lrnn" says that
// our ops are in it.
LRNN_API const char * lrnn_ggml_version(void);

// How the CUDA backend of this build was made and tested, one sentence; "" without one.
LRNN_API const char * lrnn_cuda_notice(void);

//
// Models
//

struct lrnn_model;

// Loading reports how far it is, from 0 to 1; false from the callback stops it. For whoever asks,
// weights that stay in the file are read once, so that the first call does not wait for the disk.
typedef bool (*lrnn_progress)(float done, void * user);

// What a user may want to know and nobody has to: which device takes which layers, something odd in
// a file that did no harm.
enum lrnn_log_level { LRNN_LOG_INFO, LRNN_LOG_WARNING };
typedef void (*lrnn_log)(enum lrnn_log_level level, const char * sentence, void * user);

struct lrnn_model_params {
    lrnn_progress progress; // may be NULL
    void *        user;
    lrnn_log log; // may be NULL; called while loading, and by whoever makes a session of the model
    void *   log_user;
    int32_t n_gpu_layers; // so many layers, from the last one back, lie on devices with their states; the output is one more. 0: none,
                          // -1: as many as there is memory for. What lies on no device lies
                          // on the CPU, and stays in the file
    const char *
            devices; // names that ggml knows, between commas: "CUDA0,CUDA1"; NULL: every GPU, RPC's included
    const char * split; // their shares of the layers: "3,1"; NULL: in proportion to free memory
};

// False if devices or split make no sense on this machine; loading would refuse them as well.
LRNN_API bool lrnn_model_params_check(
        const struct lrnn_model_params * params, char * err, size_t err_size);

// Loads a GGUF file: maps it, checks it, and checks that it holds the whole of a model that this
// library can compute. NULL on failure.
// - params: NULL for the defaults, all zero
LRNN_API struct lrnn_model * lrnn_model_load(
        const char * path, const struct lrnn_model_params * params, char * err, size_t err_size);

// Frees a model. Its sessions must be gone.
LRNN_API void lrnn_model_free(struct lrnn_model * model);

// What the file says of itself. Strings live as long as the model.
struct lrnn_model_info {
    const char * architecture; // "lrnn", or one of llama.cpp's: "mamba", "mamba2", "rwkv6", "rwkv7"
    const char * family;
    const char * eigenvalues;  // "[0,1]", "[-1,1]" or "family"
    const char * range_source; // where that was read, "" if the file does not say
    const char * name;
    const char * source; // the checkpoint it was made from, "" if the file does not say
    int64_t      n_vocab;
    int64_t      n_layer;
    int64_t      n_layer_attention; // of these
    int64_t      n_embd;
    int64_t      n_householder; // factors a token, 0 for families without
    int64_t      n_head, d_k,
            d_v; // heads of the recurrent state and the shape of one, 0 without recurrent layers
    int64_t  trained_length; // tokens, 0: unknown
    int64_t  weight_bytes;
    int64_t  state_bytes;      // of one sequence, all recurrent layers
    int64_t  cache_bytes;      // of one token of one sequence, all attention layers
    uint64_t identity;         // tells models apart; a state file remembers it
    bool     has_tokenizer;    // false: the model knows ids only
    int32_t  bos, eos;         // ids, -1: none
    bool     add_bos, add_eos; // the model wants them before and after a text
};

LRNN_API struct lrnn_model_info lrnn_model_get_info(const struct lrnn_model * model);

// Tensor number i of the file, in its order; false beyond the last.
struct lrnn_tensor_info {
    const char * name;
    const char * type; // "f32", "q8_0", …
    int64_t      ne[4];
    int64_t      n_bytes;
};

LRNN_API bool lrnn_model_get_tensor(
        const struct lrnn_model * model, int64_t i, struct lrnn_tensor_info * info);

// The text of a key of the file, not terminated, valid as long as the model; NULL: there is no such
// key, or it holds no text.
LRNN_API const char * lrnn_model_get_text(
        const struct lrnn_model * model, const char * key, size_t * size);

// Key number i of the file, in its order, and element j of its value, nothing if it has no such
// element; false beyond the last key.
enum lrnn_key_kind { LRNN_KEY_INT, LRNN_KEY_FLOAT, LRNN_KEY_BOOL, LRNN_KEY_TEXT };
struct lrnn_key_info {
    enum lrnn_key_kind kind;
    bool               is_array;
    int64_t            n;           // elements; 1 if it is no array
    int64_t            integer;     // of LRNN_KEY_INT; 0 or 1 of LRNN_KEY_BOOL
    double             number;      // of LRNN_KEY_FLOAT
    const char *       name, *text; // not terminated; the text of LRNN_KEY_TEXT
    size_t             name_size, text_size;
};
LRNN_API bool lrnn_model_get_key(
        const struct lrnn_model * model, int64_t i, int64_t j, struct lrnn_key_info * info);

//
// Sessions
//

struct lrnn_session;

// Watching: what goes through the weights and the recurrences while a session computes, for
// programs that measure models. Values are what the computation really uses: β after σ or 2σ, gates
// as multipliers, dt after softplus. They are valid during the callback, in contiguous F32.
enum lrnn_watch_what {
    LRNN_WATCH_MATRICES =
            1
            << 0, // products of a weight of the file and activations: "x" [columns of the weight, tokens]
    LRNN_WATCH_SCANS =
            1
            << 1, // recurrences; names and shapes of their tensors as in ops/lrnn-ops.h, [width, heads, factors, tokens]
};

// The transition of a recurrence, what it is made from, and the tensors that are handed over.
enum lrnn_transition {
    LRNN_TRANSITION_NONE, // not a recurrence
    LRNN_TRANSITION_HOUSEHOLDER, // (I − β_n k_n k_nᵀ) … (I − β_1 k_1 k_1ᵀ) diag(gate), n factors a token    q k v beta gate → o
    LRNN_TRANSITION_RANK_ONE, // diag(gate) − w rᵀ: RWKV-7                                                q k v gate r w → o
    LRNN_TRANSITION_GATE, // diag(gate); with bonus: RWKV-6                                           c b x gate bonus → y
    LRNN_TRANSITION_EXP, // exp(dt A), per element or per head                                       c b x dt A → y
    LRNN_TRANSITION_TWO_EXP_M1, // 2 exp(dt A) − 1                                                          c b x dt A → y
    LRNN_TRANSITION_MLSTM, // exp(log_f)                                                               c b x log_f log_i → y
};

struct lrnn_watched_tensor {
    const char *  name;
    int64_t       ne[4];
    const float * data;
};
struct lrnn_watched_seq {
    int32_t seq;
    int64_t first, count, position;
}; // its tokens in the tensors, and how many it had before

struct lrnn_watched {
    int32_t                            layer;  // -1: none, the output
    const char *                       weight; // name of the tensor in the file; NULL: a recurrence
    int64_t                            slice;  // of a weight of three dimensions: which matrix
    enum lrnn_transition               transition;
    int64_t                            n_head, d_k, d_v; // of the state
    float                              scale, eps;       // of the read-out
    int32_t                            n_tensors; // those that there are: a missing gate is 1
    int32_t                            n_seqs;
    const struct lrnn_watched_tensor * tensors;
    const struct lrnn_watched_seq *    seqs;
};

// False stops the call, which then fails.
typedef bool (*lrnn_watch)(const struct lrnn_watched * watched, void * user);

// The tensor of that name, NULL: there is none.
LRNN_API const struct lrnn_watched_tensor * lrnn_watched_get(
        const struct lrnn_watched * watched, const char * name);

struct lrnn_session_params {
    int32_t n_threads; // 0: as many as there are cores
    int32_t n_seqs;    // sequences that can be kept at once; 0: 1
    int32_t n_rewind; // tokens that a sequence can be rewound by; each costs state_bytes a sequence
    int32_t n_batch;  // tokens computed together at most; 0: 512
    int32_t n_cache; // tokens a sequence that attention layers can remember; 0: 4096. Pure recurrent models ignore it.
    bool exact_cuts; // results are the same to the bit for any cut of a sequence into calls, as far as the recurrence goes:
                     // slower. (Matrix products of ggml round differently for one token and
                     // for many; see README.)
    unsigned   watch_what; // enum lrnn_watch_what; 0: nothing, and nothing is lost by it
    lrnn_watch watch;
    void *     watch_user;
};

LRNN_API struct lrnn_session * lrnn_session_new(struct lrnn_model * model,
        const struct lrnn_session_params * params, char * err, size_t err_size);
LRNN_API void lrnn_session_free(struct lrnn_session * session);

// The tokens by which a call advances one sequence.
struct lrnn_input {
    int32_t         seq;
    const int32_t * tokens;
    int64_t         n_tokens;
    int64_t         n_logits; // of the last so many tokens, 0: none
};

// Advances several sequences, by different numbers of tokens, in one call; a sequence may be named
// once. A call that makes no sense is refused before anything is computed. If computing itself
// fails, the sequences that were being advanced are reset, for their states are half written.
LRNN_API bool lrnn_eval(struct lrnn_session * session, const struct lrnn_input * inputs,
        int32_t n_inputs, char * err, size_t err_size);

// Logits [n_vocab] that the last lrnn_eval was asked for, in the order of its inputs and their
// tokens; NULL beyond them. Valid until the next call.
LRNN_API const float * lrnn_logits(const struct lrnn_session * session, int64_t i);

//
// Sequences. Each is empty at first. All of what it has moves along: states with normalisers,
// convolution tails, token shifts, position, cache.
//

LRNN_API int64_t lrnn_seq_length(
        const struct lrnn_session * session, int32_t seq); // tokens so far, -1: no such sequence
LRNN_API int64_t lrnn_seq_rewindable(
        const struct lrnn_session * session, int32_t seq); // by how many tokens it can go back now

// A fork has the length of its source and cannot be rewound behind the point where it began.
LRNN_API bool lrnn_seq_reset(
        struct lrnn_session * session, int32_t seq, char * err, size_t err_size);
LRNN_API bool lrnn_seq_fork(
        struct lrnn_session * session, int32_t from, int32_t to, char * err, size_t err_size);
LRNN_API bool lrnn_seq_rewind(
        struct lrnn_session * session, int32_t seq, int64_t n_tokens, char * err, size_t err_size);

// Saves a sequence, and a sampler if one is given, to a file; loads them into a session of the same
// model. The file is written under another name first, so that an old one is whole until the new
// one is. It has a version, a checksum and the identity of the model, and is refused for what does
// not fit. What can be rewound is not saved. Loading leaves sequence and sampler as they were if it
// fails. If the last call computed the logits of the sequence's last token, they are saved as well,
// and are lrnn_logits(session, 0) after loading: sampling goes on where it stopped.
struct lrnn_sampler;
LRNN_API bool lrnn_seq_save(struct lrnn_session * session, int32_t seq,
        const struct lrnn_sampler * sampler, const char * path, char * err, size_t err_size);
LRNN_API bool lrnn_seq_load(struct lrnn_session * session, int32_t seq,
        struct lrnn_sampler * sampler, const char * path, char * err, size_t err_size);

//
// Text
//

enum lrnn_text_flags {
    LRNN_TEXT_ADD_BOS = 1 << 0, // bos before the text, if the model wants it
    LRNN_TEXT_ADD_EOS =
            1 << 1, // eos after the text, if the model wants it: not where the text goes on
    LRNN_TEXT_PARSE_SPECIAL = 1 << 2, // special tokens written out in the text become their ids
};

// Tokens of a text, which need not end with a zero. *tokens is made with malloc, the caller frees
// it. False without a tokenizer.
LRNN_API bool lrnn_text_to_tokens(const struct lrnn_model * model, const char * text, size_t size,
        unsigned flags, int32_t ** tokens, int64_t * n_tokens, char * err, size_t err_size);

// The bytes of a token, not terminated; of a special one its name. NULL and size 0 for an id
// outside the vocabulary.
LRNN_API const char * lrnn_token_bytes_of(
        const struct lrnn_model * model, int32_t token, size_t * size);

// True for a token that is no text: one with a role, as bos and eos, or one that is never used.
// False without a tokenizer.
LRNN_API bool lrnn_token_is_special(const struct lrnn_model * model, int32_t token);
LRNN_API size_t lrnn_token_text_size(const struct lrnn_model * model,
        int32_t token); // bytes that it adds to decoded text, behind other text

// Tokens to text, as they come, never in the middle of a UTF-8 character. What push returns is
// valid until the next call; end returns what is left.
// - continues: the text goes on behind other text, so that its first space stays
struct lrnn_decoder;
LRNN_API struct lrnn_decoder * lrnn_decoder_new(
        const struct lrnn_model * model, bool continues); // NULL: no tokenizer, or out of memory
LRNN_API void lrnn_decoder_free(struct lrnn_decoder * decoder);
LRNN_API const char * lrnn_decoder_push(
        struct lrnn_decoder * decoder, int32_t token, size_t * size);
LRNN_API const char * lrnn_decoder_end(struct lrnn_decoder * decoder, size_t * size);

//
// Sampling
//

struct lrnn_sampler_params {
    float   temperature;  // 0: always the most likely token
    int32_t top_k;        // keep the k most likely; 0: all
    float   top_p;        // keep the most likely that together have this probability; 1: all
    float   min_p;        // drop what is less likely than this times the most likely; 0: nothing
    float repeat_penalty; // logits of the last repeat_last tokens are divided by it if positive, multiplied if negative; 1: off
    int32_t  repeat_last;
    uint64_t seed;
};

LRNN_API struct lrnn_sampler_params lrnn_sampler_defaults(void); // 0.8, 40, 0.95, 0.05, 1, 64, 0

// Refuses parameters that make no sense.
LRNN_API struct lrnn_sampler * lrnn_sampler_new(
        const struct lrnn_sampler_params * params, char * err, size_t err_size);
LRNN_API void lrnn_sampler_free(struct lrnn_sampler * sampler);

// Chooses the next token from logits [n_vocab], which it leaves alone. The same seed and the same
// logits give the same tokens.
// - log_prob: of the token before any of the above was applied; may be NULL
enum {
    LRNN_SAMPLE_NOT_FINITE = -1,
    LRNN_SAMPLE_NO_MEMORY  = -2
}; // instead of a token; the first: a logit is NaN, or none is finite
LRNN_API int32_t lrnn_sampler_sample(struct lrnn_sampler * sampler, const float * logits,
        int64_t n_vocab, float * log_prob, char * err, size_t err_size);

// Tells the sampler of a token that came from elsewhere, a prompt, so that it is not repeated.
// Sampled tokens are known to it.
LRNN_API void lrnn_sampler_accept(struct lrnn_sampler * sampler, int32_t token);

#ifdef __cplusplus
}
#endif
