// Text in HTML and SVG: every character that has a meaning there is escaped, in text and in quoted
// attributes.

#include "chart/markup.h"
#include "kit/check.h"

int main(void) {
    static const struct {
        const char * text;
        const char * expected;
    } cases[] = {
        { "", "" },
        { "plain 'text' = 1;", "plain 'text' = 1;" },
        { "a&b", "a&amp;b" },
        { "&amp;", "&amp;amp;" },
        { "a<b", "a&lt;b" },
        { "a>b", "a&gt;b" },
        { "a\"b", "a&quot;b" },
        { "\" onload=\"x", "&quot; onload=&quot;x" },
        { "]]><!--", "]]&gt;&lt;!--" },
        { "tab\tline\nreturn\r", "tab\tline\nreturn\r" },
        { "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x99\x82", "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x99\x82" },
        // not allowed in XML, or not UTF-8: U+FFFD instead
        { "a\x01z", "a\xef\xbf\xbdz" },
        { "a\x1b[1m", "a\xef\xbf\xbd[1m" },
        { "a\xffz", "a\xef\xbf\xbdz" },
        { "\xef\xbf\xbe", "\xef\xbf\xbd" },
        { "\xe4\xb8", "\xef\xbf\xbd" },
    };
    struct test t = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        char * data = NULL;
        size_t size = 0;
        FILE * out = open_memstream(&data, &size);
        if (!test_check(&t, out != NULL, "open_memstream")) {
            break;
        }
        markup_text(out, cases[i].text);
        fclose(out);
        test_check(&t, strcmp(data, cases[i].expected) == 0, "case %zu: %s, expected %s", i, data,
                cases[i].expected);
        free(data);
    }
    return test_end(&t, "test-markup");
}
