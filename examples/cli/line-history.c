#include "line-input.h"

#include "base/atomic-file.h"
#include "base/unicode.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Makes the folders of the file, private to the user. NULL: no file.
static char * find_path(void) {
    const char * own = getenv("LRNN_HISTORY");
    const char * state = getenv("XDG_STATE_HOME");
    const char * home = getenv("HOME");
    char         path[4096];
    int          n = 0;

    if (own != NULL) {
        return own[0] != '\0' ? strdup(own) : NULL;
    }
    if (state != NULL && state[0] == '/') {
        n = snprintf(path, sizeof(path), "%s/lrnn/history", state);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(path, sizeof(path), "%s/.local/state/lrnn/history", home);
    }
    if (n == 0 || n >= (int) sizeof(path)) {
        return NULL;
    }
    for (char * slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    return strdup(path);
}

// False: the message is not one to keep.
static bool keep(struct line_history * h, struct buffer text) {
    const struct buffer * last = h->n > 0 ? &h->messages[h->n - 1] : NULL;

    if (text.n == 0 || text.n > LINE_HISTORY_BYTES ||
            (last != NULL && last->n == text.n && memcmp(last->data, text.data, text.n) == 0)) {
        return false;
    }
    if (h->n == LINE_HISTORY_N) {
        buffer_free(&h->messages[0]);
        memmove(h->messages, h->messages + 1, (LINE_HISTORY_N - 1) * sizeof(h->messages[0]));
        h->messages[--h->n] = (struct buffer) { 0 };
    }
    h->n += buffer_append(&h->messages[h->n], text.data, text.n);
    return true;
}

// A message is a line of the file; \n and \\ stand for a line end and a backslash in it.
static bool append_line(struct buffer * out, struct buffer text) {
    bool is_ok = true;
    for (size_t i = 0; i < text.n && is_ok; ++i) {
        const char c = text.data[i];
        is_ok = (c != '\n' && c != '\\') || buffer_append(out, "\\", 1);
        is_ok = is_ok && buffer_append(out, c == '\n' ? "n" : &c, 1);
    }
    return is_ok && buffer_append(out, "\n", 1);
}

static struct buffer parse_line(char * line, size_t size) {
    struct buffer text = { .data = line };
    for (size_t i = 0; i < size && line[i] != '\n'; ++i) {
        if (line[i] == '\\' && i + 1 < size) {
            i++;
            text.data[text.n++] = line[i] == 'n' ? '\n' : line[i];
        } else {
            text.data[text.n++] = line[i];
        }
    }
    return text;
}

// Replaces the file by the messages that are kept.
static void shorten(const struct line_history * h) {
    struct atomic_file file;
    struct buffer      lines = { 0 };
    bool               is_ok = true;

    for (int i = 0; i < h->n; ++i) {
        is_ok = is_ok && append_line(&lines, h->messages[i]);
    }
    const mode_t mask = umask(0077);
    if (is_ok && atomic_file_open(&file, h->path, NULL)) {
        if (atomic_file_write(&file, lines.data, lines.n, NULL)) {
            atomic_file_commit(&file, NULL);
        }
        atomic_file_cancel(&file);
    }
    umask(mask);
    buffer_free(&lines);
}

void line_history_load(struct line_history * h) {
    struct stat info;
    char *      line = NULL;
    size_t      room = 0;
    int         n_lines = 0;
    ssize_t     n;

    h->path = find_path();
    const int fd = h->path != NULL ? open(h->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0) {
        return;
    }
    FILE * file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? fdopen(fd, "r") : NULL;
    if (file == NULL) { // a device or a pipe
        close(fd);
        free(h->path);
        h->path = NULL;
        return;
    }
    for (; (n = getline(&line, &room, file)) >= 0; ++n_lines) {
        const struct buffer text = parse_line(line, (size_t) n);
        if (utf8_valid(text.data, text.n) == text.n) {
            keep(h, text);
        }
    }
    free(line);
    fclose(file);
    if (n_lines >= 2 * LINE_HISTORY_N) {
        shorten(h);
    }
}

void line_history_free(struct line_history * h) {
    for (int i = 0; i < h->n; ++i) {
        buffer_free(&h->messages[i]);
    }
    free(h->path);
}

void line_history_add(struct line_history * h, struct buffer text) {
    struct buffer line = { 0 };

    if (!keep(h, text) || h->path == NULL || !append_line(&line, text)) {
        buffer_free(&line);
        return;
    }
    // in one piece: other programs may append at the same time
    const int fd = open(h->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd >= 0) {
        if (fchmod(fd, 0600) != 0 || write(fd, line.data, line.n) < 0) {
            free(h->path); // nothing more is saved
            h->path = NULL;
        }
        close(fd);
    }
    buffer_free(&line);
}
