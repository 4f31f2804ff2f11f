#include "chat.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/read-file.h"
#include "conversation.h"
#include "generate/prefix-tree.h"
#include "generate/state-file.h"
#include "interrupt.h"
#include "line-input.h"
#include "program.h"
#include "terminal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct branch {
    char *              name;
    struct conversation conversation;
    struct branch *     next;
};

struct chat {
    const struct chat_options * options;
    struct generator *          g;
    const struct lrnn_chat *    format;
    struct conversation         conversation;
    struct token_list           live;  // tokens of the sequence
    struct prefix_tree *        store; // its states in earlier turns
    struct branch *             branches;
    bool                        is_styled;
    bool                        is_dialog;   // on a terminal
    bool                        is_over;     // /exit, or nothing more can be done
    int                         write_error; // errno of stdout; 0: none
    enum lrnn_finish            finish;      // of the last answer
    enum exit_code              code;
};

// Reports an error after which the conversation goes on. A script sees it in the exit status.
static void complain(struct chat * chat, const struct lrnn_error * err) {
    if (chat->is_dialog) {
        program_say("%s", err->text);
    } else {
        chat->code = program_error(err);
    }
}

//
// States. A conversation may continue in a way that its state does not: after /undo, or because the
// chat format drops the thinking section of an earlier answer. The longest stored state that fits
// is then restored, and only the rest is read again.
//

// Bytes of stored states: half a gigabyte, but enough for one.
static size_t store_size(const struct lrnn_model_info * info, int64_t n_cache) {
    const int64_t least = 512 << 20;
    const int64_t one = info->state_bytes + 2 * info->cache_bytes * n_cache; // in F32
    return (size_t) (2 * one > least ? 2 * one : least);
}

// Makes the sequence hold as many of the first tokens as possible, but not all n.
static bool restore(
        struct chat * chat, const int32_t * tokens, int64_t n, struct lrnn_error * err) {
    const bool    is_live = token_list_begins(&chat->live, tokens, n - 1);
    const int64_t n_live = is_live ? chat->live.n : 0;
    const void *  data = NULL;
    const int64_t longest = prefix_tree_find(chat->store, tokens, n - 1, 0, &data);
    if (longest > n_live) {
        token_list_set(&chat->live, tokens, longest);
        return stored_state_restore(data, chat->g->session, 0, longest, err) != NULL;
    }
    chat->live.n = n_live;
    return n_live > 0 || lrnn_seq_reset(chat->g->session, 0, err);
}

// Stores the state, unless memory is short: it is then computed again.
static void store(struct chat * chat) {
    const struct token_list * live = &chat->live;
    const void *              known;
    void *                    extra;
    size_t                    size;
    if (live->n == 0 || prefix_tree_find(chat->store, live->ids, live->n, 0, &known) == live->n) {
        return;
    }
    void * data = stored_state_new(chat->g->session, 0, 0, &size, &extra);
    if (data != NULL) {
        prefix_tree_insert(chat->store, live->ids, live->n, 0, data, size);
    }
}

// Sets what the sequence holds: the first tokens of these, as many as it has.
static void set_live(struct chat * chat, const int32_t * tokens, int64_t n) {
    const int64_t length = lrnn_seq_length(chat->g->session, 0);
    token_list_set(&chat->live, tokens, length < n ? length : n);
}

//
// Answers
//

// Reads the conversation up to the prompt for the answer.
static bool feed(struct chat * chat, const int32_t * tokens, int64_t n, int64_t n_stable) {
    size_t size;

    if (!restore(chat, tokens, n, &chat->g->err)) {
        return false;
    }
    // A format with thinking sections changes earlier answers: the next turn continues from the
    // stable tokens. Otherwise /undo returns to where this turn began.
    const bool thinks = lrnn_chat_thinking_mark(chat->format, true, &size) != NULL;
    if (!thinks) {
        store(chat);
    }
    const int64_t ends[2] = { thinks && n_stable < n ? n_stable : 0, n };
    for (int i = 0; i < 2; ++i) {
        const int64_t at = chat->live.n;
        if (ends[i] <= at) {
            continue;
        }
        const bool ok = generator_read(
                chat->g, tokens + at, ends[i] - at, i == 0 ? -1 : chat->options->max_tokens);
        set_live(chat, tokens, ends[i]);
        if (!ok) {
            return false;
        }
        if (i == 0) {
            store(chat);
        }
    }
    return true;
}

// The text of generated tokens, without the white space before it. The caller frees it.
static char * text_of(const struct lrnn_model * model, const struct token_list * tokens,
        const char ** text, size_t * size) {
    struct lrnn_decoder * d = lrnn_decoder_new(model, true, NULL);
    struct buffer         out = { 0 };
    bool                  ok = d != NULL;
    size_t                n = 0;
    for (int64_t i = 0; ok && i < tokens->n; ++i) {
        const char * part = lrnn_decoder_push(d, tokens->ids[i], &n);
        ok = buffer_append(&out, part, n);
    }
    if (ok) {
        const char * part = lrnn_decoder_end(d, &n);
        ok = buffer_append(&out, part, n);
    }
    lrnn_decoder_free(d);
    *text = ok && out.data != NULL ? out.data : "";
    *size = ok ? out.n : 0;
    while (*size > 0 && isspace((unsigned char) (*text)[0])) {
        ++*text;
        --*size;
    }
    return out.data;
}

// Generates the answer to the last message and adds it to the conversation.
static void generate(struct chat * chat) {
    struct generator *      g = chat->g;
    struct output           out;
    struct thinking_printer printer;
    struct token_list       made = { 0 };
    const char *            text;
    size_t                  size;

    thinking_begin(&printer, chat->format, chat->is_styled,
            lrnn_chat_begins_thinking(chat->format, chat->options->no_thinking));
    output_begin(&out, OUTPUT_TEXT, g->model, true, NULL);
    out.write = thinking_write;
    out.write_user = &printer;
    chat->finish = generator_write(g, &out, &made);
    output_end(&out, false);
    thinking_end(&printer);
    putchar('\n');
    fflush(stdout);
    chat->write_error = out.error;
    char * data = text_of(g->model, &made, &text, &size);
    conversation_add(&chat->conversation, "assistant", text, size, &made);
    free(data);
    token_list_add(&chat->live, made.ids, made.n);
    const int64_t length = lrnn_seq_length(g->session, 0);
    chat->live.n = length < chat->live.n ? length : chat->live.n;
    token_list_free(&made);
}

// Reports how an answer ended. After most errors a conversation cannot continue.
static void report(struct chat * chat) {
    const struct lrnn_error * err = &chat->g->err;
    switch (err->kind) {
        case LRNN_ERROR_NONE: break;
        case LRNN_ERROR_CANCELLED: return;
        case LRNN_ERROR_BAD_INPUT: program_say("%s; " GENERATOR_MORE_CACHE, err->text); return;
        default:
            chat->is_over = true;
            chat->code = program_error(err);
            return;
    }
    if (chat->write_error != 0) {
        clearerr(stdout);
        chat->is_over = true;
        chat->code = chat->write_error == EPIPE
                             ? EXIT_CODE_OK
                             : program_fail(EXIT_CODE_SYSTEM, "cannot write to stdout: %s",
                                       strerror(chat->write_error));
    } else if (chat->finish == LRNN_FINISH_CACHE) {
        program_say("the attention cache is full; " GENERATOR_MORE_CACHE);
    }
}

static void answer(struct chat * chat, const char * text, size_t size) {
    int32_t *         tokens;
    int64_t           n, n_stable;
    struct lrnn_error err;

    conversation_add(&chat->conversation, "user", text, size, NULL);
    if (!lrnn_chat_tokenize(chat->format, chat->conversation.messages, chat->conversation.n,
                chat->options->no_thinking, &tokens, &n, &n_stable, &err)) {
        conversation_drop(&chat->conversation, 1);
        complain(chat, &err);
        return;
    }
    const bool is_fed = feed(chat, tokens, n, n_stable);
    free(tokens);
    if (!is_fed) {
        conversation_drop(&chat->conversation, 1);
    } else {
        generate(chat);
    }
    report(chat);
}

//
// Commands
//

// Prints how long the conversation is, after a command that moved within it.
static void say_where(const struct chat * chat) {
    const struct conversation * c = &chat->conversation;
    const int64_t               n_questions = (c->n - conversation_has_system(c)) / 2;
    if (chat->is_dialog && !chat->g->quiet) {
        fprintf(program_stderr(), "(%" PRId64 " question%s so far)\n", n_questions,
                n_questions == 1 ? "" : "s");
    }
}

// Restores the longest stored state that any next question can continue. Tokens after it will be
// read again.
static void restore_state(struct chat * chat) {
    struct conversation * c = &chat->conversation;
    struct lrnn_error     err;
    int32_t *             tokens;
    int64_t               n;

    conversation_add(c, "user", "", 0, NULL);
    bool ok = lrnn_chat_tokenize(
            chat->format, c->messages, c->n, chat->options->no_thinking, &tokens, &n, NULL, &err);
    conversation_drop(c, 1);
    if (ok) {
        ok = restore(chat, tokens, n, &err);
        free(tokens);
    }
    if (!ok) {
        program_say("%s", err.text);
    }
}

static bool has_question(const struct conversation * c) {
    return c->n >= 2 + conversation_has_system(c);
}

static void undo(struct chat * chat, const char * text) {
    struct conversation * c = &chat->conversation;

    (void) text;
    if (!has_question(c)) {
        program_say("there is nothing to undo");
        return;
    }
    conversation_drop(c, 2);
    restore_state(chat);
    say_where(chat);
}

static struct branch * find_branch(struct chat * chat, const char * name) {
    struct branch * b = chat->branches;
    while (b != NULL && strcmp(b->name, name) != 0) {
        b = b->next;
    }
    return b;
}

static void fork_branch(struct chat * chat, const char * name) {
    struct branch * b = find_branch(chat, name);

    if (b == NULL) {
        b = program_alloc(1, sizeof(*b));
        b->name = program_alloc(strlen(name) + 1, 1);
        memcpy(b->name, name, strlen(name));
        b->next = chat->branches;
        chat->branches = b;
    }
    conversation_copy(&b->conversation, &chat->conversation);
    store(chat);
}

static void go_back(struct chat * chat, const char * name) {
    const struct branch * b = find_branch(chat, name);
    if (b == NULL) {
        program_say("there is no conversation with the name %s; /fork NAME makes one", name);
        return;
    }
    conversation_copy(&chat->conversation, &b->conversation);
    restore_state(chat);
    say_where(chat);
}

// Reads the prompt of the last answer, if no stored state fitted after /undo or /back.
static bool fill_state(struct chat * chat, struct lrnn_error * err) {
    const struct conversation * c = &chat->conversation;
    int32_t *                   tokens;
    int64_t                     n;
    if (chat->live.n > 0) {
        return true;
    }
    if (!has_question(c)) {
        return error_bad_input(err, "the conversation is empty");
    }
    if (!lrnn_chat_tokenize(chat->format, c->messages, c->n - 1, chat->options->no_thinking,
                &tokens, &n, NULL, err)) {
        return false;
    }
    const bool ok = generator_read(chat->g, tokens, n, -1);
    set_live(chat, tokens, n);
    free(tokens);
    if (!ok && err != NULL) {
        *err = chat->g->err;
    }
    return ok;
}

// A state file as of --state-save, with the tokens of the sequence and the messages.
static bool save(struct chat * chat, const char * path, struct lrnn_error * err) {
    const struct token_list * live = &chat->live;
    struct state_file         f;
    if (!fill_state(chat, err) || !state_file_take(&f, chat->g->session, 0,
                                          lrnn_generation_sampler(chat->g->generation), err)) {
        return false;
    }
    const bool ok = state_file_set_tokens(&f, live->ids, live->n, err) &&
                    conversation_write(&chat->conversation, &f.text, err) &&
                    state_file_write(&f, path, &chat->g->info, err);
    state_file_free(&f);
    return ok;
}

// The messages and tokens of a chat that was saved by version 0.2: they are in FILE.json.
static bool read_old(const struct chat * chat, const char * path, const struct state_file * f,
        struct conversation * c, struct token_list * tokens, struct lrnn_error * err) {
    char   json[4096];
    char * data;
    size_t size;
    if (snprintf(json, sizeof(json), "%s.json", path) >= (int) sizeof(json)) {
        return error_bad_input(err, "the name of the file is too long");
    }
    if (!read_file(json, &data, &size, err)) {
        return error_bad_file(err, "%s: a state without a conversation", path);
    }
    bool ok = conversation_read(
            c, tokens, chat->g->info.n_vocab, (struct slice) { data, size }, json, err);
    free(data);
    if (ok && tokens->n != f->length) {
        ok = error_bad_file(err, "%s and %s are of different conversations", path, json);
    }
    return ok;
}

static bool load(struct chat * chat, const char * path, struct lrnn_error * err) {
    struct generator *  g = chat->g;
    struct conversation c = { 0 };
    struct token_list   tokens = { 0 };
    struct state_file   f;
    if (!state_file_read(&f, path, g->session, err)) {
        return false;
    }
    bool ok = true;
    if (f.text.n > 0 && f.tokens != NULL) {
        const struct slice text = { f.text.data, f.text.n };
        ok = conversation_read(&c, NULL, g->info.n_vocab, text, path, err);
        token_list_set(&tokens, f.tokens, f.n_tokens);
    } else {
        ok = read_old(chat, path, &f, &c, &tokens, err);
    }
    ok = ok &&
         state_file_restore(&f, g->session, 0, lrnn_generation_sampler(g->generation), path, err);
    if (ok) {
        conversation_copy(&chat->conversation, &c);
        token_list_set(&chat->live, tokens.ids, tokens.n);
    }
    conversation_drop(&c, c.n);
    token_list_free(&tokens);
    state_file_free(&f);
    return ok;
}

static void save_command(struct chat * chat, const char * path) {
    struct lrnn_error err;
    if (!save(chat, path, &err)) {
        complain(chat, &err);
    }
}

static void load_command(struct chat * chat, const char * path) {
    struct lrnn_error err;
    if (!load(chat, path, &err)) {
        complain(chat, &err);
    } else {
        say_where(chat);
    }
}

static void set_system(struct chat * chat, const char * text) {
    conversation_set_system(&chat->conversation, text[0] != '\0' ? text : NULL);
}

static void leave(struct chat * chat, const char * text) {
    (void) text;
    chat->is_over = true;
}

static void help(struct chat * chat, const char * text);

static const struct command {
    const char * name;
    const char * argument; // NULL: none
    const char * text;
    bool         is_optional;
    void (*run)(struct chat * chat, const char * argument);
} COMMANDS[] = {
    { "undo", NULL, "remove the last question and its answer", false, undo },
    { "fork", "NAME", "remember the conversation as it is now", false, fork_branch },
    { "back", "NAME", "return to the conversation of /fork NAME", false, go_back },
    { "save", "FILE", "write the state and the messages to FILE", false, save_command },
    { "load", "FILE", "continue a saved conversation", false, load_command },
    { "system", "TEXT", "set the system message; without TEXT: remove it", true, set_system },
    { "help", NULL, "list the commands", false, help },
    { "exit", NULL, "end; so does Ctrl-D", false, leave },
};

enum { N_COMMANDS = sizeof(COMMANDS) / sizeof(COMMANDS[0]) };

static void help(struct chat * chat, const char * text) {
    (void) chat;
    (void) text;
    FILE * out = program_stderr();
    for (int i = 0; i < N_COMMANDS; ++i) {
        const struct command * c = &COMMANDS[i];
        fprintf(out, "  /%-6s %-5s %s\n", c->name, c->argument != NULL ? c->argument : "", c->text);
    }
    fprintf(out, "  //...        a message that begins with /\n");
}

static void command(struct chat * chat, const char * line) {
    char         word[16] = "";
    const size_t n = strcspn(line, " \t");
    const char * argument = line + n + strspn(line + n, " \t");

    snprintf(word, sizeof(word), "%.*s", (int) (n < sizeof(word) ? n : sizeof(word) - 1), line);
    for (int i = 0; i < N_COMMANDS; ++i) {
        const struct command * c = &COMMANDS[i];
        if (strcmp(word, c->name) != 0 || n >= sizeof(word)) {
            continue;
        }
        if ((argument[0] != '\0') != (c->argument != NULL) && !c->is_optional) {
            program_say("usage: /%s%s%s", c->name, c->argument != NULL ? " " : "",
                    c->argument != NULL ? c->argument : "");
        } else {
            c->run(chat, argument);
        }
        return;
    }
    program_say("there is no command /%.*s; /help lists them", (int) (n < 32 ? n : 32), line);
}

// One line or several lines of input: a message or a command.
static void take_line(struct chat * chat, const char * text, size_t size) {
    if (size > 0 && text[0] == '/' && !(size > 1 && text[1] == '/')) {
        char * line = program_alloc(size, 1);
        memcpy(line, text + 1, size - 1);
        command(chat, line);
        free(line);
    } else if (size > 0) {
        const size_t skip = text[0] == '/';
        answer(chat, text + skip, size - skip);
    }
}

//
// Input
//

static const char GREETING[] =
        "Each line is a message; a line that ends with \\ continues on the next. Ctrl-C stops the "
        "answer, Ctrl-D ends, /help lists the commands.";

static void run_on_terminal(struct chat * chat) {
    struct line_input * input = line_input_new();
    const char *        text;
    size_t              size;

    chat->is_dialog = true;
    if (!chat->g->quiet) {
        terminal_print(program_stderr(), GREETING);
    }
    while (!chat->is_over) {
        interrupt_listen_dialog(true);
        const enum line_status status =
                input != NULL ? line_input_read(input, &text, &size) : LINE_MEMORY;
        bool is_final = interrupt_is_final();
        interrupt_listen_dialog(false);
        if (status == LINE_MEMORY) {
            chat->code = program_fail(EXIT_CODE_SYSTEM, "out of memory for a line");
            chat->is_over = true;
        } else if (status == LINE_OK) {
            take_line(chat, text, size);
            is_final = is_final || interrupt_is_final();
        }
        if (is_final && chat->code == EXIT_CODE_OK) {
            chat->code = EXIT_CODE_STOPPED;
        }
        chat->is_over = chat->is_over || status == LINE_END || is_final;
    }
    line_input_free(input);
}

static void run_on_pipe(struct chat * chat) {
    char * line = NULL;
    size_t room = 0;

    interrupt_listen();
    while (!chat->is_over) {
        const ssize_t n = getline(&line, &room, stdin);
        if (n < 0) {
            break;
        }
        const size_t size = (size_t) n - (n > 0 && line[n - 1] == '\n');
        take_line(chat, line, size);
        if (interrupt_seen()) {
            chat->code = EXIT_CODE_STOPPED;
            chat->is_over = true;
        }
    }
    free(line);
}

enum exit_code chat_run(const struct chat_options * options, struct generator * g) {
    struct chat       chat = { .options = options, .g = g, .format = options->format };
    struct lrnn_error err;

    chat.is_styled = terminal_is_smart(stdout);
    chat.store = prefix_tree_new(store_size(&g->info, options->n_cache));
    if (chat.store == NULL) {
        return program_fail(EXIT_CODE_SYSTEM, "out of memory for the states of the chat");
    }
    if (options->load != NULL && !load(&chat, options->load, &err)) {
        chat.code = program_error(&err);
        chat.is_over = true;
    }
    if (options->system != NULL) {
        set_system(&chat, options->system);
    }
    if (chat.is_over) {
        // the conversation could not be loaded
    } else if (options->prompt != NULL) {
        interrupt_listen();
        answer(&chat, options->prompt, options->prompt_size);
        const bool is_cut = chat.finish == LRNN_FINISH_CALLER && chat.write_error == 0;
        if (chat.code == EXIT_CODE_OK &&
                (is_cut || chat.finish == LRNN_FINISH_CACHE || g->err.kind != LRNN_ERROR_NONE)) {
            chat.code = EXIT_CODE_STOPPED;
        }
    } else if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        run_on_terminal(&chat);
    } else {
        run_on_pipe(&chat);
    }
    if (options->save != NULL && (chat.live.n > 0 || has_question(&chat.conversation)) &&
            g->err.kind != LRNN_ERROR_NOT_FINITE && !save(&chat, options->save, &err)) {
        chat.code = program_error(&err);
    }
    while (chat.branches != NULL) {
        struct branch * next = chat.branches->next;
        conversation_drop(&chat.branches->conversation, chat.branches->conversation.n);
        free(chat.branches->name);
        free(chat.branches);
        chat.branches = next;
    }
    conversation_drop(&chat.conversation, chat.conversation.n);
    token_list_free(&chat.live);
    prefix_tree_free(chat.store);
    return chat.code;
}
