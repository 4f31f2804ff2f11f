#include "output.h"

#include "json-write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

bool output_begin(struct output * out, enum output_format format, const struct lrnn_model * model,
        bool follows, struct lrnn_error * err) {
    *out = (struct output) { .format = format };
    if (format == OUTPUT_JSONL && lrnn_model_get_info(model).has_tokenizer) {
        out->decoder = lrnn_decoder_new(model, follows, err);
        return out->decoder != NULL;
    }
    return true;
}

// Records the first write that fails.
static void flush(struct output * out) {
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && out->error == 0) {
        out->error = errno != 0 ? errno : EIO;
    }
}

static void write_object(struct output * out, int32_t token, float log_prob, bool is_eos) {
    size_t size = 0;
    printf("{\"id\": %" PRId32 ", \"text\": ", token);
    if (out->decoder != NULL) {
        const char * text = is_eos ? "" : lrnn_decoder_push(out->decoder, token, &size);
        json_write_bytes(stdout, text, size);
    } else {
        printf("null");
    }
    printf(", \"logprob\": ");
    json_write_number(stdout, (double) log_prob);
    printf("}\n");
}

void output_write(struct output * out, const struct lrnn_generated * new, bool is_eos) {
    for (int64_t i = 0; i < new->n_tokens; ++i, ++out->n_tokens) {
        if (out->format == OUTPUT_IDS) {
            printf("%s%" PRId32, out->n_tokens > 0 ? " " : "", new->tokens[i]);
        } else if (out->format == OUTPUT_JSONL) {
            write_object(out, new->tokens[i], new->log_probs[i], is_eos && i + 1 == new->n_tokens);
        }
    }
    if (out->format == OUTPUT_TEXT && out->write != NULL) {
        out->write(new->text, new->size, out->write_user);
    } else if (out->format == OUTPUT_TEXT) {
        fwrite(new->text, 1, new->size, stdout);
    }
    flush(out);
}

void output_end(struct output * out, bool newline) {
    lrnn_decoder_free(out->decoder);
    if (newline) {
        putchar('\n');
    }
    flush(out);
}
