/* Breakdowns of programs and of recorded runs. */
#include "base/units.h"
#include "reports/breakdown.h"
#include "reports/role_table.h"
#include "tests/profiler/views.h"
#include "tests/reports/fixture.h"

/* What is alive at the peak of the stage that needs most, found by walking, against the arithmetic of the model; by role and
 * by layer. */
static void check_pipeline(struct fixture fixture)
{
    struct arena *arena = arena_create();
    struct pipeline *pipeline = fixture_make(fixture);
    const struct program *program = pipeline->stages[pipeline_worst(pipeline)];
    struct breakdown b =
        breakdown_of_pipeline(pipeline, "cpu", &(struct breakdown_room){INT64_MAX, 0}, arena);
    int64_t alive[ROLE_COUNT] = {0}, layers[ROLE_COUNT] = {0};
    for (int64_t i = 0; i < b.tensor_count; i++) {
        alive[b.tensors[i].role] += b.tensors[i].bytes;
        ASSERT(i == 0 || b.tensors[i].bytes <= b.tensors[i - 1].bytes);
    }
    for (int64_t i = 0; i < b.layer_count; i++) {
        ASSERT(b.layers[i].layer < 0 || program_find_layer(program, b.layers[i].layer) >= 0);
        for (int role = 0; role < ROLE_COUNT; role++)
            layers[role] += b.layers[i].by_role[role];
    }
    for (int role = 0; role < ROLE_COUNT; role++) {
        ASSERT_INT(alive[role], program->at_peak[role]);
        ASSERT_INT(layers[role], program->at_peak[role]);
    }
    ASSERT_INT(role_table_total(b.by_role), program->peak_bytes);
    ASSERT_INT(b.place.stage, program->stage);
    ASSERT_INT(layout_place_of(&program->layout, b.rank).stage, program->stage);
    for (int ink = INK_ASCII; ink <= INK_BLOCKS; ink++) {
        struct text text = ink_checked(breakdown_report(&b, arena), (enum ink)ink);
        text_free(&text);
    }
    pipeline_free(pipeline);
    arena_free(arena);
}

TEST(breakdown_program,
     "the tensors alive at the peak add up to it, role by role, whatever the model and recomputation")
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};
    static const char *const recompute[] = {"none", "selective", "full", "1=full"};
    for (int p = 0; p < 3; p++)
        for (int r = 0; r < 4; r++)
            for (int64_t dp = 1; dp <= 2; dp++)
                check_pipeline(
                    (struct fixture){.preset = presets[p],
                                     .recompute = recompute[r],
                                     .layout = {.dp = dp,
                                                .micro_batch = 2,
                                                .global_batch = 4 * dp,
                                                .bucket_bytes = 4096,
                                                .precision = dp == 2 ? PRECISION_BF16 : PRECISION_FP32}});
}

/* Of 4 layers on 2 stages, the stage that has 3 of them needs most: with {3, 1} the first, with {1, 3} the second. */
TEST(breakdown_pipeline,
     "so do those of a pipeline's stages, with several micro-batches on their way, whatever the schedule")
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny"};
    static const int64_t splits[][2] = {{3, 1}, {1, 3}};
    for (int p = 0; p < 2; p++)
        for (int split = 0; split < 2; split++)
            for (int schedule = 0; schedule < SCHEDULE_KINDS; schedule++)
                for (int64_t tp = 1; tp <= 2; tp++) {
                    bool interleaved = schedule == SCHEDULE_INTERLEAVED;
                    check_pipeline((struct fixture){.preset = presets[p],
                                                    .recompute = split ? "3=full" : "selective",
                                                    .layers = 4,
                                                    .chunk_layers = interleaved ? NULL : splits[split],
                                                    .layout = {.dp = 2,
                                                               .tp = tp,
                                                               .pp = 2,
                                                               .virtual_stages = interleaved ? 2 : 1,
                                                               .schedule = (enum schedule_kind)schedule,
                                                               .zero = split,
                                                               .sequence_parallel = tp > 1 && split,
                                                               .micro_batch = 1,
                                                               .global_batch = 8}});
                }
}

TEST(breakdown_program_golden, "the page of a tiny GPT-2 on a device of 1 MiB")
{
    struct arena *arena = arena_create();
    struct pipeline *pipeline =
        fixture_pipeline("gpt2-tiny", "none", (struct layout){.dp = 2, .micro_batch = 2});
    struct breakdown b = breakdown_of_pipeline(pipeline, "cpu", &(struct breakdown_room){1 << 20, 0}, arena);
    check_golden(breakdown_report(&b, arena), INK_ASCII, "breakdown_program.txt");
    json_t *json = breakdown_to_json(&b);
    check_keys(json,
               "kind model device rank ranks place capacity_bytes peak_bytes arena_bytes by_role peak_at "
               "layers largest_tensors stages advice");
    ASSERT_INT(json_whole(json, "peak_bytes"), pipeline->stages[0]->peak_bytes);
    json_decref(json);
    pipeline_free(pipeline);
    arena_free(arena);
}

/* Tiny GPT-2 with 4 layers: 3 on stage 0, 1 on stage 1. Ranks 0-3 (2 replicas of 2 parts) are stage 0. */
static struct pipeline *two_stages(void)
{
    static const int64_t chunk_layers[] = {3, 1};
    return fixture_make((struct fixture){
        .preset = "gpt2-tiny",
        .recompute = "none",
        .layers = 4,
        .chunk_layers = chunk_layers,
        .layout = {.dp = 2, .tp = 2, .pp = 2, .micro_batch = 2, .global_batch = 16},
    });
}

TEST(breakdown_pipeline_golden, "the page of a pipeline: the stage that needs most, and a row for each")
{
    struct arena *arena = arena_create();
    struct pipeline *pipeline = two_stages();
    struct breakdown b = breakdown_of_pipeline(pipeline, "cpu", &(struct breakdown_room){4 << 20, 0}, arena);
    check_golden(breakdown_report(&b, arena), INK_ASCII, "breakdown_pipeline.txt");
    json_t *json = breakdown_to_json(&b), *stages = json_object_get(json, "stages");
    ASSERT_INT(json_whole(json, "ranks"), 8);
    ASSERT_INT(json_array_size(stages), 2);
    for (int i = 0; i < 2; i++) {
        json_t *stage = json_array_get(stages, (size_t)i), *layers = json_object_get(stage, "layers");
        check_keys(stage, "stage first_rank ranks layers peak_bytes arena_bytes by_role");
        ASSERT_INT(json_whole(stage, "first_rank"), 4 * i);
        ASSERT_INT(json_whole(stage, "ranks"), 4);
        ASSERT_INT(json_whole(stage, "peak_bytes"), pipeline->stages[i]->peak_bytes);
        ASSERT_INT(json_array_size(layers), i == 0 ? 3 : 1);
        ASSERT_INT(json_integer_value(json_array_get(layers, 0)), i == 0 ? 0 : 3);
    }
    json_decref(json);
    pipeline_free(pipeline);
    arena_free(arena);
}

TEST(breakdown_program_hopeless, "no batch is advised where the states alone do not fit")
{
    struct arena *arena = arena_create();
    struct pipeline *pipeline = fixture_pipeline("gpt2-tiny", "none", (struct layout){.micro_batch = 2});
    int64_t states = pipeline->stages[0]->persistent_bytes;
    struct breakdown b =
        breakdown_of_pipeline(pipeline, "cpu", &(struct breakdown_room){states - 1, 0}, arena);
    ASSERT_HAS(b.advice, "optimizer state alone take");
    b = breakdown_of_pipeline(pipeline, "cpu", &(struct breakdown_room){states, 0}, arena);
    ASSERT_HAS(b.advice, "try a smaller --micro-batch");
    pipeline_free(pipeline);
    arena_free(arena);
}

static void open_run(const char *folder, struct store **store)
{
    char path[128];
    run_write(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, store, &err));
}

/* Steps count from 1, those before a resume included: after number 7 seven are done. */
TEST(breakdown_ended_early, "a run that ended before its last step says so; one of unknown length does not")
{
    static const struct {
        int64_t count, last, planned;
        const char *says;
    } cases[] = {{0, 0, 9, "ended early, after 0 of 9 steps"},
                 {2, 7, 9, "ended early, after 7 of 9 steps"},
                 {2, 9, 9, ", finished"},
                 {2, 6, 0, ", finished"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *arena = arena_create();
        struct breakdown b = {.measured = true,
                              .run_id = 1,
                              .finished_at = "now",
                              .planned_steps = cases[i].planned,
                              .steps = {.count = cases[i].count, .last = cases[i].last},
                              .capacity_bytes = INT64_MAX};
        struct report *report = report_create(arena, "a run");
        struct text text = {0};
        breakdown_add_facts(report, &b);
        ink_text_report(report, INK_ASCII, &text);
        ASSERT_MSG(strstr(text.data, cases[i].says), "%s lacks %s", text.data, cases[i].says);
        text_free(&text);
        arena_free(arena);
    }
}

TEST(breakdown_run_golden,
     "the page of a run: its worst rank, measured beside predicted, steps, one line of advice")
{
    char folder[64];
    struct store *store;
    struct breakdown b;
    struct arena *arena = arena_create();
    scratch_open(folder);
    open_run(folder, &store);
    ASSERT_OK(breakdown_of_run(store, 1, -1, arena, &b, &err));
    check_golden(breakdown_report(&b, arena), INK_BLOCKS, "breakdown_run.txt");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* Rank 6 is stage 1, replica 1, part 0. Its 1 MiB of workspace makes it the worst. */
TEST(breakdown_run_pipeline,
     "of a run of a pipeline the worst rank is named with its place; equal ranks of a stage are named once")
{
    char folder[64], path[128];
    struct breakdown b;
    struct arena *arena = arena_create();
    struct pipeline *pipeline = two_stages();
    scratch_open(folder);
    int64_t run_id = run_write_pipeline(scratch_path(folder, "run.db", path), pipeline, 0);
    struct store *store = run_open(path);
    run_add_measured(store, run_id, pipeline->stages[1], 6, 1 << 20);
    ASSERT_OK(breakdown_of_run(store, run_id, -1, arena, &b, &err));
    ASSERT_INT(b.rank, 6);
    ASSERT(b.place.stage == 1 && b.place.replica == 1 && b.place.part == 0);
    check_golden(breakdown_report(&b, arena), INK_ASCII, "breakdown_run_pipeline.txt");
    json_t *json = breakdown_to_json(&b), *rows = json_object_get(json, "by_rank");
    ASSERT_INT(json_array_size(rows), 8);
    for (int rank = 0; rank < 8; rank++) {
        json_t *row = json_array_get(rows, (size_t)rank);
        int64_t peak_bytes = pipeline->stages[rank / 4]->peak_bytes;
        ASSERT_INT(json_whole(row, "first_rank"), rank);
        ASSERT_INT(json_whole(row, "stage"), rank / 4);
        ASSERT_INT(json_whole(row, "predicted_bytes"), peak_bytes);
        ASSERT_INT(json_whole(row, "peak_bytes"), peak_bytes + (rank == 6 ? 1 << 20 : 0));
    }
    json_decref(json);
    run_close(store);
    pipeline_free(pipeline);
    arena_free(arena);
    scratch_close(folder);
}

/* One event makes the peak, during an operation of no layer: the head's first. */
static void add_head_peak(const char *path, const struct program *program)
{
    struct store *store = run_open(path);
    struct program_cursor cursor = program_walk(program);
    struct step_op op;
    while (program_next(&cursor, &op) && op.instance != program_find_part(program, PART_HEAD))
        ;
    struct store_operation operation = {
        .operation_id = op.id, .kind = "norm", .phase = "forward", .detail = "", .layer = -1};
    struct store_memory event = {.operation_id = op.id,
                                 .tensor_id = -1,
                                 .role = ROLE_ACTIVATION,
                                 .bytes = program->peak_bytes,
                                 .live_bytes = program->peak_bytes};
    ASSERT_OK(store_operation_add(store, 1, 0, &operation, &err));
    ASSERT_OK(store_memory_add(store, 1, 0, &event, &err));
    run_close(store);
}

TEST(breakdown_run_setup, "a run names its recomputation, and the part of an operation that is of no layer")
{
    char folder[64], path[128];
    struct store *store;
    struct breakdown b;
    struct arena *arena = arena_create();
    struct pipeline *pipeline =
        fixture_pipeline("gpt2-tiny", "1=full", (struct layout){.micro_batch = 2, .global_batch = 4});
    scratch_open(folder);
    run_write_pipeline(scratch_path(folder, "run.db", path), pipeline, 0);
    add_head_peak(path, pipeline->stages[0]);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(breakdown_of_run(store, 1, 0, arena, &b, &err));
    ASSERT_STR(b.recompute, "1=full");
    ASSERT_STR(b.moment.operation, "norm");
    ASSERT_STR(b.moment.part, "head");
    store_close(store);
    pipeline_free(pipeline);
    arena_free(arena);
    scratch_close(folder);
}

TEST(breakdown_run_figures,
     "database, JSON and text of a run say the same; figures are those worked out by hand")
{
    char folder[64], figure[UNITS_TEXT];
    struct store *store;
    struct breakdown b;
    struct arena *arena = arena_create();
    int64_t stored[ROLE_COUNT], expected[ROLE_COUNT];
    scratch_open(folder);
    open_run(folder, &store);
    for (int rank = 0; rank < RUN_RANKS; rank++) {
        ASSERT_OK(breakdown_of_run(store, 1, rank, arena, &b, &err));
        ASSERT_OK(views_peak_breakdown(store, 1, rank, stored, &err));
        run_by_role(rank, expected);
        struct text text = ink_checked(breakdown_report(&b, arena), INK_ASCII);
        json_t *json = breakdown_to_json(&b), *roles = json_object_get(json, "by_role");
        for (int role = 0; role < ROLE_COUNT; role++) {
            ASSERT_INT(stored[role], expected[role]);
            ASSERT_INT(json_whole(roles, role_name((enum role)role)), expected[role]);
            if (expected[role])
                ASSERT_HAS(text.data, units_format_bytes(expected[role], figure));
        }
        ASSERT_INT(json_whole(json, "peak_bytes"), RUN_HELD + run_workspace(rank));
        /* Foretold for both: 66,560. */
        ASSERT_INT(json_whole(json_object_get(json, "predicted"), "error_bytes"), rank ? -1024 : 0);
        json_decref(json);
        text_free(&text);
    }
    /* Rank 1, the slower one: 0.44, 0.22 and 0.33 s. */
    ASSERT_NEAR(b.steps.first_seconds, 0.44, 1e-12);
    ASSERT_NEAR(b.steps.median_seconds, 0.33, 1e-12);
    ASSERT_NEAR(b.steps.last_seconds, 0.33, 1e-12);
    ASSERT_NEAR(b.steps.last_loss, 3.5, 1e-12);
    ASSERT_STR(b.moment.operation, "attention");
    ASSERT_STR(b.moment.part, "layer 1");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

static void write_empty(const char *path, int ranks, bool measured)
{
    struct store *store = run_open(path);
    struct store_run run = run_header(ranks);
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int rank = 0; measured && rank < ranks; rank++) {
        struct store_rank row = {.rank = rank, .measured = true, .peak_bytes = 4096 + rank, .host = "node7"};
        row.at_peak[ROLE_PARAMETER] = row.peak_bytes;
        ASSERT_OK(store_rank_add(store, run.run_id, &row, &err));
    }
    run_close(store);
}

TEST(breakdown_no_steps, "a run without steps and events still shows its peak and says what is not known")
{
    char folder[64], path[128];
    struct store *store;
    struct breakdown b;
    struct arena *arena = arena_create();
    scratch_open(folder);
    write_empty(scratch_path(folder, "run.db", path), 1, true);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(breakdown_of_run(store, 1, -1, arena, &b, &err));
    struct text text = ink_checked(breakdown_report(&b, arena), INK_ASCII);
    ASSERT_HAS(text.data, "4.00 KiB");
    ASSERT_HAS(text.data, "memory events were not recorded");
    ASSERT_HAS(text.data, "None was finished.");
    json_t *json = breakdown_to_json(&b);
    ASSERT(json_is_null(json_object_get(json, "peak_at")));
    ASSERT(json_is_null(json_object_get(json_object_get(json, "steps"), "median_seconds")));
    json_decref(json);
    text_free(&text);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(breakdown_killed,
     "of a run that was killed the peak so far is shown; one that recorded nothing is refused with a way out")
{
    char folder[64], path[128];
    struct store *store;
    struct store_run run = run_header(1);
    struct breakdown b;
    struct arena *arena = arena_create();
    scratch_open(folder);
    write_empty(scratch_path(folder, "run.db", path), 1, false);
    store = run_open(path);
    ASSERT_INT(breakdown_of_run(store, 1, -1, arena, &b, &err), -1);
    ASSERT_HAS(err.text, "run 1 holds no memory figures");
    ASSERT_OK(store_run_add(store, &run, &err));
    run_add_events(store, run.run_id, 0);
    ASSERT_OK(breakdown_of_run(store, run.run_id, -1, arena, &b, &err));
    ASSERT_INT(b.peak_bytes, RUN_HELD + 1024);
    ASSERT_INT(b.by_role[ROLE_WORKSPACE], 1024);
    ASSERT_INT(breakdown_of_run(store, run.run_id, 7, arena, &b, &err), -1);
    ASSERT_HAS(err.text, "has no rank 7");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* "caf\xe9" is Latin-1, "\x1b[2J" clears a terminal. */
TEST(breakdown_strange_texts,
     "names that are not UTF-8 or would move the cursor neither break the JSON nor reach the terminal")
{
    char folder[64], path[128];
    struct store_tensor tensor = {0, "caf\xe9\x1b[2J", "8", "F32", ROLE_PARAMETER, -1, -1, 32};
    struct store_memory event = {.operation_id = -1, .bytes = 32, .live_bytes = 32};
    struct store_run run = {.command = "memplan \x1b[2J\n x", .model = "caf\xe9", .ranks = 1};
    struct breakdown b;
    struct arena *arena = arena_create();
    scratch_open(folder);
    struct store *store = run_open(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_run_add(store, &run, &err));
    ASSERT_OK(store_tensor_add(store, run.run_id, 0, &tensor, &err));
    ASSERT_OK(store_memory_add(store, run.run_id, 0, &event, &err));
    ASSERT_OK(breakdown_of_run(store, run.run_id, -1, arena, &b, &err));
    struct text text = {0};
    ink_text_report(breakdown_report(&b, arena), INK_BLOCKS, &text);
    ASSERT(strchr(text.data, '\x1b') == NULL);
    ASSERT_HAS(text.data, "memplan ?[2J? x\n");
    json_t *json = breakdown_to_json(&b), *tensors = json_object_get(json, "largest_tensors");
    ASSERT_STR(json_string_value(json_object_get(json, "model")), "caf?");
    ASSERT_STR(json_string_value(json_object_get(json_array_get(tensors, 0), "name")), "caf?\x1b[2J");
    json_decref(json);
    text_free(&text);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(breakdown_many_ranks, "a run of 64 ranks that all differ fills no more than a page")
{
    char folder[64], path[128];
    struct store *store;
    struct breakdown b;
    struct arena *arena = arena_create();
    scratch_open(folder);
    write_empty(scratch_path(folder, "run.db", path), 64, true);
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(breakdown_of_run(store, 1, -1, arena, &b, &err));
    ASSERT_INT(b.rank, 63);
    struct text text = ink_checked(breakdown_report(&b, arena), INK_ASCII);
    ASSERT_HAS(text.data, "64 with peaks from 4.00 KiB to 4.06 KiB; here rank 63");
    int lines = 0;
    for (const char *at = text.data; *at; at++)
        lines += *at == '\n';
    ASSERT_MSG(lines < 45, "%d lines", lines);
    ASSERT_HAS(text.data, "48 more are not shown; the highest peak of all is 4.06 KiB.");
    text_free(&text);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(rank_table_devices, "stages on devices of their own say which, whether of several ranks or of one")
{
    struct text out = {0};
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "stages");
    struct rank_row rows[] = {
        {.stage = 0, .count = 2, .peak_bytes = 4, .predicted_bytes = -1, .device = "a100-80g"},
        {.stage = 1, .first = 2, .count = 1, .peak_bytes = 8, .predicted_bytes = -1, .device = "h100-80g"}};
    rank_table_add(report, rows, 2, false);
    ink_text_report(report, INK_ASCII, &out);
    ASSERT(strstr(out.data, " 0-1 on a100-80g "));
    ASSERT(strstr(out.data, " 2 on h100-80g "));
    text_free(&out);
    arena_free(arena);
}

/* What stays free is counted beside what no tensor owns, and a batch is named only when it was tried. */
static void check_larger(struct layout layout, int64_t capacity_bytes, int64_t runtime_bytes, int64_t largest)
{
    struct arena *arena = arena_create();
    struct pipeline *pipeline = fixture_pipeline("gpt2-tiny", "none", layout), *tried;
    struct breakdown_room room = {capacity_bytes, runtime_bytes};
    struct breakdown b = breakdown_of_pipeline(pipeline, "h100-80g", &room, arena);
    char named[64];
    snprintf(named, sizeof named, "--micro-batch %lld would use them", (long long)largest);
    ASSERT_HAS(b.advice, named);
    for (int more = 0; more <= 1; more++) {
        struct layout wanted = layout;
        wanted.micro_batch = largest + more;
        tried = fixture_pipeline("gpt2-tiny", "none", wanted);
        int64_t needed = tried->stages[pipeline_worst(tried)]->arena_bytes + runtime_bytes;
        ASSERT_INT(needed > capacity_bytes, more);
        pipeline_free(tried);
    }
    pipeline_free(pipeline);
    arena_free(arena);
}

/* The arena of a micro-batch. */
static int64_t arena_of(struct layout layout)
{
    struct pipeline *pipeline = fixture_pipeline("gpt2-tiny", "none", layout);
    int64_t bytes = pipeline->stages[pipeline_worst(pipeline)]->arena_bytes;
    pipeline_free(pipeline);
    return bytes;
}

TEST(breakdown_larger_batch, "the largest micro-batch that fits is named, with the runtime counted")
{
    const int64_t eleven = arena_of((struct layout){.micro_batch = 11}), runtime = 100 << 10;
    check_larger((struct layout){.micro_batch = 2}, eleven, 0, 11);
    check_larger((struct layout){.micro_batch = 2}, eleven - 1, 0, 10);
    check_larger((struct layout){.micro_batch = 2}, eleven + runtime - 1, runtime, 10);
    check_larger((struct layout){.micro_batch = 2}, eleven + runtime, runtime, 11);
}

TEST_LOOP(breakdown_larger_divisor, "of a global batch that was asked for only divisors are tried", 2)
{
    struct arena *arena = arena_create();
    struct layout layout = {.dp = 2, .micro_batch = 2, .global_batch = 44};
    struct pipeline *pipeline = fixture_pipeline("gpt2-tiny", "none", layout);
    layout.micro_batch = 11;
    struct breakdown_room room = {arena_of(layout) - _i, 0};
    struct breakdown b = breakdown_of_pipeline(pipeline, "cpu", &room, arena);
    ASSERT_HAS(b.advice,
               _i ? "too little for --micro-batch 11, which needs" : "--micro-batch 11 would use them");
    pipeline_free(pipeline);
    arena_free(arena);
}

/* Chunks of layers take micro-batches in groups of as many as there are stages. Of 12 sequences, micro-batches of 2, 3 and 6 make 6,
 * 4 and 2; those of 4 and 12 make 3 and 1, which are no groups of two. */
TEST_LOOP(breakdown_larger_interleaved,
          "larger micro-batches that an interleaved schedule has not are passed over", 2)
{
    struct arena *arena = arena_create();
    struct layout layout = {.pp = 2, .virtual_stages = 2, .micro_batch = 2, .global_batch = 12};
    struct pipeline *pipeline = fixture_pipeline("gpt2-tiny", "none", layout);
    layout.micro_batch = 6;
    struct breakdown_room room = {arena_of(layout) - _i, 0};
    struct breakdown b = breakdown_of_pipeline(pipeline, "cpu", &room, arena);
    ASSERT_HAS(b.advice, _i ? "--micro-batch 3 would use them" : "--micro-batch 6 would use them");
    pipeline_free(pipeline);
    arena_free(arena);
}

TEST(breakdown_runtime, "what no tensor owns can be what does not fit")
{
    struct arena *arena = arena_create();
    struct pipeline *pipeline = fixture_pipeline("gpt2-tiny", "none", (struct layout){.micro_batch = 2});
    struct breakdown_room room = {pipeline->stages[0]->arena_bytes, 0};
    struct breakdown b = breakdown_of_pipeline(pipeline, "cpu", &room, arena);
    ASSERT(strstr(b.advice, "does not fit") == NULL);
    room.runtime_bytes = 1;
    b = breakdown_of_pipeline(pipeline, "cpu", &room, arena);
    ASSERT_HAS(b.advice, "It does not fit");
    json_t *json = breakdown_to_json(&b);
    ASSERT_INT(json_whole(json, "needed_bytes"), room.capacity_bytes + 1);
    json_decref(json);
    pipeline_free(pipeline);
    arena_free(arena);
}
