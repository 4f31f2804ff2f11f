#pragma once

// The first bytes of files that must not be mistaken for others.

#define STATE_FILE_MAGIC "lrnn-seq" // src/generate/state-file.c
