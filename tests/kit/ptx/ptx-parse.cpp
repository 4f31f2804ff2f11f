#include "kit/ptx/ptx.h"

#include <cstdlib>
#include <cstring>

namespace ptx {

namespace {

class parser {
  public:
    parser(const std::string & text, const std::string & file) : text_(text), file_(file) {}

    bool run(module_text * out) {
        for (skip(); ok() && at_ < text_.size(); skip()) {
            const std::string word = read_word();
            if (word == ".version" || word == ".target" || word == ".address_size") {
                skip_past('\n');
            } else if (word == ".visible" || word == ".weak" || word == ".extern") {
                continue;
            } else if (word == ".global" || word == ".const") {
                read_variable(&out->variables);
            } else if (word == ".shared") {
                read_variable(&out->shared);
            } else if (word ==
                       ".func") { // declares vprintf or __assertfail; to call it is an error
                skip_past(';');
            } else if (word == ".entry") {
                out->kernels.emplace_back();
                read_kernel(&out->kernels.back());
            } else {
                fail("unknown directive " + word);
            }
        }
        return ok();
    }

    const std::string & error() const {
        return error_;
    }

  private:
    bool ok() const {
        return error_.empty();
    }

    void fail(const std::string & what) {
        if (ok()) {
            error_ = file_ + ":" + std::to_string(line_) + ": " + what;
        }
    }

    char peek() const {
        return at_ < text_.size() ? text_[at_] : 0;
    }

    void step() {
        line_ += peek() == '\n';
        ++at_;
    }

    // spaces and comments
    void skip() {
        while (at_ < text_.size()) {
            if (text_.compare(at_, 2, "//") == 0) {
                at_ = std::min(text_.find('\n', at_), text_.size());
            } else if (isspace((unsigned char) text_[at_])) {
                step();
            } else {
                return;
            }
        }
    }

    void skip_past(char c) {
        while (at_ < text_.size() && peek() != c) {
            step();
        }
        step();
    }

    static bool in_word(char c) {
        return isalnum((unsigned char) c) || strchr("_.$%:", c) != nullptr;
    }

    // A name, a directive or an instruction: up to a space or a separator. A label keeps its colon.
    std::string read_word() {
        skip();
        const size_t from = at_;
        while (at_ < text_.size() && peek() != 0 && in_word(peek())) {
            ++at_;
            if (text_[at_ - 1] == ':' && peek() != ':' && text_[at_ - 2] != ':') { // not L2::128B
                break;
            }
        }
        if (from == at_) {
            fail(std::string("unexpected character ") + peek());
        }
        return text_.substr(from, at_ - from);
    }

    bool take(char c) {
        skip();
        if (peek() != c) {
            return false;
        }
        step();
        return true;
    }

    void expect(char c) {
        if (!take(c)) {
            fail(std::string("expected ") + c);
        }
    }

    uint32_t read_number() {
        skip();
        const uint32_t n = (uint32_t) strtoul(text_.c_str() + at_, nullptr, 10);
        if (!isdigit((unsigned char) peek())) {
            fail("expected a number");
        }
        while (isdigit((unsigned char) peek())) {
            ++at_;
        }
        return n;
    }

    // .entry name(.param .align 8 .b8 a[120], .param .u64 b) .maxntid 128, 1, 1 { ... }
    void read_kernel(kernel_text * k) {
        k->name = read_word();
        expect('(');
        while (ok() && !take(')')) {
            variable_text v;
            read_word(); // .param
            read_type_and_name(&v);
            k->params.push_back(v);
            take(',');
        }
        while (ok() && !take('{')) {
            const std::string word = read_word();
            if (word == ".noreturn") {
                continue;
            }
            const uint32_t first = read_number();
            uint32_t       n = first;
            while (take(',')) {
                n *= read_number();
            }
            if (word == ".maxntid") {
                k->max_threads = n;
            } else if (word != ".minnctapersm" && word != ".reqntid") {
                fail("unknown directive " + word);
            }
        }
        for (int depth = 1; ok() && depth > 0;) {
            if (take('{')) {
                ++depth;
            } else if (take('}')) {
                --depth;
            } else if (!take(';')) {
                read_statement(k);
            }
        }
    }

    void read_statement(kernel_text * k) {
        statement s;
        if (take('@')) {
            s.guard = take('!') ? "!" : "";
            s.guard += read_word();
        }
        skip();
        s.line = line_;
        s.name = read_word();
        if (!ok()) {
            return;
        }
        if (s.name.back() == ':') {
            k->labels[s.name.substr(0, s.name.size() - 1)] = (int) k->code.size();
        } else if (s.name == ".reg") {
            read_registers(k);
        } else if (s.name == ".shared") {
            read_variable(&k->shared);
        } else if (s.name == ".local") {
            read_variable(&k->local);
        } else if (s.name == ".pragma" || s.name == ".param") { // .param: of a call
            skip_past(';');
        } else if (s.name[0] == '.') {
            fail("unknown directive " + s.name);
        } else {
            read_operands(&s);
            k->code.push_back(std::move(s));
        }
    }

    // a, {b, c}, [d+4]: separated by commas outside of brackets
    void read_operands(statement * s) {
        std::string now;
        int         depth = 0;
        for (skip(); ok() && peek() != ';'; skip()) {
            const char c = peek();
            if (c == 0) {
                fail("expected ;");
                return;
            }
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            if (c == ',' && depth == 0) {
                s->operands.push_back(now);
                now.clear();
            } else {
                now += c;
            }
            step();
        }
        step();
        if (!now.empty()) {
            s->operands.push_back(now);
        }
    }

    void read_registers(kernel_text * k) {
        const std::string type = read_word();
        declaration       d;
        if (type == ".pred") {
            d.bits = WIDTH_PRED;
        } else if (type == ".b16" || type == ".f16" || type == ".u16") {
            d.bits = WIDTH_16;
        } else if (type == ".b32" || type == ".f32" || type == ".u32") {
            d.bits = WIDTH_32;
        } else if (type == ".b64" || type == ".f64" || type == ".u64") {
            d.bits = WIDTH_64;
        } else {
            fail("unknown type of a register, " + type);
            return;
        }
        do {
            d.name = read_word();
            d.count = 0; // one register without a number
            if (take('<')) {
                d.count = (int) read_number();
                expect('>');
            }
            k->registers.push_back(d);
        } while (take(','));
        expect(';');
    }

    // .align 8 .b8 name[120] or .u64 name; returns the bytes of an element
    uint32_t read_type_and_name(variable_text * v) {
        std::string word = read_word();
        uint32_t    align = 0;
        while (ok() && (word == ".align" || word == ".ptr")) {
            align = word == ".align" ? read_number() : align;
            word = read_word();
        }
        const uint32_t element = (uint32_t) strtoul(word.c_str() + 2, nullptr, 10) / 8;
        v->name = read_word();
        v->size = element;
        if (take('[')) {
            v->size = take(']') ? 0 : element * read_number();
            if (v->size != 0) {
                expect(']');
            }
        }
        v->align = align != 0 ? align : element;
        return element;
    }

    // … [= {1, 2, 3}];
    void read_variable(std::vector<variable_text> * out) {
        variable_text  v;
        const uint32_t element = read_type_and_name(&v);
        v.bytes.resize(v.size);
        if (take('=')) {
            const bool list = take('{');
            size_t     at = 0;
            do {
                const std::string text = read_word_or_number();
                const bool        hex = text.compare(0, 2, "0f") == 0;
                const uint64_t    value = hex ? strtoull(text.c_str() + 2, nullptr, 16)
                                              : (uint64_t) strtoll(text.c_str(), nullptr, 0);
                if (at + element > v.bytes.size()) {
                    fail("too many values");
                    return;
                }
                memcpy(&v.bytes[at], &value, element);
                at += element;
            } while (take(','));
            if (list) {
                expect('}');
            }
        }
        expect(';');
        out->push_back(std::move(v));
    }

    std::string read_word_or_number() {
        const bool minus = take('-');
        return (minus ? "-" : "") + read_word();
    }

    const std::string & text_;
    std::string         file_;
    size_t              at_ = 0;
    int                 line_ = 1;
    std::string         error_;
};

} // namespace

std::string parse_text(const std::string & text, const std::string & name, module_text * out) {
    parser p(text, name);
    p.run(out);
    return p.error();
}

} // namespace ptx
