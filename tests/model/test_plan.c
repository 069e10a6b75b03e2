/* The plan file: writing and reading, what is refused, and texts damaged at random. */
#include "model/plan.h"

#include "model/recompute.h"
#include "tests/model/configurations.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct error err;

static int64_t whole(const json_t *object, const char *key)
{
    ASSERT(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

static void check_bytes(const json_t *object, const struct program *program)
{
    ASSERT_INT(whole(object, "peak_bytes"), program->peak_bytes);
    ASSERT_INT(whole(object, "arena_bytes"), program->arena_bytes);
}

/* The plan of gpt2-tiny on 2 ranks, the first of its layers recomputed in full, as JSON. */
static json_t *make_json(void)
{
    struct plan plan = {
        .layout = {.dp = 2, .micro_batch = 3, .global_batch = 12, .precision = PRECISION_BF16},
        .device = "cpu",
        .capacity_bytes = 300 << 20,
        .step_seconds = 0.125,
        .made_by = "memplan plan gpt2-tiny"};
    uint32_t masks[2];
    struct pipeline *pipeline;
    ASSERT_OK(model_read("gpt2-tiny", NULL, &plan.model, &err));
    ASSERT_OK(layout_complete(&plan.layout, &plan.model, &err));
    ASSERT_OK(recompute_parse("0=full", &plan.model, masks, &err));
    plan.recompute = masks;
    ASSERT_OK(plan_pipeline(&plan, &pipeline, &err));
    json_t *object = plan_to_json(&plan, pipeline);
    ASSERT(object != NULL);
    const json_t *predicted = json_object_get(object, "predicted");
    check_bytes(predicted, pipeline->stages[0]);
    check_bytes(json_array_get(json_object_get(predicted, "stages"), 0), pipeline->stages[0]);
    pipeline_free(pipeline);
    return object;
}

static void check_plan(const struct plan *plan)
{
    ASSERT_STR(plan->model.name, "gpt2-tiny");
    ASSERT_INT(plan->layout.dp, 2);
    ASSERT_INT(plan->layout.micro_batch, 3);
    ASSERT_INT(plan->layout.global_batch, 12);
    ASSERT_INT(plan->layout.seq_len, 64);
    ASSERT_INT(plan->layout.precision, PRECISION_BF16);
    ASSERT_INT(plan->recompute[0], recompute_full(&plan->model));
    ASSERT_INT(plan->recompute[1], 0);
    ASSERT_INT(plan->capacity_bytes, 300 << 20);
    ASSERT_NEAR(plan->step_seconds, 0.125, 1e-15);
    ASSERT_STR(plan->device, "cpu");
    ASSERT_STR(plan->made_by, "memplan plan gpt2-tiny");
}

TEST(plan_round_trip, "a plan written to a file and read again is the same plan")
{
    char path[] = "/tmp/memplan-plan-XXXXXX";
    close(mkstemp(path));
    json_t *object = make_json();
    struct plan plan;
    struct pipeline *pipeline;
    ASSERT_OK(jsonfile_write(object, path, &err));
    ASSERT_OK(plan_read(path, &plan, &err));
    unlink(path);
    check_plan(&plan);
    ASSERT_OK(plan_pipeline(&plan, &pipeline, &err));
    json_t *again = plan_to_json(&plan, pipeline);
    ASSERT(json_equal(object, again));
    json_decref(again);
    json_decref(object);
    pipeline_free(pipeline);
    plan_clear(&plan);
}

/* The plan of a configuration, read back from its text, makes the same programs. */
static void check_survives(struct configuration *c, int64_t *chunk_layers)
{
    struct pipeline *pipeline, *again;
    struct plan copy, plan = {.model = c->model,
                              .layout = c->layout,
                              .recompute = c->recompute,
                              .chunk_layers = chunk_layers,
                              .capacity_bytes = INT64_MAX,
                              .device = "cpu"};
    ASSERT_OK(plan_pipeline(&plan, &pipeline, &err));
    json_t *object = plan_to_json(&plan, pipeline);
    ASSERT_OK(plan_from_json(object, "memory", &copy, &err));
    ASSERT_OK(plan_pipeline(&copy, &again, &err));
    ASSERT_INT(again->count, pipeline->count);
    for (int i = 0; i < again->count; i++) {
        ASSERT_INT(again->stages[i]->peak_bytes, pipeline->stages[i]->peak_bytes);
        ASSERT_INT(again->stages[i]->arena_bytes, pipeline->stages[i]->arena_bytes);
    }
    ASSERT_INT(copy.capacity_bytes, INT64_MAX);
    ASSERT(!memcmp(copy.recompute, c->recompute, (size_t)c->model.layers * sizeof *copy.recompute));
    for (int64_t i = 0; chunk_layers && i < layout_chunks(&c->layout); i++)
        ASSERT_INT(copy.chunk_layers[i], chunk_layers[i]);
    json_decref(object);
    plan_clear(&copy);
    pipeline_free(again);
    pipeline_free(pipeline);
}

TEST(plan_any_configuration,
     "100 random configurations and 100 pipelines survive the plan file, every stage with its peak and arena")
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct configuration c;
        program_free(configuration_program(seed, false, &c));
        check_survives(&c, NULL);
        pipeline_free(configuration_pipeline(seed, false, seed % 2, &c));
        check_survives(&c, c.chunk_layers);
    }
}

TEST(plan_minimal, "model, layout and one stage are enough")
{
    json_t *object =
        json_loads("{\"memplan_plan\": 1, \"stages\": [{}], \"model\": {\"family\": \"gpt2\", \"layers\": 1,"
                   "\"hidden\": 8, \"heads\": 2, \"vocab\": 9, \"max_seq_len\": 4},"
                   "\"layout\": {\"dp\": 1, \"micro_batch\": 1, \"global_batch\": 1, \"seq_len\": 4}}",
                   0, NULL);
    struct plan plan;
    ASSERT_OK(plan_from_json(object, "small.json", &plan, &err));
    ASSERT_STR(plan.model.name, "small.json");
    ASSERT_INT(plan.capacity_bytes, INT64_MAX);
    ASSERT_INT(plan.layout.precision, PRECISION_FP32);
    ASSERT_INT(plan.recompute[0], 0);
    plan_clear(&plan);
    json_decref(object);
}

/* The plan with one key changed to `value` (JSON text), or removed when it is NULL. `inside`: of this object or NULL. */
static void refuse(const char *inside, const char *key, const char *value, const char *piece)
{
    json_t *object = make_json();
    json_t *target = inside && !strcmp(inside, "stages") ? json_array_get(json_object_get(object, inside), 0)
                     : inside                            ? json_object_get(object, inside)
                                                         : object;
    if (value)
        json_object_set_new(target, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(target, key);
    struct plan plan;
    err = (struct error){0};
    ASSERT_MSG(plan_from_json(object, "p.json", &plan, &err) == -1, "accepted %s = %s", key,
               value ? value : "nothing");
    ASSERT_HAS(err.text, "p.json: ");
    ASSERT_HAS(err.text, piece);
    json_decref(object);
}

TEST(plan_refusals, "each thing a plan can have wrong is refused with the file's name and a reason")
{
    refuse(NULL, "memplan_plan", NULL, "not a plan");
    refuse(NULL, "memplan_plan", "2", "newer memplan (plan version 2");
    refuse(NULL, "memplan_plan", "0", "versions begin at 1");
    refuse(NULL, "memplan_plan", "\"1\"", "memplan_plan");
    refuse(NULL, "model", NULL, "\"model\"");
    refuse(NULL, "layout", NULL, "\"layout\"");
    refuse(NULL, "stages", NULL, "\"stages\"");
    refuse(NULL, "stages", "{}", "\"stages\"");
    refuse(NULL, "stages", "[]",
           "0 entries in \"stages\", but pp 1 with virtual_stages 1 cuts the layers into 1");
    refuse(NULL, "stages", "[{}, {}]", "2 entries in \"stages\"");
    refuse(NULL, "stages", "[5]", "stages[0]");
    refuse(NULL, "predicted", "7", "\"predicted\"");
    refuse(NULL, "capacity_bytes", "-1", "capacity_bytes is -1");
    refuse(NULL, "device", "[]", "\"device\"");
    refuse("stages", "layers", "1", "stages[0] has 1 layers from layer 0 on, where 2 are left");
    refuse("stages", "layers", "3", "all stages together must have the 2 of gpt2-tiny");
    refuse("stages", "layers", "0", "stages[0] has 0 layers, and needs 1 at least; every stage has layers");
    refuse("stages", "first_layer", "9223372036854775807", "begins with layer 9223372036854775807");
    refuse("stages", "stage", "1", "stages[0] is stage 1, chunk 0, but in its place comes stage 0, chunk 0");
    refuse("stages", "recompute", "\"0=swiglu\"", "swiglu");
    refuse("stages", "recompute", "\"2=full\"", "layers of gpt2-tiny go from 0 to 1");
    refuse("layout", "pp", "5", "cuts the layers into 5 chunks");
    refuse("layout", "global_batch", "13", "multiple of dp 2 x micro-batch 3; try 18");
    refuse("layout", "precision", "\"fp8\"", "fp8");
    refuse("layout", "seq_len", "65", "at most 64");
    refuse("layout", "bucket_bytes", "-1", "bucket-bytes");
    refuse("model", "heads", "5", "heads");
    refuse("model", "layers", "0", "layers is 0");
    refuse(NULL, "groups", "{}", "\"groups\"");
    refuse(NULL, "groups", "[3]", "groups[0]");
    refuse(NULL, "groups", "[{}, {}, {}, {}, {}]", "5 entries in \"groups\"; a plan has 4 at most");
    refuse(NULL, "groups",
           "[{\"device\": \"cpu\", \"capacity_bytes\": 1, \"ranks_per_node\": 1, \"ranks\": 1}]",
           "groups[0]: key \"net_bytes_per_s\" is missing");
    refuse(
        NULL, "groups",
        "[{\"device\": \"cpu\", \"capacity_bytes\": 1, \"nodes\": 4000000000000000000, \"ranks_per_node\": "
        "4000000000000000000, \"ranks\": 1, \"net_bytes_per_s\": 1}]",
        "groups[0] has a number that no nodes have");
}

TEST(plan_groups, "where ranks differ, the nodes that they are on are read as they were written")
{
    static const char groups[] =
        "[{\"device\": \"h100-80g\", \"capacity_bytes\": 80, \"nodes\": 2, \"ranks_per_node\": 8, "
        "\"net_bytes_per_s\": 5e10, \"ranks\": 12}, {\"device\": \"l4\", \"capacity_bytes\": 20, "
        "\"nodes\": 1, \"ranks_per_node\": 4, \"net_bytes_per_s\": 1e9, \"ranks\": 4}]";
    struct plan plan;
    struct pipeline *pipeline;
    json_t *object = make_json(), *again;
    json_object_set_new(object, "groups", json_loads(groups, 0, NULL));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(plan_from_json(object, "p.json", &plan, &err));
        ASSERT_INT(plan.group_count, 2);
        ASSERT_STR(plan.groups[0].device, "h100-80g");
        ASSERT_INT(plan.groups[0].ranks, 12);
        ASSERT_INT(plan.groups[0].nodes * plan.groups[0].ranks_per_node, 16);
        ASSERT_INT(plan.groups[1].capacity_bytes, 20);
        ASSERT_NEAR(plan.groups[1].net_bytes_per_s, 1e9, 1);
        ASSERT_OK(plan_pipeline(&plan, &pipeline, &err));
        again = plan_to_json(&plan, pipeline);
        pipeline_free(pipeline);
        plan_clear(&plan);
        json_decref(object);
        object = again;
    }
    json_decref(object);
}

/* ---- pipelines ---- */

/* The plan of a gpt2-tiny with more layers, and its pipeline's prediction. */
static json_t *make_pipeline_json(struct layout layout, int64_t layers, int64_t *chunk_layers,
                                  const char *recompute)
{
    struct plan plan = {
        .layout = layout, .device = "cpu", .capacity_bytes = INT64_MAX, .chunk_layers = chunk_layers};
    struct model_overrides deeper = {.layers = layers};
    uint32_t masks[16];
    struct pipeline *pipeline;
    ASSERT_OK(model_read("gpt2-tiny", &deeper, &plan.model, &err));
    ASSERT_OK(layout_complete(&plan.layout, &plan.model, &err));
    ASSERT_OK(recompute_parse(recompute, &plan.model, masks, &err));
    plan.recompute = masks;
    ASSERT_OK(plan_pipeline(&plan, &pipeline, &err));
    json_t *object = plan_to_json(&plan, pipeline);
    const json_t *predicted = json_object_get(object, "predicted"),
                 *stages = json_object_get(predicted, "stages");
    ASSERT_INT((int64_t)json_array_size(stages), layout.pp);
    for (int i = 0; i < pipeline->count; i++)
        check_bytes(json_array_get(stages, (size_t)i), pipeline->stages[i]);
    check_bytes(predicted, pipeline->stages[pipeline_worst(pipeline)]);
    pipeline_free(pipeline);
    return object;
}

/* Reads the plan and writes it again, with the same text. */
static void check_same_again(const json_t *object)
{
    struct plan plan;
    struct pipeline *pipeline;
    ASSERT_OK(plan_from_json(object, "memory", &plan, &err));
    ASSERT_OK(plan_pipeline(&plan, &pipeline, &err));
    json_t *again = plan_to_json(&plan, pipeline);
    ASSERT(json_equal(object, again));
    json_decref(again);
    pipeline_free(pipeline);
    plan_clear(&plan);
}

static void check_stages(const json_t *object, const char *expected)
{
    json_t *stages = json_loads(expected, 0, NULL);
    ASSERT(stages != NULL);
    ASSERT(json_equal(json_object_get(object, "stages"), stages));
    json_decref(stages);
}

TEST(plan_stages, "uneven stages have an entry each, whose recomputation speaks of their own layers only")
{
    int64_t layers[] = {3, 2};
    json_t *object =
        make_pipeline_json((struct layout){.pp = 2, .micro_batch = 1}, 5, layers, "0=full,3-4=selective");
    check_stages(object, "[{\"stage\": 0, \"first_layer\": 0, \"layers\": 3, \"recompute\": \"0=full\"},"
                         " {\"stage\": 1, \"first_layer\": 3, \"layers\": 2, \"recompute\": \"selective\"}]");
    check_same_again(object);
    json_decref(object);
}

/* Chunk g of the pipeline is on stage g % pp. */
TEST(plan_chunks, "with virtual stages every chunk has an entry, in the order of the pipeline")
{
    int64_t layers[] = {1, 2, 2, 1};
    struct layout layout = {.pp = 2, .virtual_stages = 2, .micro_batch = 1, .global_batch = 4};
    json_t *object = make_pipeline_json(layout, 6, layers, "4=norm1");
    check_stages(
        object,
        "[{\"stage\": 0, \"chunk\": 0, \"first_layer\": 0, \"layers\": 1, \"recompute\": \"none\"},"
        " {\"stage\": 1, \"chunk\": 0, \"first_layer\": 1, \"layers\": 2, \"recompute\": \"none\"},"
        " {\"stage\": 0, \"chunk\": 1, \"first_layer\": 3, \"layers\": 2, \"recompute\": \"4=norm1\"},"
        " {\"stage\": 1, \"chunk\": 1, \"first_layer\": 5, \"layers\": 1, \"recompute\": \"none\"}]");
    check_same_again(object);
    json_decref(object);
}

TEST(plan_even_stages, "stages that do not say how many layers they have are an even split")
{
    json_t *object = make_pipeline_json((struct layout){.pp = 2, .micro_batch = 1}, 5, NULL, "none");
    json_t *even = json_copy(object);
    struct plan plan;
    json_object_set_new(even, "stages", json_loads("[{}, {\"recompute\": \"full\"}]", 0, NULL));
    ASSERT_OK(plan_from_json(even, "memory", &plan, &err));
    int64_t first = plan.chunk_layers[0];
    ASSERT_INT(first + plan.chunk_layers[1], 5);
    ASSERT_INT(plan.recompute[first - 1], 0);
    ASSERT_INT(plan.recompute[first], recompute_full(&plan.model));
    plan_clear(&plan);
    json_decref(even);
    json_decref(object);
}

/* One key of the second of two stages, with 3 layers and 2, changed. */
static void refuse_stage(const char *key, const char *value, const char *piece)
{
    int64_t layers[] = {3, 2};
    struct plan plan;
    json_t *object = make_pipeline_json((struct layout){.pp = 2, .micro_batch = 1}, 5, layers, "none");
    json_object_set_new(json_array_get(json_object_get(object, "stages"), 1), key,
                        json_loads(value, JSON_DECODE_ANY, NULL));
    ASSERT_INT(plan_from_json(object, "p.json", &plan, &err), -1);
    ASSERT_HAS(err.text, "p.json: stages[1]");
    ASSERT_HAS(err.text, piece);
    json_decref(object);
}

TEST(plan_stage_refusals,
     "a stage that is not where it says, without layers, or that speaks of another's is refused")
{
    refuse_stage("layers", "0", "has 0 layers from layer 3 on, where 2 are left");
    refuse_stage("layers", "1", "has 1 layers from layer 3 on, where 2 are left");
    refuse_stage("layers", "9", "all stages together must have the 5 of gpt2-tiny");
    refuse_stage("layers", "-9223372036854775808",
                 "and needs 0 at least; only the embedding and the head may");
    refuse_stage("first_layer", "2", "begins with layer 2, but its layers follow those before: 3");
    refuse_stage("stage", "0", "is stage 0, chunk 0, but in its place comes stage 1, chunk 0");
    refuse_stage("chunk", "1", "is stage 1, chunk 1, but in its place comes stage 1, chunk 0");
    refuse_stage("recompute", "\"2-3=full\"", "names layer 2, but its layers go from 3 to 4");
    refuse_stage("recompute", "\"5=full\"", "layers of gpt2-tiny go from 0 to 4");
}

TEST(plan_missing_file, "a plan that is not there is named")
{
    struct plan plan;
    ASSERT_INT(plan_read("/nowhere/plan.json", &plan, &err), -1);
    ASSERT_HAS(err.text, "/nowhere/plan.json");
}

/* made_by holds a command line, and a file name in it may be no UTF-8; the device's name comes from a user too. */
TEST(plan_odd_bytes, "a command line that is not UTF-8 does not keep the plan from being written")
{
    struct configuration c;
    struct pipeline *pipeline;
    program_free(configuration_program(1, false, &c));
    struct plan plan = {.model = c.model,
                        .layout = c.layout,
                        .recompute = c.recompute,
                        .capacity_bytes = 1,
                        .device = "cpu",
                        .made_by = "memplan plan mod\xe8le.json"};
    ASSERT_OK(plan_pipeline(&plan, &pipeline, &err));
    json_t *object = plan_to_json(&plan, pipeline);
    ASSERT_STR(json_string_value(json_object_get(object, "made_by")), "memplan plan mod?le.json");
    json_decref(object);
    pipeline_free(pipeline);
}

/* ---- damage ---- */

static int64_t pick(uint64_t *state, int64_t count)
{
    return configuration_pick(state, 0, count - 1);
}

/* One of: a byte changed, a stretch removed, a stretch doubled, a digit made nine times nine, a number or word replaced. */
static void damage(uint64_t *state, char *text, size_t room)
{
    static const char *const pieces[] = {"-1",   "0", "1e308", "null",        "\"\"",     "[]",     "{}",
                                         "true", "{", "]",     "99999999999", "0-1=full", "\\u0000"};
    size_t length = strlen(text), at = (size_t)pick(state, (int64_t)length);
    size_t most = length - at < 30 ? length - at : 30, size = (size_t)pick(state, (int64_t)most + 1);
    switch (pick(state, 4)) {
    case 0:
        text[at] = (char)pick(state, 256);
        return;
    case 1:
        memmove(text + at, text + at + size, length - at - size + 1);
        return;
    case 2:
        if (length + size + 1 < room)
            memmove(text + at + size, text + at, length - at + 1);
        return;
    default: {
        const char *piece = pieces[pick(state, sizeof pieces / sizeof pieces[0])];
        size_t digits = strspn(text + at, "0123456789.");
        if (length + strlen(piece) + 1 < room) {
            memmove(text + at + strlen(piece), text + at + digits, length - at - digits + 1);
            memcpy(text + at, piece, strlen(piece));
        }
    }
    }
}

/* Returns whether the text was still a plan, and then one that can be made a program or says why not. */
static bool try_text(const char *text)
{
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    struct plan plan;
    struct pipeline *pipeline = NULL;
    err = (struct error){0};
    if (!object || plan_from_json(object, "damaged.json", &plan, &err)) {
        if (object && !err.text[0])
            ck_abort_msg("no message for %s", text);
        json_decref(object);
        return false;
    }
    if (plan_pipeline(&plan, &pipeline, &err) && !err.text[0])
        ck_abort_msg("no message for %s", text);
    pipeline_free(pipeline);
    plan_clear(&plan);
    json_decref(object);
    return true;
}

TEST(plan_damaged, "5,000 damaged plans are read or refused, and none crashes")
{
    json_t *object = make_json();
    char *whole = json_dumps(object, 0), text[4096];
    uint64_t state = 7;
    int valid = 0;
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "%s", whole);
        for (int64_t times = 1 + pick(&state, 3); times; times--)
            if (text[0])
                damage(&state, text, sizeof text);
        valid += try_text(text);
    }
    /* Some damage is harmless (another name, another peak), most is not; both must have been seen. */
    ASSERT_MSG(valid > 50 && valid < 4500, "%d valid", valid);
    free(whole);
    json_decref(object);
}
