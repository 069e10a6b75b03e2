/* The replica of PyTorch's caching allocator on sequences worked out by hand. Evidence for each: the function of
 * c10/cuda/CUDACachingAllocator.cpp (commit 001074d2) that decides, and the numbers it gives. */
#include "tests/test.h"

#include "planner/frameworks/allocator_settings.h"
#include "planner/frameworks/caching_allocator.h"

#include <string.h>

#define MIB (1LL << 20)

static struct caching_allocator *plain(int64_t capacity)
{
    struct caching_allocator_options options = {.capacity_bytes = capacity};
    return caching_allocator_create(&options);
}

static void expect(const struct caching_allocator *a, int64_t allocated, int64_t reserved)
{
    struct caching_allocator_figures f = caching_allocator_figures(a);
    ASSERT_INT(f.allocated_bytes, allocated);
    ASSERT_INT(f.reserved_bytes, reserved);
}

/* round_size(): at least 512, then multiples of 512. */
TEST(caching_allocator_rounds, "requests are rounded to 512 bytes, and counted so")
{
    struct caching_allocator *a = plain(0);
    int first = caching_allocator_take(a, 1, 0);
    expect(a, 512, 2 * MIB);
    caching_allocator_take(a, 513, 0);
    expect(a, 512 + 1024, 2 * MIB);
    ASSERT_INT(caching_allocator_figures(a).requested_bytes, 514);
    caching_allocator_release(a, first);
    expect(a, 1024, 2 * MIB);
    ASSERT_INT(caching_allocator_figures(a).max_allocated_bytes, 1536);
    caching_allocator_free(a);
}

/* roundup_power2_next_division(): 1,200 of 4 divisions between 1,024 and 2,048 is 1,280; but only from 4 x 512 on. */
TEST(caching_allocator_divisions, "roundup_power2_divisions rounds to a part of the power of two below")
{
    struct caching_allocator_options options = {.power2_divisions = {4, 4, 4, 4}};
    ASSERT_INT(caching_allocator_rounded(&options, 1200), 1536);
    ASSERT_INT(caching_allocator_rounded(&options, 5 * MIB), 5 * MIB);
    ASSERT_INT(caching_allocator_rounded(&options, 5 * MIB + 1), 6 * MIB);
    ASSERT_INT(caching_allocator_rounded(&options, 8 * MIB), 8 * MIB);
}

/* roundup_power2_divisions(): the list's index is the power of two below the request, in MiB. Below 256 MiB as the first says,
 * from 256 the same, from 512 two parts, from 1,024 on eight: ">" starts at the last size. */
TEST(caching_allocator_division_list, "roundup_power2_divisions may be a list by size")
{
    struct caching_allocator_options options = {.capacity_bytes = 7};
    struct error err = {0};
    ASSERT_OK(allocator_settings_read("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", &options, &err));
    ASSERT_INT(caching_allocator_rounded(&options, 100 * MIB + 1), 100 * MIB + 512);
    ASSERT_INT(caching_allocator_rounded(&options, 300 * MIB + 1), 300 * MIB + 512);
    ASSERT_INT(caching_allocator_rounded(&options, 600 * MIB), 768 * MIB);
    ASSERT_INT(caching_allocator_rounded(&options, 1030 * MIB), 1152 * MIB);
    ASSERT_INT(caching_allocator_rounded(&options, (4096 + 1) * MIB), (4096 + 512) * MIB);
    ASSERT_INT(options.capacity_bytes, 7);
}

TEST(caching_allocator_settings, "PYTORCH_CUDA_ALLOC_CONF is read as PyTorch reads it")
{
    struct caching_allocator_options o = {0};
    struct error err = {0};
    ASSERT_OK(allocator_settings_read(NULL, &o, &err));
    ASSERT(!o.expandable_segments && !o.max_split_bytes);
    ASSERT_OK(allocator_settings_read(
        "garbage_collection_threshold:0.6, max_split_size_mb:128,expandable_segments:True,"
        "pinned_use_background_threads:True,backend:native,max_non_split_rounding_mb:64,"
        "per_process_memory_fraction:0.9,roundup_power2_divisions:8",
        &o, &err));
    ASSERT(o.expandable_segments);
    ASSERT_INT(o.max_split_bytes, 128 * MIB);
    ASSERT_INT(o.max_rounding_bytes, 64 * MIB);
    ASSERT_NEAR(o.gc_threshold, 0.6, 1e-12);
    ASSERT_NEAR(o.memory_fraction, 0.9, 1e-12);
    ASSERT_INT(o.power2_divisions[0], 8);
    ASSERT_INT(o.power2_divisions[CACHING_ALLOCATOR_SIZES - 1], 8);
    ASSERT_OK(allocator_settings_read("expandable_segments:False", &o, &err)); /* nothing stays of before */
    ASSERT(!o.expandable_segments && !o.max_split_bytes && !o.power2_divisions[0]);
}

TEST(caching_allocator_settings_refused,
     "settings that PyTorch would stop at are refused by name, and change nothing")
{
    static const struct {
        const char *text, *says;
    } wrong[] = {{"max_split_size_mb:10", "20 or more"},
                 {"max_split_size_mb", "must be \":\""},
                 {"expandable_segments:true", "True or False"},
                 {"garbage_collection_threshold:2", "at most 1"},
                 {"garbage_collection_threshold:nan", "at most 1"},
                 {"roundup_power2_divisions:3", "power of 2"},
                 {"roundup_power2_divisions:[256:1", "ends in"},
                 {"roundup_power2_divisions:[300:1]", "powers of 2 in MB"},
                 {"roundup_power2_divisions:[", "powers of 2 in MB"},
                 {"backend:cudaMallocAsync", "backend:native"},
                 {"max_size:3", "max_size"},
                 {"expandable_segments:True max_split_size_mb:128", "commas"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct caching_allocator_options o = {.max_split_bytes = 77};
        struct error err = {0};
        ASSERT_INT(allocator_settings_read(wrong[i].text, &o, &err), -1);
        ASSERT_HAS(err.text, wrong[i].says);
        ASSERT_INT(o.max_split_bytes, 77);
    }
}

/* get_allocation_size(): 1 MiB is still small; 1 MiB + 1 comes from 20 MiB; 10 MiB and more are rounded to 2 MiB. */
TEST(caching_allocator_segments, "segments are 2 MiB, 20 MiB, or the request in steps of 2 MiB")
{
    struct caching_allocator *a = plain(0);
    caching_allocator_take(a, MIB, 0);
    expect(a, MIB, 2 * MIB);
    caching_allocator_take(a, MIB + 1, 0);
    expect(a, 2 * MIB + 512, 22 * MIB);
    caching_allocator_take(a, 10 * MIB - 512, 0); /* the rest of the 20 MiB holds it */
    expect(a, 12 * MIB, 22 * MIB);
    caching_allocator_take(a, 11 * MIB, 0); /* 12, of which 1 is no rest to split off: it counts as 12 */
    expect(a, 24 * MIB, 34 * MIB);
    caching_allocator_free(a);
}

/* should_split(): of the large pool only what leaves more than 1 MiB; then the caller has the whole block, and it counts. */
TEST(caching_allocator_splits, "a large block is split when more than 1 MiB is left over")
{
    struct caching_allocator *a = plain(0);
    caching_allocator_release(a, caching_allocator_take(a, 16 * MIB, 0));
    int block = caching_allocator_take(a, 15 * MIB, 0);
    expect(a, 16 * MIB, 16 * MIB);
    caching_allocator_release(a, block);
    caching_allocator_take(a, 15 * MIB - 512, 0);
    expect(a, 15 * MIB - 512, 16 * MIB);
    caching_allocator_take(a, MIB + 512, 0); /* exactly what is left */
    expect(a, 16 * MIB, 16 * MIB);
    caching_allocator_free(a);
}

/* get_free_block() is a lower bound on size: the smallest that is large enough. */
TEST(caching_allocator_best_fit, "the smallest free block that is large enough is taken")
{
    struct caching_allocator *a = plain(0);
    int large = caching_allocator_take(a, 40 * MIB, 0), small = caching_allocator_take(a, 30 * MIB, 0);
    caching_allocator_release(a, large);
    caching_allocator_release(a, small);
    caching_allocator_take(a, 29 * MIB, 0); /* from 30: all of it, 1 MiB is no rest */
    expect(a, 30 * MIB, 70 * MIB);
    caching_allocator_take(a, 40 * MIB, 0);
    expect(a, 70 * MIB, 70 * MIB);
    caching_allocator_free(a);
}

/* try_merge_blocks(): neighbours join, in either order of freeing; and the pool's pieces are never given to other segments. */
TEST_LOOP(caching_allocator_joins, "free neighbours of a segment become one block", 2)
{
    struct caching_allocator *a = plain(0);
    int blocks[2] = {caching_allocator_take(a, 8 * MIB, 0), caching_allocator_take(a, 8 * MIB, 0)};
    caching_allocator_release(a, blocks[_i]);
    caching_allocator_release(a, blocks[!_i]);
    expect(a, 0, 20 * MIB);
    caching_allocator_take(a, 20 * MIB, 0);
    expect(a, 20 * MIB, 20 * MIB);
    caching_allocator_free(a);
}

/* The fragmentation that people meet: each layer's temporary is cut up by smaller tensors that stay, so the next layer needs
 * a new one. 16 freed, 2 + 2 kept of it: 12 are left, not 16. */
TEST(caching_allocator_fragments,
     "small tensors that stay in a freed block make the next large one a new segment")
{
    struct caching_allocator *a = plain(0);
    for (int layer = 0; layer < 3; layer++) {
        caching_allocator_release(a, caching_allocator_take(a, 16 * MIB, 0));
        caching_allocator_take(a, 2 * MIB, 0);
        caching_allocator_take(a, 2 * MIB, 0);
    }
    /* layer 2: 12 are too few for 16, and the smallest block that holds 2 is the 12; layer 3: 16 is whole again. */
    expect(a, 12 * MIB, 32 * MIB);
    caching_allocator_free(a);
}

/* get_free_block() compares streams: a block is only reused where it was taken. */
TEST(caching_allocator_streams, "what one stream freed is not given to another")
{
    struct caching_allocator *a = plain(0);
    caching_allocator_release(a, caching_allocator_take(a, 64 * MIB, 0));
    int other = caching_allocator_take(a, 64 * MIB, 1);
    expect(a, 64 * MIB, 128 * MIB);
    caching_allocator_release(a, other);
    caching_allocator_take(a, 64 * MIB, 1);
    expect(a, 64 * MIB, 128 * MIB);
    caching_allocator_free(a);
}

/* malloc(): after cudaMalloc fails, whole free segments go back (release_cached_blocks()), and it is tried once more. A
 * segment of which a part is in use stays. */
TEST(caching_allocator_retries, "when memory is short, segments that are wholly free are given back")
{
    struct caching_allocator *a = plain(100 * MIB);
    int whole = caching_allocator_take(a, 40 * MIB, 0), partly = caching_allocator_take(a, 40 * MIB, 0);
    caching_allocator_release(a, whole);
    caching_allocator_release(a, partly);
    caching_allocator_take(a, 10 * MIB, 0);
    caching_allocator_take(a, 50 * MIB, 0); /* 80 + 50 > 100: one of the 40 goes back */
    expect(a, 60 * MIB, 90 * MIB);
    ASSERT_INT(caching_allocator_figures(a).retries, 1);
    ASSERT_INT(caching_allocator_figures(a).max_reserved_bytes, 90 * MIB);
    ASSERT_INT(caching_allocator_take(a, 40 * MIB, 0), -1); /* 30 are free, in a split block */
    ASSERT(caching_allocator_figures(a).out_of_memory);
    ASSERT_INT(caching_allocator_figures(a).refused_bytes, 40 * MIB);
    caching_allocator_free(a);
}

/* get_free_block() with max_split_size: small requests do not get oversize blocks; large ones only those that are less than
 * 20 MiB too large, whole. */
TEST(caching_allocator_max_split, "max_split_size_mb keeps large blocks whole")
{
    struct caching_allocator_options options = {.max_split_bytes = 32 * MIB};
    struct caching_allocator *a = caching_allocator_create(&options);
    caching_allocator_release(a, caching_allocator_take(a, 64 * MIB, 0));
    caching_allocator_take(a, 30 * MIB, 0);
    expect(a, 30 * MIB, 94 * MIB);
    int near = caching_allocator_take(a, 45 * MIB, 0);
    expect(a, 94 * MIB, 94 * MIB); /* has all 64 */
    caching_allocator_release(a, near);
    caching_allocator_take(a, 44 * MIB, 0);
    expect(a, 74 * MIB, 138 * MIB); /* 64 is 20 too large */
    caching_allocator_free(a);
}

/* get_free_block() with max_non_split_rounding: how much too large an oversize block may be. 64 for 40 with 32: taken whole. */
TEST(caching_allocator_rounding, "max_non_split_rounding_mb lets larger blocks be taken whole")
{
    struct caching_allocator_options options = {.max_split_bytes = 32 * MIB, .max_rounding_bytes = 32 * MIB};
    struct caching_allocator *a = caching_allocator_create(&options);
    caching_allocator_release(a, caching_allocator_take(a, 64 * MIB, 0));
    caching_allocator_take(a, 40 * MIB, 0);
    expect(a, 64 * MIB, 64 * MIB);
    caching_allocator_free(a);
}

/* release_available_cached_blocks(): of blocks above max_split_size the smallest that is large enough goes, and no other. */
TEST(caching_allocator_oversize,
     "with max_split_size_mb one oversize block goes before all of the cache does")
{
    struct caching_allocator_options options = {.capacity_bytes = 200 * MIB, .max_split_bytes = 32 * MIB};
    struct caching_allocator *a = caching_allocator_create(&options);
    int first = caching_allocator_take(a, 100 * MIB, 0), second = caching_allocator_take(a, 60 * MIB, 0);
    caching_allocator_release(a, first);
    caching_allocator_release(a, second);
    caching_allocator_take(a, 50 * MIB,
                           1); /* of another stream: 160 + 50 are too much; its list is empty, so all goes */
    expect(a, 50 * MIB, 50 * MIB);
    int third = caching_allocator_take(a, 90 * MIB, 0), fourth = caching_allocator_take(a, 40 * MIB, 0);
    caching_allocator_release(a, third);
    caching_allocator_release(a, fourth);
    caching_allocator_take(a, 64 * MIB,
                           0); /* 180 + 64: 90 is 20 or more too large to be used, and goes; 40 stays */
    expect(a, 114 * MIB, 154 * MIB);
    ASSERT_INT(caching_allocator_figures(a).retries, 2);
    caching_allocator_free(a);
}

/* alloc_block(): more than the fraction of the card is no memory, as cudaMalloc's failure is. */
TEST(caching_allocator_fraction, "per_process_memory_fraction is a smaller card")
{
    struct caching_allocator_options options = {.capacity_bytes = 100 * MIB, .memory_fraction = 0.5};
    struct caching_allocator *a = caching_allocator_create(&options);
    ASSERT(caching_allocator_take(a, 40 * MIB, 0) >= 0);
    ASSERT_INT(caching_allocator_take(a, 20 * MIB, 0), -1);
    ASSERT(caching_allocator_figures(a).out_of_memory);
    caching_allocator_free(a);
}

/* malloc() collects garbage only where a fraction is set. */
TEST(caching_allocator_no_garbage,
     "garbage_collection_threshold does nothing unless a fraction of the card is set")
{
    struct caching_allocator_options options = {.capacity_bytes = 200 * MIB, .gc_threshold = 0.1};
    struct caching_allocator *a = caching_allocator_create(&options);
    caching_allocator_release(a, caching_allocator_take(a, 40 * MIB, 0));
    caching_allocator_take(a, 42 * MIB, 0);
    caching_allocator_take(a, 44 * MIB, 0);
    expect(a, 86 * MIB, 126 * MIB);
    caching_allocator_free(a);
}

/* garbage_collect_cached_blocks(): above the threshold, free segments older than the average go before new ones are taken. */
TEST(caching_allocator_garbage, "garbage_collection_threshold gives back what has long been unused")
{
    struct caching_allocator_options options = {
        .capacity_bytes = 100 * MIB, .memory_fraction = 1, .gc_threshold = 0.5};
    struct caching_allocator *a = caching_allocator_create(&options);
    int old = caching_allocator_take(a, 40 * MIB, 0);
    caching_allocator_release(a, old);
    caching_allocator_take(a, 42 * MIB, 0); /* 40 of 100 reserved: below the threshold */
    expect(a, 42 * MIB, 82 * MIB);
    caching_allocator_take(a, 44 * MIB, 0);
    expect(a, 86 * MIB, 86 * MIB);
    ASSERT_INT(caching_allocator_figures(a).retries, 0);
    caching_allocator_free(a);
}

/* try_allocate_expandable_block(): one segment that grows by pages of 20 MiB (2 MiB for small requests), so the temporaries
 * of the test above need no second one. */
TEST(caching_allocator_expands,
     "expandable segments grow at their end, and do not fragment as separate ones do")
{
    struct caching_allocator_options options = {.expandable_segments = true};
    struct caching_allocator *a = caching_allocator_create(&options);
    for (int layer = 0; layer < 3; layer++) {
        caching_allocator_release(a, caching_allocator_take(a, 16 * MIB, 0));
        caching_allocator_take(a, 2 * MIB, 0);
        caching_allocator_take(a, 2 * MIB, 0);
    }
    /* 20; then 16 at 4, to 20; then 16 at 8: a second page; 12 are kept. */
    expect(a, 12 * MIB, 40 * MIB);
    caching_allocator_take(a, 512, 0);
    expect(a, 12 * MIB + 512, 42 * MIB);
    caching_allocator_empty(a); /* the second page is free, and goes */
    expect(a, 12 * MIB + 512, 22 * MIB);
    caching_allocator_free(a);
}

/* get_free_block(): the block at the end of an expandable segment counts as what it can grow to, so that a larger hole is
 * filled first. 44 and 20 are taken (80 mapped, 16 left at the end), the 44 is freed: 12 go to the hole, though 16 is nearer. */
TEST(caching_allocator_expands_last, "the end of an expandable segment is used when no hole is large enough")
{
    struct caching_allocator_options options = {.expandable_segments = true};
    struct caching_allocator *a = caching_allocator_create(&options);
    int hole = caching_allocator_take(a, 44 * MIB, 0);
    caching_allocator_take(a, 20 * MIB, 0);
    expect(a, 64 * MIB, 80 * MIB);
    caching_allocator_release(a, hole);
    caching_allocator_take(a, 12 * MIB, 0); /* 32 are left of the hole */
    caching_allocator_take(a, 40 * MIB, 0); /* neither 32 nor 16: the end grows by 24, two pages */
    expect(a, 72 * MIB, 120 * MIB);
    caching_allocator_take(a, 16 * MIB, 0); /* the hole again, to 16 */
    caching_allocator_take(a, 16 * MIB, 0);
    expect(a, 104 * MIB, 120 * MIB);
    caching_allocator_take(a, 16 * MIB, 0); /* now the end, which has 16 */
    expect(a, 120 * MIB, 120 * MIB);
    caching_allocator_free(a);
}

/* Streams and pools have expandable segments of their own. */
TEST(caching_allocator_expands_streams, "each stream grows its own expandable segment")
{
    struct caching_allocator_options options = {.expandable_segments = true};
    struct caching_allocator *a = caching_allocator_create(&options);
    caching_allocator_release(a, caching_allocator_take(a, 30 * MIB, 0));
    caching_allocator_take(a, 30 * MIB, 1);
    expect(a, 30 * MIB, 80 * MIB);
    caching_allocator_take(a, 10 * MIB, 0);
    caching_allocator_take(a, 10 * MIB, 1);
    expect(a, 50 * MIB, 80 * MIB);
    caching_allocator_free(a);
}

/* Whatever is taken and freed, blocks do not overlap or get lost: at the end all is free and can be given back. */
TEST_LOOP(caching_allocator_random, "random sequences end with nothing in use and nothing reserved", 6)
{
    struct caching_allocator_options options = {.capacity_bytes = 4096 * MIB,
                                                .expandable_segments = _i & 1,
                                                .max_split_bytes = _i & 2 ? 64 * MIB : 0,
                                                .memory_fraction = 1,
                                                .gc_threshold = _i & 4 ? 0.5 : 0};
    struct caching_allocator *a = caching_allocator_create(&options);
    int live[200], count = 0;
    unsigned seed = 7 + (unsigned)_i;
    int64_t requested = 0;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525 + 1013904223;
        if (count == 200 || (count && seed >> 31)) {
            int which = (int)((seed >> 8) % (unsigned)count);
            caching_allocator_release(a, live[which]);
            live[which] = live[--count];
            continue;
        }
        int64_t bytes = 1 + (int64_t)(seed >> 8) % (1LL << (8 + seed % 18));
        int block = caching_allocator_take(a, bytes, (int)(seed >> 4) % 2);
        ASSERT(block >= 0);
        live[count++] = block;
        struct caching_allocator_figures f = caching_allocator_figures(a);
        ASSERT(f.allocated_bytes >= f.requested_bytes && f.reserved_bytes >= f.allocated_bytes);
        requested = f.requested_bytes;
    }
    ASSERT(requested > 0);
    while (count)
        caching_allocator_release(a, live[--count]);
    ASSERT_INT(caching_allocator_figures(a).allocated_bytes, 0);
    caching_allocator_empty(a);
    ASSERT_INT(caching_allocator_figures(a).reserved_bytes, 0);
    caching_allocator_free(a);
}
