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

/* All stages stand on devices of one kind. */
static struct prediction predict_alike(const struct pipeline *pipeline, const struct rank_device *device,
                                       const struct machine_speed *speed)
{
    struct error err = {0};
    struct prediction prediction;
    const struct rank_device **devices = host_alloc((size_t)pipeline->count * sizeof *devices);
    for (int i = 0; i < pipeline->count; i++)
        devices[i] = device;
    ASSERT_OK(prediction_make_placed(pipeline, devices, speed, &prediction, &err));
    free(devices);
    return prediction;
}

/* Is every item a layout that can be run, and does each stage of it fit? */
static void check_items(const struct model *model, const struct advice_list *list,
                        const struct rank_device *device)
{
    struct error err = {0};
    for (int i = 0; i < list->count; i++) {
        const struct advice *item = &list->items[i];
        struct layout layout = item->layout;
        struct pipeline *pipeline;
        ASSERT_OK(layout_complete(&layout, model, &err));
        ASSERT(!memcmp(&layout, &item->layout, sizeof layout));
        struct program_spec spec = {.model = model, .layout = &layout, .recompute = item->masks};
        ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
        struct prediction prediction = predict_alike(pipeline, device, NULL);
        ASSERT_INT(prediction.arena_bytes, item->arena_bytes);
        ASSERT_INT(prediction.needed_bytes, item->needed_bytes);
        ASSERT_INT(prediction.in_doubt, item->in_doubt);
        for (int other = 0; other < i; other++)
            ASSERT(strcmp(list->items[other].options, item->options));
        ASSERT_MSG(prediction.fits, "%s needs %lld of %lld", item->options,
                   (long long)prediction.needed_bytes, (long long)device->capacity_bytes);
        pipeline_free(pipeline);
    }
}

static bool starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

TEST_LOOP(advice_fits, "whatever is advised fits, for every capacity", 3)
{
    static const char *const names[] = {"gpt2-small-bytes", "llama-tiny", "block-tiny"};
    struct model model = sample_model(names[_i], 0);
    struct layout layout = sample_layout(&model, 2, 8, 16, 0);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct pipeline *pipeline = sample_pipeline(&model, layout);
    const struct program *program = pipeline->stages[0];
    int64_t low = program->persistent_bytes, step = (program->arena_bytes - low) / 25;
    for (int64_t capacity = low - step; capacity < program->arena_bytes; capacity += step) {
        struct error err = {0};
        struct advice_list list;
        struct rank_device device = cpu_of(capacity);
        ASSERT_OK(advice_find(pipeline, &device, &speed, &list, &err));
        check_items(&model, &list, &device);
        ASSERT(list.count > 0 || list.least_bytes > capacity);
        for (int i = 0; i < list.count && list.least_bytes > capacity; i++)
            ASSERT(starts_with(list.items[i].options, "--precision") ||
                   starts_with(list.items[i].options, "--seq-len") ||
                   starts_with(list.items[i].options, "--zero"));
        ASSERT(list.least_bytes > 0 && list.least_bytes < program->arena_bytes);
        advice_clear(&list);
    }
    pipeline_free(pipeline);
}

TEST_LOOP(advice_of_layouts,
          "whatever is advised for a layout of several kinds of ranks can be run, and fits", 3)
{
    static const char *const names[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};
    static const struct layout layouts[] = {
        {.tp = 2, .micro_batch = 4, .global_batch = 8, .sequence_parallel = true},
        {.dp = 2, .tp = 2, .micro_batch = 4, .global_batch = 16},
        {.dp = 2, .pp = 2, .micro_batch = 4, .global_batch = 16},
        {.pp = 2, .virtual_stages = 2, .micro_batch = 3, .global_batch = 6},
        {.dp = 2, .pp = 4, .zero = 1, .schedule = SCHEDULE_ZB_H1, .micro_batch = 2, .global_batch = 16},
    };
    struct model model = sample_model(names[_i], 4);
    struct machine_speed speed;
    struct rank_device card;
    struct error err = {0};
    machine_speed_from_cpuinfo("", 2, &speed);
    ASSERT_OK(cluster_read_device("h100-80g", 1, &card, &err));
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct pipeline *pipeline = sample_pipeline(&model, layouts[i]);
        const struct program *worst = pipeline->stages[pipeline_worst(pipeline)];
        int64_t runtime = prediction_runtime(&card, layout_ranks(&worst->layout)).bytes;
        for (int part = 1; part < 8; part++) {
            struct advice_list list;
            card.capacity_bytes = runtime + worst->arena_bytes * part / 8;
            ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
            check_items(&model, &list, &card);
            ASSERT(part < 7 || list.count > 0);
            advice_clear(&list);
        }
        pipeline_free(pipeline);
    }
}

TEST(advice_of_zero, "where data-parallel ranks hold the same optimizer states, sharding them is advised")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-small-bytes", 6);
    struct machine_speed speed;
    struct advice_list list;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct pipeline *pipeline =
        sample_pipeline(&model, (struct layout){.dp = 4, .micro_batch = 1, .seq_len = 64});
    /* Moments are half of the states, of which a rank is left a quarter. */
    struct rank_device device = cpu_of(pipeline->stages[0]->persistent_bytes);
    ASSERT_OK(advice_find(pipeline, &device, &speed, &list, &err));
    ASSERT(list.count > 0);
    ASSERT_STR(list.items[0].options, "--zero 1");
    ASSERT_INT(list.items[0].layout.zero, 1);
    advice_clear(&list);
    pipeline_free(pipeline);
}

/* llama3-8b in fp32: 8.0 billion parameters x 16 bytes = 128 GB, plus what recomputation leaves. */
TEST(advice_of_more_ranks,
     "a model too large for a card is divided over the fewest tensor-parallel ranks, and stages")
{
    struct error err = {0};
    struct model model = sample_model("llama3-8b", 0);
    struct machine_speed speed;
    struct rank_device card;
    struct advice_list list;
    ASSERT_OK(cluster_read_device("h100-80g", 1, &card, &err));
    machine_speed_from_card(card.card, PRECISION_FP32, &speed);
    struct pipeline *pipeline = sample_pipeline(&model, (struct layout){.micro_batch = 1, .seq_len = 1024});
    ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
    ASSERT(list.count > 0);
    ASSERT_STR(list.items[0].options, "--precision bf16 --tp 2");
    ASSERT_STR(list.items[1].options, "--precision bf16 --dp 4 --zero 1");
    check_items(&model, &list, &card);
    advice_clear(&list);
    card.capacity_bytes = 15LL << 30; /* 8 ranks hold 16 GB each, and 8 x 2 half of that */
    ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
    ASSERT(list.count > 0);
    ASSERT_STR(list.items[0].options, "--precision bf16 --tp 8 --pp 2 --global-batch 1");
    check_items(&model, &list, &card);
    advice_clear(&list);
    pipeline_free(pipeline);
}

/* 8.0 billion parameters x (2 + 4) bytes on each of four replicas, and a fourth of 12: 72 GB, and activations of 8,192 tokens. */
TEST(advice_of_replicas, "replicas that share the optimizer's states are named, recomputed where it takes "
                         "that; long sequences too")
{
    struct error err = {0};
    struct model model = sample_model("llama3-8b", 0);
    struct machine_speed speed;
    struct rank_device card;
    struct advice_list list;
    struct text text = {0};
    ASSERT_OK(cluster_read_device("h100-80g", 1, &card, &err));
    machine_speed_from_card(card.card, PRECISION_BF16, &speed);
    struct pipeline *pipeline =
        sample_pipeline(&model, (struct layout){.micro_batch = 1, .precision = PRECISION_BF16});
    ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
    ASSERT(list.count >= 2);
    ASSERT_STR(list.items[0].options, "--tp 4");
    ASSERT(!strncmp(list.items[1].options, "--dp 4 --zero 1 --recompute ", 28));
    ASSERT(!list.longest);
    check_items(&model, &list, &card);
    advice_clear(&list);
    pipeline_free(pipeline);
    model.max_seq_len = 65536;
    pipeline = sample_pipeline(&model, (struct layout){.micro_batch = 1, .precision = PRECISION_BF16});
    ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
    advice_print(&list, &text);
    ASSERT_HAS(text.data, "; sequences are as long as the model allows, 65536: --seq-len makes them shorter");
    text_free(&text);
    advice_clear(&list);
    pipeline_free(pipeline);
}

/* llama3-405b in bf16: 405.9 billion parameters x 18 bytes = 7.3 TB: on 80 GB, more than 91 ranks. */
TEST(advice_of_many_ranks, "the largest models take many stages, and recomputation besides")
{
    struct error err = {0};
    struct model model = sample_model("llama3-405b", 0);
    struct machine_speed speed;
    struct rank_device card;
    struct advice_list list;
    ASSERT_OK(cluster_read_device("h100-80g", 1, &card, &err));
    machine_speed_from_card(card.card, PRECISION_BF16, &speed);
    struct pipeline *pipeline = sample_pipeline(
        &model, (struct layout){.micro_batch = 1, .global_batch = 64, .precision = PRECISION_BF16});
    ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
    ASSERT(list.count > 0);
    ASSERT_HAS(list.items[0].options, "--tp 8 --pp ");
    ASSERT_HAS(list.items[0].options, " --global-batch 64 --recompute auto");
    ASSERT(layout_ranks(&list.items[0].layout) > 91);
    check_items(&model, &list, &card);
    advice_clear(&list);
    pipeline_free(pipeline);
}

/* 32 layers on 4 stages: gpipe keeps the activations of all 32 micro-batches, 1F1B of 4. */
TEST(advice_of_schedule,
     "where a schedule keeps too much, one that keeps less is advised, before what changes the training")
{
    struct error err = {0};
    struct model model = sample_model("llama3-8b", 0);
    struct machine_speed speed;
    struct rank_device card;
    struct advice_list list;
    ASSERT_OK(cluster_read_device("h100-80g", 8, &card, &err));
    machine_speed_from_card(card.card, PRECISION_BF16, &speed);
    struct layout layout = {.tp = 2,
                            .pp = 4,
                            .micro_batch = 1,
                            .global_batch = 32,
                            .seq_len = 4096,
                            .schedule = SCHEDULE_GPIPE,
                            .precision = PRECISION_BF16};
    struct pipeline *pipeline = sample_pipeline(&model, layout);
    ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
    bool found = false;
    for (int i = 0; i < list.count; i++) {
        ASSERT(!starts_with(list.items[i].options, "--seq-len") || found);
        found |= !strcmp(list.items[i].options, "--pipeline-schedule 1f1b");
    }
    ASSERT(found);
    check_items(&model, &list, &card);
    advice_clear(&list);
    pipeline_free(pipeline);
    /* Of interleaved chunks, one a stage. */
    layout.schedule = SCHEDULE_INTERLEAVED;
    layout.virtual_stages = 8;
    pipeline = sample_pipeline(&model, layout);
    card.capacity_bytes = pipeline->stages[0]->arena_bytes;
    ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
    found = false;
    for (int i = 0; i < list.count; i++)
        found |= starts_with(list.items[i].options, "--pipeline-schedule 1f1b --virtual-stages 1");
    ASSERT(found);
    check_items(&model, &list, &card);
    advice_clear(&list);
    pipeline_free(pipeline);
}

TEST(advice_leaves_room,
     "what is advised for a card leaves free what is not known of its context, where anything does")
{
    struct error err = {0};
    struct model model = sample_model("llama3-8b", 0);
    struct machine_speed speed;
    struct rank_device card;
    struct advice_list list;
    struct text text = {0};
    ASSERT_OK(cluster_read_device("h100-80g", 8, &card, &err));
    machine_speed_from_card(card.card, PRECISION_BF16, &speed);
    struct pipeline *pipeline = sample_pipeline(&model, (struct layout){.dp = 8,
                                                                        .zero = 1,
                                                                        .micro_batch = 1,
                                                                        .global_batch = 8,
                                                                        .seq_len = 8192,
                                                                        .precision = PRECISION_BF16});
    struct runtime_term runtime = prediction_runtime(&card, 8);
    ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
    ASSERT(list.count > 1);
    for (int i = 0; i < list.count; i++)
        ASSERT(list.items[i].needed_bytes + runtime.error_bytes <= card.capacity_bytes &&
               !list.items[i].in_doubt);
    advice_clear(&list);
    /* Each time half of that is left beside what needed least, until nothing leaves all of it. */
    for (;;) {
        ASSERT_OK(advice_find(pipeline, &card, &speed, &list, &err));
        const struct advice *least = list.items;
        ASSERT(list.count > 0);
        for (int i = 1; i < list.count; i++)
            least = list.items[i].needed_bytes < least->needed_bytes ? &list.items[i] : least;
        if (least->in_doubt)
            break;
        card.capacity_bytes =
            least->needed_bytes + prediction_runtime(&card, layout_ranks(&least->layout)).error_bytes / 2;
        advice_clear(&list);
    }
    for (int i = 0; i < list.count; i++)
        ASSERT(list.items[i].in_doubt);
    advice_print(&list, &text);
    ASSERT_HAS(text.data, ", within the error of the runtime term)");
    check_items(&model, &list, &card);
    text_free(&text);
    advice_clear(&list);
    pipeline_free(pipeline);
}

TEST(advice_nearest_first,
     "just below what is needed, a little recomputation comes first and smaller micro-batches next")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-small-bytes", 6);
    struct layout layout = sample_layout(&model, 1, 8, 16, 256);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct pipeline *pipeline = sample_pipeline(&model, layout);
    struct rank_device device = cpu_of(pipeline->stages[0]->arena_bytes - 1);
    struct advice_list list;
    struct text text = {0};
    ASSERT_OK(advice_find(pipeline, &device, &speed, &list, &err));
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
    pipeline_free(pipeline);
}

TEST(advice_keeps_global_batch,
     "when the micro-batch was the whole step, advice says the global batch that keeps it")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-small-bytes", 6);
    struct layout layout = sample_layout(&model, 1, 8, 8, 256);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct pipeline *pipeline = sample_pipeline(&model, layout);
    struct rank_device device = cpu_of(pipeline->stages[0]->arena_bytes * 7 / 10);
    struct advice_list list;
    bool found = false;
    ASSERT_OK(advice_find(pipeline, &device, &speed, &list, &err));
    for (int i = 0; i < list.count; i++)
        found |= !strcmp(list.items[i].options, "--micro-batch 4 --global-batch 8");
    ASSERT(found);
    advice_clear(&list);
    pipeline_free(pipeline);
}

TEST(advice_of_last_resort, "where nothing that can be changed helps, that is said, with what it would take")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-small-bytes", 6);
    struct layout layout = sample_layout(&model, 1, 1, 1, 256);
    struct machine_speed speed;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct pipeline *pipeline = sample_pipeline(&model, layout);
    struct rank_device device = cpu_of(1 << 20);
    struct advice_list list;
    struct text text = {0};
    ASSERT_OK(advice_find(pipeline, &device, &speed, &list, &err));
    ASSERT_INT(list.count, 0);
    advice_print(&list, &text);
    ASSERT_HAS(text.data, "nothing short of a smaller model or more memory will do");
    ASSERT_HAS(text.data, "more data-parallel ranks do not help");
    text_free(&text);
    advice_clear(&list);
    pipeline_free(pipeline);
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

TEST(prediction_of_pipeline, "the stage that needs most decides what fits; the step is that of all")
{
    struct error err = {0};
    struct model model = sample_model("gpt2-tiny", 2);
    struct machine_speed speed;
    struct prediction prediction;
    struct step_time time;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct pipeline *pipeline =
        sample_pipeline(&model, (struct layout){.pp = 2, .micro_batch = 4, .global_batch = 16});
    int worst = pipeline_worst(pipeline);
    int64_t most = pipeline->stages[worst]->arena_bytes;
    struct rank_device device = cpu_of(most);
    prediction = predict_alike(pipeline, &device, &speed);
    ASSERT_OK(time_model_pipeline(pipeline, &speed, NULL, &time, &err));
    ASSERT_INT(prediction.stage, worst);
    ASSERT_INT(prediction.needed_bytes, most);
    ASSERT(prediction.fits && prediction.time.total == time.total && prediction.time.bubble > 0);
    device.capacity_bytes--;
    prediction = predict_alike(pipeline, &device, &speed);
    ASSERT(!prediction.fits);
    pipeline_free(pipeline);
}
