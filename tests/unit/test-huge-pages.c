// Weights in huge pages: the same bytes at the same addresses, and the same logits as in the mapped
// file.

#define _DEFAULT_SOURCE // mmap

#include "file/huge-pages.h"
#include "file/quantize.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "lrnn.h"
#include "model/model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    BLOCKS = 5, // of HUGE_PAGE bytes
    N_TOKENS = 4,
    N_VOCAB = 256,
};

// Kilobytes of huge pages between two addresses, or -1 if the system does not tell.
static long huge_kb(const char * begin, const char * end) {
    FILE *    maps = fopen("/proc/self/smaps", "r");
    char      line[1024];
    bool      inside = false;
    uintptr_t from, to;
    long      kb, sum = -1;
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%zx-%zx ", &from, &to) == 2) {
            inside = from >= (uintptr_t) begin && to <= (uintptr_t) end;
        } else if (inside && sscanf(line, "AnonHugePages: %ld kB", &kb) == 1) {
            sum = (sum < 0 ? 0 : sum) + kb;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return sum;
}

// Memory that begins and ends inside a page: huge pages are asked for between its ends only.
static void check_advise(struct test * t) {
    const size_t size = (size_t) BLOCKS * HUGE_PAGE;
    char * data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!test_check(t, data != MAP_FAILED, "cannot map")) {
        return;
    }
    char * first = data + (HUGE_PAGE - (uintptr_t) data % HUGE_PAGE) % HUGE_PAGE;
    huge_pages_advise(first + 64, 3 * (size_t) HUGE_PAGE - 128);
    memset(data, 1, size);
    const long kb = huge_kb(first + HUGE_PAGE, first + 2 * (size_t) HUGE_PAGE);
    printf("  1 block advised: %ld kB in huge pages\n", kb);
    test_check(t, !huge_pages_fit(HUGE_PAGE) || kb >= 0, "the block is no mapping of its own");
    huge_pages_advise(first + 64, HUGE_PAGE); // no whole page
    munmap(data, size);
}

// Blocks 1 and 2 of a mapped file are replaced, in two steps.
static void check_replace(struct test * t) {
    const size_t size = (size_t) BLOCKS * HUGE_PAGE;
    uint8_t *    want = malloc(size);
    char         path[64];
    test_own_path(path, sizeof(path), "test-huge-pages.bin");
    for (size_t i = 0; i < size; i += sizeof(uint32_t)) {
        const uint32_t x = (uint32_t) (i * 2654435761u) ^ (uint32_t) (i >> 7);
        memcpy(want + i, &x, sizeof(x));
    }
    FILE * f = fopen(path, "wb");
    test_check(t, f != NULL && fwrite(want, 1, size, f) == size && fclose(f) == 0, "cannot write");
    const int fd = open(path, O_RDONLY);
    char *    data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    unlink(path);
    if (!test_check(t, data != MAP_FAILED, "cannot map")) {
        free(want);
        return;
    }
    char * first = data + (HUGE_PAGE - (uintptr_t) data % HUGE_PAGE) % HUGE_PAGE;
    if (!huge_pages_fit(2 * HUGE_PAGE)) {
        printf("  skipped: no huge pages here\n");
    } else {
        for (int i = 1; i < 3; ++i) {
            test_check(t, huge_pages_replace(first + (size_t) i * HUGE_PAGE, HUGE_PAGE),
                    "block %d is not replaced", i);
        }
        const long kb = huge_kb(first + HUGE_PAGE, first + 3 * (size_t) HUGE_PAGE);
        printf("  2 blocks replaced: %ld kB in huge pages\n", kb); // fewer if memory is fragmented
        test_check(t, kb >= 0, "the blocks are not mappings of their own");
    }
    test_check(t, memcmp(data, want, size) == 0, "the bytes differ");
    munmap(data, size);
    free(want);
    test_check(t, !huge_pages_fit(SIZE_MAX / 4), "more memory than there is fits");
}

// Logits of a few tokens. Prints the huge pages of the file.
static float * logits_of(struct test * t, const char * path, bool no_huge_pages) {
    const struct lrnn_model_params params = { .no_huge_pages = no_huge_pages };
    struct lrnn_model *            model = test_load_model(path, &params);
    struct lrnn_session *          session = test_session(model, NULL);
    float *                        logits = malloc(N_VOCAB * sizeof(float));
    size_t                         size;
    const char *                   bytes = model_file_bytes(model->file, &size);
    test_eval(session, 0, (const int32_t[N_TOKENS]) { 84, 104, 101, 32 }, N_TOKENS, 1);
    const long kb = huge_kb(bytes, bytes + size);
    printf("  %s: %ld kB in huge pages\n", no_huge_pages ? "mapped" : "copied", kb);
    test_check(t, !no_huge_pages || kb <= 0, "%ld kB are in huge pages; expected none", kb);
    memcpy(logits, lrnn_logits(session, 0), N_VOCAB * sizeof(float));
    lrnn_session_free(session);
    lrnn_model_free(model);
    return logits;
}

// A model of several blocks, once in huge pages and once in the file.
static void check_model(struct test * t) {
    char                         out[64];
    struct lrnn_error            err = { LRNN_ERROR_NONE, "" };
    struct quantize_plan         plan = { 0 };
    const struct quantize_params params = { .type = quantize_type_find("F32"),
        .allow_requantize = true };
    test_own_path(out, sizeof(out), "test-huge-pages.gguf");
    struct model_file * file = model_file_open(LRNN_MODELS "/text-deltaproduct2-neg.gguf", &err);
    if (test_check(t,
                file != NULL && quantize_plan_make(&plan, file, &params, &err) &&
                        quantize_run(&plan, file, &params, out, NULL, NULL, &err),
                "%s", err.text)) {
        float *a = logits_of(t, out, false), *b = logits_of(t, out, true);
        test_check(t, memcmp(a, b, N_VOCAB * sizeof(float)) == 0,
                "logits in huge pages and in the mapped file differ");
        free(a);
        free(b);
    }
    quantize_plan_free(&plan);
    model_file_free(file);
    unlink(out);
}

int main(void) {
    struct test t = { 0 };
    check_replace(&t);
    check_advise(&t);
    check_model(&t);
    return test_end(&t, "huge-pages");
}
