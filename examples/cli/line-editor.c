#define _GNU_SOURCE // wcwidth, SIGWINCH

// Keys → edits of a message → the screen. The terminal is in raw mode only while a message is read.
// A message may have several lines: after a backslash, Alt-Enter, or in a pasted text.

#include "base/buffer.h"
#include "base/unicode.h"
#include "interrupt.h"
#include "line-input.h"
#include "terminal.h"

#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum {
    ESCAPE_MS = 50,    // the rest of an escape sequence arrives within this time
    INDENT = 4,        // "... "
    SEQUENCE_MAX = 16, // bytes of an escape sequence
    BACKSPACE = 0x7f,
    KEY_NONE = 0x1000000, // keys that are not characters
    KEY_STOP,             // a signal, or the end of the input
    KEY_DELETE,
    KEY_PASTE,
    KEY_ALT, // + a character
};

#undef CTRL
#define CTRL(letter) ((letter) - 'A' + 1)
#define ALT(c)       (KEY_ALT + (c))

static const char PROMPT[] = "> ";

struct line_editor {
    struct termios cooked; // the terminal outside of this file

    char   input[4096]; // bytes from the terminal
    size_t n_input;
    size_t at_input;

    struct buffer text;
    size_t        cursor; // the offset of a character
    struct buffer killed; // what the last kill removed

    struct line_history history;
    int                 at_history; // the message in `text`; history.n: a new one
    struct buffer       fresh;      // the new one, while an old one is in `text`

    const char * prompt;
    int          first_row;  // of the text, on the screen; > 0 if it does not fit
    int          cursor_row; // on the screen, from the first row of the text
    bool         is_done;    // Enter
    bool         is_end;     // Ctrl-D on an empty message
    bool         is_long;    // more than LINE_EDITOR_MAX bytes arrived
    bool         has_failed; // out of memory
};

//
// Text
//

static void set_text(struct line_editor * e, struct buffer text) {
    e->text.n = 0;
    e->has_failed |= !buffer_append(&e->text, text.data, text.n);
    e->cursor = e->text.n;
}

static void insert(struct line_editor * e, const char * data, size_t n) {
    if (e->text.n + n > LINE_EDITOR_MAX) {
        e->is_long = true;
    } else if (n > 0 && !buffer_append(&e->text, data, n)) {
        e->has_failed = true;
    } else if (n > 0) {
        char * at = e->text.data + e->cursor;
        memmove(at + n, at, e->text.n - n - e->cursor);
        memcpy(at, data, n);
        e->cursor += n;
    }
}

static void erase(struct line_editor * e, size_t from, size_t to) {
    memmove(e->text.data + from, e->text.data + to, e->text.n - to);
    e->text.n -= to - from;
    e->cursor = from;
}

static void kill_text(struct line_editor * e, size_t from, size_t to) {
    if (from < to) {
        e->killed.n = 0;
        e->has_failed |= !buffer_append(&e->killed, e->text.data + from, to - from);
        erase(e, from, to);
    }
}

// The text is valid UTF-8. Marks have no columns: they belong to the character before them.
static int columns_of(uint32_t c) {
    const int n = wcwidth((wchar_t) c);
    return n < 0 ? 1 : n;
}

static size_t after(const struct line_editor * e, size_t at) {
    const char * const end = e->text.data + e->text.n;
    const char *       p = e->text.data + at;
    if (p == end) {
        return at;
    }
    utf8_next(&p);
    for (const char * mark = p; mark < end && columns_of(utf8_next(&mark)) == 0;) {
        p = mark;
    }
    return (size_t) (p - e->text.data);
}

static size_t before(const struct line_editor * e, size_t at) {
    const char * p = e->text.data + at;
    for (bool is_mark = true; p > e->text.data && is_mark;) {
        do {
            p--;
        } while (((unsigned char) *p & 0xc0) == 0x80);
        const char * next = p;
        is_mark = columns_of(utf8_next(&next)) == 0;
    }
    return (size_t) (p - e->text.data);
}

static bool is_word(const struct line_editor * e, size_t at) {
    const char *   p = e->text.data + at;
    const uint32_t c = utf8_next(&p);
    return c == '_' || char_class_of(c) == CHAR_CLASS_LETTER ||
           char_class_of(c) == CHAR_CLASS_NUMBER;
}

static size_t word_end(const struct line_editor * e) {
    size_t at = e->cursor;
    while (at < e->text.n && !is_word(e, at)) {
        at = after(e, at);
    }
    while (at < e->text.n && is_word(e, at)) {
        at = after(e, at);
    }
    return at;
}

static size_t word_begin(const struct line_editor * e) {
    size_t at = e->cursor;
    while (at > 0 && !is_word(e, before(e, at))) {
        at = before(e, at);
    }
    while (at > 0 && is_word(e, before(e, at))) {
        at = before(e, at);
    }
    return at;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n';
}

// Where the word between spaces begins that ends at the cursor.
static size_t space_before(const struct line_editor * e) {
    size_t at = e->cursor;
    while (at > 0 && is_space(e->text.data[at - 1])) {
        at--;
    }
    while (at > 0 && !is_space(e->text.data[at - 1])) {
        at--;
    }
    return at;
}

static size_t line_begin(const struct line_editor * e, size_t at) {
    while (at > 0 && e->text.data[at - 1] != '\n') {
        at--;
    }
    return at;
}

static size_t line_end(const struct line_editor * e, size_t at) {
    while (at < e->text.n && e->text.data[at] != '\n') {
        at++;
    }
    return at;
}

// The offset of character n of the line that begins at `at`.
static size_t in_line(const struct line_editor * e, size_t at, int n) {
    const size_t end = line_end(e, at);
    for (; n > 0 && at < end; --n) {
        at = after(e, at);
    }
    return at;
}

static int characters(const struct line_editor * e, size_t from, size_t to) {
    int n = 0;
    for (; from < to; from = after(e, from)) {
        n++;
    }
    return n;
}

//
// Screen
//

struct place {
    int row; // 0: the first row of the text
    int column;
};

struct drawing {
    struct buffer * out; // NULL: only measure
    int             first;
    int             last; // rows that are shown
    int             width;
    struct place    at;
    bool            has_failed;
};

static void print(struct drawing * d, const char * data, size_t n) {
    if (d->out != NULL && d->at.row >= d->first && d->at.row <= d->last) {
        d->has_failed |= !buffer_append(d->out, data, n);
    }
}

static void next_row(struct drawing * d) {
    d->at = (struct place) { d->at.row + 1, 0 };
    if (d->at.row > d->first) {
        print(d, "\n", 1);
    }
}

static void put(struct drawing * d, const char * data, size_t n, int columns) {
    if (d->at.column + columns > d->width) {
        next_row(d);
    }
    print(d, data, n);
    d->at.column += columns;
    if (d->at.column == d->width) {
        next_row(d);
    }
}

// Draws the text up to `end`. Control characters are shown as ^X, a tab as four spaces.
static void draw(struct drawing * d, const struct line_editor * e, size_t end) {
    for (const char * p = e->prompt; *p != '\0';) {
        const char * const c = p;
        const int          columns = columns_of(utf8_next(&p));
        put(d, c, (size_t) (p - c), columns);
    }
    for (const char * p = e->text.data; p < e->text.data + end;) {
        const char * const c = p;
        const uint32_t     code = utf8_next(&p);
        if (code == '\n') {
            next_row(d);
            put(d, "... ", INDENT, INDENT);
        } else if (code == '\t') {
            put(d, "    ", 4, 4);
        } else if (code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            put(d, (char[]) { '^', (char) ((code & 0x1f) | 0x40) }, 2, 2);
        } else {
            put(d, c, (size_t) (p - c), columns_of(code));
        }
    }
}

static void write_all(const char * data, size_t n) {
    while (n > 0) {
        const ssize_t done = write(STDOUT_FILENO, data, n);
        if (done <= 0) {
            return; // the terminal is gone; reading from it will say so
        }
        data += done;
        n -= (size_t) done;
    }
}

static void move(struct buffer * out, int n, char direction) {
    char text[32];
    if (n > 0) {
        buffer_append(out, text, (size_t) snprintf(text, sizeof(text), "\033[%d%c", n, direction));
    }
}

static int terminal_height(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

static void refresh(struct line_editor * e) {
    const int      height = terminal_height();
    const int      columns = terminal_width(stdout);
    const int      width = columns > 2 * INDENT ? columns : 2 * INDENT;
    struct buffer  out = { 0 };
    struct drawing cursor = { .width = width };
    struct drawing all = { .width = width };

    draw(&cursor, e, e->cursor);
    draw(&all, e, e->text.n);
    const int row = cursor.at.row;
    const int n_rows = all.at.row + 1;
    e->first_row = e->first_row > row ? row : e->first_row;
    e->first_row = e->first_row + height <= row ? row - height + 1 : e->first_row;
    e->first_row = e->first_row + height > n_rows ? n_rows - height : e->first_row;
    e->first_row = e->first_row < 0 ? 0 : e->first_row;

    move(&out, e->cursor_row, 'A');
    buffer_append(&out, "\r\033[J", 4);
    struct drawing shown = { &out, e->first_row, e->first_row + height - 1, width, { 0 }, false };
    draw(&shown, e, e->text.n);
    const int last = shown.at.row < shown.last ? shown.at.row : shown.last;
    move(&out, last - row, 'A');
    buffer_append(&out, "\r", 1);
    move(&out, cursor.at.column, 'C');
    e->cursor_row = row - e->first_row;
    e->has_failed |= shown.has_failed;
    write_all(out.data, out.n);
    buffer_free(&out);
}

//
// Keys
//

static void set_raw(struct line_editor * e, bool is_raw) {
    struct termios raw = e->cooked;
    // Ctrl-C stays a signal (interrupt.h); Ctrl-Z is a key, so that the screen is left in order
    raw.c_iflag &= (tcflag_t) ~(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON);
    raw.c_lflag &= (tcflag_t) ~(ECHO | ICANON | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VQUIT] = raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    if (!is_raw) {
        write_all("\033[?2004l", 8);
    }
    tcsetattr(STDIN_FILENO, TCSADRAIN, is_raw ? &raw : &e->cooked);
    if (is_raw) {
        write_all("\033[?2004h", 8); // pasted text arrives in brackets
    }
}

// The next byte, or KEY_STOP, or KEY_NONE if none arrives in time.
// - timeout_ms: -1: wait
static int next_byte(struct line_editor * e, int timeout_ms) {
    while (e->at_input == e->n_input) {
        struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
        const int     ready = poll(&in, 1, timeout_ms);
        if (interrupt_seen()) {
            return KEY_STOP;
        }
        if (ready == 0) {
            return KEY_NONE;
        }
        if (ready < 0) { // a signal: the window has another size, or we are in the foreground again
            set_raw(e, true);
            refresh(e);
            continue;
        }
        const ssize_t n = read(STDIN_FILENO, e->input, sizeof(e->input));
        if (n <= 0) {
            return KEY_STOP;
        }
        e->at_input = 0;
        e->n_input = (size_t) n;
    }
    return (unsigned char) e->input[e->at_input++];
}

static bool has_input(const struct line_editor * e) {
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    return e->at_input < e->n_input || poll(&in, 1, 0) > 0;
}

static const struct {
    const char * bytes; // after the escape character
    int          key;
} SEQUENCES[] = {
    { "[A", CTRL('P') },
    { "OA", CTRL('P') },
    { "[B", CTRL('N') },
    { "OB", CTRL('N') },
    { "[C", CTRL('F') },
    { "OC", CTRL('F') },
    { "[D", CTRL('B') },
    { "OD", CTRL('B') },
    { "[H", CTRL('A') },
    { "OH", CTRL('A') },
    { "[1~", CTRL('A') },
    { "[7~", CTRL('A') },
    { "[F", CTRL('E') },
    { "OF", CTRL('E') },
    { "[4~", CTRL('E') },
    { "[8~", CTRL('E') },
    { "[3~", KEY_DELETE },
    { "[1;5C", ALT('f') },
    { "[1;3C", ALT('f') },
    { "[1;5D", ALT('b') },
    { "[1;3D", ALT('b') },
    { "[200~", KEY_PASTE },
};

static int read_sequence(struct line_editor * e) {
    char bytes[SEQUENCE_MAX] = { 0 };
    int  n = 0;
    int  byte = next_byte(e, ESCAPE_MS);

    if (byte != '[' && byte != 'O') {
        return byte >= KEY_NONE ? byte : ALT(byte);
    }
    bytes[n++] = (char) byte;
    do { // parameters, then a final byte from @ to ~
        byte = next_byte(e, ESCAPE_MS);
        if (byte >= KEY_NONE) {
            return byte;
        }
        bytes[n < SEQUENCE_MAX - 1 ? n++ : n] = (char) byte;
    } while (byte < '@' || byte > '~');
    for (size_t i = 0; i < sizeof(SEQUENCES) / sizeof(SEQUENCES[0]); ++i) {
        if (strcmp(bytes, SEQUENCES[i].bytes) == 0) {
            return SEQUENCES[i].key;
        }
    }
    return KEY_NONE;
}

// A character, or one of the keys above.
static int read_key(struct line_editor * e) {
    char     bytes[4];
    uint32_t c;
    int      bad;
    int      n = 0;

    do {
        const int byte = next_byte(e, n == 0 ? -1 : ESCAPE_MS);
        if (byte >= KEY_NONE) {
            return byte;
        }
        if (byte == '\033') {
            return read_sequence(e);
        }
        bytes[n++] = (char) byte;
        if (utf8_decode(bytes, bytes + n, &c, &bad) > 0) {
            return (int) c;
        }
        if (bad < n) { // this byte does not continue the character: it is the next one
            e->at_input--;
            return KEY_NONE;
        }
    } while (n < 4 && (unsigned char) bytes[0] >= 0xc2 && (unsigned char) bytes[0] <= 0xf4);
    return KEY_NONE;
}

//
// History
//

static void history_show(struct line_editor * e, int at) {
    if (at < 0 || at > e->history.n) {
        return;
    }
    if (e->at_history == e->history.n) {
        e->fresh.n = 0;
        e->has_failed |= !buffer_append(&e->fresh, e->text.data, e->text.n);
    }
    e->at_history = at;
    set_text(e, at == e->history.n ? e->fresh : e->history.messages[at]);
}

//
// Commands
//

static void run_key(struct line_editor * e, int key);

static void go_up(struct line_editor * e) {
    const size_t begin = line_begin(e, e->cursor);
    if (begin == 0) {
        history_show(e, e->at_history - 1);
    } else {
        e->cursor = in_line(e, line_begin(e, begin - 1), characters(e, begin, e->cursor));
    }
}

static void go_down(struct line_editor * e) {
    const size_t begin = line_begin(e, e->cursor);
    const size_t end = line_end(e, e->cursor);
    if (end == e->text.n) {
        history_show(e, e->at_history + 1);
    } else {
        e->cursor = in_line(e, end + 1, characters(e, begin, e->cursor));
    }
}

static void clear_screen(struct line_editor * e) {
    write_all("\033[H\033[2J", 7);
    e->cursor_row = 0;
}

static void suspend(struct line_editor * e) {
    set_raw(e, false);
    raise(SIGTSTP);
    set_raw(e, true);
    e->cursor_row = 0;
}

// A backslash at the end of the last line continues the message.
static void enter(struct line_editor * e) {
    e->cursor = e->text.n;
    if (e->text.n > 0 && e->text.data[e->text.n - 1] == '\\') {
        e->text.data[e->text.n - 1] = '\n';
    } else {
        e->is_done = true;
    }
}

// Everything up to the closing bracket is text. Line ends arrive as \r; other control characters
// are dropped.
static void paste(struct line_editor * e) {
    static const char END[] = "\033[201~";
    struct buffer     raw = { 0 };
    struct buffer     text = { 0 };
    bool              is_ok = true;
    size_t            n_end = 0; // bytes of END at the end of `raw`

    while (n_end < strlen(END) && is_ok) {
        const int byte = next_byte(e, -1);
        if (byte >= KEY_NONE) {
            break;
        }
        n_end = byte == END[n_end] ? n_end + 1 : byte == END[0];
        const char c = byte == '\r' ? '\n' : (char) byte;
        if (raw.n > 2 * LINE_EDITOR_MAX) {
            e->is_long = true;
        } else {
            is_ok = buffer_append(&raw, &c, 1);
        }
    }
    raw.n -= n_end == strlen(END) && !e->is_long ? strlen(END) : 0;
    size_t n = 0;
    for (size_t i = 0; i < raw.n; ++i) {
        const unsigned char c = (unsigned char) raw.data[i];
        if ((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t') {
            raw.data[n++] = raw.data[i];
        }
    }
    is_ok = is_ok && (n == 0 || utf8_replace(raw.data, n, false, &text));
    e->has_failed |= !is_ok;
    insert(e, text.data, text.n);
    buffer_free(&raw);
    buffer_free(&text);
}

// The newest message before `at` that contains the words; -1: none.
static int find_older(const struct line_editor * e, int at, struct buffer words) {
    while (--at >= 0) {
        const struct buffer * m = &e->history.messages[at];
        if (words.n == 0 || memmem(m->data, m->n, words.data, words.n) != NULL) {
            return at;
        }
    }
    return -1;
}

// Ctrl-R: characters extend what is searched for, Ctrl-R finds an older message, Ctrl-G cancels;
// any other key acts on the message found.
static void search(struct line_editor * e) {
    char          prompt[80];
    struct buffer words = { 0 };
    const int     begin = e->at_history;
    int           key;

    e->prompt = prompt;
    for (;;) {
        const int n_shown = (int) utf8_complete(words.data, words.n < 40 ? words.n : 40);
        snprintf(prompt, sizeof(prompt), "search '%.*s': ", n_shown, n_shown > 0 ? words.data : "");
        refresh(e);
        key = read_key(e);
        char      bytes[4];
        const int from = key == CTRL('R') ? e->at_history : e->history.n;
        if (key >= 0x20 && key < KEY_NONE && key != BACKSPACE) {
            e->has_failed |=
                    !buffer_append(&words, bytes, (size_t) utf8_encode((uint32_t) key, bytes));
        } else if (key == BACKSPACE || key == CTRL('H')) {
            words.n = words.n > 0 ? utf8_complete(words.data, words.n - 1) : 0;
        } else if (key != CTRL('R') && key != KEY_NONE) {
            break;
        }
        const int found = find_older(e, from, words);
        if (found >= 0 && words.n > 0) {
            history_show(e, found);
        }
    }
    e->prompt = PROMPT;
    buffer_free(&words);
    if (key == CTRL('G') || key == KEY_STOP) {
        history_show(e, begin);
    } else {
        run_key(e, key);
    }
}

static void run_key(struct line_editor * e, int key) {
    const size_t at = e->cursor;
    char         bytes[4];

    switch (key) {
        case CTRL('A'): e->cursor = line_begin(e, at); break;
        case CTRL('B'): e->cursor = before(e, at); break;
        case CTRL('D'):
            e->is_end = e->text.n == 0;
            erase(e, at, after(e, at));
            break;
        case CTRL('E'): e->cursor = line_end(e, at); break;
        case CTRL('F'): e->cursor = after(e, at); break;
        case CTRL('H'):
        case BACKSPACE: erase(e, before(e, at), at); break;
        case '\n':
        case '\r': enter(e); break;
        case CTRL('K'): kill_text(e, at, line_end(e, at)); break;
        case CTRL('L'): clear_screen(e); break;
        case CTRL('N'): go_down(e); break;
        case CTRL('P'): go_up(e); break;
        case CTRL('R'): search(e); break;
        case CTRL('U'): kill_text(e, line_begin(e, at), at); break;
        case CTRL('W'): kill_text(e, space_before(e), at); break;
        case CTRL('Y'): insert(e, e->killed.data, e->killed.n); break;
        case CTRL('Z'): suspend(e); break;
        case KEY_DELETE: erase(e, at, after(e, at)); break;
        case KEY_PASTE: paste(e); break;
        case ALT('\n'):
        case ALT('\r'): insert(e, "\n", 1); break;
        case ALT('b'): e->cursor = word_begin(e); break;
        case ALT('d'): kill_text(e, at, word_end(e)); break;
        case ALT('f'): e->cursor = word_end(e); break;
        case ALT(BACKSPACE): kill_text(e, word_begin(e), at); break;
        default:
            if ((key >= 0x20 || key == '\t') && key < KEY_NONE) {
                insert(e, bytes, (size_t) utf8_encode((uint32_t) key, bytes));
            }
    }
}

//
// Interface
//

static void on_resize(int number) {
    (void) number; // ends poll()
}

struct line_editor * line_editor_new(void) {
    struct sigaction action = { 0 };

    if (!terminal_is_smart(stdout) || !terminal_is_smart(stdin)) {
        return NULL;
    }
    struct line_editor * e = calloc(1, sizeof(*e));
    if (e == NULL || tcgetattr(STDIN_FILENO, &e->cooked) != 0) {
        free(e);
        return NULL;
    }
    // wcwidth() knows the characters of the locale. Models read UTF-8, also where that is "C".
    if (setlocale(LC_CTYPE, "") == NULL || MB_CUR_MAX == 1) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
    action.sa_handler = on_resize;
    action.sa_flags = SA_RESTART; // poll() ends all the same
    sigaction(SIGWINCH, &action, NULL);
    line_history_load(&e->history);
    return e;
}

void line_editor_free(struct line_editor * e) {
    if (e == NULL) {
        return;
    }
    line_history_free(&e->history);
    buffer_free(&e->text);
    buffer_free(&e->killed);
    buffer_free(&e->fresh);
    free(e);
}

enum line_status line_editor_read(struct line_editor * e, const char ** text, size_t * size) {
    e->prompt = PROMPT;
    e->at_history = e->history.n;
    e->text.n = e->cursor = 0;
    e->first_row = e->cursor_row = 0;
    e->is_done = e->is_end = e->is_long = e->has_failed = false;

    fflush(stdout);
    set_raw(e, true); // before the prompt: what follows it is a key
    refresh(e);
    int key = KEY_NONE;
    while (key != KEY_STOP && !e->is_done && !e->is_end && !e->is_long && !e->has_failed) {
        key = read_key(e);
        run_key(e, key);
        if (e->is_done || !has_input(e)) {
            refresh(e);
        }
    }
    e->cursor = e->text.n;
    refresh(e); // the next output begins below the message
    set_raw(e, false);
    if (interrupt_seen()) {
        write_all("^C", 2);
    }
    write_all("\n", 1);
    if (e->has_failed) {
        return LINE_MEMORY;
    }
    if (!e->is_done) {
        return interrupt_seen() ? LINE_INTERRUPT : e->is_long ? LINE_CUT : LINE_END;
    }
    line_history_add(&e->history, e->text);
    *text = e->text.data != NULL ? e->text.data : "";
    *size = e->text.n;
    return LINE_OK;
}
