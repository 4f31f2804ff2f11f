#include "output.h"

#include "base/error.h"
#include "base/json-write.h"

#include <errno.h>
#include <inttypes.h>

bool output_begin(struct output * out, enum output_format format, const struct lrnn_model * model,
        bool continues, const struct option_strings * stops, text_write write, void * write_user,
        struct lrnn_error * err) {
    *out = (struct output) { .format = format };
    if (!stop_begin(&out->filter, stops, format == OUTPUT_TEXT ? write : NULL, write_user)) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for the stop strings");
    }
    if (lrnn_model_get_info(model).has_tokenizer) {
        out->decoder = lrnn_decoder_new(model, continues, err);
        if (out->decoder == NULL) {
            stop_end(&out->filter);
            return false;
        }
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

bool output_token(struct output * out, int32_t token, float log_prob, bool is_end) {
    const char * text = "";
    size_t       size = 0;

    if (out->decoder != NULL && !is_end) {
        text = lrnn_decoder_push(out->decoder, token, &size);
    }
    switch (out->format) {
        case OUTPUT_TEXT: break; // written by the filter
        case OUTPUT_IDS: {
            printf("%s%" PRId32, out->n_tokens > 0 ? " " : "", token);
        } break;
        case OUTPUT_JSONL: {
            printf("{\"id\": %" PRId32 ", \"text\": ", token);
            if (out->decoder != NULL) {
                json_write_bytes(stdout, text, size);
            } else {
                printf("null");
            }
            printf(", \"logprob\": ");
            json_write_number(stdout, (double) log_prob);
            printf("}\n");
        } break;
    }
    const bool stop = stop_push(&out->filter, text, size);
    flush(out);
    out->n_tokens++;
    return stop;
}

void output_end(struct output * out, bool newline) {
    if (out->decoder != NULL) {
        size_t       size;
        const char * text = lrnn_decoder_end(out->decoder, &size);
        stop_push(&out->filter, text, size);
        lrnn_decoder_free(out->decoder);
    }
    stop_end(&out->filter);
    if (newline) {
        putchar('\n');
    }
    flush(out);
}
