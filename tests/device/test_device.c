/* The ledger against sums worked out by hand, the capacity against its last byte, and freed memory against what the kernel
 * says of this process. */
#include "tests/test.h"

#include "device/backend.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t MiB = 1 << 20;

static struct memory_tag tag_of(enum role role, const char *name)
{
    return (struct memory_tag){-1, role, name};
}

static struct device *open_cpu(int64_t capacity, bool poison)
{
    struct device *device = NULL;
    struct error err = {0};
    ASSERT_OK(device_open_cpu(capacity, poison, &device, &err));
    return device;
}

static void *must_alloc(struct device *device, int64_t bytes, enum role role)
{
    struct error err = {0};
    void *memory = device_alloc(device, bytes, tag_of(role, role_name(role)), &err);
    ASSERT_MSG(memory != NULL, "%s", err.text);
    ASSERT((uintptr_t)memory % DEVICE_ALIGN == 0);
    return memory;
}

static struct device_arena *must_open_arena(struct device *device, int64_t bytes)
{
    struct error err = {0};
    struct device_arena *arena = NULL;
    ASSERT_OK(device_arena_open(device, bytes, &arena, &err));
    return arena;
}

TEST(device_opens_without_a_limit, "a CPU device without a capacity holds nothing")
{
    struct device *device = open_cpu(0, false);
    ASSERT_STR(device_name(device), "cpu");
    ASSERT_INT(device_usage(device).live_bytes, 0);
    ASSERT_INT(device_usage(device).reserved_bytes, 0);
    device_close(device);
    device_close(NULL);
}

TEST(device_ledger, "live, peak and reserved bytes follow a sequence worked out by hand")
{
    /*  step                live   peak   of which parameter / activation / gradient
     *  +1000 parameter     1000   1000   1000 /   0 /   0
     *  +500  activation    1500   1500   1000 / 500 /   0
     *  -500  activation    1000   1500
     *  +300  gradient      1300   1500
     *  +200  activation    1500   1500   1000 / 500 /   0: reached again, but not exceeded
     *  +1    gradient      1501   1501   1000 / 200 / 301 */
    struct device *device = open_cpu(0, false);
    must_alloc(device, 1000, ROLE_PARAMETER);
    void *activation = must_alloc(device, 500, ROLE_ACTIVATION);
    device_free(device, activation);
    must_alloc(device, 300, ROLE_GRADIENT);
    must_alloc(device, 200, ROLE_ACTIVATION);
    struct device_usage usage = device_usage(device);
    ASSERT_INT(usage.live_bytes, 1500);
    ASSERT_INT(usage.peak_bytes, 1500);
    ASSERT_INT(usage.at_peak[ROLE_ACTIVATION], 500);
    ASSERT_INT(usage.at_peak[ROLE_GRADIENT], 0);
    ASSERT_INT(usage.live[ROLE_GRADIENT], 300);

    must_alloc(device, 1, ROLE_GRADIENT);
    usage = device_usage(device);
    ASSERT_INT(usage.live_bytes, 1501);
    ASSERT_INT(usage.peak_bytes, 1501);
    ASSERT_INT(usage.at_peak[ROLE_PARAMETER], 1000);
    ASSERT_INT(usage.at_peak[ROLE_ACTIVATION], 200);
    ASSERT_INT(usage.at_peak[ROLE_GRADIENT], 301);
    ASSERT_INT(usage.reserved_bytes, 1501);
    ASSERT_INT(usage.reserved_peak_bytes, 1501);
    ASSERT_INT(usage.allocations, 5);
    device_close(device);
}

TEST(device_watches_peaks, "a peak of its own begins where it is asked for, and the others stay")
{
    struct device *device = open_cpu(0, false);
    void *large = must_alloc(device, 4096, ROLE_WORKSPACE);
    must_alloc(device, 100, ROLE_INPUT);
    device_free(device, large);
    ASSERT_INT(device_usage(device).peak_bytes, 4196);
    device_watch_peak(device);
    device_free(device, must_alloc(device, 50, ROLE_INPUT));
    ASSERT_INT(device_usage(device).recent_peak_bytes, 150);
    ASSERT_INT(device_usage(device).peak_bytes, 4196);
    device_watch_peak(device);
    ASSERT_INT(device_usage(device).recent_peak_bytes, 100);
    device_close(device);
}

TEST(device_frees_in_any_order,
     "ten thousand blocks are freed in random order and the ledger returns to zero")
{
    enum { BLOCKS = 10000 };
    static void *blocks[BLOCKS];
    struct device *device = open_cpu(0, false);
    int64_t expected = 0;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = must_alloc(device, 1 + i % 97, (enum role)(i % ROLE_COUNT));
        expected += 1 + i % 97;
    }
    ASSERT_INT(device_usage(device).live_bytes, expected);
    srand(1);
    for (int left = BLOCKS; left > 0; left--) {
        int pick = rand() % left;
        device_free(device, blocks[pick]);
        blocks[pick] = blocks[left - 1];
    }
    struct device_usage usage = device_usage(device);
    ASSERT_INT(usage.live_bytes, 0);
    ASSERT_INT(usage.reserved_bytes, 0);
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_INT(usage.live[role], 0);
    device_free(device, NULL);
    device_close(device);
}

TEST(device_capacity_exact, "a capacity may be met to the byte; one byte more is refused and nothing changes")
{
    struct device *device = open_cpu(2 * MiB, false);
    void *first = must_alloc(device, 2 * MiB - 100, ROLE_PARAMETER);
    must_alloc(device, 100, ROLE_ACTIVATION);
    struct error err = {0};
    ASSERT(!device_alloc(device, 1, tag_of(ROLE_INPUT, "tokens"), &err));
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_INT(device_usage(device).live_bytes, 2 * MiB);
    ASSERT_INT(device_usage(device).live[ROLE_INPUT], 0);
    ASSERT_INT(device_usage(device).allocations, 2);

    device_free(device, first);
    must_alloc(device, 2 * MiB - 100, ROLE_PARAMETER);
    device_close(device);
}

TEST(device_out_of_memory_message,
     "the message names device, tensor, bytes, capacity, what is left and who holds the rest")
{
    /* 300 MiB: 100 parameter + 150 activation + an arena of 46 leave 4; 12 are asked for, so 8 are missing. */
    struct device *device = open_cpu(300 * MiB, false);
    must_alloc(device, 100 * MiB, ROLE_PARAMETER);
    must_alloc(device, 150 * MiB, ROLE_ACTIVATION);
    struct device_arena *arena = must_open_arena(device, 46 * MiB);
    struct error err = {0};
    ASSERT(device_arena_place(device, arena, 0, MiB, tag_of(ROLE_GRADIENT, "wte gradient"), &err) != NULL);
    ASSERT(!device_alloc(device, 12 * MiB, tag_of(ROLE_ACTIVATION, "layer 3 qkv"), &err));
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_HAS(err.text,
               "cpu: layer 3 qkv needs 12.00 MiB but 4.00 MiB of 300.00 MiB are left (8.00 MiB short)");
    ASSERT_HAS(err.text, "; held: parameter 100.00 MiB, activation 150.00 MiB, arenas 46.00 MiB;");
    ASSERT(!strstr(err.text, "gradient"));
    device_close(device);
}

TEST(device_out_of_memory_when_empty,
     "an arena larger than the whole capacity is refused, and nothing is held")
{
    struct device *device = open_cpu(MiB, false);
    struct device_arena *arena = NULL;
    struct error err = {0};
    ASSERT_INT(device_arena_open(device, MiB + 1, &arena, &err), -1);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_HAS(err.text, "an arena needs");
    ASSERT_HAS(err.text, "(1 B short); nothing is held");
    ASSERT(arena == NULL);
    device_close(device);
}

TEST(device_beyond_the_machine,
     "2^60 bytes, within a capacity without a limit, are refused by the machine and not counted")
{
    struct device *device = open_cpu(0, false);
    struct device_arena *arena = NULL;
    struct error err = {0};
    ASSERT(!device_alloc(device, 1LL << 60, tag_of(ROLE_INPUT, "tokens"), &err));
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_HAS(err.text, "cpu: tokens needs 1.00 EiB but the machine has no more to give");
    ASSERT_INT(device_arena_open(device, 1LL << 60, &arena, &err), -1);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT(arena == NULL);
    ASSERT_INT(device_usage(device).reserved_peak_bytes, 0);
    device_close(device);
}

TEST(device_no_bytes, "zero or negative bytes are an input error, not an out-of-memory")
{
    struct device *device = open_cpu(0, false);
    struct error err = {0};
    ASSERT(!device_alloc(device, 0, tag_of(ROLE_INPUT, "tokens"), &err));
    ASSERT_INT(err.kind, ERROR_INPUT);
    ASSERT_HAS(err.text, "tokens asks for 0 bytes");
    ASSERT(!device_alloc(device, -5, tag_of(ROLE_INPUT, "tokens"), &err));
    device_close(device);
}

TEST(device_arena_ledger, "tensors in an arena count as live; the arena itself only as reserved")
{
    struct device *device = open_cpu(0, false);
    struct device_arena *arena = must_open_arena(device, 4096);
    ASSERT_INT(device_usage(device).live_bytes, 0);
    ASSERT_INT(device_usage(device).reserved_bytes, 4096);

    struct error err = {0};
    struct memory_tag activation = tag_of(ROLE_ACTIVATION, "x"), gradient = tag_of(ROLE_GRADIENT, "dw");
    char *x = device_arena_place(device, arena, 0, 1000, activation, &err);
    char *dw = device_arena_place(device, arena, 1024, 3072, gradient, &err);
    ASSERT(x && dw);
    ASSERT_INT(dw - x, 1024);
    struct device_usage usage = device_usage(device);
    ASSERT_INT(usage.live_bytes, 4072);
    ASSERT_INT(usage.live[ROLE_ACTIVATION], 1000);
    ASSERT_INT(usage.reserved_bytes, 4096);
    ASSERT_INT(usage.allocations, 2);

    device_arena_remove(device, arena, x, 1000, activation);
    device_arena_remove(device, arena, dw, 3072, gradient);
    device_arena_close(device, arena);
    usage = device_usage(device);
    ASSERT_INT(usage.live_bytes, 0);
    ASSERT_INT(usage.peak_bytes, 4072);
    ASSERT_INT(usage.reserved_bytes, 0);
    ASSERT_INT(usage.reserved_peak_bytes, 4096);
    device_close(device);
}

TEST(device_arena_bounds,
     "an arena refuses what is misaligned, negative, empty or beyond its end, and counts none of it")
{
    static const int64_t refused[][2] = {
        {32, 64}, {-64, 64}, {0, 0}, {0, 1025}, {1024, 1}, {960, 65}, {64, INT64_MAX}, {INT64_MAX - 63, 64},
    };
    struct device *device = open_cpu(0, false);
    struct device_arena *arena = must_open_arena(device, 1024);
    struct error err = {0};
    struct memory_tag tag = tag_of(ROLE_ACTIVATION, "layer 0 q");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ASSERT(!device_arena_place(device, arena, refused[i][0], refused[i][1], tag, &err));
        ASSERT_HAS(err.text, "layer 0 q");
    }
    ASSERT_INT(device_usage(device).live_bytes, 0);
    ASSERT(device_arena_place(device, arena, 960, 64, tag, &err) != NULL);
    device_close(device);
}

TEST(device_arena_overlap,
     "a poisoned arena refuses a tensor over a living one and names both; neighbours are fine")
{
    struct device *device = open_cpu(0, true);
    struct device_arena *arena = must_open_arena(device, 4096);
    struct error err = {0};
    struct memory_tag tag = tag_of(ROLE_ACTIVATION, "layer 0 q");
    void *first = device_arena_place(device, arena, 1024, 1024, tag, &err);
    ASSERT(first != NULL);
    ASSERT(device_arena_place(device, arena, 2048, 1024, tag, &err) != NULL);
    ASSERT(device_arena_place(device, arena, 0, 1024, tag, &err) != NULL);

    static const int64_t overlapping[][2] = {{1024, 64}, {1984, 64}, {0, 4096}, {1088, 64}, {2048, 2048}};
    for (size_t i = 0; i < sizeof overlapping / sizeof *overlapping; i++) {
        struct memory_tag late = tag_of(ROLE_ACTIVATION, "layer 9 v");
        ASSERT(!device_arena_place(device, arena, overlapping[i][0], overlapping[i][1], late, &err));
        ASSERT_HAS(err.text, "layer 9 v");
        ASSERT_HAS(err.text, "layer 0 q");
    }
    ASSERT_INT(device_usage(device).live_bytes, 3072);
    device_arena_remove(device, arena, first, 1024, tag);
    ASSERT(device_arena_place(device, arena, 1536, 512, tag, &err) != NULL);
    ASSERT(device_arena_place(device, arena, 1024, 512, tag, &err) != NULL);
    device_close(device);
}

static bool all_poison(const unsigned char *memory, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if (memory[i] != 0xff)
            return false;
    return true;
}

TEST(device_poison, "poisoned memory is NaN when new, when placed and when removed")
{
    struct device *device = open_cpu(0, true);
    ASSERT(all_poison(must_alloc(device, 1000, ROLE_ACTIVATION), 1000));
    ASSERT(all_poison(must_alloc(device, 2 * MiB, ROLE_ACTIVATION), 2 * MiB));

    struct device_arena *arena = must_open_arena(device, 1024);
    struct memory_tag tag = tag_of(ROLE_ACTIVATION, "x");
    struct error err = {0};
    unsigned char *placed = device_arena_place(device, arena, 0, 512, tag, &err);
    ASSERT(all_poison(placed, 1024));
    memset(placed, 0, 1024);
    device_arena_remove(device, arena, placed, 512, tag);
    ASSERT(all_poison(placed, 512));
    ASSERT_INT(placed[512], 0);
    placed = device_arena_place(device, arena, 512, 512, tag, &err);
    ASSERT(all_poison(placed, 512));
    device_close(device);
}

/* What an observer heard, in order. */
struct heard {
    int count;
    struct memory_event memory[16];
    int begins, ranges;
    struct range_event begun[16], range[16];
    struct heard *earlier; /* an observer that must have been called before this one */
};

static void hear_memory(void *context, const struct memory_event *event)
{
    struct heard *heard = context;
    heard->memory[heard->count++] = *event;
    if (heard->earlier)
        ASSERT_INT(heard->earlier->count, heard->count);
}

static void hear_begin(void *context, int64_t operation, int step)
{
    struct heard *heard = context;
    heard->begun[heard->begins++] = (struct range_event){.operation = operation, .step = step};
}

static void hear_range(void *context, const struct range_event *event)
{
    struct heard *heard = context;
    ASSERT_INT(heard->begins, heard->ranges + 1);
    ASSERT_INT(heard->begun[heard->ranges].operation, event->operation);
    ASSERT_INT(heard->begun[heard->ranges].step, event->step);
    heard->range[heard->ranges++] = *event;
}

TEST(device_observers, "observers hear each event in order, with address, live bytes, operation and tag")
{
    struct heard heard = {0}, late = {.earlier = &heard};
    struct observer observer = {
        .context = &heard, .begin = hear_begin, .memory = hear_memory, .range = hear_range};
    struct observer second = {.context = &late, .memory = hear_memory};
    struct device *device = open_cpu(0, false);
    struct device_arena *arena = must_open_arena(device, 4096);
    struct error err = {0};
    ASSERT_OK(device_observe(device, &observer, &err));
    ASSERT_OK(device_observe(device, &second, &err));

    struct memory_tag weight = {7, ROLE_PARAMETER, "wte"}, activation = {8, ROLE_ACTIVATION, "x"};
    void *w = device_alloc(device, 640, weight, &err);
    device_range_begin(device, 41, 3);
    void *x = device_arena_place(device, arena, 64, 128, activation, &err);
    device_range_end(device);
    device_range_begin(device, 42, 3);
    device_arena_remove(device, arena, x, 128, activation);
    device_range_end(device);
    device_free(device, w);

    static const struct {
        int64_t bytes, live_bytes, operation, tensor;
        bool arena;
    } expected[] = {
        {640, 640, -1, 7, false}, {128, 768, 41, 8, true}, {-128, 640, 42, 8, true}, {-640, 0, -1, 7, false}};
    ASSERT_INT(heard.count, 4);
    ASSERT_INT(late.count, 4);
    for (int i = 0; i < 4; i++) {
        const struct memory_event *event = &heard.memory[i];
        ASSERT_INT(event->bytes, expected[i].bytes);
        ASSERT_INT(event->live_bytes, expected[i].live_bytes);
        ASSERT_INT(event->operation, expected[i].operation);
        ASSERT_INT(event->tag.tensor, expected[i].tensor);
        ASSERT_INT(event->arena, expected[i].arena);
        ASSERT_INT(event->address, (int64_t)(intptr_t)(event->arena ? x : w));
        ASSERT(i == 0 || event->time_ns >= heard.memory[i - 1].time_ns);
    }
    ASSERT_STR(heard.memory[3].tag.name, "wte");
    ASSERT_INT(heard.ranges, 2);
    ASSERT_INT(heard.range[0].operation, 41);
    ASSERT_INT(heard.range[1].operation, 42);
    ASSERT_INT(heard.range[1].step, 3);
    ASSERT(heard.range[0].start_ns <= heard.memory[1].time_ns &&
           heard.memory[1].time_ns <= heard.range[0].end_ns);
    device_close(device);
    ASSERT_INT(heard.count, 4);
}

TEST(device_observer_limit, "a fifth observer is refused; one that is removed hears no more and makes room")
{
    struct heard heard[5] = {0};
    struct observer observers[5];
    struct device *device = open_cpu(0, false);
    struct error err = {0};
    for (int i = 0; i < 5; i++)
        observers[i] = (struct observer){.context = &heard[i], .memory = hear_memory};
    for (int i = 0; i < 4; i++)
        ASSERT_OK(device_observe(device, &observers[i], &err));
    ASSERT_INT(device_observe(device, &observers[4], &err), -1);
    ASSERT_HAS(err.text, "4 observers");
    device_unobserve(device, &observers[1]);
    ASSERT_OK(device_observe(device, &observers[4], &err));
    must_alloc(device, 64, ROLE_INPUT);
    for (int i = 0; i < 5; i++)
        ASSERT_INT(heard[i].count, i == 1 ? 0 : 1);
    device_close(device);
}

static int64_t resident_bytes(void)
{
    long long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    ASSERT(file && fscanf(file, "%lld %lld", &size, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

TEST(device_resident_set, "64 MiB that are written raise the resident set, and freeing them lowers it again")
{
    struct device *device = open_cpu(0, false);
    int64_t before = resident_bytes();
    void *memory = must_alloc(device, 64 * MiB, ROLE_ACTIVATION);
    memset(memory, 1, (size_t)(64 * MiB));
    ASSERT(resident_bytes() - before >= 63 * MiB);
    device_free(device, memory);
    ASSERT(resident_bytes() - before <= 4 * MiB);

    struct device_arena *arena = must_open_arena(device, 64 * MiB);
    struct error err = {0};
    memory = device_arena_place(device, arena, 0, 64 * MiB, tag_of(ROLE_ACTIVATION, "x"), &err);
    memset(memory, 1, (size_t)(64 * MiB));
    ASSERT(resident_bytes() - before >= 63 * MiB);
    device_arena_close(device, arena);
    ASSERT(resident_bytes() - before <= 4 * MiB);
    device_close(device);
}

/* A back end of four small blocks, which counts how many are out and whether it was closed. */
struct small_machine {
    _Alignas(DEVICE_ALIGN) unsigned char slots[4][DEVICE_ALIGN];
    int out;
    bool closed;
};

static void *small_take(void *context, int64_t bytes, bool arena)
{
    (void)bytes, (void)arena;
    struct small_machine *machine = context;
    return machine->out < 4 ? machine->slots[machine->out++] : NULL;
}

static void small_give_back(void *context, void *memory, int64_t bytes, bool arena)
{
    (void)memory, (void)bytes, (void)arena;
    ((struct small_machine *)context)->out--;
}

static void small_fill(void *context, void *memory, int byte, int64_t bytes)
{
    (void)context;
    memset(memory, byte, (size_t)bytes);
}

static void small_close(void *context)
{
    ((struct small_machine *)context)->closed = true;
}

TEST(device_machine_refuses,
     "when the machine has no more, the message says so; closing gives all back and closes it")
{
    static const struct backend small = {.name = "small",
                                         .take = small_take,
                                         .give_back = small_give_back,
                                         .fill = small_fill,
                                         .close = small_close};
    struct small_machine machine = {.out = 0};
    struct device *device = device_create(&small, &machine, 0, false);
    for (int i = 0; i < 3; i++)
        must_alloc(device, 64, ROLE_OPTIMIZER);
    must_open_arena(device, 64);
    struct error err = {0};
    ASSERT(!device_alloc(device, 64, tag_of(ROLE_INPUT, "tokens"), &err));
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_HAS(err.text, "small: tokens needs 64 B but the machine has no more to give");
    ASSERT_HAS(err.text, "held: optimizer 192 B, arenas 64 B");
    ASSERT_INT(device_usage(device).reserved_bytes, 256);
    device_close(device);
    ASSERT_INT(machine.out, 0);
    ASSERT(machine.closed);
}
