/* Memory over time as a rank recorded it: one pass over its events. */
#include "reports/describe.h"
#include "reports/series.h"
#include "reports/steps.h"

#include <stdlib.h>

struct recording {
    struct series_builder *builder;
    const struct store_tensor *tensors;
    const struct store_operation *operations;
    int64_t tensor_count, operation_count;
};

/* What belongs to no tensor is known by its address alone; behind the tensors there is a name for it in each role. */
static void see(void *context, const struct store_memory *event)
{
    const struct recording *r = context;
    int64_t tensor = store_find_tensor(r->tensors, r->tensor_count, event->tensor_id);
    int64_t operation = store_find_operation(r->operations, r->operation_count, event->operation_id);
    series_add(r->builder, &(struct series_event){
                               .at = event->time_ns,
                               .operation = operation,
                               .tensor = tensor < 0 ? r->tensor_count + (int64_t)event->role : tensor,
                               .bytes = event->bytes,
                               .live_bytes = event->live_bytes,
                               .key = event->tensor_id < 0 ? -1 - event->address : event->tensor_id,
                               .role = event->role,
                               .step = steps_number(event->step),
                           });
}

static void name_tensors(const struct recording *r, struct arena *arena, struct series *out)
{
    out->tensor_count = r->tensor_count + ROLE_COUNT;
    out->tensors = arena_array(arena, (size_t)out->tensor_count, sizeof *out->tensors);
    for (int64_t i = 0; i < r->tensor_count; i++) {
        const struct store_tensor *row = &r->tensors[i];
        const char *name = row->name ? describe_short_name(row->name, row->layer) : "(no name)";
        out->tensors[i] = (struct series_tensor){name, row->role, row->layer, row->micro_batch};
    }
    for (int role = 0; role < ROLE_COUNT; role++)
        out->tensors[r->tensor_count + role] = (struct series_tensor){"(no tensor)", (enum role)role, -1, -1};
}

static void name_operations(const struct recording *r, const struct program *program, struct arena *arena,
                            struct series *out)
{
    out->operation_count = r->operation_count;
    out->operations = arena_array(arena, (size_t)out->operation_count, sizeof *out->operations);
    for (int64_t i = 0; i < r->operation_count; i++) {
        const struct store_operation *row = &r->operations[i];
        out->operations[i] = (struct series_operation){
            row->kind, row->phase, describe_part(program, row->operation_id, row->layer, arena),
            row->micro_batch};
    }
}

int series_of_run(struct store *store, int64_t run_id, int64_t rank, const struct program *program,
                  int64_t limit, struct arena *arena, struct series **out, struct error *err)
{
    struct recording r = {0};
    struct store_tensor *tensors;
    struct store_operation *operations;
    int64_t events;
    *out = NULL;
    if (store_count_memory(store, run_id, (int)rank, &events, err))
        return -1;
    if (events == 0)
        return 0;
    if (store_read_tensors(store, run_id, (int)rank, arena, &tensors, &r.tensor_count, err) ||
        store_read_operations(store, run_id, (int)rank, arena, &operations, &r.operation_count, err))
        return -1;
    r.tensors = tensors;
    r.operations = operations;
    r.builder = series_begin(arena, events, limit);
    int status = store_each_memory(store, run_id, (int)rank, see, &r, err);
    struct series *series = series_end(r.builder);
    if (status)
        return -1;
    series->axis = SERIES_NANOSECONDS;
    series->rank = rank;
    name_tensors(&r, arena, series);
    name_operations(&r, program, arena, series);
    *out = series;
    return 0;
}
