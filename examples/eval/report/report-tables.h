#pragma once

// The tables of a panel, with one column per model.

#include "eval/report/text-table.h"
#include "eval/report/report-model.h"

enum { REPORT_MAX_TABLES = 8 };

// Explains the marks in cells.
extern const char REPORT_LEGEND[];

// Fills `tables` and returns their number; −1: out of memory.
int report_make_tables(const struct report * r, const struct report_panel * panel,
        struct arena * arena, struct table * tables[REPORT_MAX_TABLES]);

// Describes data and protocol of a panel in one paragraph. Returns text.
const char * report_describe(const struct report_panel * panel, char * text, size_t size);
