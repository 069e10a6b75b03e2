/* Layers and ranks that say the same are named once: "0-3, 8, 10-11". */
#ifndef MEMPLAN_REPORTS_RANGES_H
#define MEMPLAN_REPORTS_RANGES_H

#include "base/arena.h"

#include <stdint.h>

/* `numbers` rise. After three stretches the rest is counted: "0, 2, 4 and 9 more". */
const char *ranges_print(struct arena *arena, const int64_t *numbers, int64_t count);
/* "0-7", of so many from `first` on. */
const char *ranges_span(struct arena *arena, int64_t first, int64_t count);
/* With the thing before it, in the right number: "layer 4", "layers 0-3". */
const char *ranges_name(struct arena *arena, const char *thing, const int64_t *numbers, int64_t count);

#endif
