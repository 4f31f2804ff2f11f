// The built-in chat formats, and how their Jinja sources are recognized in files that have no
// compiled format. tests/data/chat has a template for each.

#include "lrnn.h"
#include "text/chat.h"

#include <string.h>

// clang-format off
#define CHATML_TURNS \
    "\"begin_system\": \"<|im_start|>system\\n\", " \
    "\"system_user\": \"<|im_end|>\\n<|im_start|>user\\n\", " \
    "\"user_assistant\": \"<|im_end|>\\n<|im_start|>assistant\\n\", " \
    "\"assistant_user\": \"<|im_end|>\\n<|im_start|>user\\n\", " \
    "\"special\": [\"<|im_start|>\", \"<|im_end|>\"], \"stop\": [\"<|endoftext|>\"], "

#define CHATML_GENERATION "\"user_generation\": \"<|im_end|>\\n<|im_start|>assistant\\n\""

// A template is recognized if its source has all of `with` and none of `without`.
static const struct named_format {
    const char * name;
    const char * json;
    const char * with[4];
    const char * without[6];
} FORMATS[] = {
    { "chatml",
      "{\"version\": 1, " CHATML_TURNS
      "\"begin_user\": \"<|im_start|>user\\n\", " CHATML_GENERATION "}",
      { "<|im_start|>", "<|im_end|>" },
      { "tools", "think", "functions", "You are", "trim", "strip" } },
    { "qwen3.5",
      "{\"version\": 1, " CHATML_TURNS
      "\"begin_user\": \"<|im_start|>user\\n\", "
      "\"user_generation\": \"<|im_end|>\\n<|im_start|>assistant\\n<think>\\n\", "
      "\"user_generation_no_thinking\": "
      "\"<|im_end|>\\n<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n\", "
      "\"trim\": [\"system\", \"user\", \"assistant\"], "
      "\"thinking\": [\"<think>\", \"</think>\"], \"drop_thinking\": \"\\n\"}",
      { "<|im_start|>", "enable_thinking is false", "<|vision_start|>", "trim" },
      { "You are" } },
    { "olmo-3",
      "{\"version\": 1, " CHATML_TURNS
      "\"begin_user\": \"<|im_start|>system\\nYou are a helpful function-calling AI assistant. "
      "You do not currently have access to any functions. <functions></functions><|im_end|>\\n"
      "<|im_start|>user\\n\", " CHATML_GENERATION "}",
      { "<|im_start|>system\\nYou are a helpful function-calling AI assistant. '",
        "'You do not currently have access to any functions. <functions></functions><|im_end|>\\n'",
        "eos_token" },
      { "think", "trim" } },
    { "olmo-2",
      "{\"version\": 1, \"begin_system\": \"<|endoftext|><|system|>\\n\", "
      "\"system_user\": \"\\n<|user|>\\n\", \"begin_user\": \"<|endoftext|><|user|>\\n\", "
      "\"user_assistant\": \"\\n<|assistant|>\\n\", "
      "\"assistant_user\": \"<|endoftext|>\\n<|user|>\\n\", "
      "\"user_generation\": \"\\n<|assistant|>\\n\", \"special\": [\"<|endoftext|>\"]}",
      { "<|assistant|>\\n", "bos_token", "eos_token", "|>\\n'" },
      { "tools", "think", "trim", "strip", "<|end|>", "You are" } },
    { "llama-3",
      "{\"version\": 1, "
      "\"begin_system\": \"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\\n\\n\", "
      "\"system_user\": \"<|eot_id|><|start_header_id|>user<|end_header_id|>\\n\\n\", "
      "\"begin_user\": \"<|begin_of_text|><|start_header_id|>user<|end_header_id|>\\n\\n\", "
      "\"user_assistant\": \"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\\n\\n\", "
      "\"assistant_user\": \"<|eot_id|><|start_header_id|>user<|end_header_id|>\\n\\n\", "
      "\"user_generation\": \"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\\n\\n\", "
      "\"trim\": [\"system\", \"user\", \"assistant\"], \"special\": [\"<|begin_of_text|>\", "
      "\"<|start_header_id|>\", \"<|end_header_id|>\", \"<|eot_id|>\"], "
      "\"stop\": [\"<|end_of_text|>\", \"<|eom_id|>\"]}",
      { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "trim" },
      { "tools", "think", "Cutting Knowledge", "You are", "strftime" } },
    { "rwkv-world",
      "{\"version\": 1, \"begin_system\": \"<s>System: \", \"system_user\": \"\\n\\nUser: \", "
      "\"begin_user\": \"<s>User: \", \"user_assistant\": \"\\n\\nAssistant: \", "
      "\"assistant_user\": \"\\n\\nUser: \", \"user_generation\": \"\\n\\nAssistant:\", "
      "\"user_generation_no_thinking\": \"\\n\\nAssistant: <think>\\n</think>\", "
      "\"trim\": [\"user\", \"assistant\"], \"omit_empty_system\": true, "
      "\"thinking\": [\"<think>\", \"</think>\"], \"drop_thinking\": \" \", "
      "\"special\": [\"<s>\"], \"stop\": [\"\\n\\n\"]}",
      { "'User: ' +", "'Assistant: ' +", "'Assistant:'", "trim" },
      { "tools" } },
};
// clang-format on

enum { N_FORMATS = sizeof(FORMATS) / sizeof(FORMATS[0]) };

const char * lrnn_chat_format(int32_t i) {
    return i >= 0 && i < N_FORMATS ? FORMATS[i].name : NULL;
}

const char * chat_format_named(const char * name) {
    for (int i = 0; i < N_FORMATS; ++i) {
        if (strcmp(FORMATS[i].name, name) == 0) {
            return FORMATS[i].json;
        }
    }
    return NULL;
}

static bool contains(struct slice text, const char * word) {
    const size_t n = strlen(word);
    for (size_t at = 0; at + n <= text.size; ++at) {
        if (memcmp(text.data + at, word, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool matches(const struct named_format * f, struct slice jinja) {
    for (size_t i = 0; i < sizeof(f->with) / sizeof(f->with[0]) && f->with[i] != NULL; ++i) {
        if (!contains(jinja, f->with[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < sizeof(f->without) / sizeof(f->without[0]) && f->without[i] != NULL;
            ++i) {
        if (contains(jinja, f->without[i])) {
            return false;
        }
    }
    return true;
}

const char * chat_format_recognize(struct slice jinja) {
    for (int i = 0; i < N_FORMATS; ++i) {
        // llama.cpp's converter writes the name alone for RWKV
        if (slice_is(jinja, FORMATS[i].name) || matches(&FORMATS[i], jinja)) {
            return FORMATS[i].name;
        }
    }
    return NULL;
}
