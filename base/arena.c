/* An arena is a list of chunks; blocks are cut from the newest one and never given back alone. A block too large for a
 * chunk gets one of its own. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGN = 16 };

struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(ALIGN) unsigned char bytes[];
};

struct arena {
    struct chunk *chunks; /* the newest first */
};

/* Ends as a crash and not as a refusal: the core shows who asked for so much. */
static void out_of_host_memory(size_t bytes)
{
    fprintf(stderr, "memplan: the host has no %zu bytes left; close other programs or use a smaller model\n",
            bytes);
    abort();
}

void *host_alloc(size_t bytes)
{
    void *block = calloc(1, bytes ? bytes : 1);
    if (!block)
        out_of_host_memory(bytes);
    return block;
}

void *host_resize(void *block, size_t bytes)
{
    void *moved = realloc(block, bytes ? bytes : 1);
    if (!moved)
        out_of_host_memory(bytes);
    return moved;
}

struct arena *arena_create(void)
{
    return host_alloc(sizeof(struct arena));
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    for (struct chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(arena);
}

static struct chunk *chunk_add(struct arena *arena, size_t bytes)
{
    size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct chunk *chunk = host_alloc(sizeof *chunk + size);
    chunk->size = size;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    return chunk;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        out_of_host_memory(bytes);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    struct chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < bytes)
        chunk = chunk_add(arena, bytes);
    void *block = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return block;
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 2 / size)
        out_of_host_memory(SIZE_MAX);
    return arena_alloc(arena, count * size);
}

char *arena_strdup(struct arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(arena_alloc(arena, bytes), text, bytes);
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}
