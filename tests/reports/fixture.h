/* What the tests of reports share: programs of presets, a run worked out by hand, golden files, and the rules that every text
 * must keep.
 *
 * The run: two ranks of a two-layer model. Each holds six tensors, 8192 + 8192 + 4 * 12288 = 65,536 bytes, when attention of
 * layer 1 takes a workspace on top: 1024 bytes on rank 0 (peak 66,560) and 2048 on rank 1 (peak 67,584). 1024 were foretold
 * for both. */
#ifndef MEMPLAN_TESTS_REPORTS_FIXTURE_H
#define MEMPLAN_TESTS_REPORTS_FIXTURE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "model/pipeline.h"
#include "model/recompute.h"
#include "profiler/store.h"
#include "reports/ink_text.h"
#include "reports/run_setup.h"
#include "tests/profiler/sample.h"

#include <math.h>

static struct error err;

struct fixture {
    const char *preset, *recompute;
    int64_t layers;              /* 0: the preset's */
    const int64_t *chunk_layers; /* NULL: an even split */
    struct layout layout;
};

static inline struct pipeline *fixture_make(struct fixture f)
{
    struct model model;
    struct pipeline *pipeline;
    ASSERT_OK(model_read(f.preset, &(struct model_overrides){.layers = f.layers}, &model, &err));
    ASSERT_OK(layout_complete(&f.layout, &model, &err));
    uint32_t *masks = host_alloc((size_t)model.layers * sizeof *masks);
    ASSERT_OK(recompute_parse(f.recompute, &model, masks, &err));
    struct program_spec spec = {.model = &model, .layout = &f.layout, .recompute = masks,
                                .chunk_layers = f.chunk_layers};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    free(masks);
    return pipeline;
}

static inline struct pipeline *fixture_pipeline(const char *preset, const char *recompute, struct layout layout)
{
    return fixture_make((struct fixture){.preset = preset, .recompute = recompute, .layout = layout});
}

/* ------------------------------------------------------------------------------------------------- a run, by hand */

static const struct store_tensor run_tensors[] = {
    {0, "embed wte weight", "64x32", "F32", ROLE_PARAMETER, -1, -1, 8192},
    {1, "embed wte gradient", "64x32", "F32", ROLE_GRADIENT, -1, -1, 8192},
    {2, "layer 0 qkv weight", "96x32", "F32", ROLE_PARAMETER, 0, -1, 12288},
    {3, "layer 1 qkv weight", "96x32", "F32", ROLE_PARAMETER, 1, -1, 12288},
    {4, "layer 0 qkv", "2x16x96", "F32", ROLE_ACTIVATION, 0, 0, 12288},
    {5, "layer 1 qkv", "2x16x96", "F32", ROLE_ACTIVATION, 1, 0, 12288},
};
enum { RUN_TENSORS = 6, RUN_HELD = 65536, RUN_RANKS = 2 };

static inline int64_t run_workspace(int rank)
{
    return 1024 * (rank + 1);
}

/* Of the two figures of a rank, what was foretold is rank 0's. */
static inline void run_by_role(int rank, int64_t by_role[ROLE_COUNT])
{
    memset(by_role, 0, ROLE_COUNT * sizeof *by_role);
    for (int i = 0; i < RUN_TENSORS; i++)
        by_role[run_tensors[i].role] += run_tensors[i].bytes;
    by_role[ROLE_WORKSPACE] = run_workspace(rank);
}

static inline void run_add_events(struct store *store, int64_t run_id, int rank)
{
    struct store_memory event = {.step = -1, .operation_id = -1};
    for (int i = 0; i < RUN_TENSORS; i++) {
        event.tensor_id = i;
        event.role = run_tensors[i].role;
        event.bytes = run_tensors[i].bytes;
        event.live_bytes += event.bytes;
        event.time_ns = 100 * event.seq;
        ASSERT_OK(store_memory_add(store, run_id, rank, &event, &err));
        event.seq++;
    }
    for (int sign = 1; sign >= -1; sign -= 2, event.seq++) {
        event = (struct store_memory){.seq = event.seq, .time_ns = 5000 + 1000 * event.seq, .step = 0, .operation_id = 1, .tensor_id = -1,
                                      .role = ROLE_WORKSPACE, .live_bytes = event.live_bytes};
        event.bytes = sign * run_workspace(rank);
        event.live_bytes += event.bytes;
        ASSERT_OK(store_memory_add(store, run_id, rank, &event, &err));
    }
}

/* Loss and norm are known on rank 0 alone; rank 1 is a tenth slower. Steps take 0.4, 0.2 and 0.3 s on rank 0. */
static inline void run_add_steps(struct store *store, int64_t run_id, int rank)
{
    static const double seconds[] = {0.4, 0.2, 0.3};
    for (int step = 0; step < 3; step++) {
        double slow = seconds[step] * (rank ? 1.1 : 1);
        struct store_step row = {.rank = rank, .step = step, .loss = rank ? NAN : 5.5 - step,
                                 .grad_norm = rank ? NAN : 1.25, .seconds = slow, .tokens = 64,
                                 .tokens_per_s = 64 / slow, .communication_busy_s = NAN,
                                 .communication_waited_s = NAN};
        ASSERT_OK(store_step_add(store, run_id, &row, &err));
    }
}

/* In step 0 the product from 10 to 12 us and attention from 13 to 17 us, on rank 1 to 18 us. */
static inline void run_add_kernels(struct store *store, int64_t run_id, int rank)
{
    struct store_kernel product = {0, 0, 10000, 12000, 0}, attention = {1, 1, 13000, 17000 + 1000 * rank, 0};
    ASSERT_OK(store_kernel_add(store, run_id, rank, &product, &err));
    ASSERT_OK(store_kernel_add(store, run_id, rank, &attention, &err));
}

static inline void run_add_rank(struct store *store, int64_t run_id, int rank)
{
    static const struct store_operation operations[] = {
        {0, "matmul", "forward", "M32 N96 K32", 0, 0, false, 196608, 32768},
        {1, "attention", "forward", "B2 T16", 1, 0, false, 65536, 16384},
    };
    struct store_rank row = {.rank = rank, .measured = true, .arena_bytes = 68000,
                             .peak_bytes = RUN_HELD + run_workspace(rank), .host = "node7"};
    struct store_prediction prediction = {.rank = rank, .arena_bytes = 68000, .step_seconds = 0.25};
    run_by_role(rank, row.at_peak);
    run_by_role(0, prediction.at_peak);
    ASSERT_OK(store_rank_add(store, run_id, &row, &err));
    ASSERT_OK(store_prediction_add(store, run_id, &prediction, &err));
    for (int i = 0; i < RUN_TENSORS; i++)
        ASSERT_OK(store_tensor_add(store, run_id, rank, &run_tensors[i], &err));
    for (int i = 0; i < 2; i++)
        ASSERT_OK(store_operation_add(store, run_id, rank, &operations[i], &err));
    run_add_events(store, run_id, rank);
    run_add_kernels(store, run_id, rank);
    run_add_steps(store, run_id, rank);
}

static inline struct store_run run_header(int ranks)
{
    return (struct store_run){.started_at = "2026-03-01T12:00:00Z", .command = "memplan profile tiny --dp 2",
                              .model = "tiny", .device = "cpu", .capacity_bytes = 131072, .policy = "tensor",
                              .ranks = ranks};
}

static inline struct store *run_open(const char *path)
{
    struct store *store;
    ASSERT_OK(store_create(path, &store, &err));
    ASSERT_OK(store_begin(store, &err));
    return store;
}

static inline void run_close(struct store *store)
{
    ASSERT_OK(store_commit(store, &err));
    store_close(store);
}

static inline void run_write(const char *path)
{
    struct store *store = run_open(path);
    struct store_run run = run_header(RUN_RANKS);
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int rank = 0; rank < RUN_RANKS; rank++)
        run_add_rank(store, run.run_id, rank);
    ASSERT_OK(store_run_finish(store, run.run_id, &err));
    run_close(store);
}

/* What a rank of a run has measured, by its stage's program and `extra` bytes of workspace on top. */
static inline void run_add_measured(struct store *store, int64_t run_id, const struct program *program, int rank,
                                    int64_t extra)
{
    struct store_rank row = {.rank = rank, .measured = true, .peak_bytes = program->peak_bytes + extra,
                             .arena_bytes = program->arena_bytes};
    struct store_prediction prediction = {.rank = rank, .arena_bytes = program->arena_bytes, .step_seconds = NAN};
    memcpy(row.at_peak, program->at_peak, sizeof row.at_peak);
    memcpy(prediction.at_peak, program->at_peak, sizeof prediction.at_peak);
    row.at_peak[ROLE_WORKSPACE] += extra;
    ASSERT_OK(store_rank_add(store, run_id, &row, &err));
    ASSERT_OK(store_prediction_add(store, run_id, &prediction, &err));
}

/* A run of the pipeline whose every rank measured `extra` bytes of workspace more than was foretold. Returns its id. */
static inline int64_t run_write_pipeline(const char *path, const struct pipeline *pipeline, int64_t extra)
{
    struct store *store = run_open(path);
    const struct program *first = pipeline->stages[0];
    json_t *model = model_to_json(&first->model), *layout = run_setup_layout(pipeline);
    char *model_json = json_dumps(model, 0), *layout_json = json_dumps(layout, 0);
    struct store_run run = {.started_at = "2026-03-01T12:00:00Z", .model = first->model.name, .model_json = model_json, .layout_json = layout_json,
                            .ranks = (int)layout_ranks(&first->layout)};
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int rank = 0; rank < run.ranks; rank++)
        run_add_measured(store, run.run_id, pipeline_of_rank(pipeline, rank), rank, extra);
    run_close(store);
    free(model_json);
    free(layout_json);
    json_decref(model);
    json_decref(layout);
    return run.run_id;
}

/* ----------------------------------------------------------------------------------------------------------- texts */

/* No line is wider than 80 columns or ends with a space; without blocks, all is plain ASCII. */
static inline void check_page(const char *text, enum ink ink)
{
    int columns = 0;
    for (const char *at = text; *at; at++) {
        unsigned char byte = (unsigned char)*at;
        ASSERT_MSG(ink == INK_BLOCKS || byte < 128, "not ASCII: %.40s", at);
        columns = byte == '\n' ? 0 : columns + ((byte & 0xc0) != 0x80);
        ASSERT_MSG(columns <= INK_COLUMNS, "too wide: %.100s", at - 80);
        ASSERT_MSG(!(byte == ' ' && at[1] == '\n'), "space before the end of a line: %.100s", at - 40);
    }
}

static inline struct text ink_checked(const struct report *report, enum ink ink)
{
    struct text text = {0};
    ink_text_report(report, ink, &text);
    check_page(text.data, ink);
    return text;
}

/* Compares with tests/reports/golden/NAME; GOLDEN_UPDATE=1 in the environment writes it anew, to be read before it is
 * committed. */
static inline void check_golden_text(const struct text *text, const char *name)
{
    char path[128], *golden;
    size_t length;
    snprintf(path, sizeof path, "tests/reports/golden/%s", name);
    if (getenv("GOLDEN_UPDATE"))
        ASSERT_OK(text_write(text, path, &err));
    ASSERT_OK(text_read_file(path, 1 << 20, &golden, &length, &err));
    size_t line = 0;
    for (size_t i = 0; text->data[i] && text->data[i] == golden[i]; i++)
        if (text->data[i] == '\n')
            line = i + 1;
    ASSERT_MSG(!strcmp(text->data, golden), "%s is otherwise:\nnow    %.80s\ngolden %.80s", path, text->data + line,
               golden + line);
    free(golden);
}

/* Checks the other ink's page too. */
static inline void check_golden(const struct report *report, enum ink ink, const char *name)
{
    struct text other = ink_checked(report, ink == INK_ASCII ? INK_BLOCKS : INK_ASCII);
    struct text text = ink_checked(report, ink);
    check_golden_text(&text, name);
    text_free(&text);
    text_free(&other);
}

static inline int64_t json_whole(const json_t *object, const char *key)
{
    ASSERT_MSG(json_is_integer(json_object_get(object, key)), "%s is no integer", key);
    return json_integer_value(json_object_get(object, key));
}

/* The keys of the object are these, in this order: "rank role bytes". */
static inline void check_keys(json_t *object, const char *expected)
{
    struct text keys = {0};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) text_printf(&keys, "%s%s", keys.length ? " " : "", key);
    ASSERT_STR(keys.data, expected);
    text_free(&keys);
}

#endif
