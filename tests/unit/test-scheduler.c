// The scheduler of lrnn-server: a stored state that cannot be restored is dropped, and the prompt
// is computed. The server itself stores only states that can be; here one is added that is short.

#include "kit/check.h"
#include "scheduler.h"

enum { N_PROMPT = 48, N_NEW = 12 };

static struct test t;

// What a job returns.
struct result {
    char    text[256];
    int64_t n_cached;
};

// Runs a job with one choice. With `state`, it takes the state before the last token of the prompt.
static struct result run(
        struct scheduler * s, const int32_t * prompt, int64_t n_prompt, struct state_file * state) {
    struct result result = { .n_cached = -1 };
    struct job *  job = job_new(1);
    job->params = (struct job_params) {
        .generation = { .sampler = { .temperature = 0.0f }, .max_tokens = N_NEW },
        .n_top = -1,
        .keep_state = state != NULL,
    };
    job->choices[0].prompt = prompt;
    job->choices[0].n_prompt = n_prompt;
    job->choices[0].follows = true;
    if (test_check(&t, scheduler_submit(s, job) == SUBMIT_OK, "a job is refused")) {
        pthread_mutex_lock(&job->mutex);
        for (int64_t n_seen = -1; job->n_done < job->n_choices;) {
            n_seen = job_wait(job, n_seen, 1000);
        }
        pthread_mutex_unlock(&job->mutex);
        const struct choice * c = &job->choices[0];
        test_check(&t, job->err.kind == LRNN_ERROR_NONE, "a job failed: %s", job->err.text);
        test_check(&t, c->n_new == N_NEW, "%d tokens; expected %d", (int) c->n_new, N_NEW);
        snprintf(result.text, sizeof(result.text), "%.*s", (int) c->text.n, c->text.data);
        result.n_cached = c->n_cached;
    }
    if (state != NULL) {
        *state = job->state;
        job->state = (struct state_file) { 0 };
    }
    job_free(job);
    return result;
}

static void check(struct scheduler * s, const int32_t * prompt, struct result expected) {
    const struct result found = run(s, prompt, N_PROMPT, NULL);
    test_check(&t, strcmp(found.text, expected.text) == 0, "'%s' is not '%s'", found.text,
            expected.text);
    test_check(&t, found.n_cached == expected.n_cached, "%d tokens were not computed; expected %d",
            (int) found.n_cached, (int) expected.n_cached);
}

// Adds the state after the first tokens of the prompt, without its last n_less bytes.
static void add(
        struct scheduler * s, const struct state_file * state, int32_t * tokens, size_t n_less) {
    struct state_file cut = *state;
    cut.tokens = tokens;
    cut.n_memory -= n_less;
    test_check(&t, scheduler_add_state(s, &cut), "a state is not added");
}

int main(void) {
    struct lrnn_error   err;
    int32_t             prompt[N_PROMPT];
    struct lrnn_model * model =
            lrnn_model_load(LRNN_MODELS "/text-deltaproduct2-neg.gguf", NULL, &err);
    if (!test_check(&t, model != NULL, "%s", err.text)) {
        return test_end(&t, "scheduler");
    }
    const struct scheduler_params params = { .model = model,
        .session = { .n_threads = 1 },
        .n_seqs = 2,
        .n_batch = 32,
        .n_cache = 256,
        .n_queue = 4,
        .state_memory = 8 << 20 };
    for (int i = 0; i < N_PROMPT; ++i) {
        prompt[i] = "Once upon a time there lived a king. "[i % 37];
    }
    struct state_file  at_20, at_40;
    struct scheduler * s = scheduler_new(&params, &err);
    struct result      expected = run(s, prompt, N_PROMPT, NULL);
    test_check(&t, expected.n_cached == 0, "the first prompt finds a stored state");
    run(s, prompt, 21, &at_20);
    run(s, prompt, 41, &at_40);
    test_check(&t, at_20.length == 20 && at_40.length == 40, "%d and %d tokens", (int) at_20.length,
            (int) at_40.length);
    scheduler_free(s);

    s = scheduler_new(&params, &err);
    add(s, &at_20, prompt, 4);
    add(s, &at_40, prompt, sizeof(float) * 100);
    check(s, prompt, expected); // both are dropped, and nothing is left of them
    const int64_t n = scheduler_get_stats(s).states.n_states;
    test_check(&t, n == 1, "%d states are stored; expected the one of the prompt", (int) n);
    expected.n_cached = N_PROMPT - 1;
    check(s, prompt, expected);
    scheduler_free(s);

    s = scheduler_new(&params, &err);
    add(s, &at_20, prompt, 0);
    add(s, &at_40, prompt, 4);
    expected.n_cached = 20; // the next longest that is whole
    check(s, prompt, expected);
    scheduler_free(s);

    state_file_free(&at_20);
    state_file_free(&at_40);
    lrnn_model_free(model);
    return test_end(&t, "scheduler");
}
