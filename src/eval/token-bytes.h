#pragma once

// How many bytes of its document each token stands for. They add up to the size of the document,
// whatever the tokenizer does to the text, so that bits per byte are bits per byte of the data.

#include "lrnn.h"

struct lrnn_tokenizer;

// The tokenizer of a model, NULL: it has none.
const struct lrnn_tokenizer * token_bytes_tokenizer(const struct lrnn_model * model);

// Bytes of the tokens of a text, which is valid UTF-8 and was encoded without special tokens.
// - SentencePiece: the space put before the text counts nothing; U+2581, which it takes for a
//   space, counts the three bytes it has
// - a tokenizer that normalises (NFC): what was normalised counts as long as it was in the text
// - symbols: white space counts with the symbol after it, at the end with the one before
// A text without tokens (only white space between symbols) has no bytes.
bool token_bytes(const struct lrnn_tokenizer * tok, const char * text, size_t size,
        const int32_t * tokens, int64_t n_tokens, uint16_t * bytes, char * err, size_t err_size);
