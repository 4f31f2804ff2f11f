#include "eval/dataset.h"

#include <string.h>

// Templates as the papers on length extrapolation of these models have them: automl/DeltaProduct at
// 38cd4e4b, language_modeling/custom_evals.
static const struct dataset_preset PRESETS[] = {
    {
            .name      = "codeparrot",
            .templates = "{content}",
            .about     = "CodeParrot (codeparrot-clean, codeparrot-*-near-dedup): Python files",
    },
    {
            .name      = "math-hard",
            .templates = "Problem: {problem}, Solution: {solution}",
            .where     = "level=Level 5",
            .source    = "type",
            .about =
                    "MATH-Hard (lighteval/MATH-Hard, or all of hendrycks MATH): problems of level 5 with solutions",
    },
    {
            .name      = "triviaqa",
            .templates = "Question: {query}, Answer: {answer}\n"
                         "Question: {question}, Answer: {answer.value}\n"
                         "Question: {Question}, Answer: {Answer.Value}",
            .about =
                    "TriviaQA (sentence-transformers/trivia-qa, mandarjoshi/trivia_qa, the original): questions with answers",
    },
    {
            .name      = "slimpajama",
            .templates = "{text}",
            .source    = "meta.redpajama_set_name",
            .about =
                    "SlimPajama (SlimPajama-627B, SlimPajama-6B): documents of the web, books, code",
    },
    {
            .name      = "openthoughts",
            .templates = "Problem: {problem}, Solution: {solution}",
            .about =
                    "OpenThoughts (open-r1/OpenThoughts-114k-math): problems of mathematics with long solutions",
    },
    {
            .name      = "gsm8k",
            .templates = "Problem: {question}, Solution: {answer}",
            .about     = "GSM8K (openai/gsm8k): word problems of grade school with solutions",
    },
    {
            .name      = "text",
            .templates = "{text}",
            .about     = "plain text, a document a file; or JSON records with a field text",
    },
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
