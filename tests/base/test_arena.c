/* Arenas: zeroed, aligned and apart, whatever the sizes; and the end of the process when a size cannot be. */
#include "tests/test.h"

#include "base/arena.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(arena_blocks, "blocks are zeroed, on 16 bytes, and do not overlap")
{
    enum { BLOCKS = 400 };
    struct arena *arena = arena_create();
    unsigned char *blocks[BLOCKS];
    /* (0 + 1 + ... + 399) times 7 bytes cross the 64 KiB chunks several times. */
    for (int i = 0; i < BLOCKS; i++) {
        size_t bytes = (size_t)i * 7;
        blocks[i] = arena_alloc(arena, bytes);
        ASSERT_INT((uintptr_t)blocks[i] % 16, 0);
        for (size_t k = 0; k < bytes; k++)
            ASSERT(blocks[i][k] == 0);
        memset(blocks[i], i, bytes);
    }
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < i * 7; k++)
            ASSERT(blocks[i][k] == (unsigned char)i);
    arena_free(arena);
}

TEST(arena_large, "a block larger than a chunk is given, and small ones after it too")
{
    struct arena *arena = arena_create();
    char *large = arena_array(arena, 1 << 10, 1 << 10), *small = arena_alloc(arena, 1);
    memset(large, 'x', 1 << 20);
    ASSERT(*small == 0);
    arena_free(arena);
    arena_free(NULL);
}

TEST(arena_text, "texts are copied and formatted into the arena")
{
    struct arena *arena = arena_create();
    char source[] = "layer";
    char *copy = arena_strdup(arena, source);
    source[0] = 'X';
    ASSERT_STR(copy, "layer");
    ASSERT_STR(arena_printf(arena, "%s %d qkv", copy, 3), "layer 3 qkv");
    ASSERT_STR(arena_printf(arena, "%s", ""), "");
    arena_free(arena);
}

TEST(arena_overflow, "a product that overflows ends the process")
{
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        arena_array(arena_create(), SIZE_MAX / 2, 3);
        _exit(0);
    }
    int status;
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
