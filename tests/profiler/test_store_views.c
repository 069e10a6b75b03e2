/* What run.db works out of its rows: the peak and who holds it, live bytes over time, differences, costs. */
#include "tests/profiler/sample.h"
#include "tests/profiler/views.h"

#include <math.h>

static struct error err;

static void assert_roles(const int64_t *got, const int64_t *expected)
{
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_MSG(got[role] == expected[role], "%s: %lld bytes, expected %lld", role_name(role),
                   (long long)got[role], (long long)expected[role]);
}

TEST(store_peak, "the peak is the first moment of the highest live sum, by role, layer and tensor")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct views_role *layers;
    struct store_tensor *tensors;
    int64_t bytes[ROLE_COUNT], count;
    scratch_open(folder);
    sample_file(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(views_peak_breakdown(store, 1, 0, bytes, &err));
    assert_roles(bytes, sample_at_peak);

    /* The workspace has no tensor, so no layer either. */
    const struct views_role expected[] = {{.place = -1, .role = ROLE_PARAMETER, .bytes = 100},
                                          {.place = -1, .role = ROLE_WORKSPACE, .bytes = 30},
                                          {.place = 0, .role = ROLE_GRADIENT, .bytes = 50},
                                          {.place = 0, .role = ROLE_ACTIVATION, .bytes = 200}};
    ASSERT_OK(views_layer_breakdown(store, 1, 0, arena, &layers, &count, &err));
    ASSERT_INT(count, 4);
    for (int i = 0; i < 4; i++)
        ASSERT(layers[i].place == expected[i].place && layers[i].role == expected[i].role &&
               layers[i].bytes == expected[i].bytes);

    ASSERT_OK(store_read_peak_tensors(store, 1, 0, 3, arena, &tensors, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_STR(tensors[0].name, "layer 0 qkv");
    ASSERT_STR(tensors[0].dims, "2x25");
    ASSERT_INT(tensors[0].micro_batch, 0);
    ASSERT_INT(tensors[0].bytes, 200);
    ASSERT_INT(tensors[1].bytes, 100);
    ASSERT_INT(tensors[2].bytes, 50);
    ASSERT_OK(store_read_peak_tensors(store, 1, 0, -1, arena, &tensors, &count, &err));
    ASSERT_INT(count, 4);
    ASSERT(tensors[3].name == NULL && tensors[3].tensor_id == -1 && tensors[3].bytes == 30);

    /* A rank without events has no peak. */
    ASSERT_OK(views_peak_breakdown(store, 1, 1, bytes, &err));
    assert_roles(bytes, (int64_t[ROLE_COUNT]){0});
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(store_timeline, "nine events in at most three points keep the highest moment of each third")
{
    char folder[64], path[128];
    struct store *store;
    struct arena *arena = arena_create();
    struct store_point *points;
    int64_t count;
    scratch_open(folder);
    sample_file(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(store_read_timeline(store, 1, 0, 3, arena, &points, &count, &err));
    /* 100 150 350 | 380 350 380 | 350 150 214 */
    ASSERT_INT(count, 3);
    ASSERT_INT(points[0].seq, 2);
    ASSERT_INT(points[0].live_bytes, 350);
    ASSERT_INT(points[1].seq, 3);
    assert_roles(points[1].live, sample_at_peak);
    ASSERT_INT(points[2].seq, 6);
    ASSERT_INT(points[2].live[ROLE_COMMUNICATION], 0);
    ASSERT_OK(store_read_timeline(store, 1, 0, 4, arena, &points, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_OK(store_read_timeline(store, 1, 0, 0, arena, &points, &count, &err));
    ASSERT_INT(count, 9);
    ASSERT_INT(points[8].live[ROLE_ACTIVATION], 64);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(store_differences, "predicted minus measured, for every rank and role")
{
    char folder[64];
    struct arena *arena = arena_create();
    struct views_role *rows;
    struct store_prediction *predictions;
    struct store_rank *ranks;
    int64_t count;
    struct store_run run = {.ranks = 2};
    struct store *store = sample_begin(folder, &run);
    struct store_prediction foretold = {.rank = 1,
                                        .at_peak = {[ROLE_PARAMETER] = 90, [ROLE_INPUT] = 8},
                                        .arena_bytes = 128,
                                        .step_seconds = 0.25};
    struct store_rank measured = {.rank = 1,
                                  .measured = true,
                                  .arena_bytes = 120,
                                  .peak_bytes = 100,
                                  .reserved_peak_bytes = 121,
                                  .at_peak = {[ROLE_PARAMETER] = 100},
                                  .host = "node7"};
    ASSERT_OK(store_prediction_add(store, 1, &foretold, &err));
    ASSERT_OK(store_rank_add(store, 1, &measured, &err));
    ASSERT_OK(store_commit(store, &err));

    ASSERT_OK(views_predicted_vs_measured(store, 1, arena, &rows, &count, &err));
    ASSERT_INT(count, ROLE_COUNT); /* rank 0 has neither side */
    for (int role = 0; role < ROLE_COUNT; role++) {
        ASSERT(rows[role].place == 1 && rows[role].role == (enum role)role);
        ASSERT_INT(rows[role].bytes, role == ROLE_PARAMETER ? 90 : role == ROLE_INPUT ? 8 : 0);
        ASSERT_INT(rows[role].other_bytes, role == ROLE_PARAMETER ? 100 : 0);
    }
    ASSERT_OK(store_read_predictions(store, 1, arena, &predictions, &count, &err));
    ASSERT_INT(count, 1);
    ASSERT_INT(predictions[0].rank, 1);
    ASSERT_INT(predictions[0].peak_bytes, 98);
    ASSERT_INT(predictions[0].arena_bytes, 128);
    ASSERT_NEAR(predictions[0].step_seconds, 0.25, 1e-12);
    ASSERT_OK(store_read_ranks(store, 1, arena, &ranks, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT(!ranks[0].measured && ranks[1].measured);
    ASSERT_INT(ranks[1].reserved_peak_bytes, 121);
    ASSERT_INT(ranks[1].at_peak[ROLE_PARAMETER], 100);
    ASSERT_STR(ranks[1].host, "node7");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

TEST(store_costs, "equal operations share a median, and kernels carry their operation")
{
    char folder[64];
    struct arena *arena = arena_create();
    struct store_cost *costs;
    struct views_span *spans;
    struct store_operation *operations;
    int64_t count;
    struct store_run run = {.ranks = 1};
    const struct store_operation matmuls[] = {
        {10, "matmul", "forward", "M8 N4 K2", 0, 1, false, 128, 96},
        {11, "matmul", "forward", "M8 N4 K2", 1, 1, false, 128, 96},
        {12, "matmul", "backward", "M8 N4 K2", 1, 1, true, 128, 96},
    };
    /* Forward: 10, 30, 20 and 100 ns: median 25, mean 40. Backward: 7 ns. Operation 99 was never announced. */
    const struct store_kernel kernels[] = {
        {0, 10, 1000, 1010, 0}, {1, 11, 1010, 1040, 0}, {2, 12, 1040, 1047, 0},
        {3, 99, 1047, 1050, 0}, {4, 10, 2000, 2020, 1}, {5, 11, 2020, 2120, 1},
    };
    struct store *store = sample_begin(folder, &run);
    for (int i = 0; i < 3; i++)
        ASSERT_OK(store_operation_add(store, 1, 0, &matmuls[i], &err));
    for (int i = 0; i < 6; i++)
        ASSERT_OK(store_kernel_add(store, 1, 0, &kernels[i], &err));
    ASSERT_OK(store_commit(store, &err));

    ASSERT_OK(store_read_operation_costs(store, 1, arena, &costs, &count, &err));
    ASSERT_INT(count, 2);
    ASSERT_STR(costs[0].phase, "forward");
    ASSERT_STR(costs[0].detail, "M8 N4 K2");
    ASSERT_INT(costs[0].count, 4);
    ASSERT_NEAR(costs[0].median_s, 25e-9, 1e-15);
    ASSERT_NEAR(costs[0].mean_s, 40e-9, 1e-15);
    ASSERT_NEAR(costs[0].min_s, 10e-9, 1e-15);
    ASSERT_INT(costs[0].flops, 128);
    ASSERT_INT(costs[0].bytes, 96);
    ASSERT_INT(costs[1].count, 1);
    ASSERT_NEAR(costs[1].median_s, 7e-9, 1e-15);

    ASSERT_OK(views_kernels(store, 1, 0, 0, arena, &spans, &count, &err));
    ASSERT_INT(count, 4);
    ASSERT_INT(spans[2].kernel.end_ns, 1047);
    ASSERT_STR(spans[2].operation.phase, "backward");
    ASSERT(spans[2].operation.recompute);
    ASSERT_STR(spans[3].operation.kind, "");
    ASSERT_INT(spans[3].operation.operation_id, 99);
    ASSERT_INT(spans[3].operation.layer, -1);
    ASSERT_OK(store_read_operations(store, 1, 0, arena, &operations, &count, &err));
    ASSERT_INT(count, 3);
    ASSERT_INT(operations[1].layer, 1);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* A thousand steps of 500 tensors taken and then given back in reverse, over 1,000 bytes of parameters. Tensor i holds
 * i + 1 bytes, so live bytes peak at 1,000 + 500 * 501 / 2 = 126,250 when all 500 live. */
static void write_million_events(struct store *store)
{
    struct store_memory event = {.bytes = 1000, .live_bytes = 1000, .tensor_id = 500, .role = ROLE_PARAMETER};
    ASSERT_OK(store_memory_add(store, 1, 0, &event, &err));
    for (int step = 0; step < 1000; step++)
        for (int i = 0; i < 1000; i++) {
            int tensor = i < 500 ? i : 999 - i;
            event.seq++;
            event.time_ns += 1000;
            event.step = step;
            event.tensor_id = tensor;
            event.role = tensor % 2 ? ROLE_ACTIVATION : ROLE_WORKSPACE;
            event.bytes = i < 500 ? tensor + 1 : -(tensor + 1);
            event.live_bytes += event.bytes;
            ASSERT_OK(store_memory_add(store, 1, 0, &event, &err));
        }
}

TEST(store_million, "the peak of a million events is found in less than a second")
{
    char folder[64], path[128];
    struct store_run run = {.ranks = 1};
    int64_t bytes[ROLE_COUNT];
    struct store *store = sample_begin(folder, &run);
    write_million_events(store);
    ASSERT_OK(store_commit(store, &err));
    store_close(store);
    ASSERT_OK(store_open_read(scratch_path(folder, "run.db", path), &store, &err));
    double best = 1e9; /* of three: the machine may be busy */
    for (int i = 0; i < 3; i++) {
        double start = thread_seconds();
        ASSERT_OK(views_peak_breakdown(store, 1, 0, bytes, &err));
        best = fmin(best, thread_seconds() - start);
    }
    ASSERT_MSG(best < 1, "took %.2f s", best);
    /* Odd tensors hold 2 + 4 + ... + 500 = 62,750 bytes, even ones 1 + 3 + ... + 499 = 62,500. */
    assert_roles(bytes, (int64_t[ROLE_COUNT]){
                            [ROLE_PARAMETER] = 1000, [ROLE_ACTIVATION] = 62750, [ROLE_WORKSPACE] = 62500});
    store_close(store);
    scratch_close(folder);
}
