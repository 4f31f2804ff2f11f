// Included before every file of xgrammar: what it allocates goes through the operators of struct
// grammar_memory in grammar.cpp, which can refuse it. The names are theirs as C++ mangles them.

#pragma once

#include <cstddef>

void * operator new(std::size_t size) __asm__("_ZN14grammar_memorynwEm");
void operator delete(void * p, std::size_t size) noexcept __asm__("_ZN14grammar_memorydlEPvm");
