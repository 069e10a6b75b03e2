#include "planner/ways_out.h"

#include "base/checked.h"
#include "base/units.h"
#include "planner/explanation.h"
#include "planner/nearest.h"
#include "planner/space.h"

#include <stdlib.h>

/* Each search here has this part of what a search may spend: for a plan that is shown, for what would only be nicer, and for whether
 * there is any, of which many are asked. */
enum { UNLOCK_PARTS = 4, FASTER_PARTS = 8, ANY_PARTS = 128 };

/* A plan for the request in less than `limit_s`; *gain is by how much it is faster than one of `plan_s`, 0: there is none. *out is the
 * caller's. */
static int find_faster(struct search_request request, double plan_s, double limit_s,
                       struct search_result *out, double *gain, struct error *err)
{
    request.alone = true;
    request.limit_s = limit_s;
    request.effort_parts = FASTER_PARTS;
    if (search_run(&request, out, err))
        return -1;
    *gain = out->alternative_count ? plan_s / out->alternatives[0].time.total - 1 : 0;
    return 0;
}

int ways_out_faster(const struct search_request *request, const struct search_result *result,
                    struct text *out, struct error *err)
{
    /* Shares of the capacity; less than 1% is not worth saying. */
    static const double shares[] = {0.05, 0.25}, worth = 0.01;
    double plan_s = result->alternatives[0].time.total, gain = 0;
    for (int i = 0; i < 2 && !(gain > 0); i++) {
        int64_t bytes = (int64_t)((double)request->cluster->groups[0].device.capacity_bytes * shares[i]);
        struct cluster cluster = cluster_with_memory(request->cluster, bytes);
        struct search_request more = *request;
        struct search_result own;
        more.cluster = &cluster;
        if (find_faster(more, plan_s, plan_s / (1 + worth), &own, &gain, err))
            return -1;
        if (gain > 0) {
            char text[UNITS_TEXT];
            text_printf(out, "with %s more per rank %.1f%% faster: ", units_format_bytes(bytes, text),
                        100 * gain);
            explanation_plan(&own.alternatives[0], out);
        }
        search_clear(&own);
    }
    return 0;
}

/* How much more every rank must have for this row of a cluster with `more_bytes` more. */
static int64_t bytes_missing(const struct cluster *cluster, const struct search_row *row)
{
    return row->needed_bytes - rank_device_plannable(&cluster->groups[row->group].device);
}

/* Is there a plan? The caller owns *out. */
static int try_any(struct search_request request, const struct cluster *cluster, struct search_result *out,
                   struct error *err)
{
    request.cluster = cluster;
    request.any = true;
    request.effort_parts = ANY_PARTS;
    return search_run(&request, out, err);
}

/* The fewest bytes more on every rank with which there is a plan, to the byte where searches spend little: at most what the row
 * lacks. *row becomes what is planned with it. What is found is mostly the least, or far from it: so a byte less comes first, and
 * then the half. */
static int find_enough_bytes(const struct search_request *request, struct arena *arena,
                             struct search_row *row, struct error *err)
{
    enum { MOST_EFFORT = 5000000 };
    int64_t too_few = 0, enough = bytes_missing(request->cluster, row), spent = 0;
    bool new = true;
    while (enough - too_few > 1 && spent < MOST_EFFORT) {
        struct search_result own;
        int64_t bytes = new ? enough - 1 : too_few + (enough - too_few) / 2;
        struct cluster cluster = cluster_with_memory(request->cluster, bytes);
        if (try_any(*request, &cluster, &own, err))
            return -1;
        bool found = own.alternative_count;
        if (found) {
            *row = explanation_copy(arena, &own.alternatives[0], request->model->layers);
            enough = bytes_missing(request->cluster, row);
        } else {
            too_few = bytes;
        }
        new = found && !new;
        spent += own.count.effort;
        search_clear(&own);
    }
    return 0;
}

/* Is there a plan with as many nodes in all, where nodes are alike, or with so many times as many of each kind? */
static int try_nodes(const struct search_request *request, int64_t nodes, bool *found, struct error *err)
{
    struct cluster cluster = *request->cluster;
    struct arena *arena = arena_create();
    struct search_row row;
    int64_t now = cluster_nodes(&cluster);
    for (int g = 0; g < cluster.group_count; g++)
        cluster.groups[g].nodes = cluster.groups[g].nodes * nodes / now;
    struct search_request more = *request;
    more.cluster = &cluster;
    int status = nearest_find(&more, arena, &row, found, err);
    if (!status && *found && bytes_missing(&cluster, &row) > 0) {
        struct search_result own;
        status = try_any(more, &cluster, &own, err);
        *found = !status && own.alternative_count > 0;
        search_clear(&own);
    }
    arena_free(arena);
    return status;
}

/* Twice as many nodes, and so on, until there is a plan; then the fewest between that and the half of it. Where they differ it is as
 * many times as many of each kind. */
static int find_enough_nodes(const struct search_request *request, int64_t *nodes, struct error *err)
{
    enum { MOST_TIMES = 64 };
    int64_t now = cluster_nodes(request->cluster), unit = request->cluster->group_count > 1 ? now : 1;
    int64_t too_few = now, enough = now;
    bool found = false;
    *nodes = 0;
    if (request->dp && request->tp && request->pp)
        return 0;
    while (!found && enough < MOST_TIMES * now) {
        too_few = enough;
        if (try_nodes(request, enough *= 2, &found, err))
            return -1;
    }
    while (found && enough - too_few > unit) {
        bool fits;
        int64_t middle = too_few + (enough - too_few) / unit / 2 * unit;
        if (try_nodes(request, middle, &fits, err))
            return -1;
        *(fits ? &enough : &too_few) = middle;
    }
    *nodes = found ? enough : 0;
    return 0;
}

struct look {
    const struct search_request *request;
    bool found;
};

static bool look_at_shape(void *context, const struct space_shape *shape)
{
    struct look *look = context;
    struct layout *layouts;
    if (look->found)
        return false;
    look->found = space_layouts(look->request, shape, &layouts) > 0;
    free(layouts);
    return !look->found;
}

/* Is there any layout, whether it fits or not? */
static bool has_layout(const struct search_request *request)
{
    struct look look = {.request = request};
    space_shapes(request, request->model->heads, look_at_shape, &look);
    return look.found;
}

/* Takes one of the wishes back, and returns it in words; NULL: nobody has it. */
static const char *take_back(struct search_request *r, int wish)
{
    int64_t *const sizes[] = {&r->dp, &r->tp, &r->pp, &r->micro_batch, &r->virtual_stages};
    static const char *const names[] = {"--dp", "--tp", "--pp", "--micro-batch", "--virtual-stages"};
    enum { SIZES = sizeof names / sizeof *names };
    if (wish < SIZES) {
        bool asked = *sizes[wish] > 0;
        *sizes[wish] = 0;
        return asked ? names[wish] : NULL;
    }
    bool replicas = r->parts_need_replicas, even = r->even_nodes, schedule = r->schedule;
    switch (wish - SIZES) {
    case 0:
        r->parts_need_replicas = false;
        return replicas ? "data-parallel ranks beside tensor and pipeline parallel ones, without which that "
                          "system "
                          "computes in fp32"
                        : NULL;
    case 1:
        r->even_nodes = false;
        return even ? "equally many ranks on every node, as torchrun starts them" : NULL;
    default:
        r->schedule = NULL;
        return schedule ? "that schedule" : NULL;
    }
}

/* Of what was asked for, what leaves no layout: each without which there are some. */
static void print_in_the_way(const struct search_request *request, struct text *out)
{
    enum { WISHES = 8 };
    bool some = false;
    for (int wish = 0; wish < WISHES; wish++) {
        struct search_request without = *request;
        const char *name = take_back(&without, wish);
        if (!name || !has_layout(&without))
            continue;
        text_printf(out, "%s%s", some ? "; or without " : "; there are some without ", name);
        some = true;
    }
    if (!some)
        text_add(out, "; leave some of it to be chosen");
}

/* What was asked for may be what is in the way; what another system cannot do stays so. */
static int try_freely(const struct search_request *request, struct text *out, struct error *err)
{
    struct search_request freely = {.model = request->model,
                                    .cluster = request->cluster,
                                    .speeds = request->speeds,
                                    .global_batch = request->global_batch,
                                    .seq_len = request->seq_len,
                                    .precision = request->precision,
                                    .parts_need_replicas = request->parts_need_replicas,
                                    .even_nodes = request->even_nodes,
                                    .effort_parts = UNLOCK_PARTS};
    struct search_result own;
    bool asked = request->dp || request->tp || request->pp || request->virtual_stages ||
                 request->micro_batch || request->zero != SEARCH_ANY ||
                 request->sequence_parallel != SEARCH_ANY;
    if (request->even_nodes) {
        freely.schedule = request->schedule;
        freely.sets = request->sets;
        freely.set_count = request->set_count;
    } else {
        asked = asked || request->schedule || request->sets;
    }
    if (!asked)
        return 0;
    if (search_run(&freely, &own, err))
        return -1;
    if (own.alternative_count) {
        text_add(out, "; with nothing asked for there is a plan here: ");
        explanation_plan(&own.alternatives[0], out);
    }
    search_clear(&own);
    return 0;
}

static int64_t least_capacity(const struct cluster *cluster)
{
    int64_t least = INT64_MAX;
    for (int g = 0; g < cluster->group_count; g++)
        least = min_i64(least, cluster->groups[g].device.capacity_bytes);
    return least;
}

static void print_capacities(const struct cluster *cluster, struct text *out)
{
    char capacity[UNITS_TEXT];
    for (int g = 0; g < cluster->group_count; g++) {
        const struct rank_device *device = &cluster->groups[g].device;
        text_printf(out, "%s%s", g ? " and " : "", units_format_bytes(device->capacity_bytes, capacity));
        if (cluster->group_count > 1)
            text_printf(out, " (%s)", device->name);
        if (device->headroom_bytes)
            text_printf(out, " less a headroom of %s", units_format_bytes(device->headroom_bytes, capacity));
    }
    text_add(out, " per rank");
}

/* What would do. */
static void print_ways_out(const struct search_request *request, const struct search_result *result,
                           struct text *out)
{
    char enough[UNITS_TEXT];
    const struct cluster *cluster = request->cluster;
    if (cluster->group_count == 1)
        text_printf(out, "%s per rank would do", units_format_bytes(result->enough_bytes, enough));
    else
        text_printf(out, "%s more on every rank would do", units_format_bytes(result->short_bytes, enough));
    if (!result->enough_nodes)
        text_add(out, "; use devices with more memory, or a smaller model");
    else if (cluster->group_count == 1)
        text_printf(out, ", or %lld nodes like these", (long long)result->enough_nodes);
    else
        text_printf(out, ", or %lld times the nodes",
                    (long long)(result->enough_nodes / cluster_nodes(cluster)));
}

int ways_out_refusal(const struct search_request *request, struct search_result *result, struct text *out,
                     struct error *err)
{
    char missing[UNITS_TEXT];
    struct search_row row;
    bool found;
    if (nearest_find(request, result->arena, &row, &found, err) ||
        (found && find_enough_bytes(request, result->arena, &row, err)) ||
        find_enough_nodes(request, &result->enough_nodes, err))
        return -1;
    text_printf(out, "no plan for %s in ", request->model->name);
    print_capacities(request->cluster, out);
    if (!found) {
        text_add(out, ": no layout of this kind can be run");
        print_in_the_way(request, out);
        return try_freely(request, out, err);
    }
    row.reason = explanation_need(request, &row, result->arena);
    result->rejected = arena_array(result->arena, 1, sizeof row);
    result->rejected[0] = row;
    result->rejected_count = 1;
    result->short_bytes = bytes_missing(request->cluster, &row);
    result->enough_bytes = result->short_bytes + least_capacity(request->cluster);
    text_printf(out, ": the nearest is short by %s (%s); ", units_format_bytes(result->short_bytes, missing),
                row.reason);
    print_ways_out(request, result, out);
    return try_freely(request, out, err);
}
