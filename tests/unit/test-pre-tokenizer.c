// Pre-tokenizers against the pieces of the reference library (`tokenizers`, with the regular
// expressions in src/text/pre-tokenizer.c). Comparing ids is not enough: a cut between bytes that
// no merge joins does not change them.

#include "kit/check.h"
#include "text/tokenizer-impl.h"

enum { MAX_PIECES = 24 };

static const struct {
    enum pre_tokenizer pre;
    const char *       text;
    int                pieces[MAX_PIECES]; // bytes of each
} cases[] = {
    { PRE_TOKENIZER_GPT2, "it's I'LL '\305\277a ''s 'rEd", { 2, 2, 2, 1, 2, 2, 3, 3, 1, 2, 3 } },
    { PRE_TOKENIZER_GPT2, "1234567 12345a 1\331\243\302\2752", { 7, 6, 1, 7 } },
    { PRE_TOKENIZER_GPT2, "a  b \011\012 c\012\012  d \015\012\015\012",
            { 1, 1, 2, 3, 2, 3, 2, 5 } },
    { PRE_TOKENIZER_GPT2, "x=+1;\012\012 y..\015\012.", { 1, 2, 1, 1, 2, 2, 2, 1, 1, 1 } },
    { PRE_TOKENIZER_GPT2, "  \343\200\200\302\240z \314\201e\314\201", { 5, 2, 1, 3, 1, 2 } },
    { PRE_TOKENIZER_GPT2, "\012\012\012", { 3 } },
    { PRE_TOKENIZER_GPT2, " ", { 1 } },
    { PRE_TOKENIZER_GPT2, "a\342\200\215b \360\237\221\215\360\237\221\215!c", { 1, 3, 1, 10, 1 } },
    { PRE_TOKENIZER_LLAMA3, "it's I'LL '\305\277a ''s 'rEd", { 2, 2, 2, 3, 2, 3, 3, 1, 2, 3 } },
    { PRE_TOKENIZER_LLAMA3, "1234567 12345a 1\331\243\302\2752", { 3, 3, 1, 1, 3, 2, 1, 1, 5, 1 } },
    { PRE_TOKENIZER_LLAMA3, "a  b \011\012 c\012\012  d \015\012\015\012",
            { 1, 1, 2, 3, 2, 2, 1, 2, 5 } },
    { PRE_TOKENIZER_LLAMA3, "x=+1;\012\012 y..\015\012.", { 1, 2, 1, 3, 2, 4, 1 } },
    { PRE_TOKENIZER_LLAMA3, "  \343\200\200\302\240z \314\201e\314\201", { 5, 3, 3, 1, 2 } },
    { PRE_TOKENIZER_LLAMA3, "\012\012\012", { 3 } },
    { PRE_TOKENIZER_LLAMA3, " ", { 1 } },
    { PRE_TOKENIZER_LLAMA3, "a\342\200\215b \360\237\221\215\360\237\221\215!c", { 1, 4, 10, 1 } },
    { PRE_TOKENIZER_QWEN2, "it's I'LL '\305\277a ''s 'rEd", { 2, 2, 2, 3, 2, 3, 3, 1, 2, 3 } },
    { PRE_TOKENIZER_QWEN2, "1234567 12345a 1\331\243\302\2752",
            { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 1 } },
    { PRE_TOKENIZER_QWEN2, "a  b \011\012 c\012\012  d \015\012\015\012",
            { 1, 1, 2, 3, 2, 2, 1, 2, 5 } },
    { PRE_TOKENIZER_QWEN2, "x=+1;\012\012 y..\015\012.", { 1, 2, 1, 3, 2, 4, 1 } },
    { PRE_TOKENIZER_QWEN2, "  \343\200\200\302\240z \314\201e\314\201", { 5, 3, 3, 1, 2 } },
    { PRE_TOKENIZER_QWEN2, "\012\012\012", { 3 } },
    { PRE_TOKENIZER_QWEN2, " ", { 1 } },
    { PRE_TOKENIZER_QWEN2, "a\342\200\215b \360\237\221\215\360\237\221\215!c", { 1, 4, 10, 1 } },
    { PRE_TOKENIZER_QWEN35, "it's I'LL '\305\277a ''s 'rEd", { 2, 2, 2, 3, 2, 3, 3, 1, 2, 3 } },
    { PRE_TOKENIZER_QWEN35, "12 3a", { 1, 1, 1, 1, 1 } },
    { PRE_TOKENIZER_QWEN35, "  \343\200\200\302\240z \314\201e\314\201", { 5, 3, 6 } },
    { PRE_TOKENIZER_QWEN35, "\314\201\314\201 .\314\201a 1\314\201", { 4, 2, 3, 1, 1, 2 } },
    { PRE_TOKENIZER_QWEN35, "a\314\201b-\314\201\012\314\201x", { 4, 3, 1, 3 } },
    { PRE_TOKENIZER_QWEN35,
            "\340\244\225\340\244\277 \340\270\263\340\271\211 !\342\203\235\012\012",
            { 6, 7, 2, 3, 2 } },
    { PRE_TOKENIZER_QWEN35, "a\342\200\215b \360\237\221\215\360\237\217\275!c", { 1, 4, 10, 1 } },
    { PRE_TOKENIZER_QWEN35, "\012\314\201\015\314\202 \314\203", { 1, 2, 1, 2, 3 } },
    { PRE_TOKENIZER_GPT2, "a'\305\277a a'\305\277 a'LLa", { 1, 1, 3, 2, 1, 2, 2, 1, 3 } },
    { PRE_TOKENIZER_LLAMA3, "a'\305\277a a'\305\277 a'LLa", { 1, 3, 1, 2, 3, 2, 3, 1 } },
    { PRE_TOKENIZER_QWEN2, "a'\305\277a a'\305\277 a'LLa", { 1, 3, 1, 2, 3, 2, 3, 1 } },
};

int main(void) {
    struct test t = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        const char * p = cases[i].text;
        const char * end = p + strlen(p);
        for (int k = 0; k < MAX_PIECES && p < end; ++k) {
            const char * next = pre_tokenizer_next(cases[i].pre, p, end);
            if (!test_check(&t, next - p == cases[i].pieces[k],
                        "text %zu: piece %d has %d bytes; expected %d", i, k, (int) (next - p),
                        cases[i].pieces[k])) {
                break;
            }
            p = next;
        }
    }
    return test_end(&t, "test-pre-tokenizer");
}
