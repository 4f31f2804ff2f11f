#pragma once

// lrnn: linear recurrent language models whose state transitions may have negative eigenvalues.
//
// A model is the content of a GGUF file; sessions and threads may share it. A session runs a model
// and owns the states of its sequences; only one thread may use it at a time.
//
//     struct lrnn_model   * model   = lrnn_model_load("model.gguf", NULL, &err);
//     struct lrnn_session * session = lrnn_session_new(model, NULL, &err);
//     struct lrnn_input     input   = { .seq = 0, .tokens = tokens, .n_tokens = n, .n_logits = 1 };
//     lrnn_eval(session, &input, 1, &err);
//     const float * logits = lrnn_logits(session, 0);
//
// A sequence may be arbitrarily long; its memory use is constant. Only the attention layers of a
// hybrid need a cache, whose size is fixed per session.
//
// - Errors: a function that can fail takes `err`, which may be NULL. On failure it sets the kind of
//   the error and one sentence (what was found, where, what was expected). Returns false or NULL.
// - Parameters: a zeroed struct is the default, and so is NULL.
// - Ownership: free what *_new and *_load return with *_free, which accepts NULL. Other pointers
//   live as long as the object they came from, unless stated otherwise.
// - No function exits, prints, or keeps global state other than the list of its temporary files.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __GNUC__
#    define LRNN_API __attribute__((visibility("default")))
#else
#    define LRNN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The version of this library, such as "0.2.0", and of its ggml, such as "0.25.3 (353b63b4+lrnn)".
LRNN_API const char * lrnn_version(void);
LRNN_API const char * lrnn_ggml_version(void);

// ---- Errors -------------------------------------------------------------------------------------

enum lrnn_error_kind {
    LRNN_ERROR_NONE,
    LRNN_ERROR_BAD_INPUT,  // a parameter, token or text that the function does not accept
    LRNN_ERROR_BAD_MODEL,  // a model file that is missing, damaged or not supported
    LRNN_ERROR_BAD_FILE,   // another file that is damaged or does not fit
    LRNN_ERROR_NOT_FOUND,  // a file or a name that does not exist
    LRNN_ERROR_NO_MEMORY,  // of this machine or of a device
    LRNN_ERROR_SYSTEM,     // the operating system refused: disk, permission, network
    LRNN_ERROR_DEVICE,     // a GPU or an RPC server
    LRNN_ERROR_CANCELLED,  // by a callback of the caller
    LRNN_ERROR_NOT_FINITE, // weights, states or logits with infinities or NaN
    LRNN_ERROR_INTERNAL,   // a defect of this library
    LRNN_N_ERRORS,
};

struct lrnn_error {
    enum lrnn_error_kind kind;
    char                 text[1020];
};

// ---- Models -------------------------------------------------------------------------------------

struct lrnn_model; // immutable once loaded

// Receives the progress of loading, from 0 to 1. Return false to cancel.
typedef bool (*lrnn_progress)(float done, void * user);

// Receives messages: device placement, harmless irregularities in a file.
enum lrnn_log_level { LRNN_LOG_INFO, LRNN_LOG_WARNING };
typedef void (*lrnn_log)(enum lrnn_log_level level, const char * message, void * user);

struct lrnn_model_params {
    lrnn_progress progress; // may be NULL; if set, mapped weights are also prefetched
    void *        progress_user;
    lrnn_log      log; // may be NULL; the sessions of the model use it too
    void *        log_user;
    int32_t       n_gpu_layers; // layers to offload, the last ones and the output; -1: all that fit
    const char *  devices;      // ggml device names, such as "CUDA0,CUDA1"; NULL: all GPUs
    const char *  tensor_split; // shares of the devices, such as "3,1"; NULL: by free memory
    bool no_huge_pages; // leave the weights in the mapped file; else faster copies, if they fit
};

// Checks `devices` and `tensor_split` against the devices of this machine. Loading does so too.
LRNN_API bool lrnn_model_params_check(
        const struct lrnn_model_params * params, struct lrnn_error * err);

// Maps a GGUF file and checks it. Fails if a key or tensor is missing or invalid, if a tensor is
// unknown, or if memory is short.
LRNN_API struct lrnn_model * lrnn_model_load(
        const char * path, const struct lrnn_model_params * params, struct lrnn_error * err);

LRNN_API void lrnn_model_free(struct lrnn_model * model); // free its sessions first

struct lrnn_model_info {
    const char * architecture; // "lrnn", or one of llama.cpp's, such as "mamba2"
    const char * family;       // "delta_net", "mamba", ...
    const char * eigenvalues;  // "[0,1]", "[-1,1]" or "family"
    const char * range_source; // where the converter found the range; "": unknown
    const char * name;         // "": none
    const char * source;       // the converted checkpoint; "": unknown
    int64_t      n_vocab;      // rows of the embedding
    const char * layers;  // a letter per layer: R recurrent, A attention, B both, - MLP, E experts
    int64_t      n_layer; // layers of all kinds
    int64_t      n_layer_attention; // layers with attention
    int64_t      n_layer_recurrent; // layers with a recurrence
    int64_t      n_embd;            // model width
    int64_t      n_householder;     // Householder factors per token; 0: not such a family
    int64_t      n_head, d_k, d_v;  // heads of the recurrent state, and the shape of one; 0: none
    int64_t      trained_length;    // context length in training, in tokens; 0: unknown
    int64_t      weight_bytes;      // all tensors
    int64_t      state_bytes;       // recurrent state of one sequence
    int64_t      cache_bytes;       // attention cache of one token, in F16
    uint64_t     identity;          // hash of the model file; state files store it
    bool         cheap_exact_cuts;  // exact_cuts of a session costs less than 10 %
    bool         has_draft_block;   // for n_draft_mtp of a generation
    bool         has_tokenizer;     // false: the model works on token ids only
    int32_t      bos, eos;          // token ids; -1: none
    bool         add_bos, add_eos;  // whether a text should begin and end with them
};

LRNN_API struct lrnn_model_info lrnn_model_get_info(const struct lrnn_model * model);

// SHA-256 of the tokenizer, in hexadecimal. Equal values: equal tokens for every text.
LRNN_API void lrnn_model_get_tokenizer_hash(const struct lrnn_model * model, char hex[65]);

struct lrnn_tensor_info {
    const char * name;
    const char * type; // ggml's name, such as "f32" or "q8_0"
    int64_t      ne[4];
    int64_t      n_bytes;
};

// Describes tensor `i` of the file. Returns false if there are no more.
LRNN_API bool lrnn_model_get_tensor(
        const struct lrnn_model * model, int64_t i, struct lrnn_tensor_info * info);

// The value of a string key of the file, not NUL-terminated, or NULL if there is no such string.
LRNN_API const char * lrnn_model_get_string(
        const struct lrnn_model * model, const char * key, size_t * size);

enum lrnn_key_kind { LRNN_KEY_INT, LRNN_KEY_FLOAT, LRNN_KEY_BOOL, LRNN_KEY_STRING };

struct lrnn_key_info {
    enum lrnn_key_kind kind;
    bool               is_array;
    int64_t            n;       // elements; 1 if it is not an array
    int64_t            integer; // value of an LRNN_KEY_INT or LRNN_KEY_BOOL
    double             number;  // value of an LRNN_KEY_FLOAT
    const char *       string;  // value of an LRNN_KEY_STRING, not NUL-terminated
    const char *       name;    // not NUL-terminated
    size_t             string_size, name_size;
};

// Describes metadata key `i` of the file, with element `j` of its value. Returns false if there are
// no more keys. The element is zero if `j` is out of range.
LRNN_API bool lrnn_model_get_key(
        const struct lrnn_model * model, int64_t i, int64_t j, struct lrnn_key_info * info);

// ---- Sessions -----------------------------------------------------------------------------------

struct lrnn_session;
struct lrnn_trace_event;

// Receives the values that flow through a running model. Return false to make lrnn_eval fail.
typedef bool (*lrnn_trace)(const struct lrnn_trace_event * event, void * user);

// Number formats: of the attention cache, and what recurrent states are rounded to after each token
enum lrnn_cache_type { LRNN_CACHE_F16, LRNN_CACHE_F32, LRNN_CACHE_Q8_0 };
enum lrnn_state_type { LRNN_STATE_F32, LRNN_STATE_BF16, LRNN_STATE_F16, LRNN_STATE_Q8_0 };
LRNN_API const char * lrnn_cache_type_name(enum lrnn_cache_type type); // "f16", "f32", "q8_0"
LRNN_API const char * lrnn_state_type_name(enum lrnn_state_type type);

struct lrnn_session_params {
    int32_t n_threads; // 0: one per core
    int32_t n_seqs;    // number of sequences; 0: 1
    int32_t n_rewind;  // tokens a sequence can be rewound; each costs n_seqs * state_bytes
    int32_t n_batch;   // maximum number of tokens computed together; 0: 512
    int32_t n_cache;   // size of the attention cache, in tokens per sequence; 0: 4096
    enum lrnn_cache_type cache_type;
    enum lrnn_state_type state_type;  // other than F32: to measure it, token by token
    bool                 exact_cuts;  // results do not depend on how tokens are cut into calls
    bool                 draft_block; // run the draft block of the model along, for n_draft_mtp
    unsigned             trace_kinds; // enum lrnn_trace_kind; 0: none
    lrnn_trace           trace;
    void *               trace_user;
};

LRNN_API struct lrnn_session * lrnn_session_new(struct lrnn_model * model,
        const struct lrnn_session_params * params, struct lrnn_error * err);
LRNN_API void lrnn_session_free(struct lrnn_session * session);

struct lrnn_input {
    int32_t         seq;
    const int32_t * tokens;
    int64_t         n_tokens; // at least 1
    int64_t         n_logits; // compute logits for this many tokens at the end; 0: none
};

// Appends tokens to one or more sequences. Inputs may differ in length; each must name a different
// sequence. Invalid inputs are rejected before anything is computed. If the computation itself
// fails, all sequences of the call are reset. With exact_cuts, the recurrence gives the same bits
// for any cut of a sequence into calls, and on the CPU logits do if the matrices are Q8_0 or Q4_0.
LRNN_API bool lrnn_eval(struct lrnn_session * session, const struct lrnn_input * inputs,
        int32_t n_inputs, struct lrnn_error * err);

// Row `i` of the logits of the last lrnn_eval, [n_vocab], in the order of its inputs and their
// tokens; NULL if there are fewer. Valid until the next call with this session.
LRNN_API const float * lrnn_logits(const struct lrnn_session * session, int64_t i);

// ---- Sequences 0 to n_seqs - 1 ------------------------------------------------------------------

// The number of tokens in a sequence, and how many can be rewound; -1: no such sequence.
LRNN_API int64_t lrnn_seq_length(const struct lrnn_session * session, int32_t seq);
LRNN_API int64_t lrnn_seq_rewindable(const struct lrnn_session * session, int32_t seq);

LRNN_API bool lrnn_seq_reset(struct lrnn_session * session, int32_t seq, struct lrnn_error * err);

// Copies sequence `from` to `to`. The copy cannot be rewound past the fork.
LRNN_API bool lrnn_seq_fork(
        struct lrnn_session * session, int32_t from, int32_t to, struct lrnn_error * err);

// Removes the last `n_tokens` tokens of a sequence.
LRNN_API bool lrnn_seq_rewind(
        struct lrnn_session * session, int32_t seq, int64_t n_tokens, struct lrnn_error * err);

// Writes a sequence atomically to a new file or over a state file: with `sampler` unless it is
// NULL, with its last logits if the last lrnn_eval computed them, without its rewind history.
struct lrnn_sampler;
LRNN_API bool lrnn_seq_save(struct lrnn_session * session, int32_t seq,
        const struct lrnn_sampler * sampler, const char * path, struct lrnn_error * err);

// Restores a sequence written by lrnn_seq_save, and the sampler if both are present. Fails if the
// file is damaged or belongs to another model; sequence and sampler are then unchanged. Saved
// logits become row 0 of lrnn_logits, so that sampling can continue.
LRNN_API bool lrnn_seq_load(struct lrnn_session * session, int32_t seq,
        struct lrnn_sampler * sampler, const char * path, struct lrnn_error * err);

// A sequence as bytes, for programs that keep many. lrnn_seq_size: how many bytes it has now.
// lrnn_seq_set makes `seq` the sequence of `length` tokens that lrnn_seq_get copied in a session of
// the same model; the bytes are trusted.
LRNN_API size_t lrnn_seq_size(const struct lrnn_session * session, int32_t seq);
LRNN_API bool lrnn_seq_get(struct lrnn_session * session, int32_t seq, void * data, size_t size,
        struct lrnn_error * err);
LRNN_API bool lrnn_seq_set(struct lrnn_session * session, int32_t seq, int64_t length,
        const void * data, size_t size, struct lrnn_error * err);

// The largest Frobenius norm of a state matrix, over layers and heads; may be infinite or NaN. Sets
// *layer to the first layer that has it, or to -1 if the sequence has no state.
LRNN_API double lrnn_seq_state_norm(
        const struct lrnn_session * session, int32_t seq, int32_t * layer);

// ---- Tracing ------------------------------------------------------------------------------------

enum lrnn_trace_kind {
    LRNN_TRACE_MATRICES = 1 << 0, // inputs "x" [columns of the weight, tokens] of weight matrices
    LRNN_TRACE_SCANS = 1 << 1,    // tensors of linear recurrences [width, heads, factors, tokens]
};

// The transition of a recurrence, and the names of its tensors as in lrnn-ops.h.
enum lrnn_transition {
    LRNN_TRANSITION_NONE,        // not a recurrence
    LRNN_TRANSITION_HOUSEHOLDER, // prod_j (I - beta_j k_j k_j^T) diag(gate): q k v beta gate -> o
    LRNN_TRANSITION_RANK_ONE,    // diag(gate) - w r^T, RWKV-7: q k v gate r w -> o
    LRNN_TRANSITION_GATE,        // diag(gate): c b x gate bonus -> y
    LRNN_TRANSITION_EXP,         // exp(dt A): c b x dt A -> y
    LRNN_TRANSITION_TWO_EXP_M1,  // 2 exp(dt A) - 1: c b x dt A -> y
    LRNN_TRANSITION_MLSTM,       // exp(log_f): c b x log_f log_i -> y
};

// Values as computed with: beta after its sigmoid, gates as multipliers, dt after softplus.
// Contiguous F32, valid during the callback.
struct lrnn_trace_tensor {
    const char *  name;
    int64_t       ne[4];
    const float * data;
};

struct lrnn_trace_seq {
    int32_t seq;
    int64_t first, count, position; // its tokens in the tensors; position of the first
};

struct lrnn_trace_event {
    int32_t                          layer;  // -1: the output layer
    const char *                     weight; // name of the matrix; NULL: a recurrence
    int64_t                          slice;  // which matrix of a three-dimensional weight
    enum lrnn_transition             transition;
    int64_t                          n_head, d_k, d_v; // the state
    float                            scale, eps;       // of the read-out
    int32_t                          n_tensors;        // an absent gate is 1
    int32_t                          n_seqs;
    const struct lrnn_trace_tensor * tensors;
    const struct lrnn_trace_seq *    seqs;
};

// The tensor of an event with this name, or NULL.
LRNN_API const struct lrnn_trace_tensor * lrnn_trace_find(
        const struct lrnn_trace_event * event, const char * name);

// ---- Text ---------------------------------------------------------------------------------------

enum lrnn_tokenize_flags {
    LRNN_TOKENIZE_ADD_BOS = 1 << 0,       // prepend bos if the model wants it
    LRNN_TOKENIZE_ADD_EOS = 1 << 1,       // append eos if the model wants it
    LRNN_TOKENIZE_PARSE_SPECIAL = 1 << 2, // turn the names of special tokens into their ids
};

// Converts a text of `size` bytes to tokens. On success the caller frees *tokens with free().
LRNN_API bool lrnn_tokenize(const struct lrnn_model * model, const char * text, size_t size,
        unsigned flags, int32_t ** tokens, int64_t * n_tokens, struct lrnn_error * err);

// The bytes of a token, or the name of a special one, not NUL-terminated. NULL: no such token.
LRNN_API const char * lrnn_token_bytes(
        const struct lrnn_model * model, int32_t token, size_t * size);

// True if a token is not text: a control token such as eos, an unknown or an unused one.
LRNN_API bool lrnn_token_is_special(const struct lrnn_model * model, int32_t token);

// The number of bytes a token adds to decoded text that it does not begin.
LRNN_API size_t lrnn_token_text_size(const struct lrnn_model * model, int32_t token);

// Computes how many bytes of `text`, which must be UTF-8, each of its tokens covers: n_bytes
// [n_tokens], with sum `size`. Inserted spaces count 0, normalized characters their bytes in
// `text`. White space between symbols counts towards the next symbol.
LRNN_API bool lrnn_token_spans(const struct lrnn_model * model, const char * text, size_t size,
        const int32_t * tokens, int64_t n_tokens, size_t * n_bytes, struct lrnn_error * err);

// Converts tokens back to text, never ending inside a UTF-8 character. Set `continues` if the text
// follows earlier text: its leading space is then kept.
struct lrnn_decoder;
LRNN_API struct lrnn_decoder * lrnn_decoder_new(
        const struct lrnn_model * model, bool continues, struct lrnn_error * err);
LRNN_API void lrnn_decoder_free(struct lrnn_decoder * decoder);

// Adds a token. Returns the text that it completes: not NUL-terminated, valid until the next call.
LRNN_API const char * lrnn_decoder_push(
        struct lrnn_decoder * decoder, int32_t token, size_t * size);

// Returns what is left: the bytes of an incomplete character.
LRNN_API const char * lrnn_decoder_end(struct lrnn_decoder * decoder, size_t * size);

// ---- Chat ---------------------------------------------------------------------------------------

// How a conversation becomes tokens. Messages are text: the names of special tokens in them never
// become special tokens.
struct lrnn_chat;

// The chat format of a model: that of its file if `format` is NULL, or else a built-in one by name,
// or that in a file written by `lrnn-convert chat-format`. Free it before the model.
LRNN_API struct lrnn_chat * lrnn_chat_new(
        const struct lrnn_model * model, const char * format, struct lrnn_error * err);
LRNN_API void lrnn_chat_free(struct lrnn_chat * chat);

// The name of built-in format `i`, such as "chatml", or NULL if there are no more.
LRNN_API const char * lrnn_chat_format(int32_t i);

struct lrnn_message {
    const char *    role;    // "system" (only the first), then "user" and "assistant" in turn
    const char *    content; // UTF-8
    size_t          size;
    const int32_t * tokens; // of an answer: the tokens that were generated; NULL: unknown
    int64_t         n_tokens;
};

// Converts a conversation that ends with a user message to tokens; the answer follows them. On
// success the caller frees *tokens with free(). If answers carry their tokens, the result extends
// the previous one, except where the format rewrites old answers: most drop the thinking section.
// The first *n_stable tokens are always kept. `no_thinking` asks for an answer without a thinking
// section. n_stable may be NULL.
LRNN_API bool lrnn_chat_tokenize(const struct lrnn_chat * chat,
        const struct lrnn_message * messages, int64_t n_messages, bool no_thinking,
        int32_t ** tokens, int64_t * n_tokens, int64_t * n_stable, struct lrnn_error * err);

// True if a token ends an answer. It is not part of the answer.
LRNN_API bool lrnn_chat_is_end(const struct lrnn_chat * chat, int32_t token);

// The text that opens or closes the thinking section of an answer, not NUL-terminated; NULL: none.
LRNN_API const char * lrnn_chat_thinking_mark(
        const struct lrnn_chat * chat, bool closing, size_t * size);

// True if the prompt for an answer already opens the thinking section.
LRNN_API bool lrnn_chat_begins_thinking(const struct lrnn_chat * chat, bool no_thinking);

// ---- Sampling -----------------------------------------------------------------------------------

struct lrnn_sampler_params {
    float    temperature;    // 0: always the most likely token
    int32_t  top_k;          // sample from the k most likely tokens; 0: from all
    float    drop_p;         // drop the least likely tokens that sum to this: 1 - top_p
    float    min_p;          // drop tokens less likely than this fraction of the most likely one
    float    repeat_penalty; // lowers the logits of recent tokens; 0 or 1: off
    int32_t  repeat_last;    // number of recent tokens; 0: 64, -1: none
    uint64_t seed;
};

// Sets an option as users spell it: "temperature", "top_k" (0: all), "top_p" (1: all, 0: only the
// most likely token), "min_p", "repeat_penalty" (1: off) or "repeat_last" (0: none).
LRNN_API bool lrnn_sampler_set(struct lrnn_sampler_params * params, const char * option,
        double value, struct lrnn_error * err);

LRNN_API struct lrnn_sampler * lrnn_sampler_new(
        const struct lrnn_sampler_params * params, struct lrnn_error * err);
LRNN_API void lrnn_sampler_free(struct lrnn_sampler * sampler);

// Returned instead of a token.
enum { LRNN_SAMPLE_NOT_FINITE = -1, LRNN_SAMPLE_NO_MEMORY = -2 };

// Chooses a token from logits [n_vocab]. Equal seeds and logits give equal tokens. Sets *log_prob,
// unless it is NULL, to the log-probability of the token before any of the parameters applied.
LRNN_API int32_t lrnn_sampler_sample(struct lrnn_sampler * sampler, const float * logits,
        int64_t n_vocab, float * log_prob, struct lrnn_error * err);

// Adds a token (e.g. of the prompt) to the repeat-penalty history. Sampled tokens are in it.
LRNN_API void lrnn_sampler_accept(struct lrnn_sampler * sampler, int32_t token);

// ---- Grammars -----------------------------------------------------------------------------------

// Which texts may be generated.
enum lrnn_grammar_kind {
    LRNN_GRAMMAR_GBNF,        // rules as llama.cpp writes them; the text matches the rule "root"
    LRNN_GRAMMAR_REGEX,       // the whole text matches
    LRNN_GRAMMAR_JSON_SCHEMA, // with the properties that the schema names, in its order
    LRNN_GRAMMAR_JSON,        // any JSON object; the text of the grammar is not used
};

// The grammars of a model. Keeps the last ones that were compiled. Threads may share it.
struct lrnn_grammars;
LRNN_API struct lrnn_grammars * lrnn_grammars_new(
        const struct lrnn_model * model, struct lrnn_error * err);
LRNN_API void lrnn_grammars_free(struct lrnn_grammars * grammars);

// Compiles a grammar for the tokens of the model. Fails if it is not valid, or if that takes more
// than 5 seconds of processor time or 1 GiB of memory. Threads may share it, and it may outlive
// `grammars`.
struct lrnn_grammar;
LRNN_API struct lrnn_grammar * lrnn_grammar_new(struct lrnn_grammars * grammars,
        enum lrnn_grammar_kind kind, const char * text, size_t size, struct lrnn_error * err);
LRNN_API void lrnn_grammar_free(struct lrnn_grammar * grammar);

// ---- Generation ---------------------------------------------------------------------------------

enum lrnn_finish {
    LRNN_FINISH_NONE,    // it has not
    LRNN_FINISH_LENGTH,  // max_tokens were generated
    LRNN_FINISH_EOS,     // the model ended the text
    LRNN_FINISH_STOP,    // a stop string
    LRNN_FINISH_GRAMMAR, // the grammar allows no more text
    LRNN_FINISH_CACHE,   // the attention cache is full
    LRNN_FINISH_CALLER,  // lrnn_generation_end
    LRNN_FINISH_ERROR,
    LRNN_N_FINISHES,
};
LRNN_API const char * lrnn_finish_name(enum lrnn_finish finish); // "length", "eos", ...

// A draft is a guess, from earlier text or from the draft block (MTP), that is checked in one call.
// With Q8_0 and Q4_0 matrices, tokens and logits are bit-identical to those without drafts.
enum { LRNN_DRAFT_MAX = 31 };
struct lrnn_generation_params {
    struct lrnn_sampler_params sampler;
    int64_t                    max_tokens; // 0: no limit; -1: none, only the prompt is read
    const char * const *       stops;      // [n_stops]; the text ends before any of these
    int32_t                    n_stops;
    int32_t n_draft, n_draft_mtp;        // tokens of a draft, less than n_rewind; one is 0
    const struct lrnn_chat *    chat;    // its tokens end the text, as eos does; may be NULL
    const struct lrnn_grammar * grammar; // of the text after each prompt; may be NULL
    bool                        ignore_eos;
    bool keep; // feed the last token too (but not eos), to save or continue the sequence
};

// Continues a sequence with a prompt and generated text. Free it before the session, the chat and
// the grammar.
struct lrnn_generation;
LRNN_API struct lrnn_generation * lrnn_generation_new(struct lrnn_session * session, int32_t seq,
        const struct lrnn_generation_params * params, struct lrnn_error * err);
LRNN_API void lrnn_generation_free(struct lrnn_generation * generation);
LRNN_API struct lrnn_sampler * lrnn_generation_sampler(struct lrnn_generation * generation);

// Begins, or begins again. An empty prompt continues from the last logits of the sequence, or, if
// the sequence is empty, from bos, or eos if the model has no bos.
LRNN_API bool lrnn_generation_prompt(struct lrnn_generation * generation, const int32_t * tokens,
        int64_t n_tokens, struct lrnn_error * err);

// Makes one call of the model for generations of a session, except those that have ended. Each
// reads the next n_batch tokens of its prompt, or generates the next token, with drafts several.
LRNN_API bool lrnn_generation_step(
        struct lrnn_generation * const * generations, int32_t n, struct lrnn_error * err);
LRNN_API enum lrnn_finish lrnn_generation_finish(const struct lrnn_generation * generation);

// What the last step added. Stop strings and tokens that end the text are no part of the text.
struct lrnn_generated {
    const int32_t * tokens;    // [n_tokens]
    const float *   log_probs; // [n_tokens], as of lrnn_sampler_sample
    int64_t         n_tokens;
    const char *    text; // not NUL-terminated
    size_t          size;
};
LRNN_API struct lrnn_generated lrnn_generation_get(const struct lrnn_generation * generation);

// Ends the text here. lrnn_generation_get has what was held back; with `keep`, a step must follow.
LRNN_API void lrnn_generation_end(struct lrnn_generation * generation);

// ---- Quantization -------------------------------------------------------------------------------

// The name of quantization type `i`, such as "Q8_0", or NULL if there are no more.
LRNN_API const char * lrnn_quantize_type(int32_t i);

struct lrnn_quantize_params {
    const char *         type;         // required: the type of the large matrices
    const char * const * tensor_types; // exceptions "REGEX=TYPE"; the first match wins
    int32_t              n_tensor_types;
    const char *         imatrix;          // path of an importance matrix; NULL: none
    bool                 allow_requantize; // accept matrices that are already quantized
    int32_t              n_threads;        // 0: one per core. The output does not depend on it
};

struct lrnn_quantize_tensor {
    const char * name;
    int64_t      ne[4];
    int32_t      n_dims;
    const char * from;
    const char * to;
    const char * wanted; // differs from `to` if its rows do not fit the type
    int64_t      bytes_from, bytes_to;
    double       error;          // relative RMS error; known after lrnn_quantizer_run
    bool         is_recurrent;   // quantized on request although it shapes the recurrence
    bool         has_importance; // the importance matrix covers it
};

// Plans the quantization of a model file.
struct lrnn_quantizer;
LRNN_API struct lrnn_quantizer * lrnn_quantizer_new(
        const char * path, const struct lrnn_quantize_params * params, struct lrnn_error * err);
LRNN_API void lrnn_quantizer_free(struct lrnn_quantizer * quantizer);

// Describes the plan for tensor `i`. Returns false if there are no more.
LRNN_API bool lrnn_quantizer_get_tensor(
        const struct lrnn_quantizer * quantizer, int64_t i, struct lrnn_quantize_tensor * tensor);

// Writes the new file, or only computes the errors if `path` is NULL. Calls `done`, unless it is
// NULL, after each tensor; return false to stop.
typedef bool (*lrnn_quantize_done)(
        const struct lrnn_quantize_tensor * tensor, int64_t i, void * user);
LRNN_API bool lrnn_quantizer_run(struct lrnn_quantizer * quantizer, const char * path,
        lrnn_quantize_done done, void * user, struct lrnn_error * err);

// An importance matrix: the mean square of every input of every weight matrix. A session collects
// it with trace_kinds = LRNN_TRACE_MATRICES, trace = lrnn_imatrix_collect and trace_user = imatrix.
// Ask for the logits of all tokens.
struct lrnn_imatrix;
LRNN_API struct lrnn_imatrix * lrnn_imatrix_new(
        const struct lrnn_model * model, struct lrnn_error * err);
LRNN_API void lrnn_imatrix_free(struct lrnn_imatrix * imatrix);
LRNN_API bool lrnn_imatrix_collect(const struct lrnn_trace_event * event, void * imatrix);

// Writes it in llama.cpp's format. `dataset`, `n_windows` and `window_size` describe the text.
// Fails if a call of lrnn_imatrix_collect failed.
LRNN_API bool lrnn_imatrix_save(const struct lrnn_imatrix * imatrix, const char * path,
        const char * dataset, int64_t n_windows, int64_t window_size, struct lrnn_error * err);

#ifdef __cplusplus
}
#endif
