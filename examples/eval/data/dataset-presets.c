#include "eval/data/dataset.h"

#include <stdio.h>
#include <string.h>

// Templates of the papers on length extrapolation of these models: automl/DeltaProduct at 38cd4e4b,
// language_modeling/custom_evals.
static const struct dataset_preset PRESETS[] = {
    // name, templates, where, source, about
    { "codeparrot", "{content}", NULL, NULL,
            "CodeParrot (codeparrot-clean, codeparrot-*-near-dedup): Python files" },
    { "math-hard", "Problem: {problem}, Solution: {solution}", "level=Level 5", "type",
            "MATH-Hard (lighteval/MATH-Hard, hendrycks MATH): level 5 problems with solutions" },
    { "triviaqa",
            "Question: {query}, Answer: {answer}\n"
            "Question: {question}, Answer: {answer.value}\n"
            "Question: {Question}, Answer: {Answer.Value}",
            NULL, NULL,
            "TriviaQA (sentence-transformers/trivia-qa, mandarjoshi/trivia_qa, the original): "
            "questions with answers" },
    { "slimpajama", "{text}", NULL, "meta.redpajama_set_name",
            "SlimPajama (SlimPajama-627B, SlimPajama-6B): web pages, books, code" },
    { "openthoughts", "Problem: {problem}, Solution: {solution}", NULL, NULL,
            "OpenThoughts (open-r1/OpenThoughts-114k-math): math problems with long solutions" },
    { "gsm8k", "Problem: {question}, Solution: {answer}", NULL, NULL,
            "GSM8K (openai/gsm8k): grade school word problems with solutions" },
    { "text", "{text}", NULL, NULL,
            "plain text, one document per file; or JSON records with a field text" },
};

const struct dataset_preset * dataset_preset_at(int i) {
    return i >= 0 && (size_t) i < sizeof(PRESETS) / sizeof(PRESETS[0]) ? &PRESETS[i] : NULL;
}

const struct dataset_preset * dataset_preset_find(const char * name) {
    for (int i = 0; dataset_preset_at(i) != NULL; ++i) {
        if (strcmp(PRESETS[i].name, name) == 0) {
            return &PRESETS[i];
        }
    }
    return NULL;
}

void dataset_title(const char * preset, const char * files, char title[DATASET_TITLE_SIZE]) {
    const bool is_file = strcmp(preset, "text") == 0 && strchr(files, '\t') == NULL &&
                         strcmp(files, "") != 0 && strcmp(files, "-") != 0;
    snprintf(title, DATASET_TITLE_SIZE, "%s", is_file ? files : preset);
    for (bool packed = is_file; packed;) {
        char * dot = strrchr(title + 1, '.');
        packed     = dot != NULL && (strcmp(dot, ".gz") == 0 || strcmp(dot, ".zst") == 0);
        if (dot != NULL) {
            *dot = '\0';
        }
    }
}
