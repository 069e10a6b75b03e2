/* Comparisons of plans and runs. */
#include "reports/compare.h"
#include "tests/reports/fixture.h"

static struct store *open_store(const char *folder, const char *name)
{
    char path[128];
    struct store *store;
    ASSERT_OK(store_open_read(scratch_path(folder, name, path), &store, &err));
    return store;
}

/* The page has these rows of where layouts differ; NULL: it has no such table. */
static void assert_layouts(const struct comparison *c, const char *rows, struct arena *arena)
{
    struct text text = ink_checked(compare_report(c, arena), INK_ASCII);
    if (rows)
        ASSERT_HAS(text.data, rows);
    ASSERT(!strstr(text.data, "Where the layouts differ") == !rows);
    text_free(&text);
}

TEST(compare_plan_golden,
     "a plan against a run that needed 4 KiB more on every rank: page, keys and largest error")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct pipeline *plan =
        fixture_pipeline("gpt2-tiny", "none", (struct layout){.dp = 64, .micro_batch = 2});
    struct comparison c;
    scratch_open(folder);
    run_write_pipeline(scratch_path(folder, "run.db", path), plan, 4096);
    struct store *store = open_store(folder, "run.db");
    ASSERT_OK(compare_plan_with_run(plan, store, 1, arena, &c, &err));
    check_golden(compare_report(&c, arena), INK_ASCII, "compare_plan.txt");
    const struct program *program = plan->stages[0];
    json_t *json = compare_to_json(&c), *rows = json_object_get(json, "rows");
    check_keys(json, "kind first second remark max_error_bytes max_error_fraction rows layouts changed_rank "
                     "changed_layers changed_tensors peak_moved");
    ASSERT_INT(json_whole(json, "max_error_bytes"), 4096);
    ASSERT_NEAR(json_real_value(json_object_get(json, "max_error_fraction")),
                4096.0 / (double)(program->peak_bytes + 4096), 1e-12);
    ASSERT_INT(json_array_size(rows), 64 * ROLE_COUNT);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        enum role role = (enum role)(i % ROLE_COUNT);
        check_keys(row, "rank role predicted_bytes measured_bytes");
        ASSERT_INT(json_whole(row, "rank"), i / ROLE_COUNT);
        ASSERT_INT(json_whole(row, "predicted_bytes"), program->at_peak[role]);
        ASSERT_INT(json_whole(row, "measured_bytes"),
                   program->at_peak[role] + (role == ROLE_WORKSPACE ? 4096 : 0));
    }
    json_decref(json);
    store_close(store);
    pipeline_free(plan);
    arena_free(arena);
    scratch_close(folder);
}

TEST(compare_equal, "a run that measured what was planned has no error, and the page says so")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct pipeline *plan = fixture_pipeline("llama-tiny", "full", (struct layout){.micro_batch = 2});
    struct comparison c;
    scratch_open(folder);
    run_write_pipeline(scratch_path(folder, "run.db", path), plan, 0);
    struct store *store = open_store(folder, "run.db");
    ASSERT_OK(compare_plan_with_run(plan, store, 1, arena, &c, &err));
    ASSERT_INT(c.max_error_bytes, 0);
    ASSERT(c.max_error_fraction == 0);
    assert_layouts(&c, NULL, arena);
    struct text text = ink_checked(compare_report(&c, arena), INK_ASCII);
    ASSERT_HAS(text.data, "The plan and run 1 agree to the byte\n");
    text_free(&text);
    store_close(store);
    pipeline_free(plan);
    arena_free(arena);
    scratch_close(folder);
}

/* Two runs of open stores, named as the command names those of one file. */
static int runs_compare(struct store *before, int64_t before_id, struct store *after, int64_t after_id,
                        struct arena *arena, struct comparison *out)
{
    const struct compare_run runs[2] = {
        {before, before_id, arena_printf(arena, "a.db (run %lld)", (long long)before_id)},
        {after, after_id, arena_printf(arena, "b.db (run %lld)", (long long)after_id)}};
    return compare_runs(runs, arena, out, &err);
}

static struct pipeline *split_plan(int64_t first, struct layout layout)
{
    const int64_t chunk_layers[] = {first, 4 - first};
    return fixture_make((struct fixture){.preset = "gpt2-tiny",
                                         .recompute = "none",
                                         .layers = 4,
                                         .chunk_layers = layout.pp == 2 ? chunk_layers : NULL,
                                         .layout = layout});
}

/* Every rank measures what its own stage's program says. With 4096 bytes more on rank 5, of stage 1, that is the error. */
TEST(compare_stages, "each rank is held against its own stage; another split of the layers is shown")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct layout layout = {.dp = 2, .tp = 2, .pp = 2, .micro_batch = 2};
    struct pipeline *plan = split_plan(3, layout), *even = split_plan(2, layout);
    struct comparison c;
    scratch_open(folder);
    int64_t run_id = run_write_pipeline(scratch_path(folder, "run.db", path), plan, 0);
    struct store *store = run_open(path);
    ASSERT(plan->stages[0]->peak_bytes != plan->stages[1]->peak_bytes);
    ASSERT_OK(compare_plan_with_run(plan, store, run_id, arena, &c, &err));
    ASSERT_INT(c.max_error_bytes, 0);
    ASSERT_INT(c.row_count, 8 * ROLE_COUNT);
    assert_layouts(&c, NULL, arena);
    ASSERT_OK(compare_plan_with_run(even, store, run_id, arena, &c, &err));
    ASSERT(c.max_error_bytes > 0);
    assert_layouts(&c, "          plan  run\n  layers  2*2   3,1\n", arena);
    run_add_measured(store, run_id, plan->stages[1], 5, 4096);
    ASSERT_OK(compare_plan_with_run(plan, store, run_id, arena, &c, &err));
    ASSERT_INT(c.max_error_bytes, 4096);
    struct text text = ink_checked(compare_report(&c, arena), INK_ASCII);
    ASSERT_HAS(text.data, "Rank 5\n");
    ASSERT_HAS(text.data, "Ranks 0-3 (each)\n");
    ASSERT_HAS(text.data, "Ranks 4, 6-7 (each)\n");
    text_free(&text);
    run_close(store);
    pipeline_free(plan);
    pipeline_free(even);
    arena_free(arena);
    scratch_close(folder);
}

TEST(compare_tensor_parallel, "all tensor-parallel ranks are alike; other ways to spread as many are shown")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct pipeline *plan = split_plan(4, (struct layout){.tp = 2, .micro_batch = 2}),
                    *data = split_plan(4, (struct layout){.dp = 2, .micro_batch = 2});
    struct comparison c;
    scratch_open(folder);
    int64_t run_id = run_write_pipeline(scratch_path(folder, "run.db", path), plan, 0);
    struct store *store = open_store(folder, "run.db");
    ASSERT_OK(compare_plan_with_run(plan, store, run_id, arena, &c, &err));
    ASSERT_INT(c.max_error_bytes, 0);
    ASSERT_OK(compare_plan_with_run(data, store, run_id, arena, &c, &err));
    ASSERT(c.max_error_bytes > 0);
    assert_layouts(&c, "  data-parallel ranks    2     1\n  tensor-parallel ranks  1     2\n", arena);
    store_close(store);
    pipeline_free(plan);
    pipeline_free(data);
    arena_free(arena);
    scratch_close(folder);
}

TEST(compare_wrong_kind, "runs of other models, of no model, of other rank counts or without figures are "
                         "refused; layouts are shown")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct pipeline *gpt2 = fixture_pipeline("gpt2-tiny", "none", (struct layout){.micro_batch = 2});
    struct pipeline *other = fixture_pipeline("gpt2-tiny", "none", (struct layout){.micro_batch = 1});
    struct pipeline *pair = fixture_pipeline("gpt2-tiny", "none", (struct layout){.dp = 2, .micro_batch = 2});
    struct pipeline *llama = fixture_pipeline("llama-tiny", "none", (struct layout){.micro_batch = 2});
    struct pipeline *full = fixture_pipeline("gpt2-tiny", "full", (struct layout){.micro_batch = 2});
    struct comparison c;
    scratch_open(folder);
    run_write(scratch_path(folder, "run.db", path));
    run_write_pipeline(path, gpt2, 0);
    run_write_pipeline(path, pair, 0);
    struct store *store = run_open(path);
    struct store_run unfinished = run_header(1);
    ASSERT_OK(store_run_add(store, &unfinished, &err));
    ASSERT_INT(compare_plan_with_run(gpt2, store, 1, arena, &c, &err), -1);
    ASSERT_HAS(err.text, "does not say which model");
    ASSERT_INT(compare_plan_with_run(llama, store, 2, arena, &c, &err), -1);
    ASSERT_HAS(err.text, "run 2 trained gpt2-tiny (2 layers), and the plan is for llama-tiny");
    ASSERT_INT(compare_plan_with_run(gpt2, store, 3, arena, &c, &err), -1);
    ASSERT_HAS(err.text, "run 3 had 2 ranks, and the plan is for 1");
    ASSERT_INT(compare_plan_with_run(gpt2, store, 4, arena, &c, &err), -1);
    ASSERT_HAS(err.text, "run 4 has no measured peak of rank 0");
    ASSERT_INT(compare_plan_with_run(gpt2, store, 9, arena, &c, &err), -1);
    ASSERT_HAS(err.text, "no run 9");
    ASSERT_OK(compare_plan_with_run(other, store, 2, arena, &c, &err));
    assert_layouts(&c, "  micro-batch   1     2\n  global batch  1     2\n", arena);
    ASSERT_OK(compare_plan_with_run(full, store, 2, arena, &c, &err));
    assert_layouts(&c, "             plan  run\n  recompute  full  none\n", arena);
    store_close(store);
    pipeline_free(gpt2);
    pipeline_free(pair);
    pipeline_free(other);
    pipeline_free(llama);
    pipeline_free(full);
    arena_free(arena);
    scratch_close(folder);
}

/* The second run's activations of both layers are twice as large, and a tensor is new. */
static void write_grown(const char *path)
{
    static const struct store_tensor fresh = {6, "head logits", "2x16x64", "F32", ROLE_ACTIVATION, -1,
                                              0, 8192};
    struct store *store = run_open(path);
    struct store_run run = run_header(1);
    struct store_rank rank = {.measured = true, .peak_bytes = RUN_HELD + 2 * 12288 + 8192};
    struct store_memory event = {.operation_id = -1};
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int i = 0; i <= RUN_TENSORS; i++) {
        struct store_tensor tensor = i < RUN_TENSORS ? run_tensors[i] : fresh;
        if (i < RUN_TENSORS && tensor.role == ROLE_ACTIVATION)
            tensor.bytes *= 2;
        event.tensor_id = i;
        event.role = tensor.role;
        event.bytes = tensor.bytes;
        event.live_bytes += tensor.bytes;
        rank.at_peak[tensor.role] += tensor.bytes;
        ASSERT_OK(store_tensor_add(store, run.run_id, 0, &tensor, &err));
        ASSERT_OK(store_memory_add(store, run.run_id, 0, &event, &err));
        event.seq++;
    }
    ASSERT_OK(store_rank_add(store, run.run_id, &rank, &err));
    run_close(store);
}

/* Nobody says what the layouts were, and there are two ranks before: the fullest, rank 1, had a peak of 67,584. Its activations grow
 * by 2 * 12,288 + 8192 = 32,768, and its workspace of 2048 is gone. */
TEST(compare_runs_golden, "one run against another: what changed by role, by layer and by tensor")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct comparison c;
    scratch_open(folder);
    run_write(scratch_path(folder, "run.db", path));
    write_grown(path);
    struct store *store = open_store(folder, "run.db");
    ASSERT_OK(runs_compare(store, 1, store, 2, arena, &c));
    ASSERT_INT(c.max_error_bytes, 32768);
    ASSERT_NEAR(c.max_error_fraction, 32768.0 / 67584, 1e-12);
    ASSERT(c.pairing == COMPARE_FULLEST && c.changed_before_rank == 1 && c.changed_rank == 0);
    check_golden(compare_report(&c, arena), INK_ASCII, "compare_runs.txt");
    json_t *json = compare_to_json(&c), *tensors = json_object_get(json, "changed_tensors");
    check_keys(json, "kind first second remark max_error_bytes max_error_fraction rows layouts paired_by "
                     "stage_peaks changed_before_rank changed_rank changed_layers "
                     "changed_tensors peak_moved first_peak_at second_peak_at arrived_bytes left_bytes");
    /* The logits are new at the peak; bytes of no tensor were there before only. */
    ASSERT(json_is_true(json_object_get(json, "peak_moved")));
    ASSERT_INT(c.arrived, 1);
    ASSERT_INT(json_whole(json, "arrived_bytes"), 8192);
    ASSERT_INT(c.left, 1);
    ASSERT_INT(json_whole(json, "left_bytes"), 2048);
    ASSERT_INT(json_array_size(tensors), 4);
    ASSERT_INT(json_whole(json_array_get(tensors, 0), "after_bytes"), 24576);
    json_decref(json);

    /* The other way round and with itself. */
    ASSERT_OK(runs_compare(store, 1, store, 1, arena, &c));
    ASSERT_INT(c.max_error_bytes, 0);
    ASSERT_INT(c.tensor_count + c.layer_count, 0);
    ASSERT(c.located && !c.moved && c.arrived == 0 && c.left == 0);
    ASSERT_INT(c.row_count, RUN_RANKS * ROLE_COUNT);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(compare_many_ranks, "64 ranks that all differ fill no more than a page")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct comparison c;
    scratch_open(folder);
    struct store *store = run_open(scratch_path(folder, "run.db", path));
    for (int run = 1; run <= 2; run++) {
        struct store_run row = run_header(64);
        ASSERT_OK(store_run_add(store, &row, &err));
        for (int rank = 0; rank < 64; rank++) {
            struct store_rank figures = {.rank = rank, .measured = true, .peak_bytes = 4096 + run * rank};
            figures.at_peak[ROLE_ACTIVATION] = figures.peak_bytes;
            ASSERT_OK(store_rank_add(store, row.run_id, &figures, &err));
        }
    }
    ASSERT_OK(runs_compare(store, 1, store, 2, arena, &c));
    ASSERT_INT(c.max_error_bytes, 63);
    struct text text = ink_checked(compare_report(&c, arena), INK_ASCII);
    ASSERT_HAS(text.data, "Rank 63\n");
    ASSERT_HAS(text.data, "61 more ranks differ no more than these.");
    text_free(&text);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* Ranks 0 and 1 are the replicas of the first run's stage 0 and 2 and 3 those of its stage 1; the second run's are the parts. Rank 3 of
 * the first held 4096 bytes more than its stage's program says, so it stands for its stage; elsewhere the first of equals does. */
TEST(compare_runs_by_stage, "runs with as many stages and other ranks in them are compared stage by stage")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct pipeline *data =
                        split_plan(3, (struct layout){.dp = 2, .pp = 2, .micro_batch = 2, .global_batch = 8}),
                    *tensor =
                        split_plan(3, (struct layout){.tp = 2, .pp = 2, .micro_batch = 2, .global_batch = 8});
    struct comparison c;
    scratch_open(folder);
    int64_t before = run_write_pipeline(scratch_path(folder, "run.db", path), data, 0);
    int64_t after = run_write_pipeline(path, tensor, 0);
    struct store *store = run_open(path);
    run_add_measured(store, before, data->stages[1], 3, 4096);
    ASSERT_OK(runs_compare(store, before, store, after, arena, &c));
    ASSERT(c.pairing == COMPARE_BY_STAGE);
    ASSERT_INT(c.row_count, 2 * ROLE_COUNT);
    for (int64_t i = 0; i < c.row_count; i++) {
        int64_t stage = i / ROLE_COUNT;
        enum role role = (enum role)(i % ROLE_COUNT);
        ASSERT_INT(c.rows[i].stage, stage);
        ASSERT_INT(c.rows[i].before_rank, stage ? 3 : 0);
        ASSERT_INT(c.rows[i].rank, stage ? 2 : 0);
        ASSERT_INT(c.rows[i].predicted_bytes,
                   data->stages[stage]->at_peak[role] + (stage && role == ROLE_WORKSPACE ? 4096 : 0));
        ASSERT_INT(c.rows[i].measured_bytes, tensor->stages[stage]->at_peak[role]);
    }
    ASSERT_INT(c.stage_peaks[0].bytes[1], data->stages[1]->peak_bytes + 4096);
    ASSERT_INT(c.stage_peaks[1].bytes[1], tensor->stages[1]->peak_bytes);
    check_golden(compare_report(&c, arena), INK_ASCII, "compare_runs_by_stage.txt");
    json_t *json = compare_to_json(&c), *row = json_array_get(json_object_get(json, "rows"), ROLE_COUNT);
    ASSERT_STR(json_string_value(json_object_get(json, "paired_by")), "stage");
    ASSERT_INT(json_whole(json_array_get(json_object_get(json, "layouts"), 1), "tp"), 2);
    check_keys(row, "rank role predicted_bytes measured_bytes before_rank");
    ASSERT_INT(json_whole(row, "before_rank"), 3);
    json_t *peaks = json_array_get(json_object_get(json, "stage_peaks"), 1);
    check_keys(peaks, "stage before_bytes after_bytes");
    ASSERT_INT(json_whole(peaks, "before_bytes"), data->stages[1]->peak_bytes + 4096);
    ASSERT_INT(json_whole(peaks, "after_bytes"), tensor->stages[1]->peak_bytes);
    json_decref(json);
    run_close(store);
    pipeline_free(data);
    pipeline_free(tensor);
    arena_free(arena);
    scratch_close(folder);
}

TEST(compare_runs_fullest,
     "runs with other numbers of stages are compared where each is fullest, with the peaks of their stages")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct pipeline *one = split_plan(4, (struct layout){.dp = 2, .micro_batch = 2, .global_batch = 8}),
                    *two = split_plan(1, (struct layout){.pp = 2, .micro_batch = 2, .global_batch = 8});
    int worst = pipeline_worst(two);
    struct comparison c;
    scratch_open(folder);
    int64_t before = run_write_pipeline(scratch_path(folder, "run.db", path), one, 0);
    int64_t after = run_write_pipeline(path, two, 0);
    struct store *store = open_store(folder, "run.db");
    ASSERT_OK(runs_compare(store, before, store, after, arena, &c));
    ASSERT(c.pairing == COMPARE_FULLEST);
    ASSERT_INT(c.row_count, ROLE_COUNT);
    ASSERT_INT(c.rows[0].rank, worst);
    ASSERT_INT(c.rows[ROLE_ACTIVATION].measured_bytes, two->stages[worst]->at_peak[ROLE_ACTIVATION]);
    ASSERT_INT(c.stage_peaks[0].count, 1);
    ASSERT_INT(c.stage_peaks[1].count, 2);
    struct text text = ink_checked(compare_report(&c, arena), INK_ASCII);
    ASSERT_HAS(text.data, "Ranks of the same number do different work");
    ASSERT_HAS(text.data, "  pipeline stages      1       2\n");
    ASSERT_HAS(text.data, arena_printf(arena, "The fullest rank: rank 0 before, rank %d after\n", worst));
    ASSERT_HAS(text.data, "The highest peak of each stage\n");
    text_free(&text);
    json_t *json = compare_to_json(&c), *second = json_array_get(json_object_get(json, "stage_peaks"), 1);
    ASSERT(json_is_null(json_object_get(second, "before_bytes")));
    ASSERT_INT(json_whole(second, "after_bytes"), two->stages[1]->peak_bytes);
    json_decref(json);

    /* A split of the layers moves bytes, and ranks do the same: they keep their numbers. */
    ASSERT_OK(runs_compare(store, after, store, after, arena, &c));
    ASSERT(c.pairing == COMPARE_BY_RANK && c.max_error_bytes == 0 && c.stage_peaks[0].count == 0);
    store_close(store);
    pipeline_free(one);
    pipeline_free(two);
    arena_free(arena);
    scratch_close(folder);
}

/* Of a run whose layout would have as many ranks as no number holds, and of one whose layout has other ranks than it: nothing. */
TEST(compare_runs_unsound,
     "a layout that cannot be, or is not the ranks', is none, and equal numbers are paired")
{
    static const char *const layouts[] = {
        "{\"dp\": 4611686018427387904, \"tp\": 4, \"pp\": 4, \"micro_batch\": 1, \"global_batch\": 1, "
        "\"seq_len\": 1}",
        "{\"dp\": 3, \"tp\": 1, \"pp\": 1, \"micro_batch\": 1, \"global_batch\": 3, \"seq_len\": 1}"};
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct comparison c;
    scratch_open(folder);
    struct store *store = run_open(scratch_path(folder, "run.db", path));
    for (int run = 1; run <= 2; run++) {
        struct store_run row = run_header(RUN_RANKS);
        row.layout_json = layouts[run - 1];
        ASSERT_OK(store_run_add(store, &row, &err));
        for (int rank = 0; rank < RUN_RANKS; rank++)
            run_add_rank(store, row.run_id, rank);
    }
    ASSERT_OK(runs_compare(store, 1, store, 2, arena, &c));
    ASSERT(c.pairing == COMPARE_BY_RANK && !c.layouts[0].layout && !c.layouts[1].layout && !c.remark);
    ASSERT_INT(c.row_count, RUN_RANKS * ROLE_COUNT);
    ASSERT_INT(c.max_error_bytes, 0);
    run_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* As many ranks, of which none has the number of another. */
TEST(compare_runs_foreign, "ranks that other tools number otherwise are compared where each run is fullest")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct comparison c;
    scratch_open(folder);
    struct store *store = run_open(scratch_path(folder, "run.db", path));
    for (int run = 1; run <= 2; run++) {
        struct store_run row = run_header(0);
        ASSERT_OK(store_run_add(store, &row, &err));
        struct store_rank figures = {.rank = 4 * run, .measured = true, .peak_bytes = 4096 * run};
        figures.at_peak[ROLE_ACTIVATION] = figures.peak_bytes;
        ASSERT_OK(store_rank_add(store, row.run_id, &figures, &err));
    }
    ASSERT_OK(runs_compare(store, 1, store, 2, arena, &c));
    ASSERT(c.pairing == COMPARE_FULLEST && c.changed_before_rank == 4 && c.changed_rank == 8);
    ASSERT_INT(c.max_error_bytes, 4096);
    run_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* A tensor of `bytes` in each of 12 layers. */
static int64_t write_layers(struct store *store, int64_t bytes)
{
    struct store_run run = run_header(1);
    struct store_rank rank = {.measured = true, .peak_bytes = 12 * bytes};
    struct store_memory event = {.operation_id = -1, .role = ROLE_ACTIVATION, .bytes = bytes};
    rank.at_peak[ROLE_ACTIVATION] = rank.peak_bytes;
    ASSERT_OK(store_run_add(store, &run, &err));
    for (int layer = 0; layer < 12; layer++) {
        char name[32];
        snprintf(name, sizeof name, "layer %d qkv", layer);
        struct store_tensor tensor = {layer, name, "2x16x96", "F32", ROLE_ACTIVATION, layer, 0, bytes};
        event.seq = event.tensor_id = layer;
        event.live_bytes += bytes;
        ASSERT_OK(store_tensor_add(store, run.run_id, 0, &tensor, &err));
        ASSERT_OK(store_memory_add(store, run.run_id, 0, &event, &err));
    }
    ASSERT_OK(store_rank_add(store, run.run_id, &rank, &err));
    return run.run_id;
}

TEST(compare_runs_layers, "layers that changed alike are one stretch, though 10 is before 2 by name")
{
    char folder[64], path[128];
    struct arena *arena = arena_create();
    struct comparison c;
    scratch_open(folder);
    struct store *store = run_open(scratch_path(folder, "run.db", path));
    int64_t before = write_layers(store, 1024), after = write_layers(store, 2048);
    ASSERT_OK(runs_compare(store, before, store, after, arena, &c));
    ASSERT_INT(c.tensor_count, 12);
    struct text text = ink_checked(compare_report(&c, arena), INK_ASCII);
    ASSERT_HAS(text.data, "  layers 0-11 qkv (each)  activation  1.00 KiB  2.00 KiB  +1.00 KiB\n");
    ASSERT_HAS(text.data, "  layers 0-11 (each)  activation  1.00 KiB  2.00 KiB  +1.00 KiB\n");
    text_free(&text);
    run_close(store);
    arena_free(arena);
    scratch_close(folder);
}
