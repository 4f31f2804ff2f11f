// State-tracking tasks: recomputes every answer from the symbols alone, in another way.

#include "lrnn.h"
#include "eval/tasks/task.h"
#include "kit/check.h"

enum { LENGTH_MAX = 4096 };

struct sequence {
    int64_t      n;
    const char * symbols[LENGTH_MAX];
    const char * answers[LENGTH_MAX]; // NULL: none
};

static bool draw(struct test * t, const struct task * task, uint64_t seed, int64_t length,
        struct sequence * s) {
    struct task_stream * stream = task_stream_new(task, seed, length);
    bool                 ok = test_check(
            t, stream != NULL && length <= LENGTH_MAX, "no stream of length %d", (int) length);
    s->n = length;
    for (int64_t i = 0; i < length && ok; ++i) {
        int32_t symbol, answer;
        task_stream_next(stream, &symbol, &answer);
        s->symbols[i] = task_symbol(task, symbol);
        s->answers[i] = answer < 0 ? NULL : task_symbol(task, answer);
        test_check(t, answer < 0 || task_is_answer(task, answer),
                "the answer %s is not marked as one", task_symbol(task, answer));
    }
    task_stream_free(stream);
    return ok;
}

static struct task * make(struct test * t, const char * spec, const char * automaton) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    struct task * task = task_new(spec, automaton, automaton != NULL ? strlen(automaton) : 0, &err);
    test_check(t, task != NULL, "%s: %s", spec, err.text);
    return task;
}

static void check_answer(struct test * t, const char * spec, const struct sequence * s, int64_t i,
        const char * expected) {
    test_check(t, s->answers[i] != NULL && strcmp(s->answers[i], expected) == 0,
            "%s: answer %d is %s, expected %s", spec, (int) i,
            s->answers[i] != NULL ? s->answers[i] : "none", expected);
}

static void check_sums(struct test * t, const char * spec, int m) {
    struct task *   task = make(t, spec, NULL);
    struct sequence s;
    bool            seen[64] = { false };
    if (task != NULL && draw(t, task, 3, 1000, &s)) {
        int64_t sum = 0;
        for (int64_t i = 0; i < s.n; ++i) {
            char expected[16];
            sum += atoi(s.symbols[i]);
            seen[atoi(s.symbols[i])] = true;
            snprintf(expected, sizeof(expected), "%d", (int) (sum % m));
            check_answer(t, spec, &s, i, expected);
        }
        for (int i = 0; i < m; ++i) {
            test_check(t, seen[i], "%s: no %d among 1000 letters", spec, i);
        }
        test_check(t, task_n_symbols(task) == m && task_chance(task) * m == 1.0,
                "%s: %d symbols, chance %g", spec, task_n_symbols(task), task_chance(task));
    }
    task_free(task);
}

// y_t(i) = x_1(x_2(… x_t(i))), for every point and prefix
static void check_group(
        struct test * t, const char * spec, int points, int n_elements, int max_moved) {
    struct task *   task = make(t, spec, NULL);
    struct sequence s;
    if (task != NULL && draw(t, task, 5, 200, &s)) {
        test_check(t, task_n_symbols(task) == n_elements, "%s has %d elements, expected %d", spec,
                task_n_symbols(task), n_elements);
        for (int64_t i = 0; i < s.n; ++i) {
            char expected[16] = "";
            for (int p = 0; p < points; ++p) {
                int image = p;
                for (int64_t j = i; j >= 0; --j) {
                    image = s.symbols[j][image] - '1';
                }
                expected[p] = (char) ('1' + image);
            }
            check_answer(t, spec, &s, i, expected);
            int moved = 0;
            for (int p = 0; p < points; ++p) {
                moved += s.symbols[i][p] != '1' + p;
            }
            test_check(t, moved <= max_moved, "%s: letter %s moves %d points", spec, s.symbols[i],
                    moved);
        }
    }
    task_free(task);
}

// expression := term { ('+'|'-') term }
// term       := factor { '*' factor }
// factor     := digit | '-' digit | '(' expression ')'
struct parser {
    const struct sequence * s;
    int64_t                 at, end;
    int                     m;
    bool                    ok;
};

static int64_t parse_expression(struct parser * p);

static bool accept(struct parser * p, const char * symbol) {
    if (p->at < p->end && strcmp(p->s->symbols[p->at], symbol) == 0) {
        p->at++;
        return true;
    }
    return false;
}

static int64_t parse_factor(struct parser * p) {
    if (accept(p, "(")) {
        const int64_t value = parse_expression(p);
        p->ok = accept(p, ")") && p->ok;
        return value;
    }
    if (accept(p, "-")) {
        return -parse_factor(p);
    }
    if (p->at >= p->end || p->s->symbols[p->at][0] < '0' || p->s->symbols[p->at][0] > '9') {
        p->ok = false;
        return 0;
    }
    return atoi(p->s->symbols[p->at++]);
}

static int64_t parse_term(struct parser * p) {
    int64_t value = parse_factor(p);
    while (p->ok && accept(p, "*")) {
        value = value * parse_factor(p) % p->m;
    }
    return value;
}

static int64_t parse_expression(struct parser * p) {
    int64_t value = parse_term(p);
    for (bool minus; p->ok && ((minus = accept(p, "-")) || accept(p, "+"));) {
        const int64_t term = parse_term(p);
        value = (value + (minus ? -term : term)) % p->m;
    }
    return value;
}

// The answer at `at` is the value of the symbols from `first` to before `end`.
static void check_value(struct test * t, const char * spec, const struct sequence * s,
        int64_t first, int64_t end, int64_t at, int m) {
    struct parser p = { .s = s, .at = first, .end = end, .m = m, .ok = true };
    char          expected[16];
    snprintf(expected, sizeof(expected), "%d", (int) ((parse_expression(&p) % m + m) % m));
    test_check(t, p.ok && p.at == end, "%s: symbols %d to %d are not an expression", spec,
            (int) first, (int) end);
    check_answer(t, spec, s, at, expected);
}

static void check_arithmetic(struct test * t, const char * spec, int m) {
    struct task *   task = make(t, spec, NULL);
    struct sequence s;
    for (uint64_t seed = 0; task != NULL && seed < 20; ++seed) {
        const int64_t length = task_length(task, 3 + 7 * (int64_t) seed);
        if (!draw(t, task, seed, length, &s)) {
            break;
        }
        for (int64_t i = 0; i + 1 < length; ++i) {
            check_value(t, spec, &s, 0, i + (i % 2 == 0), i, m); // an operator changes nothing
        }
        test_check(t, strcmp(s.symbols[length - 1], "=") == 0, "%s: the last symbol is %s", spec,
                s.symbols[length - 1]);
        check_value(t, spec, &s, 0, length - 1, length - 1, m);
    }
    task_free(task);
}

static void check_brackets(struct test * t) {
    struct task *   task = make(t, "mod-brackets", NULL);
    struct sequence s;
    for (int64_t length = 2; task != NULL && length < 400; ++length) {
        if (!draw(t, task, (uint64_t) length, length, &s)) {
            break;
        }
        int64_t opened[LENGTH_MAX], n_open = 0;
        for (int64_t i = 0; i + 1 < length; ++i) {
            if (strcmp(s.symbols[i], "(") == 0) {
                opened[n_open++] = i;
            }
            if (strcmp(s.symbols[i], ")") == 0) {
                check_value(t, "mod-brackets", &s, opened[--n_open], i + 1, i, 5);
            } else {
                test_check(t, s.answers[i] == NULL, "mod-brackets: an answer at position %d of %d",
                        (int) i, (int) length);
            }
        }
        test_check(t, strcmp(s.symbols[length - 1], "=") == 0,
                "mod-brackets: the last symbol is %s", s.symbols[length - 1]);
        check_value(t, "mod-brackets", &s, 0, length - 1, length - 1, 5);
    }
    task_free(task);
}

// The automaton reads a binary number and keeps its remainder modulo 3.
static void check_automaton(struct test * t) {
    static const char TEXT[] =
            "# binary numbers modulo 3\nstates: r0 r1 r2\nstart: r0\n0: r0 r2 r1\n1: r1 r0 r2\n";
    struct task *   task = make(t, "automaton", TEXT);
    struct sequence s;
    if (task != NULL && draw(t, task, 11, 60, &s)) {
        uint64_t number = 0;
        for (int64_t i = 0; i < s.n; ++i) {
            char expected[8];
            number = 2 * number + (s.symbols[i][0] == '1');
            snprintf(expected, sizeof(expected), "r%d", (int) (number % 3));
            check_answer(t, "automaton", &s, i, expected);
        }
    }
    task_free(task);
}

// Outputs, several letters in a line, and a missing successor: abc is accepted once.
static void check_outputs(struct test * t) {
    static const char TEXT[] = "states: 0 1 2 3\nstart: 0\naccept: 3\n"
                               "a x: 1 - - -\nb: - 2 - -\nc \\x20: - - 3 -\n";
    struct task *     task = make(t, "automaton", TEXT);
    struct sequence   s;
    for (uint64_t seed = 0; seed < 40 && task != NULL; ++seed) {
        if (!draw(t, task, seed, 5, &s)) {
            break;
        }
        for (int64_t i = 0; i < s.n; ++i) {
            const bool found = i == 2 && strchr("ax", s.symbols[0][0]) != NULL &&
                               s.symbols[1][0] == 'b' && strchr("c\\", s.symbols[2][0]) != NULL;
            check_answer(t, "automaton", &s, i, found ? "accept" : "reject");
        }
    }
    test_check(t, task != NULL && task_n_symbols(task) == 7 && task_chance(task) == 0.5,
            "an automaton with two answers: %d symbols, chance %g",
            task != NULL ? task_n_symbols(task) : 0, task != NULL ? task_chance(task) : 0.0);
    task_free(task);

    // without accept, the added state answers with its name; letters may have names of states
    task = make(t, "automaton", "states: a b\nstart: a\na: b -\n");
    if (task != NULL && draw(t, task, 1, 3, &s)) {
        check_answer(t, "automaton", &s, 0, "b");
        check_answer(t, "automaton", &s, 1, "-");
        check_answer(t, "automaton", &s, 2, "-");
    }
    task_free(task);
}

static void check_rejected(
        struct test * t, const char * spec, const char * automaton, const char * says) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    struct task * task = task_new(spec, automaton, automaton != NULL ? strlen(automaton) : 0, &err);
    test_check(t, task == NULL && strstr(err.text, says) != NULL,
            "%s: expected an error with '%s', found '%s'", spec, says, err.text);
    task_free(task);
}

// Splits a line into its words; *n: at most LENGTH_MAX, then their number.
static void split(char * line, char ** words, int * n) {
    *n = 0;
    for (char * w = strtok(line, " \n"); w != NULL && *n < LENGTH_MAX; w = strtok(NULL, " \n")) {
        words[(*n)++] = w;
    }
}

// The sequences and answers of models/train/tasks.py.
static void check_cases(struct test * t) {
    enum { LINE = 64 * 1024 };
    static char spec[LINE], letters[LINE], expected[LINE];
    char *      symbols[LENGTH_MAX];
    char *      words[LENGTH_MAX];
    FILE *      file = fopen(LRNN_CASES, "rb");
    int         n_cases = 0;
    test_check(t, file != NULL, "cannot open %s", LRNN_CASES);
    while (file != NULL && fgets(spec, LINE, file) != NULL && fgets(letters, LINE, file) != NULL &&
            fgets(expected, LINE, file) != NULL) {
        int32_t           ids[LENGTH_MAX], answers[LENGTH_MAX];
        int               n, n_words;
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };
        spec[strcspn(spec, "\n")] = '\0';
        struct task * task = make(t, spec, NULL);
        split(letters, symbols, &n);
        split(expected, words, &n_words);
        for (int i = 0; i < n && task != NULL; ++i) {
            ids[i] = task_find_symbol(task, symbols[i]);
            test_check(t, ids[i] >= 0, "%s has no letter %s", spec, symbols[i]);
        }
        if (task != NULL && test_check(t, n == n_words && task_answers(task, ids, n, answers, &err),
                                    "%s: %d letters, %d answers: %s", spec, n, n_words, err.text)) {
            for (int i = 0; i < n; ++i) {
                const char * found = answers[i] < 0 ? "." : task_symbol(task, answers[i]);
                test_check(t, strcmp(found, words[i]) == 0, "%s: answer %d is %s, expected %s",
                        spec, i, found, words[i]);
            }
            ++n_cases;
        }
        task_free(task);
    }
    if (file != NULL) {
        fclose(file);
    }
    test_check(t, n_cases >= 200, "%d sequences in %s", n_cases, LRNN_CASES);
}

// Drawn sequences of four tokens per letter: blanks where they belong, and all 120 letters.
static void check_blanks(struct test * t) {
    struct task *   task = make(t, "S5:4-tokens", NULL);
    struct sequence s;
    if (task != NULL && draw(t, task, 7, 4000, &s)) {
        bool seen[120] = { false };
        int  n_seen = 0;
        for (int64_t i = 0; i < s.n; ++i) {
            test_check(t, (strcmp(s.symbols[i], "_") == 0) == (i % 4 > 0),
                    "S5:4-tokens: symbol %d is %s", (int) i, s.symbols[i]);
            const int letter = task_find_symbol(task, s.symbols[i]);
            if (i % 4 == 0 && !seen[letter]) {
                seen[letter] = true;
                ++n_seen;
            }
        }
        test_check(t, n_seen > 110 && task_chance(task) == 1.0 / 120,
                "S5:4-tokens: %d letters, chance %g", n_seen, task_chance(task));
    }
    task_free(task);
}

// A sequence that a task cannot have.
static void check_refused(
        struct test * t, const char * spec, const char * letters, const char * says) {
    struct task *     task = make(t, spec, NULL);
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    char              line[256];
    char *            symbols[LENGTH_MAX];
    int32_t           ids[LENGTH_MAX], answers[LENGTH_MAX];
    int               n;
    snprintf(line, sizeof(line), "%s", letters);
    split(line, symbols, &n);
    for (int i = 0; i < n && task != NULL; ++i) {
        ids[i] = task_find_symbol(task, symbols[i]);
    }
    test_check(t,
            task != NULL && !task_answers(task, ids, n, answers, &err) &&
                    strstr(err.text, says) != NULL,
            "%s: expected an error with '%s', found '%s'", letters, says, err.text);
    task_free(task);
}

int main(void) {
    struct test t = { 0 };

    check_sums(&t, "parity", 2);
    check_sums(&t, "mod:3", 3);
    check_sums(&t, "mod:60", 60);
    check_group(&t, "S3", 3, 6, 3);
    check_group(&t, "S5", 5, 120, 5);
    check_group(&t, "S5:swaps", 5, 120, 2);
    check_group(&t, "S5:3-cycles", 5, 120, 3);
    check_group(&t, "A5", 5, 60, 5);
    check_group(&t, "A5:2", 5, 60, 4);
    check_group(&t, "S7", 7, 5040, 7);
    check_arithmetic(&t, "mod-arith", 5);
    check_arithmetic(&t, "mod-arith:7", 7);
    check_brackets(&t);
    check_blanks(&t);
    check_cases(&t);
    check_automaton(&t);
    check_outputs(&t);

    check_refused(&t, "mod-brackets:5", "( 3 + 4 =", "letter 5 is '=', expected )");
    check_refused(&t, "mod-brackets:5", "( ( 3 + 4 )", "ends with 1 open bracket");
    check_refused(&t, "mod-brackets:5", "3 ) =", "letter 2 is ')', expected =");
    check_refused(&t, "mod-brackets:5", "( 3 + 4 * 2 ) =", "letter 5 is '*', expected )");
    check_refused(&t, "mod-brackets:5", "- - 3 =", "letter 2 is '-', expected a digit");
    check_refused(&t, "mod-brackets:5", "3 = 4", "nothing after =");
    check_refused(&t, "mod-arith:5", "3 + + 4 =", "letter 3 is '+', expected a digit");
    check_refused(&t, "S5:4-tokens", "12345 _ _ 12345", "letter 4 is '12345', expected _");
    check_rejected(&t, "S5:1-tokens", NULL, "no task 'S5:1-tokens'");
    check_rejected(&t, "S5:cycles", NULL, "no task 'S5:cycles'");
    check_rejected(&t, "mod:1", NULL, "no task 'mod:1'");
    check_rejected(&t, "S9", NULL, "no task 'S9'");
    check_rejected(&t, "parity:2", NULL, "no task");
    check_rejected(&t, "automaton", NULL, "of a file or of the model");
    check_rejected(&t, "automaton", "states: a b\nstart: a\n0: a\n", "'0' has 1 words, expected 2");
    check_rejected(&t, "automaton", "states: a b\nstart: c\n", "'c' is not one of its states");
    check_rejected(&t, "automaton", "states: a a\n", "different states");
    check_rejected(&t, "automaton", "states: a b\n0: a b\n", "no start");
    check_rejected(&t, "automaton", "what is this\n", "line 1");
    check_rejected(&t, "automaton", "states: a b\nstart: a\noutput: x\n", "'output' has 1 words");
    check_rejected(&t, "automaton", "states: a b\nstart: a\naccept: x\n", "'x' is not one of its");
    check_rejected(&t, "automaton", "states: a b\naccept: a\noutput: a b\n", "one output");
    check_rejected(&t, "automaton", "states: a b\nstart: a\n0 1: a\n", "has 1 words, expected 2");
    return test_end(&t, "tasks");
}
