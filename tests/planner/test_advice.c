/* Predictions, and advice for what does not fit: every change that is proposed is built here and fits. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "base/checked.h"
#include "model/recompute.h"
#include "planner/advice.h"
#include "planner/prediction.h"

static struct rank_device cpu_of(int64_t capacity)
{
    struct rank_device device = {.name = "cpu", .capacity_bytes = capacity};
    return device;
}

static void check_items(const struct model *model, const struct advice_list *list, int64_t capacity)
{
    struct error err = {0};
    for (int i = 0; i < list->count; i++) {
        struct program *program;
        ASSERT_OK(program_create(model, &list->items[i].layout, list->items[i].masks, &program, &err));
        ASSERT_INT(program->arena_bytes, list->items[i].arena_bytes);
        ASSERT_MSG(program->arena_bytes <= capacity, "%s needs %lld of %lld", list->items[i].options,
                   (long long)program->arena_bytes, (long long)capacity);
        program_free(program);
    }
}

TEST_LOOP(advice_fits, "whatever is advised fits, for every capacity", 3)
{
    static const char *const names[] = {"gpt2-small-bytes", "llama-tiny", "block-tiny"};
    struct model model = sample_model(names[_i], 0);
    struct layout layout = sample_layout(&model, 2, 8, 16, 0);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    int64_t low = program->persistent_bytes, step = (program->arena_bytes - low) / 25;
    for (int64_t capacity = low - step; capacity < program->arena_bytes; capacity += step) {
        struct error err = {0};
        struct advice_list list;
        struct rank_device device = cpu_of(capacity);
        ASSERT_OK(advice_find(program, &device, &speed, &list, &err));
        check_items(&model, &list, capacity);
        ASSERT(list.count > 0 || list.least_bytes > capacity);
        for (int i = 0; i < list.count && list.least_bytes > capacity; i++)
            ASSERT(!strncmp(list.items[i].options, "--precision", 11) ||
                   !strncmp(list.items[i].options, "--seq-len", 9));
        ASSERT(list.least_bytes > 0 && list.least_bytes < program->arena_bytes);
        advice_clear(&list);
    }
    program_free(program);
}

TEST(advice_nearest_first,
     "just below what is needed, a little recomputation comes first and smaller micro-batches next")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-small-bytes", 6);
    struct layout layout = sample_layout(&model, 1, 8, 16, 256);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    struct rank_device device = cpu_of(program->arena_bytes - 1);
    struct advice_list list;
    struct text text = {0};
    ASSERT_OK(advice_find(program, &device, &speed, &list, &err));
    ASSERT(list.count >= 3);
    ASSERT_HAS(list.items[0].options, "--recompute ");
    ASSERT_STR(list.items[1].options,
               "--micro-batch 4"); /* the global batch of 16 stays as it was asked for */
    ASSERT_INT(list.items[1].layout.global_batch, 16);
    ASSERT(list.items[0].step_s <= list.items[1].step_s);
    advice_print(&list, &text);
    ASSERT_HAS(text.data, "try --recompute ");
    ASSERT_HAS(text.data, " or --micro-batch 4 (needs ");
    text_free(&text);
    advice_clear(&list);
    program_free(program);
}

TEST(advice_keeps_global_batch,
     "when the micro-batch was the whole step, advice says the global batch that keeps it")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-small-bytes", 6);
    struct layout layout = sample_layout(&model, 1, 8, 8, 256);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    struct rank_device device = cpu_of(program->arena_bytes * 7 / 10);
    struct advice_list list;
    bool found = false;
    ASSERT_OK(advice_find(program, &device, &speed, &list, &err));
    for (int i = 0; i < list.count; i++)
        found |= !strcmp(list.items[i].options, "--micro-batch 4 --global-batch 8");
    ASSERT(found);
    advice_clear(&list);
    program_free(program);
}

TEST(advice_of_last_resort, "where nothing that can be changed helps, that is said, with what it would take")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-small-bytes", 6);
    struct layout layout = sample_layout(&model, 1, 1, 1, 256);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    struct rank_device device = cpu_of(1 << 20);
    struct advice_list list;
    struct text text = {0};
    ASSERT_OK(advice_find(program, &device, &speed, &list, &err));
    ASSERT_INT(list.count, 0);
    advice_print(&list, &text);
    ASSERT_HAS(text.data, "nothing short of a smaller model or more memory will do");
    ASSERT_HAS(text.data, "more data-parallel ranks do not help");
    text_free(&text);
    advice_clear(&list);
    program_free(program);
}

TEST(prediction_on_cpu, "on the CPU the arena is all there is, and it fits to the byte")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct layout layout = sample_layout(&model, 1, 1, 1, 64);
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    struct rank_device device = cpu_of(program->arena_bytes);
    struct prediction prediction;
    prediction_make(program, &device, NULL, &prediction);
    ASSERT(prediction.fits && !prediction.in_doubt);
    ASSERT_INT(prediction.by_role[ROLE_RUNTIME], 0);
    ASSERT_INT(prediction.needed_bytes, program->arena_bytes);
    int64_t sum = 0;
    for (int role = 0; role < ROLE_COUNT; role++)
        sum += prediction.by_role[role];
    ASSERT_INT(sum, prediction.peak_bytes);
    device.capacity_bytes--;
    prediction_make(program, &device, NULL, &prediction);
    ASSERT(!prediction.fits);
    program_free(program);
}

TEST(prediction_on_card, "on a card the runtime is named, counted, and has an error bar that may leave doubt")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-tiny", 2);
    struct layout layout = sample_layout(&model, 1, 1, 1, 64);
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    struct rank_device device;
    struct prediction prediction;
    ASSERT_OK(cluster_read_device("h100-80g", 1, &device, &err));
    prediction_make(program, &device, NULL, &prediction);
    /* 440 MiB of context and 32 MiB of cuBLAS */
    ASSERT_INT(prediction.runtime.bytes, 472LL << 20);
    ASSERT_INT(prediction.by_role[ROLE_RUNTIME], 472LL << 20);
    ASSERT_INT(prediction.needed_bytes, program->arena_bytes + (472LL << 20));
    ASSERT(prediction.fits && !prediction.in_doubt);
    device.capacity_bytes = prediction.needed_bytes + 1;
    prediction_make(program, &device, NULL, &prediction);
    ASSERT(prediction.fits && prediction.in_doubt);
    device.capacity_bytes = prediction.needed_bytes - 1;
    prediction_make(program, &device, NULL, &prediction);
    ASSERT(!prediction.fits && prediction.in_doubt);
    ASSERT_INT(prediction_runtime(&device, 8).nccl_bytes, 160LL << 20);
    program_free(program);
}

TEST(prediction_explains, "a refusal names the largest roles, largest first")
{
    struct prediction prediction = {.needed_bytes = 412LL << 20,
                                    .capacity_bytes = 300LL << 20,
                                    .by_role = {[ROLE_PARAMETER] = 48LL << 20,
                                                [ROLE_OPTIMIZER] = 120LL << 20,
                                                [ROLE_GRADIENT] = 20LL << 20,
                                                [ROLE_ACTIVATION] = 220LL << 20}};
    struct text text = {0};
    prediction_explain(&prediction, &text);
    ASSERT_STR(
        text.data,
        "needs 412.00 MiB of 300.00 MiB: activation 220.00 MiB, optimizer 120.00 MiB, parameter 48.00 MiB");
    text_free(&text);
}
