#include "line-editor.h"

#ifdef LRNN_LIBEDIT

#    include "terminal.h"

#    include <histedit.h>
#    include <locale.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>

enum { N_HISTORY = 1000 };

struct line_editor {
    EditLine * el;
    History *  history;
    char       prompt[16];
};

static char * get_prompt(EditLine * el) {
    struct line_editor * editor = NULL;
    el_get(el, EL_CLIENTDATA, &editor);
    return editor->prompt;
}

// libedit reads characters of the locale. Models read UTF-8, also where the locale is "C".
static void set_utf8(void) {
    if (setlocale(LC_CTYPE, "") == NULL || MB_CUR_MAX == 1) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
}

struct line_editor * line_editor_new(void) {
    HistEvent event;

    if (!terminal_is_smart(stdout)) {
        return NULL;
    }
    struct line_editor * editor = calloc(1, sizeof(*editor));
    if (editor == NULL) {
        return NULL;
    }
    set_utf8();
    editor->history = history_init();
    editor->el = el_init("lrnn-cli", stdin, stdout, stderr);
    if (editor->history == NULL || editor->el == NULL) {
        line_editor_free(editor);
        return NULL;
    }
    history(editor->history, &event, H_SETSIZE, N_HISTORY);
    history(editor->history, &event, H_SETUNIQUE, 1); // no line twice in a row
    el_set(editor->el, EL_CLIENTDATA, editor);
    el_set(editor->el, EL_PROMPT, get_prompt);
    el_set(editor->el, EL_HIST, history, editor->history);
    el_set(editor->el, EL_EDITOR, "emacs");
    el_set(editor->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(editor->el, EL_SIGNAL, 1); // Ctrl-Z and a new window size in the middle of a line
    el_source(editor->el, NULL);      // ~/.editrc
    return editor;
}

void line_editor_free(struct line_editor * editor) {
    if (editor == NULL) {
        return;
    }
    if (editor->el != NULL) {
        el_end(editor->el);
    }
    if (editor->history != NULL) {
        history_end(editor->history);
    }
    free(editor);
}

const char * line_editor_read(struct line_editor * editor, const char * prompt, size_t * size) {
    HistEvent event;
    int       n = 0;

    snprintf(editor->prompt, sizeof(editor->prompt), "%s", prompt);
    el_set(editor->el, EL_PREP_TERM, 1); // before the prompt: what follows it is a key
    const char * text = el_gets(editor->el, &n);
    if (text == NULL || n <= 0) {
        return NULL;
    }
    *size = strlen(text); // n counts characters in some versions
    if (*size > 1) {
        history(editor->history, &event, H_ENTER, text);
    }
    *size -= *size > 0 && text[*size - 1] == '\n';
    return text;
}

#else

struct line_editor * line_editor_new(void) {
    return NULL;
}

void line_editor_free(struct line_editor * editor) {
    (void) editor;
}

const char * line_editor_read(struct line_editor * editor, const char * prompt, size_t * size) {
    (void) editor;
    (void) prompt;
    *size = 0;
    return NULL;
}

#endif
