/* The list of tensors. */
#include "reports/describe.h"
#include "tests/reports/fixture.h"

TEST(describe_golden, "the page of a tiny Llama with one recomputed layer")
{
    struct arena *arena = arena_create();
    struct pipeline *pipeline = fixture_pipeline("llama-tiny", "1=full", (struct layout){.micro_batch = 2});
    check_golden(describe_report(pipeline, arena), INK_ASCII, "describe.txt");
    pipeline_free(pipeline);
    arena_free(arena);
}

TEST(describe_pipeline_golden,
     "the page of a tiny GPT-2 on two stages that differ: equal layers are shown once")
{
    static const int64_t chunk_layers[] = {1, 3};
    struct arena *arena = arena_create();
    struct pipeline *pipeline = fixture_make((struct fixture){
        .preset = "gpt2-tiny",
        .recompute = "1=full",
        .layers = 4,
        .chunk_layers = chunk_layers,
        .layout = {.dp = 2, .pp = 2, .zero = 1, .micro_batch = 2, .global_batch = 8},
    });
    check_golden(describe_report(pipeline, arena), INK_ASCII, "describe_pipeline.txt");
    pipeline_free(pipeline);
    arena_free(arena);
}

/* GPT-2 124M: 124,439,808 parameters (Radford et al. 2019, with the tied head counted once). */
TEST(describe_json,
     "JSON has the exact parameters and every tensor with its keys; what the weights hold adds up")
{
    struct pipeline *pipeline = fixture_pipeline("gpt2-124m", "none", (struct layout){.micro_batch = 1});
    json_t *json = describe_to_json(pipeline), *tensors = json_object_get(json, "tensors");
    int64_t by_role[ROLE_COUNT] = {0};
    ASSERT_INT(json_whole(json, "parameters"), 124439808);
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        json_t *tensor = json_array_get(tensors, i);
        check_keys(tensor, "stage id name dims dtype role layer bytes");
        int64_t bytes = 4, total = json_whole(tensor, "bytes");
        json_t *dims = json_object_get(tensor, "dims");
        for (size_t k = 0; k < json_array_size(dims); k++)
            bytes *= json_integer_value(json_array_get(dims, k));
        ASSERT_INT(bytes, total);
        by_role[role_find(json_string_value(json_object_get(tensor, "role")))] += total;
    }
    ASSERT_INT(by_role[ROLE_PARAMETER], 4 * 124439808LL);
    ASSERT_INT(by_role[ROLE_GRADIENT], 4 * 124439808LL);
    ASSERT_INT(by_role[ROLE_OPTIMIZER], 8 * 124439808LL + 4);
    json_t *first = json_array_get(tensors, 0);
    ASSERT_STR(json_string_value(json_object_get(first, "name")), "embed wte weight");
    ASSERT(json_is_null(json_object_get(first, "layer")));
    json_decref(json);
    pipeline_free(pipeline);
}

/* Returns how many master weights there are. Of what tensor-parallel ranks exchange a layer has several by one name. */
static int64_t check_ids(const struct program *program, int64_t micro_batches)
{
    struct arena *arena = arena_create();
    struct described *rows;
    int64_t count = describe_tensors(program, micro_batches, arena, &rows), masters = 0;
    for (int64_t i = 0; i < count; i++) {
        ASSERT(rows[i].id >= 0 && rows[i].id < program_tensor_count(program));
        ASSERT(i == 0 || rows[i].id > rows[i - 1].id);
        masters += strstr(rows[i].name, " master") != NULL;
        for (int64_t k = 0; k < i && !strstr(rows[i].name, "partial"); k++)
            ASSERT_MSG(rows[k].micro_batch != rows[i].micro_batch || strcmp(rows[k].name, rows[i].name), "%s",
                       rows[i].name);
    }
    ASSERT_INT(rows[count - 1].micro_batch, micro_batches - 1);
    arena_free(arena);
    return masters;
}

TEST(
    describe_ids,
    "ids rise and are the program's; names are unique within a micro-batch; bf16 training has master weights")
{
    struct layout layout = {.micro_batch = 1, .global_batch = 3, .precision = PRECISION_BF16};
    struct pipeline *pipeline = fixture_pipeline("gpt2-tiny", "full", layout);
    ASSERT_INT(check_ids(pipeline->stages[0], 3), pipeline->stages[0]->parameter_tensors);
    pipeline_free(pipeline);
}

/* Every tensor that an operation of the step touches, found by walking. */
static void check_touched(const struct program *program)
{
    struct arena *arena = arena_create();
    struct described *rows;
    int64_t count = describe_tensors(program, program->micro_batches, arena, &rows);
    bool *listed = arena_array(arena, (size_t)program_tensor_count(program), sizeof *listed);
    for (int64_t i = 0; i < count; i++) {
        listed[rows[i].id] = true;
        ASSERT(rows[i].layer < 0 || program_find_layer(program, rows[i].layer) >= 0);
    }
    struct program_cursor cursor = program_walk(program);
    for (struct step_op op; program_next(&cursor, &op);)
        for (int i = 0; op.op && i < op.op->birth_count; i++) {
            struct placed born = program_tensor(program, op.instance, op.micro_batch, op.op->births[i]);
            ASSERT_MSG(listed[born.id], "%s of instance %lld", born.name, (long long)born.instance);
            ASSERT_INT(born.micro_batch, op.micro_batch);
        }
    arena_free(arena);
}

TEST(describe_stages,
     "each stage lists its own layers by the model's numbers, its message buffers, and all that "
     "its operations make")
{
    for (int schedule = 0; schedule < SCHEDULE_KINDS; schedule++)
        for (int64_t tp = 1; tp <= 2; tp++) {
            struct pipeline *pipeline = fixture_make((struct fixture){
                .preset = "llama-tiny",
                .recompute = "selective",
                .layers = 5,
                .layout = {.tp = tp,
                           .sequence_parallel = tp > 1,
                           .pp = 2,
                           .virtual_stages = schedule == SCHEDULE_INTERLEAVED ? 2 : 1,
                           .schedule = (enum schedule_kind)schedule,
                           .micro_batch = 1,
                           .global_batch = 4},
            });
            for (int stage = 0; stage < 2; stage++) {
                check_ids(pipeline->stages[stage], 4);
                check_touched(pipeline->stages[stage]);
            }
            pipeline_free(pipeline);
        }
}

/* A stage's messages are as large as x: 1 x 64 x 32 floats, 8192 bytes, and there are two buffers each way. */
TEST(describe_stages_json, "JSON has the tensors of every stage, message buffers among them")
{
    struct pipeline *pipeline =
        fixture_pipeline("gpt2-tiny", "none", (struct layout){.pp = 2, .micro_batch = 1});
    json_t *json = describe_to_json(pipeline), *tensors = json_object_get(json, "tensors");
    int64_t buffers[2] = {0}, parameters[2] = {0};
    check_keys(json, "model parameters stages tensors");
    ASSERT_INT(json_array_size(json_object_get(json, "stages")), 2);
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        json_t *tensor = json_array_get(tensors, i);
        int64_t stage = json_whole(tensor, "stage"), bytes = json_whole(tensor, "bytes");
        const char *role = json_string_value(json_object_get(tensor, "role"));
        buffers[stage] += strcmp(role, "communication") ? 0 : bytes;
        parameters[stage] += strcmp(role, "parameter") ? 0 : bytes;
    }
    for (int stage = 0; stage < 2; stage++) {
        ASSERT_INT(buffers[stage], 4 * 8192);
        ASSERT_INT(parameters[stage], pipeline->stages[stage]->at_peak[ROLE_PARAMETER]);
    }
    /* The last stage's copy of the 256 x 32 embedding is in no count of the model's parameters. */
    ASSERT_INT(parameters[0] + parameters[1], 4 * (json_whole(json, "parameters") + 256 * 32));
    json_decref(json);
    pipeline_free(pipeline);
}

TEST(describe_short, "a layer's tensors are called without their layer where layers are grouped")
{
    ASSERT_STR(describe_short_name("layer 12 qkv gradient", 12), "qkv gradient");
    ASSERT_STR(describe_short_name("layer 12 qkv", 1), "layer 12 qkv");
    ASSERT_STR(describe_short_name("head logits", -1), "head logits");
}
