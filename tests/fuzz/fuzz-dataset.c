// Reads arbitrary bytes as a data set: decompression, form of the file, JSON, templates. The result
// is documents or an error message. Documents are UTF-8, the counts add up, and the same documents
// written as JSON lines have the same fingerprint.
//
// The first byte of the input selects the preset and the size limit of a record; the rest is the
// file.

#include "fuzz/fuzz.h"
#include "lrnn.h"
#include "eval/data/dataset.h"
#include "base/unicode.h"

enum { MAX_SIZE = 20000 }; // a few bytes of zstd may expand to a hundred thousand

static FILE * create(const char * path) {
    remove(path);
    FILE * file = fopen(path, "wb");
    require_of(file != NULL, "cannot write", path);
    return file;
}

static void write_record(FILE * file, const char * text, size_t size) {
    fputs("{\"text\":\"", file);
    for (size_t i = 0; i < size; ++i) {
        const uint8_t c = (uint8_t) text[i];
        if (c < 0x20 || c == '"' || c == '\\') {
            fprintf(file, "\\u%04x", c);
        } else {
            fputc(c, file);
        }
    }
    fputs("\"}\n", file);
}

// Reads all documents and writes them to `out`, unless NULL. Returns their number; −1: error.
static int64_t read_all(const struct dataset_params * params, FILE * out, char hex[65]) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    struct dataset *  ds = dataset_open(params, &err);
    require_of(ds != NULL, "not opened", err.text);
    struct document     doc;
    enum dataset_status status;
    int64_t             n = 0, bytes = 0;
    while ((status = dataset_next(ds, &doc, &err)) == DATASET_DOCUMENT) {
        require_of(doc.index == n++, "wrong index of a document", doc.file);
        require_of(utf8_valid(doc.text, doc.size) == doc.size &&
                           utf8_valid(doc.source, strlen(doc.source)) == strlen(doc.source),
                "not UTF-8", doc.file);
        bytes += (int64_t) doc.size;
        if (out != NULL) {
            write_record(out, doc.text, doc.size);
        }
    }
    const struct dataset_counts c = dataset_get_counts(ds);
    require_of(c.documents == n && c.bytes == bytes, "wrong number of documents", "");
    require_of(status == DATASET_ERROR || (n > 0 && c.records == n + c.filtered + c.malformed),
            "wrong number of records", "");
    require_of(status == DATASET_ERROR || c.bytes_read == c.bytes_total,
            "the file was not read to its end", "");
    require_of(status == DATASET_END || (err.text[0] != '\0' && strchr(err.text, '\n') == NULL),
            "error without a message", err.text);
    dataset_fingerprint(ds, hex);
    dataset_free(ds);
    return status == DATASET_ERROR ? -1 : n;
}

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static char in[64], out[64];
    make_path(in, "dataset.in");
    make_path(out, "dataset.out");
    if (size == 0 || size > MAX_SIZE) {
        return 0;
    }
    FILE * file = create(in);
    require_of(fwrite(data + 1, 1, size - 1, file) == size - 1 && fclose(file) == 0, "cannot write",
            in);

    int n_presets = 0;
    while (dataset_preset_at(n_presets) != NULL) {
        n_presets++;
    }
    const char * const    paths[] = { in };
    const char * const    copies[] = { out };
    struct dataset_params params = {
        .paths = paths, .n_paths = 1, .preset = dataset_preset_at(data[0] % n_presets)->name
    };
    char first[65], second[65];
    params.max_record = (data[0] & 0x80) != 0 ? 64 : 1 << 20;
    file = create(out);
    const int64_t n = read_all(&params, file, first);
    require_of(fclose(file) == 0, "cannot write", out);
    if (n > 0) {
        params = (struct dataset_params) { .paths = copies, .n_paths = 1, .preset = "text" };
        require_of(read_all(&params, NULL, second) == n && strcmp(first, second) == 0,
                "different fingerprint as JSON lines", second);
    }
    remove(in);
    remove(out);
    return 0;
}
