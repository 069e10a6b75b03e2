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

TEST(
    describe_ids,
    "ids rise and are the program's; names are unique within a micro-batch; bf16 training has master weights")
{
    struct arena *arena = arena_create();
    struct layout layout = {.micro_batch = 1, .global_batch = 3, .precision = PRECISION_BF16};
    struct pipeline *pipeline = fixture_pipeline("gpt2-tiny", "full", layout);
    const struct program *program = pipeline->stages[0];
    struct described *rows;
    int64_t count = describe_tensors(program, 3, arena, &rows), masters = 0;
    for (int64_t i = 0; i < count; i++) {
        ASSERT(rows[i].id >= 0 && rows[i].id < program_tensor_count(program));
        ASSERT(i == 0 || rows[i].id > rows[i - 1].id);
        masters += strstr(rows[i].name, " master") != NULL;
        for (int64_t k = 0; k < i; k++)
            ASSERT_MSG(rows[k].micro_batch != rows[i].micro_batch || strcmp(rows[k].name, rows[i].name), "%s",
                       rows[i].name);
    }
    ASSERT_INT(masters, program->parameter_tensors);
    ASSERT_INT(rows[count - 1].micro_batch, 2);
    pipeline_free(pipeline);
    arena_free(arena);
}

TEST(describe_short, "a layer's tensors are called without their layer where layers are grouped")
{
    ASSERT_STR(describe_short_name("layer 12 qkv gradient", 12), "qkv gradient");
    ASSERT_STR(describe_short_name("layer 12 qkv", 1), "layer 12 qkv");
    ASSERT_STR(describe_short_name("head logits", -1), "head logits");
}
