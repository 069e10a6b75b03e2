/* The programs of a run, written into its row and made again from it. */
#include "reports/run_setup.h"
#include "tests/reports/fixture.h"

/* What a row says of a pipeline, read back; `stages` replaces the list of layers, NULL: leaves it. */
static struct pipeline *read_back(const struct pipeline *pipeline, const char *stages, struct arena *arena)
{
    struct run_setup setup;
    json_t *model = model_to_json(&pipeline->stages[0]->model), *layout = run_setup_layout(pipeline);
    if (stages)
        json_object_set_new(layout, "stages", json_loads(stages, 0, NULL));
    char *model_json = json_dumps(model, 0), *layout_json = json_dumps(layout, 0);
    struct store_run run = {.model_json = model_json, .layout_json = layout_json};
    run_setup_read(&run, arena, &setup);
    free(model_json);
    free(layout_json);
    json_decref(model);
    json_decref(layout);
    return run_setup_pipeline(&setup);
}

static struct pipeline *make(enum schedule_kind schedule, const int64_t *chunk_layers)
{
    return fixture_make((struct fixture){
        .preset = "llama-tiny",
        .recompute = "1=full",
        .layers = 6,
        .chunk_layers = chunk_layers,
        .layout = {.dp = 2,
                   .tp = 2,
                   .pp = 2,
                   .virtual_stages = schedule == SCHEDULE_INTERLEAVED ? 2 : 1,
                   .schedule = schedule,
                   .zero = 1,
                   .sequence_parallel = true,
                   .micro_batch = 1,
                   .global_batch = 8},
    });
}

static void check_equal(const struct pipeline *a, const struct pipeline *b)
{
    ASSERT(b != NULL);
    ASSERT_INT(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const struct program *left = a->stages[i], *right = b->stages[i];
        ASSERT_INT(left->peak_bytes, right->peak_bytes);
        ASSERT_INT(left->arena_bytes, right->arena_bytes);
        ASSERT_INT(program_tensor_count(left), program_tensor_count(right));
        ASSERT_INT(program_op_count(left), program_op_count(right));
        for (int64_t layer = 0; layer < left->model.layers; layer++)
            ASSERT_INT(program_find_layer(left, layer), program_find_layer(right, layer));
    }
}

TEST(run_setup_programs,
     "the programs of a run are those it was recorded with: schedule, split, ZeRO and all")
{
    static const int64_t two[] = {5, 1}, four[] = {1, 2, 1, 2};
    struct arena *arena = arena_create();
    for (int schedule = 0; schedule < SCHEDULE_KINDS; schedule++) {
        struct pipeline *pipeline =
            make((enum schedule_kind)schedule, schedule == SCHEDULE_INTERLEAVED ? four : two);
        struct pipeline *again = read_back(pipeline, NULL, arena);
        check_equal(pipeline, again);
        pipeline_free(pipeline);
        pipeline_free(again);
    }
    arena_free(arena);
}

TEST(run_setup_strange, "a list of layers that does not share out the model's is as none: an even split")
{
    static const char *const lists[] = {"[5]", "[7, -1]", "[3, 4]", "[2, 2]", "[\"a\", 6]", "7", "null"};
    struct arena *arena = arena_create();
    struct pipeline *even = make(SCHEDULE_1F1B, NULL);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct pipeline *again = read_back(even, lists[i], arena);
        check_equal(even, again);
        pipeline_free(again);
    }
    pipeline_free(even);
    arena_free(arena);
}
