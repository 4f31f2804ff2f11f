#include "line-input.h"

#include "interrupt.h"
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line_input {
    struct line_editor * editor; // NULL: the terminal's own editing of plain lines
    char *               line;   // a plain line
    size_t               line_room;
    char *               text; // all lines
    size_t               text_room;
};

struct line_input * line_input_new(void) {
    struct line_input * input = calloc(1, sizeof(*input));
    if (input != NULL) {
        input->editor = line_editor_new();
    }
    return input;
}

void line_input_free(struct line_input * input) {
    if (input != NULL) {
        line_editor_free(input->editor);
        free(input->line);
        free(input->text);
        free(input);
    }
}

bool line_input_is_cut(const char * text, size_t size) {
    for (size_t at = 0; at < size;) {
        const char * end = memchr(text + at, '\n', size - at);
        const size_t n = end != NULL ? (size_t) (end - text) - at : size - at;
        if (n >= LINE_INPUT_MAX) {
            return true;
        }
        at += n + 1;
    }
    return false;
}

// Reads one line, without its end.
static enum line_status read_line(struct line_input * input, const char * prompt, size_t * size) {
    printf("%s", prompt);
    fflush(stdout);
    const ssize_t n = getline(&input->line, &input->line_room, stdin);
    clearerr(stdin); // a terminal can be read again after its end
    *size = n > 0 ? (size_t) n - (input->line[n - 1] == '\n') : 0;
    if (interrupt_seen()) {
        printf("\n"); // after the ^C of the terminal
        return LINE_INTERRUPT;
    }
    if (n < 0) {
        printf("\n");
        return LINE_END;
    }
    return line_input_is_cut(input->line, *size) ? LINE_CUT : LINE_OK;
}

static bool append(struct line_input * input, size_t at, const char * line, size_t size) {
    if (at + size + 1 > input->text_room) {
        const size_t room = 2 * (at + size + 1);
        char *       text = realloc(input->text, room);
        if (text == NULL) {
            return false;
        }
        input->text = text;
        input->text_room = room;
    }
    memcpy(input->text + at, line, size);
    return true;
}

static enum line_status read_lines(struct line_input * input, const char ** text, size_t * size) {
    size_t at = 0;

    for (const char * prompt = "> ";; prompt = "... ") {
        size_t                 n;
        const enum line_status status = read_line(input, prompt, &n);
        if (status != LINE_OK) {
            return status;
        }
        if (!append(input, at, input->line, n)) {
            return LINE_MEMORY;
        }
        at += n;
        if (n == 0 || input->line[n - 1] != '\\') {
            break;
        }
        input->text[at - 1] = '\n';
    }
    *text = input->text;
    *size = at;
    return LINE_OK;
}

enum line_status line_input_read(struct line_input * input, const char ** text, size_t * size) {
    if (input->editor == NULL) {
        const enum line_status status = read_lines(input, text, size);
        if (status == LINE_CUT) {
            program_say(LINE_INPUT_CUT, LINE_INPUT_MAX);
        }
        return status;
    }
    const enum line_status status = line_editor_read(input->editor, text, size);
    if (status == LINE_CUT) {
        program_say("a message has at most %d bytes; use -f FILE", LINE_EDITOR_MAX);
    }
    return status;
}
