#include "planner/frameworks/workload_terms.h"

#include "planner/frameworks/workload_parts.h"

#include <stdlib.h>

static int by_bytes(const void *a, const void *b)
{
    const struct workload_term *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static const char *in_arena(struct arena *arena, struct text *text)
{
    const char *copy = arena_strdup(arena, text->length ? text->data : "");
    text_free(text);
    return copy;
}

static void list_terms(const struct workload *w, const struct replay_census *census, struct arena *arena,
                       struct workload_terms *out)
{
    out->list = arena_array(arena, LABELS, sizeof *out->list);
    for (int label = 0; label < LABELS; label++) {
        struct text name = {0}, formula = {0};
        if (!census->count[label])
            continue;
        workload_label_name(label, &name);
        workload_label_formula(w, label, &formula);
        out->list[out->count++] = (struct workload_term){.name = in_arena(arena, &name),
                                                         .role = workload_label_role(label),
                                                         .count = census->count[label],
                                                         .bytes = census->bytes[label],
                                                         .formula = in_arena(arena, &formula),
                                                         .source = workload_label_source(label)};
        out->bytes += census->bytes[label];
    }
    qsort(out->list, (size_t)out->count, sizeof *out->list, by_bytes);
}

int workload_terms(const struct workload *w, int64_t stage, struct arena *arena, struct workload_terms *out,
                   struct error *err)
{
    struct replay_census census = {0};
    struct workload_memory memory;
    *out = (struct workload_terms){0};
    if (workload_stage_memory(w, stage, &memory, err))
        return -1;
    if (w->library == WORKLOAD_LLMC)
        workload_llmc_census(w, &census);
    else {
        struct workload_memory again = {0};
        struct stage_replay ask = {.stage = stage, .census_take = memory.peak.take, .census = &census};
        if (workload_stage_replay(w, &ask, &again, err))
            return -1;
    }
    out->moment = memory.peak.moment;
    list_terms(w, &census, arena, out);
    return 0;
}
