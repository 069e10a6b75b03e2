/* What the views of run.db say that people query by hand (schema.c), and kernels with their operations: read as they would. */
#ifndef MEMPLAN_TESTS_PROFILER_VIEWS_H
#define MEMPLAN_TESTS_PROFILER_VIEWS_H

#include "profiler/store_query.h"

#include <string.h>

struct views_role {
    int place; /* a layer, or a rank */
    enum role role;
    int64_t bytes, other_bytes;
};

static inline void views_fill_role(const struct reading *reading, void *row)
{
    struct views_role *role = row;
    *role = (struct views_role){(int)integer_at(reading, 0), role_at(reading, 1), integer_at(reading, 2),
                                integer_at(reading, 3)};
}

static inline int views_read_roles(struct store *store, const char *sql, int64_t run_id, int rank, struct arena *arena,
                                   struct views_role **rows, int64_t *count, struct error *err)
{
    struct query query = {
        .sql = sql, .arguments = {run_id, rank}, .row_bytes = sizeof **rows, .fill = views_fill_role};
    return query_rows(store, &query, arena, rows, count, err);
}

/* Live bytes at the peak, counted from the recorded events; zeros when there are none. */
static inline int views_peak_breakdown(struct store *store, int64_t run_id, int rank, int64_t bytes[ROLE_COUNT],
                                       struct error *err)
{
    struct arena *arena = arena_create();
    struct views_role *rows;
    int64_t count;
    memset(bytes, 0, ROLE_COUNT * sizeof *bytes);
    int rc = views_read_roles(store,
                              "SELECT 0, role, bytes, 0 FROM peak_breakdown WHERE run_id = ?1 AND rank = ?2",
                              run_id, rank, arena, &rows, &count, err);
    for (int64_t i = 0; rc == 0 && i < count; i++)
        bytes[rows[i].role] += rows[i].bytes;
    arena_free(arena);
    return rc;
}

/* By layer (-1: embedding, head, and what belongs to no tensor), then by role. */
static inline int views_layer_breakdown(struct store *store, int64_t run_id, int rank, struct arena *arena,
                                        struct views_role **rows, int64_t *count, struct error *err)
{
    return views_read_roles(store,
                            "SELECT layer, b.role, bytes, 0 FROM layer_breakdown b JOIN roles USING (role)"
                            " WHERE run_id = ?1 AND rank = ?2 ORDER BY layer, role_order",
                            run_id, rank, arena, rows, count, err);
}

/* Predicted, and the others measured: by rank, then by role. */
static inline int views_predicted_vs_measured(struct store *store, int64_t run_id, struct arena *arena,
                                              struct views_role **rows, int64_t *count, struct error *err)
{
    return views_read_roles(store,
                            "SELECT rank, d.role, predicted_bytes, measured_bytes FROM predicted_vs_measured d"
                            " JOIN roles USING (role) WHERE run_id = ?1 ORDER BY rank, role_order",
                            run_id, 0, arena, rows, count, err);
}

/* A kernel with its operation, whose kind is "" when it is not among the run's. */
struct views_span {
    struct store_kernel kernel;
    struct store_operation operation;
};

static inline void views_fill_span(const struct reading *reading, void *row)
{
    struct views_span *span = row;
    span->kernel = (struct store_kernel){
        .step = (int)integer_at(reading, 0),
        .seq = integer_at(reading, 1),
        .start_ns = integer_at(reading, 2),
        .end_ns = integer_at(reading, 3),
        .operation_id = integer_at(reading, 4),
    };
    span->operation = (struct store_operation){
        .operation_id = integer_at(reading, 4),
        .kind = word_at(reading, 5),
        .phase = word_at(reading, 6),
        .detail = word_at(reading, 7),
        .layer = (int)integer_at(reading, 8),
        .micro_batch = (int)integer_at(reading, 9),
        .recompute = integer_at(reading, 10) != 0,
        .flops = integer_at(reading, 11),
        .bytes_moved = integer_at(reading, 12),
    };
}

/* Of one step, in order of time. */
static inline int views_kernels(struct store *store, int64_t run_id, int rank, int step, struct arena *arena,
                                struct views_span **rows, int64_t *count, struct error *err)
{
    struct query query = {.sql = "SELECT step, seq, start_ns, end_ns, operation_id, kind, phase, detail,"
                                 " COALESCE(layer, -1), COALESCE(micro_batch, -1), recompute, flops, bytes_moved"
                                 " FROM kernels LEFT JOIN operations USING (run_id, rank, operation_id)"
                                 " WHERE kernels.run_id = ?1 AND kernels.rank = ?2 AND step = ?3"
                                 " ORDER BY start_ns, seq",
                          .arguments = {run_id, rank, step},
                          .row_bytes = sizeof **rows,
                          .fill = views_fill_span};
    return query_rows(store, &query, arena, rows, count, err);
}

#endif
