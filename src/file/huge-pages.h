#pragma once

// Huge pages for a mapped file, and for states. A page of 4 KiB needs an entry of the translation
// cache for every 4 KiB that are read, and the pages of a file are scattered in memory. Anonymous
// memory can have pages of 2 MiB, which are read faster.

#include <stdbool.h>
#include <stddef.h>

enum { HUGE_PAGE = 2 << 20 };

// True if the system has huge pages, and this many bytes of them would take at most half of the
// memory that is available.
bool huge_pages_fit(size_t size);

// Replaces the memory of a read-only mapping by huge pages with the same content, at the same
// addresses; `data` and `size` are multiples of HUGE_PAGE. Other threads may read meanwhile. False:
// out of memory, nothing has changed.
bool huge_pages_replace(void * data, size_t size);

// Asks for huge pages in memory that has not been written yet, as far as they fit between its ends.
void huge_pages_advise(void * data, size_t size);
