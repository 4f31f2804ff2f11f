#include "eval/data/dataset.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/unicode.h"
#include "eval/data/data-files.h"
#include "eval/data/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//
// Presets
//

// Templates of the papers on length extrapolation of these models: automl/DeltaProduct at 38cd4e4b,
// language_modeling/custom_evals.
static const struct dataset_preset PRESETS[] = {
    // name, templates, where, source, about
    { "codeparrot", "{content}", NULL, NULL,
            "CodeParrot (codeparrot-clean, codeparrot-*-near-dedup): Python files" },
    { "math-hard", "Problem: {problem}, Solution: {solution}", "level=Level 5", "type",
            "MATH-Hard (lighteval/MATH-Hard, hendrycks MATH): level 5 problems with solutions" },
    { "triviaqa",
            "Question: {query}, Answer: {answer}\n"
            "Question: {question}, Answer: {answer.value}\n"
            "Question: {Question}, Answer: {Answer.Value}",
            NULL, NULL,
            "TriviaQA (sentence-transformers/trivia-qa, mandarjoshi/trivia_qa, the original): "
            "questions with answers" },
    { "slimpajama", "{text}", NULL, "meta.redpajama_set_name",
            "SlimPajama (SlimPajama-627B, SlimPajama-6B): web pages, books, code" },
    { "openthoughts", "Problem: {problem}, Solution: {solution}", NULL, NULL,
            "OpenThoughts (open-r1/OpenThoughts-114k-math): math problems with long solutions" },
    { "gsm8k", "Problem: {question}, Solution: {answer}", NULL, NULL,
            "GSM8K (openai/gsm8k): grade school word problems with solutions" },
    { "text", "{text}", NULL, NULL,
            "plain text, one document per file; or JSON records with a field text" },
};

const struct dataset_preset * dataset_preset_at(int i) {
    return i >= 0 && (size_t) i < sizeof(PRESETS) / sizeof(PRESETS[0]) ? &PRESETS[i] : NULL;
}

const struct dataset_preset * dataset_preset_find(const char * name) {
    for (int i = 0; dataset_preset_at(i) != NULL; ++i) {
        if (strcmp(PRESETS[i].name, name) == 0) {
            return &PRESETS[i];
        }
    }
    return NULL;
}

void dataset_title(const char * preset, const char * files, char title[DATASET_TITLE_SIZE]) {
    const bool is_file = strcmp(preset, "text") == 0 && strchr(files, '\t') == NULL &&
                         strcmp(files, "") != 0 && strcmp(files, "-") != 0;
    snprintf(title, DATASET_TITLE_SIZE, "%s", is_file ? files : preset);
    for (bool packed = is_file; packed;) {
        char * dot = strrchr(title + 1, '.');
        packed = dot != NULL && (strcmp(dot, ".gz") == 0 || strcmp(dot, ".zst") == 0);
        if (dot != NULL) {
            *dot = '\0';
        }
    }
}

//
// Documents in memory, for shuffling
//

struct stored_document {
    struct document doc; // text and source are copies in `memory`
    char *          memory;
};

struct document_store {
    size_t                   max_bytes; // set by the owner; everything else is zero at first
    size_t                   bytes;
    struct stored_document * documents;
    size_t                   n, capacity;
    size_t                   next;
};

static bool store_add(
        struct document_store * s, const struct document * doc, struct lrnn_error * err) {
    const size_t source_size = strlen(doc->source) + 1;
    const size_t cost = doc->size + source_size + sizeof(struct stored_document);
    if (cost > s->max_bytes - s->bytes) {
        return error_bad_file(err,
                "%s:%lld: shuffling keeps all texts in memory, and they exceed the limit of %zu "
                "bytes; shuffle the files beforehand",
                doc->file, (long long) doc->line, s->max_bytes);
    }
    char * copy = malloc(doc->size + source_size); // the source, then the text
    if (copy == NULL || !array_grow(&s->documents, &s->capacity, s->n + 1, sizeof(*s->documents))) {
        free(copy);
        return error_no_memory(err, "a text of %zu bytes", doc->size);
    }
    memcpy(copy, doc->source, source_size);
    if (doc->size > 0) {
        memcpy(copy + source_size, doc->text, doc->size);
    }
    struct stored_document * d = &s->documents[s->n++];
    *d = (struct stored_document) { *doc, copy };
    d->doc.source = copy;
    d->doc.text = copy + source_size;
    s->bytes += cost;
    return true;
}

// The order depends only on the seed and the number of documents.
static void store_shuffle(struct document_store * s, uint64_t seed) {
    for (size_t i = s->n; i > 1; --i) { // Fisher-Yates
        const size_t                 k = (size_t) random_below(&seed, i);
        const struct stored_document d = s->documents[i - 1];
        s->documents[i - 1] = s->documents[k];
        s->documents[k] = d;
    }
}

static bool store_next(struct document_store * s, struct document * doc) {
    if (s->next == s->n) {
        return false;
    }
    *doc = s->documents[s->next++].doc;
    return true;
}

static void store_free(struct document_store * s) {
    for (size_t i = 0; i < s->n; ++i) {
        free(s->documents[i].memory);
    }
    free(s->documents);
    *s = (struct document_store) { 0 };
}

//
// The data set
//

enum { MAX_COMPLAINTS = 16 };

static const char WHOLE_FILE[] = "(whole file)";

struct dataset {
    char *                strings; // copies of parameters
    const char *          templates[RECORD_TEXT_MAX_TEMPLATES];
    size_t                template_sizes[RECORD_TEXT_MAX_TEMPLATES];
    const char *          where; // NULL: every record
    struct record_text    text_of;
    bool                  takes_text; // files that are not JSON are documents
    int64_t               start_doc, max_docs;
    double                max_bad_share;
    struct data_files     files;
    int64_t               file; // current
    bool                  is_open;
    int64_t               bytes_done; // of the previous files
    struct record_reader  reader;
    struct buffer         text, source;
    unsigned              used;       // templates, one bit each; the bit above: whole files
    char *                used_names; // counts.template
    struct document_store store;      // shuffled documents
    bool                  shuffle, is_stored;
    uint64_t              shuffle_seed;
    struct dataset_counts counts;
    char *                complaints[MAX_COMPLAINTS];
    int                   n_complaints;
    struct sha256         hash;
    bool                  has_failed;
    struct lrnn_error     failure;
};

//
// Opening
//

// Copies the strings of the parameters.
static bool copy_strings(struct dataset * ds, const struct dataset_params * params,
        const struct dataset_preset * preset, struct lrnn_error * err) {
    const bool   of_preset = params->template == NULL && params->text_field == NULL;
    const char * templates = of_preset                  ? preset->templates
                             : params->template != NULL ? params->template
                                                        : params->text_field;
    const char * where = params->where != NULL   ? params->where
                         : preset->where != NULL ? preset->where
                                                 : "";
    const size_t size = strlen(templates) + 3;
    size_t       used_size = sizeof(WHOLE_FILE) + strlen(templates) + 4 * RECORD_TEXT_MAX_TEMPLATES;
    ds->strings = malloc(size + strlen(where) + 1);
    ds->used_names = calloc(used_size, 1);
    if (ds->strings == NULL || ds->used_names == NULL) {
        return error_no_memory(err, "a data set");
    }
    snprintf(ds->strings, size, params->text_field != NULL ? "{%s}" : "%s", templates);
    strcpy(ds->strings + size, where);
    ds->where = where[0] != '\0' ? ds->strings + size : NULL;

    // only presets have alternatives: a line break in a user's template is a line break
    const char * p = ds->strings;
    int          n = 0;
    do {
        const char * newline = of_preset ? strchr(p, '\n') : NULL;
        ds->templates[n] = p;
        ds->template_sizes[n++] = newline != NULL ? (size_t) (newline - p) : strlen(p);
        p = newline != NULL ? newline + 1 : NULL;
    } while (p != NULL && n < RECORD_TEXT_MAX_TEMPLATES);

    record_text_init(&ds->text_of);
    for (int i = 0; i < n; ++i) {
        if (!record_text_add_template(&ds->text_of, ds->templates[i], ds->template_sizes[i], err)) {
            return false;
        }
    }
    ds->takes_text = of_preset && strcmp(preset->name, "text") == 0;
    return (ds->where == NULL || record_text_set_where(&ds->text_of, ds->where, err)) &&
           (preset->source == NULL || record_text_set_source(&ds->text_of, preset->source, err));
}

static bool check_params(const struct dataset_params * params, const struct dataset_preset * preset,
        struct lrnn_error * err) {
    if (preset == NULL) {
        char   names[256] = "";
        size_t n = 0;
        for (int i = 0; dataset_preset_at(i) != NULL && n < sizeof(names); ++i) {
            n += (size_t) snprintf(names + n, sizeof(names) - n, "%s %s", i > 0 ? "," : "",
                    dataset_preset_at(i)->name);
        }
        return error_bad_input(
                err, "unknown data set '%s'; expected one of%s", params->preset, names);
    }
    if (params->n_paths < 1) {
        return error_bad_input(err, "no data; expected files, folders or - for standard input");
    }
    if (params->template != NULL && params->text_field != NULL) {
        return error_bad_input(
                err, "both a template and a text field are given; expected one of them");
    }
    if (params->start_doc < 0 || params->max_docs < 0) {
        return error_bad_input(err, "%s is %lld; expected 0 or more",
                params->start_doc < 0 ? "start_doc" : "max_docs",
                (long long) (params->start_doc < 0 ? params->start_doc : params->max_docs));
    }
    if (!(params->max_bad_share >= 0 && params->max_bad_share <= 1)) {
        return error_bad_input(err, "max_bad_share is %g; expected 0 to 1", params->max_bad_share);
    }
    return true;
}

struct dataset * dataset_open(const struct dataset_params * params, struct lrnn_error * err) {
    const struct dataset_preset * preset =
            dataset_preset_find(params->preset != NULL ? params->preset : "text");
    if (!check_params(params, preset, err)) {
        return NULL;
    }
    struct dataset * ds = calloc(1, sizeof(*ds));
    if (ds == NULL) {
        error_no_memory(err, "a data set");
        return NULL;
    }
    ds->start_doc = params->start_doc;
    ds->max_docs = params->max_docs;
    ds->max_bad_share = params->max_bad_share > 0 ? params->max_bad_share : 0.01;
    ds->shuffle = params->shuffle;
    ds->shuffle_seed = params->shuffle_seed;
    ds->store.max_bytes =
            params->max_shuffle_bytes > 0 ? params->max_shuffle_bytes : (size_t) 1 << 30;
    ds->reader.max_record = params->max_record > 0 ? params->max_record : (size_t) 256 << 20;
    sha256_begin(&ds->hash);
    if (!copy_strings(ds, params, preset, err) ||
            !data_files_find(&ds->files, params->paths, params->n_paths, err)) {
        dataset_free(ds);
        return NULL;
    }
    ds->counts.bytes_total = ds->files.bytes;
    return ds;
}

void dataset_free(struct dataset * ds) {
    if (ds == NULL) {
        return;
    }
    record_reader_free(&ds->reader);
    data_files_free(&ds->files);
    store_free(&ds->store);
    buffer_free(&ds->text);
    buffer_free(&ds->source);
    for (int i = 0; i < ds->n_complaints; ++i) {
        free(ds->complaints[i]);
    }
    free(ds->used_names);
    free(ds->strings);
    free(ds);
}

//
// Reading
//

// Complaints are part of score files: a change of a text changes their bytes.
static void complain(struct dataset * ds, int64_t line, const char * why) {
    if (ds->n_complaints == MAX_COMPLAINTS) {
        return;
    }
    const size_t size = strlen(ds->reader.name) + strlen(why) + 32;
    char *       text = malloc(size);
    if (text == NULL) {
        return; // it is still counted
    }
    if (line > 0) {
        snprintf(text, size, "%s:%lld: %s", ds->reader.name, (long long) line, why);
    } else {
        snprintf(text, size, "%s: %s", ds->reader.name, why);
    }
    ds->complaints[ds->n_complaints++] = text;
}

// Returns false if there are too many.
static bool count_malformed(
        struct dataset * ds, int64_t line, const char * why, struct lrnn_error * err) {
    struct dataset_counts * c = &ds->counts;
    complain(ds, line, why);
    c->malformed++;
    if (c->malformed <= 10 || (double) c->malformed <= ds->max_bad_share * (double) c->records) {
        return true;
    }
    return error_bad_file(err,
            "%lld of %lld records are malformed, more than the fraction %g; the first: %s",
            (long long) c->malformed, (long long) c->records, ds->max_bad_share,
            ds->n_complaints > 0 ? ds->complaints[0] : why);
}

// Records that template i was used; n_templates: a whole file.
static void count_template(struct dataset * ds, int i) {
    if ((ds->used >> i & 1) != 0) {
        return;
    }
    ds->used |= 1u << i;
    char * out = ds->used_names;
    for (int k = 0; k <= ds->text_of.n_templates; ++k) {
        if ((ds->used >> k & 1) != 0) {
            const bool   whole = k == ds->text_of.n_templates;
            const size_t size = whole ? sizeof(WHOLE_FILE) - 1 : ds->template_sizes[k];
            if (out > ds->used_names) {
                memcpy(out, " | ", 3);
                out += 3;
            }
            memcpy(out, whole ? WHOLE_FILE : ds->templates[k], size);
            out += size;
        }
    }
    *out = '\0';
}

// Opens the next file with records. Returns DATASET_DOCUMENT if there is one.
static enum dataset_status next_file(struct dataset * ds, struct lrnn_error * err) {
    for (; ds->file < ds->files.n; ++ds->file) {
        const struct data_file * file = &ds->files.files[ds->file];
        if (!record_reader_open(&ds->reader, file->path, err)) {
            return DATASET_ERROR;
        }
        ds->is_open = true;
        ds->counts.files++;
        if (ds->reader.form == RECORD_FORM_TEXT && !ds->takes_text) {
            if (!file->in_folder) {
                ds->reader.form = RECORD_FORM_LINES;
                return DATASET_DOCUMENT;
            }
            complain(ds, 0, "left out: does not begin like JSON records");
            ds->counts.files_left_out++;
        } else if (ds->reader.form != RECORD_FORM_EMPTY) {
            return DATASET_DOCUMENT;
        }
        ds->bytes_done += record_reader_position(&ds->reader);
        record_reader_close(&ds->reader);
        ds->is_open = false;
    }
    return DATASET_END;
}

// Takes a file that is not JSON as a document.
static enum record_text_status take_text(struct dataset * ds, const struct record * record,
        struct document * doc, struct lrnn_error * err) {
    const size_t valid = utf8_valid(record->data, record->size);
    if (valid < record->size) {
        error_bad_file(err, "not UTF-8 at byte %zu of the text", valid);
        return RECORD_TEXT_MALFORMED;
    }
    if (ds->where != NULL && !ds->text_of.where_not) { // a text has no fields
        return RECORD_TEXT_FILTERED;
    }
    *doc = (struct document) { .text = record->data, .size = record->size, .source = "" };
    count_template(ds, ds->text_of.n_templates);
    return RECORD_TEXT_TAKEN;
}

static enum record_text_status take_json(struct dataset * ds, const struct record * record,
        struct document * doc, struct lrnn_error * err) {
    int                           used;
    int64_t                       n_lone;
    const enum record_text_status status = record_text_make(
            &ds->text_of, record->data, record->size, &ds->text, &ds->source, &used, &n_lone, err);
    if (status != RECORD_TEXT_TAKEN) {
        return status;
    }
    if (!buffer_append(&ds->source, "", 1)) {
        return RECORD_TEXT_NO_MEMORY;
    }
    for (size_t i = 0; i + 1 < ds->source.n; ++i) {
        if ((uint8_t) ds->source.data[i] < 0x20) {
            ds->source.data[i] = '?';
        }
    }
    ds->counts.lone_surrogates += n_lone;
    *doc = (struct document) {
        .text = ds->text.data, .size = ds->text.n, .source = ds->source.data
    };
    count_template(ds, used);
    return RECORD_TEXT_TAKEN;
}

// The next document, in the order of the files.
static enum dataset_status next_in_order(
        struct dataset * ds, struct document * doc, struct lrnn_error * err) {
    for (;;) {
        if (!ds->is_open) {
            const enum dataset_status status = next_file(ds, err);
            if (status != DATASET_DOCUMENT) {
                return status;
            }
        }
        struct record           record;
        enum record_text_status status = RECORD_TEXT_MALFORMED;
        struct lrnn_error       why;
        switch (record_reader_next(&ds->reader, &record, err)) {
            case RECORD_ERROR: return DATASET_ERROR;
            case RECORD_END:
                ds->bytes_done += record_reader_position(&ds->reader);
                record_reader_close(&ds->reader);
                ds->is_open = false;
                ds->file++;
                continue;
            case RECORD_TOO_LONG:
                error_bad_file(&why, "longer than %zu bytes, the limit for one record",
                        ds->reader.max_record);
                break;
            case RECORD_READ:
                status = (ds->reader.form == RECORD_FORM_TEXT ? take_text : take_json)(
                        ds, &record, doc, &why);
                break;
        }
        ds->counts.records++;
        switch (status) {
            case RECORD_TEXT_TAKEN:
                doc->file = ds->files.files[ds->file].path;
                doc->line = record.line;
                return DATASET_DOCUMENT;
            case RECORD_TEXT_FILTERED: ds->counts.filtered++; break;
            case RECORD_TEXT_MALFORMED:
                if (!count_malformed(ds, record.line, why.text, err)) {
                    return DATASET_ERROR;
                }
                break;
            case RECORD_TEXT_NO_MEMORY:
                error_no_memory(err, "a text of more than %zu bytes at %s:%lld", ds->text.n,
                        ds->reader.name, (long long) record.line);
                return DATASET_ERROR;
        }
    }
}

static enum dataset_status next_of_stream(
        struct dataset * ds, struct document * doc, struct lrnn_error * err) {
    if (!ds->shuffle) {
        return next_in_order(ds, doc, err);
    }
    if (!ds->is_stored) {
        enum dataset_status status;
        while ((status = next_in_order(ds, doc, err)) == DATASET_DOCUMENT) {
            if (!store_add(&ds->store, doc, err)) {
                return DATASET_ERROR;
            }
        }
        if (status == DATASET_ERROR) {
            return DATASET_ERROR;
        }
        store_shuffle(&ds->store, ds->shuffle_seed);
        ds->is_stored = true;
    }
    return store_next(&ds->store, doc) ? DATASET_DOCUMENT : DATASET_END;
}

static enum dataset_status next_or_fail(
        struct dataset * ds, struct document * doc, struct lrnn_error * err) {
    struct dataset_counts * c = &ds->counts;
    if (ds->max_docs > 0 && c->documents == ds->max_docs) {
        return DATASET_END;
    }
    enum dataset_status status;
    while ((status = next_of_stream(ds, doc, err)) == DATASET_DOCUMENT &&
            c->skipped < ds->start_doc) {
        c->skipped++;
    }
    if (status == DATASET_END && c->documents == 0) {
        error_bad_file(err,
                "no document in the data: %lld files, %lld records, %lld skipped, %lld excluded by "
                "%s, %lld malformed%s%s",
                (long long) c->files, (long long) c->records, (long long) c->skipped,
                (long long) c->filtered, ds->where != NULL ? ds->where : "no filter",
                (long long) c->malformed, ds->n_complaints > 0 ? "; first complaint: " : "",
                ds->n_complaints > 0 ? ds->complaints[0] : "");
        return DATASET_ERROR;
    }
    if (status == DATASET_DOCUMENT) {
        uint8_t size[8];
        for (int i = 0; i < 8; ++i) {
            size[i] = (uint8_t) ((uint64_t) doc->size >> 8 * i);
        }
        sha256_add(&ds->hash, size, sizeof(size));
        sha256_add(&ds->hash, doc->text, doc->size);
        doc->index = c->documents++;
        c->bytes += (int64_t) doc->size;
    }
    return status;
}

enum dataset_status dataset_next(
        struct dataset * ds, struct document * doc, struct lrnn_error * err) {
    if (!ds->has_failed) {
        const enum dataset_status status = next_or_fail(ds, doc, &ds->failure);
        if (status != DATASET_ERROR) {
            return status;
        }
        ds->has_failed = true;
    }
    error_set(err, ds->failure.kind, "%s", ds->failure.text);
    return DATASET_ERROR;
}

struct dataset_counts dataset_get_counts(const struct dataset * ds) {
    struct dataset_counts c = ds->counts;
    c.bytes_read = ds->bytes_done + (ds->is_open ? record_reader_position(&ds->reader) : 0);
    c.template = ds->used_names;
    return c;
}

const char * dataset_complaint(const struct dataset * ds, int i) {
    return i >= 0 && i < ds->n_complaints ? ds->complaints[i] : NULL;
}

void dataset_fingerprint(const struct dataset * ds, char hex[65]) {
    sha256_hex(&ds->hash, hex);
}
