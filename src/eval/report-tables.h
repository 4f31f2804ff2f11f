#pragma once

// The tables of a panel: models side by side, lengths and buckets below each other.

#include "eval/text-table.h"
#include "eval/report-runs.h"

enum { REPORT_MAX_TABLES = 8 };

// Fills `tables` in the order in which they are shown and returns how many there are; −1: out of
// memory.
int report_make_tables(const struct report * r, const struct report_panel * panel,
        struct arena * arena, struct table * tables[REPORT_MAX_TABLES]);

// "packed, windows of 32,768 tokens, …": what was measured, in one paragraph.
const char * report_describe(const struct report_panel * panel, char * text, size_t size);
