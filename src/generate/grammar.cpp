// Grammars with xgrammar: the only file of the library in C++.
//
// Time and memory. A short grammar can describe an automaton of any size, and xgrammar has no
// limits of its own. So its allocations come here (grammar-budget.h), where a budget of processor
// time and memory is checked: whatever grows without end allocates without end. Deep recursion ends
// at a fixed depth, for which the stack of a thread of our own is large enough.

#include "generate/grammar.h"

#include "base/error.h"
#include "generate/schema.h"

#include <xgrammar/xgrammar.h>

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace {

struct limits {
    const char * what;
    int64_t      seconds; // of processor time
    int64_t      bytes;
};

constexpr limits COMPILE = { "the grammar takes", 5, INT64_C(1) << 30 };
constexpr limits MATCH = { "finding what the grammar allows next takes", 1, INT64_C(1) << 28 };

constexpr size_t MAX_TEXT = 1 << 20; // of a grammar
constexpr int    MAX_RECURSION = 1000;
constexpr size_t STACK = 64 << 20; // enough for it
constexpr size_t KEPT = 32;        // compiled grammars
constexpr size_t KEPT_BYTES = 256 << 20;
constexpr int    MAX_SPACES = 24; // in a row, in JSON: a model may repeat them without end

//
// The budget
//

struct over_budget : std::bad_alloc {
    bool time; // or memory
    explicit over_budget(bool time) : time(time) {}
};

int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

#ifdef CLOCK_MONOTONIC_COARSE
constexpr clockid_t QUICK_CLOCK = CLOCK_MONOTONIC_COARSE;
#else
constexpr clockid_t QUICK_CLOCK = CLOCK_MONOTONIC;
#endif

struct budget {
    int64_t     bytes_left;
    int64_t     end_ns;  // of the thread's processor time
    int64_t     next_ns; // when to look at that, which is a slow call
    std::string warning; // the first one that xgrammar logged

    explicit budget(const limits & l)
        : bytes_left(l.bytes),
          end_ns(now_ns(CLOCK_THREAD_CPUTIME_ID) + l.seconds * INT64_C(1000000000)), next_ns(0) {}

    void spend(size_t size) {
        bytes_left -= (int64_t) size;
        const int64_t now = now_ns(QUICK_CLOCK);
        bool          late = false;
        if (now >= next_ns) {
            next_ns = now + 10 * 1000 * 1000;
            late = now_ns(CLOCK_THREAD_CPUTIME_ID) > end_ns;
        }
        if ((late || bytes_left < 0) && std::uncaught_exceptions() == 0) { // destructors must not
            throw over_budget(late);
        }
    }
};

thread_local budget * current = nullptr; // that of this thread; nullptr: none

// Runs a function within limits, and turns what it throws into an error.
template <typename F> bool run_within(const limits & l, struct lrnn_error * err, F && function) {
    budget limited(l);
    current = &limited;
    bool ok = false;
    try {
        function();
        if (!limited.warning.empty()) {
            throw std::runtime_error(limited.warning);
        }
        ok = true;
    } catch (const over_budget & over) {
        current = nullptr;
        error_bad_input(err, "%s more than %lld %s; expected a simpler grammar", l.what,
                (long long) (over.time ? l.seconds : l.bytes >> 20),
                over.time ? "s of processor time" : "MiB of memory");
    } catch (const std::bad_alloc &) {
        current = nullptr;
        error_no_memory(err, "a grammar");
    } catch (const std::exception & e) {
        current = nullptr;
        std::string  text = e.what();
        const char   check[] = " is false: "; // after an expression of xgrammar
        const size_t at = text.find(check);
        text.erase(0, at != std::string::npos ? at + sizeof(check) - 1 : 0);
        std::replace(text.begin(), text.end(), '\n', ' ');
        error_bad_input(err, "the grammar is not valid: %.800s", text.c_str());
    }
    current = nullptr;
    return ok;
}

} // namespace

// The memory of xgrammar.
struct grammar_memory {
    static void * operator new(size_t size);
    static void operator delete(void * p, size_t size);
};

void * grammar_memory::operator new(size_t size) {
    if (current != nullptr) {
        current->spend(size);
    }
    return ::operator new(size);
}

void grammar_memory::operator delete(void * p, size_t size) {
    if (current != nullptr) {
        current->bytes_left += (int64_t) size;
    }
    ::operator delete(p);
}

// What xgrammar logs: errors are thrown. It warns when it ignores a part of a grammar; we refuse
// the grammar then. Nothing is printed.
namespace xgrammar {
void LogFatalImpl(const std::string &, int, const std::string & message) {
    throw std::runtime_error(message);
}
void LogMessageImpl(const std::string &, int, int, const std::string & message) {
    if (current != nullptr && current->warning.empty()) {
        current->warning = message;
    }
}
} // namespace xgrammar

//
// Grammars
//

struct lrnn_grammar {
    enum lrnn_grammar_kind          kind;
    std::string                     text;
    xgrammar::CompiledGrammar       compiled;
    std::shared_ptr<const uint32_t> text_tokens; // those that are not special
};

struct lrnn_grammars {
    xgrammar::TokenizerInfo         tokens;
    std::shared_ptr<const uint32_t> text_tokens;
    std::mutex                      mutex; // one grammar is compiled at a time
    std::list<lrnn_grammar>         kept;  // the last used first
};

static size_t n_words(int64_t n_vocab) {
    return (size_t) ((n_vocab + 31) / 32);
}

struct lrnn_grammars * lrnn_grammars_new(const struct lrnn_model * model, struct lrnn_error * err) {
    const int64_t n_vocab = lrnn_model_get_info(model).n_vocab;
    if (!lrnn_model_get_info(model).has_tokenizer) {
        error_bad_input(err, "a grammar describes texts, but the model has no tokenizer");
        return nullptr;
    }
    try {
        std::vector<std::string> texts((size_t) n_vocab);
        std::shared_ptr<uint32_t> mask(
                new uint32_t[n_words(n_vocab)](), std::default_delete<uint32_t[]>());
        for (int32_t t = 0; t < n_vocab; ++t) {
            size_t       size;
            const char * bytes = lrnn_token_bytes(model, t, &size);
            if (bytes == nullptr || size == 0 || lrnn_token_is_special(model, t)) {
                continue;
            }
            // symbols are separated by spaces
            texts[(size_t) t] = lrnn_token_text_size(model, t) > size ? " " : "";
            texts[(size_t) t].append(bytes, size);
            mask.get()[t / 32] |= UINT32_C(1) << t % 32;
        }
        xgrammar::SetMaxRecursionDepth(MAX_RECURSION);
        return new lrnn_grammars{ xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW,
                                          (int) n_vocab, std::vector<int32_t>()),
            mask, {}, {} };
    } catch (const std::bad_alloc &) {
        error_no_memory(err, "the tokens of grammars");
    } catch (const std::exception & e) {
        error_set(err, LRNN_ERROR_INTERNAL, "the tokens of the model do not serve for grammars: %s",
                e.what());
    }
    return nullptr;
}

void lrnn_grammars_free(struct lrnn_grammars * grammars) {
    delete grammars;
}

// The end of a string, a class of characters or a comment that begins at `i`; `i`: none of these.
static size_t quoted_end(const std::string & s, size_t i) {
    const char close = s[i] == '"' ? '"' : s[i] == '[' ? ']' : s[i] == '#' ? '\n' : '\0';
    if (close == '\0') {
        return i;
    }
    size_t end = i + 1;
    while (end < s.size() && s[end] != close) {
        end += s[end] == '\\' && close != '\n' ? 2 : 1;
    }
    return std::min(end + (close != '\n'), s.size()); // a comment ends before its line does
}

// GBNF as xgrammar reads it: an alternative without anything becomes "", the empty text.
static std::string spell_empty(const std::string & s) {
    const char  empty[] = " \"\" ";
    std::string out;
    size_t      gap = 0, before_word = 0; // the end of |, ( or ::= if nothing follows it; 0: none
    for (size_t i = 0, end; i < s.size(); i = end) {
        const auto is_word = [&](size_t at) {
            return at < s.size() && (isalnum((unsigned char) s[at]) || strchr("-_", s[at]) != NULL);
        };
        const bool is_rule = s.compare(i, 3, "::=") == 0; // and the word before it is its name
        const bool is_end = gap > 0 && (s[i] == '|' || s[i] == ')');
        if (is_end || (is_rule && before_word > 0)) {
            out.insert(is_end ? gap : before_word, empty);
        }
        end = std::max(quoted_end(s, i), is_rule ? i + 3 : i + 1);
        while (is_word(i) && is_word(end)) {
            end++;
        }
        out.append(s, i, end - i);
        if (is_rule || s[i] == '|' || s[i] == '(') {
            gap = out.size();
        } else if (!isspace((unsigned char) s[i]) && s[i] != '#') {
            before_word = is_word(i) ? gap : 0;
            gap = 0;
        }
    }
    return gap > 0 ? out.insert(gap, empty) : out;
}

// A grammar that is to be compiled, on a thread of its own.
struct compilation {
    lrnn_grammars *     grammars;
    lrnn_grammar *      result;
    struct lrnn_error * err;
    bool                ok;
};

static void * compile(void * user) {
    compilation * c = static_cast<compilation *>(user);
    c->ok = run_within(COMPILE, c->err, [c] {
        xgrammar::GrammarCompiler compiler(c->grammars->tokens, 1, false);
        const std::string &       text = c->result->text;
        switch (c->result->kind) {
            case LRNN_GRAMMAR_GBNF:
                c->result->compiled = compiler.CompileGrammar(spell_empty(text));
                break;
            case LRNN_GRAMMAR_REGEX: c->result->compiled = compiler.CompileRegex(text); break;
            case LRNN_GRAMMAR_JSON_SCHEMA:
            case LRNN_GRAMMAR_JSON:
                c->result->compiled = compiler.CompileJSONSchema(
                        c->result->kind == LRNN_GRAMMAR_JSON ? "{\"type\": \"object\"}" : text,
                        true, std::nullopt, std::nullopt, c->result->kind != LRNN_GRAMMAR_JSON,
                        MAX_SPACES);
                break;
        }
    });
    return nullptr;
}

static bool compile_on_thread(compilation * c) {
    pthread_attr_t attr;
    pthread_t      thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    const int failed = pthread_create(&thread, &attr, compile, c);
    pthread_attr_destroy(&attr);
    if (failed != 0) {
        return error_set(c->err, LRNN_ERROR_SYSTEM, "cannot start a thread for a grammar");
    }
    pthread_join(thread, nullptr);
    return c->ok;
}

static bool allows_a_text(const lrnn_grammar & grammar, struct lrnn_error * err) {
    struct grammar_next      next;
    struct grammar_matcher * m = grammar_matcher_new(&grammar, err);
    const bool               ok = m != nullptr && grammar_matcher_next(m, &next, err);
    grammar_matcher_free(m);
    return ok;
}

// Drops what was not used for the longest time.
static void trim(std::list<lrnn_grammar> & kept) {
    size_t bytes = 0, n = 0;
    for (auto it = kept.begin(); it != kept.end();) {
        bytes += it->compiled.MemorySizeBytes() + it->text.size();
        it = ++n > KEPT || (n > 1 && bytes > KEPT_BYTES) ? kept.erase(it) : std::next(it);
    }
}

struct lrnn_grammar * lrnn_grammar_new(struct lrnn_grammars * grammars, enum lrnn_grammar_kind kind,
        const char * text, size_t size, struct lrnn_error * err) {
    if (size > MAX_TEXT) {
        error_bad_input(err, "the grammar has %zu bytes; expected at most %zu", size, MAX_TEXT);
        return nullptr;
    }
    if (kind == LRNN_GRAMMAR_JSON_SCHEMA && !schema_check(text, size, err)) {
        return nullptr;
    }
    try {
        const std::lock_guard<std::mutex> lock(grammars->mutex);
        const xgrammar::CompiledGrammar   none{ xgrammar::NullObj() };
        lrnn_grammar wanted = { kind, std::string(text, size), none, grammars->text_tokens };
        std::list<lrnn_grammar> & kept = grammars->kept;
        auto                      found = kept.begin();
        while (found != kept.end() && (found->kind != kind || found->text != wanted.text)) {
            ++found;
        }
        if (found != kept.end()) {
            kept.splice(kept.begin(), kept, found);
        } else {
            compilation c = { grammars, &wanted, err, false };
            if (!compile_on_thread(&c) || !allows_a_text(wanted, err)) {
                return nullptr;
            }
            kept.push_front(wanted);
            trim(kept);
        }
        return new lrnn_grammar(kept.front());
    } catch (const std::bad_alloc &) {
        error_no_memory(err, "a grammar");
        return nullptr;
    }
}

void lrnn_grammar_free(struct lrnn_grammar * grammar) {
    delete grammar;
}

//
// Matchers
//

struct grammar_matcher {
    lrnn_grammar             grammar;
    xgrammar::GrammarMatcher matcher;
    std::vector<uint32_t>    allowed;
};

struct grammar_matcher * grammar_matcher_new(
        const struct lrnn_grammar * grammar, struct lrnn_error * err) {
    grammar_matcher * m = nullptr;
    return run_within(MATCH, err,
                   [&] {
                       m = new grammar_matcher{ *grammar,
                           xgrammar::GrammarMatcher(grammar->compiled),
                           std::vector<uint32_t>(
                                   n_words(grammar->compiled.GetTokenizerInfo().GetVocabSize())) };
                   })
                   ? m
                   : nullptr;
}

void grammar_matcher_free(struct grammar_matcher * m) {
    delete m;
}

bool grammar_matcher_next(
        struct grammar_matcher * m, struct grammar_next * next, struct lrnn_error * err) {
    std::vector<uint32_t> & allowed = m->allowed;
    int64_t                 shape = (int64_t) allowed.size();
    DLTensor tensor = { allowed.data(), { kDLCPU, 0 }, 1, xgrammar::GetBitmaskDLType(), &shape,
        nullptr, 0 };
    std::fill(allowed.begin(), allowed.end(), UINT32_MAX);
    *next = { allowed.data(), false, false };
    if (!run_within(MATCH, err, [&] {
            m->matcher.FillNextTokenBitmask(&tensor);
            next->end = m->matcher.IsCompleted();
        })) {
        return false;
    }
    for (size_t i = 0; i < allowed.size(); ++i) {
        allowed[i] &= m->grammar.text_tokens.get()[i];
        next->any = next->any || allowed[i] != 0;
    }
    return next->any || next->end ||
           error_bad_input(err, "no token of the model continues the text as the grammar requires");
}

bool grammar_matcher_accept(struct grammar_matcher * m, int32_t token, struct lrnn_error * err) {
    bool       accepted = false;
    const bool ok = run_within(MATCH, err, [&] { accepted = m->matcher.AcceptToken(token); });
    return ok &&
           (accepted || error_set(err, LRNN_ERROR_INTERNAL,
                                "the grammar refuses token %d, which it allowed", (int) token));
}
