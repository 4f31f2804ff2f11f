#include "reply.h"

#include "json-write.h"
#include "server.h"
#include "base/error.h"
#include "base/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

//
// Tokens
//

// The text of a token. Bytes that are not UTF-8 are written as OpenAI's API did: "bytes:\xe2\x80".
static void write_token(FILE * out, const struct lrnn_model * model, int32_t token) {
    size_t       size;
    const char * bytes = lrnn_token_bytes(model, token, &size);
    if (bytes == NULL) { // no tokenizer
        fprintf(out, "\"%d\"", token);
    } else if (utf8_valid(bytes, size) == size) {
        json_write_bytes(out, bytes, size);
    } else {
        fputs("\"bytes:", out);
        for (size_t i = 0; i < size; ++i) {
            fprintf(out, "\\\\x%02x", (unsigned) (unsigned char) bytes[i]);
        }
        putc('"', out);
    }
}

static bool same_bytes(const struct lrnn_model * model, int32_t a, int32_t b) {
    size_t       size_a = 0, size_b = 0;
    const char * bytes_a = lrnn_token_bytes(model, a, &size_a);
    const char * bytes_b = lrnn_token_bytes(model, b, &size_b);
    return a == b || (bytes_a != NULL && bytes_b != NULL && size_a == size_b &&
                             memcmp(bytes_a, bytes_b, size_a) == 0);
}

// Nine digits: equal floats have equal texts, and different ones different texts.
static void write_log_prob(FILE * out, float x) {
    if (isfinite(x)) {
        fprintf(out, "%.9g", (double) x);
    } else {
        fputs("null", out);
    }
}

static void write_bytes(FILE * out, const struct lrnn_model * model, int32_t token) {
    size_t       size = 0;
    const char * bytes = lrnn_token_bytes(model, token, &size);
    putc('[', out);
    for (size_t i = 0; bytes != NULL && i < size; ++i) {
        fprintf(out, "%s%u", i > 0 ? "," : "", (unsigned) (unsigned char) bytes[i]);
    }
    putc(']', out);
}

//
// Log-probabilities, in two shapes: arrays over the tokens, as in OpenAI's completions, and objects
// in "content", as in its chats and llama-server's completions
//

// {"text": log-probability}. The object has the most likely tokens and the token itself, each text
// once: a parser that keeps the last of equal keys would lose the larger value.
static void write_top(
        FILE * out, const struct lrnn_model * model, const struct token_score * score) {
    putc('{', out);
    for (int32_t i = 0; i <= score->n_top; ++i) {
        const int32_t token = i < score->n_top ? score->top[i] : score->token;
        bool          again = false;
        for (int32_t j = 0; j < i && !again; ++j) {
            again = same_bytes(model, token, score->top[j]);
        }
        if (again) {
            continue;
        }
        fputs(i > 0 ? "," : "", out);
        write_token(out, model, token);
        putc(':', out);
        write_log_prob(out, i < score->n_top ? score->top_log_prob[i] : score->log_prob);
    }
    putc('}', out);
}

static void write_entry(
        FILE * out, const struct lrnn_model * model, int32_t token, float log_prob) {
    fprintf(out, "{\"id\":%d,\"token\":", token);
    write_token(out, model, token);
    fputs(",\"logprob\":", out);
    write_log_prob(out, log_prob);
    fputs(",\"bytes\":", out);
    write_bytes(out, model, token);
}

static void write_content(struct text * t, const struct lrnn_model * model,
        const struct token_score * scores, int64_t n) {
    FILE * out = t->out;
    fputs("\"content\":[", out);
    for (int64_t i = 0; i < n; ++i) {
        const struct token_score * score = &scores[i];
        text_send(t);
        fputs(i > 0 ? "," : "", out);
        write_entry(out, model, score->token, score->log_prob);
        fputs(",\"top_logprobs\":[", out);
        for (int32_t k = 0; k < score->n_top; ++k) {
            fputs(k > 0 ? "," : "", out);
            write_entry(out, model, score->top[k], score->top_log_prob[k]);
            putc('}', out);
        }
        fputs("]}", out);
    }
    putc(']', out);
}

static int64_t count_characters(const char * text, size_t size) {
    const char * end = text + size;
    int64_t      n = 0;
    for (const char * p = text; p < end; ++n) {
        uint32_t  cp;
        int       bad;
        const int length = utf8_decode(p, end, &cp, &bad);
        p += length > 0 ? length : 1;
    }
    return n;
}

static void write_offsets(
        struct text * t, struct choice_cursor * at, const struct token_score * scores, int64_t n) {
    fputs(",\"text_offset\":[", t->out);
    for (int64_t i = 0; i < n; ++i) {
        size_t size = 0;
        text_send(t);
        fprintf(t->out, "%s%" PRId64, i > 0 ? "," : "", at->offset);
        if (at->decoder != NULL) {
            const char * text = lrnn_decoder_push(at->decoder, scores[i].token, &size);
            at->offset += count_characters(text, size);
        }
    }
    fputs("],", t->out);
}

// The next n scores that have not been sent.
static void write_log_probs(struct text * t, struct completion * c, int64_t i, int64_t n) {
    FILE *                     out = t->out;
    const struct lrnn_model *  model = c->server->model;
    const struct choice *      choice = &c->job->choices[i];
    struct choice_cursor *     at = &c->cursors[i];
    const struct token_score * scores = choice->scores + at->n_scores;

    fputs(",\"logprobs\":", out);
    if (c->request.n_top < 0) {
        fputs("null", out);
        return;
    }
    putc('{', out);
    if (!c->is_chat) {
        fputs("\"tokens\":[", out);
        for (int64_t k = 0; k < n; ++k) {
            text_send(t);
            fputs(k > 0 ? "," : "", out);
            write_token(out, model, scores[k].token);
        }
        fputs("],\"token_logprobs\":[", out);
        for (int64_t k = 0; k < n; ++k) {
            text_send(t);
            fputs(k > 0 ? "," : "", out);
            write_log_prob(out, scores[k].log_prob);
        }
        fputs("],\"top_logprobs\":[", out);
        for (int64_t k = 0; k < n; ++k) {
            text_send(t);
            fputs(k > 0 ? "," : "", out);
            if (isnan(scores[k].log_prob)) {
                fputs("null", out);
            } else {
                write_top(out, model, &scores[k]);
            }
        }
        putc(']', out);
        write_offsets(t, at, scores, n);
    }
    write_content(t, model, scores, n);
    putc('}', out);
    at->n_scores += n;
}

//
// Replies
//

static void write_head(FILE * out, const struct completion * c, bool is_chunk) {
    fprintf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", c->id,
            !c->is_chat ? "text_completion"
            : is_chunk  ? "chat.completion.chunk"
                        : "chat.completion",
            c->created_s);
    json_write_string(out, c->server->model_name);
}

// A prompt counts once, however many choices it has.
static void write_usage(FILE * out, const struct completion * c) {
    int64_t n_prompt = 0, n_cached = 0, n_new = 0;
    for (int64_t i = 0; i < c->job->n_choices; ++i) {
        const struct choice * choice = &c->job->choices[i];
        n_new += choice->n_new;
        if (i % c->request.n == 0) {
            n_prompt += choice->n_prompt;
            n_cached += choice->n_cached;
        }
    }
    fprintf(out,
            ",\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
            ",\"total_tokens\":%" PRId64 ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64
            "}}",
            n_prompt, n_new, n_prompt + n_new, n_cached);
}

static const char * reason_of(const struct choice * choice) {
    const bool is_stop = choice->finish == LRNN_FINISH_STOP || choice->finish == LRNN_FINISH_EOS ||
                         choice->finish == LRNN_FINISH_GRAMMAR;
    return is_stop ? "\"stop\"" : "\"length\"";
}

static const char * text_of(const struct choice * choice) {
    return choice->text.data != NULL ? choice->text.data : "";
}

// Writes the prompt and the text generated so far, as one JSON string: the prompt may end inside a
// character.
static void write_echo(struct text * t, const struct completion * c, const struct choice * choice) {
    struct text * whole = text_new();
    if (whole != NULL) {
        text_detokenize(whole, c->server->model, choice->prompt, choice->n_prompt);
        fwrite(text_of(choice), 1, choice->text.n, whole->out);
    }
    if (whole != NULL && text_flush(whole)) {
        json_write_bytes(t->out, whole->data, whole->size);
    } else {
        t->failed = true;
    }
    text_free(whole);
}

// The text that has not been sent, as a JSON string; with the prompt before it, if wanted.
static void write_text(struct text * t, struct completion * c, int64_t i) {
    const struct choice *  choice = &c->job->choices[i];
    struct choice_cursor * at = &c->cursors[i];
    if (c->request.echo && !at->is_begun && !c->is_chat && c->server->info.has_tokenizer) {
        write_echo(t, c, choice);
    } else {
        json_write_bytes(t->out, text_of(choice) + at->n_text, choice->text.n - at->n_text);
    }
    at->n_text = choice->text.n;
    at->is_begun = true;
}

void completion_write(struct text * t, struct completion * c) {
    FILE * out = t->out;
    write_head(out, c, false);
    fputs(",\"choices\":[", out);
    for (int64_t i = 0; i < c->job->n_choices; ++i) {
        fprintf(out, "%s{\"index\":%" PRId64 ",", i > 0 ? "," : "", i);
        fputs(c->is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":", out);
        write_text(t, c, i);
        fputs(c->is_chat ? "}" : "", out);
        write_log_probs(t, c, i, c->job->choices[i].n_scores);
        text_send(t);
        fprintf(out, ",\"finish_reason\":%s}", reason_of(&c->job->choices[i]));
    }
    putc(']', out);
    write_usage(out, c);
    putc('}', out);
}

static void begin_event(FILE * out, const struct completion * c, int64_t i) {
    fputs("data: ", out);
    write_head(out, c, true);
    fprintf(out, ",\"choices\":[{\"index\":%" PRId64 ",", i);
}

static void end_event(FILE * out, const char * reason) {
    fprintf(out, ",\"finish_reason\":%s}]}\n\n", reason);
}

// An event is written to memory, while the job waits.
enum { SCORES_PER_EVENT = 512 };

// Writes the next events of a choice. False: there is nothing new.
static bool write_choice_events(struct text * t, struct completion * c, int64_t i) {
    FILE *                 out = t->out;
    const struct choice *  choice = &c->job->choices[i];
    struct choice_cursor * at = &c->cursors[i];
    if (at->is_done) {
        return false;
    }
    if (c->is_chat && !at->is_begun) {
        begin_event(out, c, i);
        fputs("\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null", out);
        end_event(out, "null");
        at->is_begun = true;
    }
    const int64_t n_left = choice->n_scores - at->n_scores;
    const int64_t n = n_left < SCORES_PER_EVENT ? n_left : SCORES_PER_EVENT;
    const bool    is_done = choice->finish != LRNN_FINISH_NONE && n == n_left;
    const bool    is_new =
            choice->phase >= CHOICE_DECODE &&
            (choice->text.n > at->n_text || n > 0 || (c->request.echo && !at->is_begun));
    if (is_new || (is_done && !c->is_chat)) {
        begin_event(out, c, i);
        fputs(c->is_chat ? "\"delta\":{\"content\":" : "\"text\":", out);
        write_text(t, c, i);
        fputs(c->is_chat ? "}" : "", out);
        write_log_probs(t, c, i, n);
        end_event(out, is_done && !c->is_chat ? reason_of(choice) : "null");
    }
    if (is_done && c->is_chat) {
        begin_event(out, c, i);
        fputs("\"delta\":{},\"logprobs\":null", out);
        end_event(out, reason_of(choice));
    }
    at->is_done = is_done;
    return is_new;
}

static void write_error_event(FILE * out, const struct lrnn_error * err) {
    fputs("data: ", out);
    error_write(out, status_of(err->kind), NULL, err->text);
    fputs("\n\ndata: [DONE]\n\n", out);
}

bool completion_write_events(struct text * t, struct completion * c) {
    const struct job * job = c->job;
    FILE *             out = t->out;
    if (job->err.kind != LRNN_ERROR_NONE) {
        write_error_event(out, &job->err);
        return true;
    }
    for (int64_t i = 0; i < job->n_choices; ++i) {
        while (write_choice_events(t, c, i) && !t->failed && !text_is_large(t)) {
        }
        if (t->failed) { // an event is incomplete
            struct lrnn_error err;
            error_no_memory(&err, "the reply");
            rewind(out);
            t->failed = false;
            write_error_event(out, &err);
            return true;
        }
        if (text_is_large(t)) {
            return false;
        }
    }
    if (job->n_done < job->n_choices) {
        return false;
    }
    if (c->request.include_usage) {
        fputs("data: ", out);
        write_head(out, c, true);
        fputs(",\"choices\":[]", out);
        write_usage(out, c);
        fputs("}\n\n", out);
    }
    fputs("data: [DONE]\n\n", out);
    return true;
}
