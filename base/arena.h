/* Host memory that is built together and freed together: one arena per model, program, plan or report.
 *
 * Host exhaustion is not an error that callers handle: arena_alloc() ends the process with one line, because by then
 * no message could be built either. Device memory is never taken here; see device/device.h. */
#ifndef MEMPLAN_BASE_ARENA_H
#define MEMPLAN_BASE_ARENA_H

#include <stddef.h>

struct arena;

struct arena *arena_create(void);
void arena_free(struct arena *arena); /* NULL is fine */

/* Zeroed, 16-byte aligned, owned by the arena. */
void *arena_alloc(struct arena *arena, size_t bytes);
/* `count` zeroed objects of `size` bytes; a product that overflows ends the process. */
void *arena_array(struct arena *arena, size_t count, size_t size);
char *arena_strdup(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* malloc/realloc/calloc that end the process instead of returning NULL. */
void *host_alloc(size_t bytes); /* zeroed */
void *host_resize(void *block, size_t bytes);

#endif
