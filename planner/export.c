#include "planner/export.h"

#include "base/arena.h"
#include "base/checked.h"
#include "model/recompute.h"
#include "planner/export_parts.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int export_target_find(const char *name, enum export_target *out, struct error *err)
{
    static const char *const names[] = {"megatron", "torchtitan", "slurm", "mpirun"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i])) {
            *out = (enum export_target)i;
            return 0;
        }
    return error_set(err, "--to %s is not known; use megatron, torchtitan, slurm or mpirun", name);
}

/* ------------------------------------------------------------------------------------------------------------- words */

void export_quote(struct text *out, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%+,-./:=@_";
    if (*word && !word[strspn(word, plain)]) {
        text_add(out, word);
        return;
    }
    text_add(out, "'");
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            text_add(out, "'\\''");
        else
            text_printf(out, "%c", *c);
    text_add(out, "'");
}

void export_quote_path(struct text *out, const char *path)
{
    struct text safe = {0};
    text_printf(&safe, "%s%s", path[0] == '-' ? "./" : "", path);
    export_quote(out, safe.data);
    text_free(&safe);
}

void export_comment(struct text *out, const char *text)
{
    text_add(out, "# ");
    for (const char *c = text; *c; c++)
        text_printf(out, "%c", (unsigned char)*c < 128 && isprint((unsigned char)*c) ? *c : '?');
    text_add(out, "\n");
}

void export_note(struct export_result *out, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text_printf(&out->notes, "%s\n", line);
}

/* -------------------------------------------------------------------------------------------------------------- plan */

int64_t *export_chunk_layers(const struct plan *plan)
{
    int64_t chunks = layout_chunks(&plan->layout);
    int64_t *layers = host_alloc((size_t)chunks * sizeof *layers);
    if (plan->chunk_layers)
        memcpy(layers, plan->chunk_layers, (size_t)chunks * sizeof *layers);
    else
        layout_spread_layers(&plan->layout, plan->model.layers, layers);
    return layers;
}

bool export_recompute_is_uniform(const struct plan *plan)
{
    for (int64_t l = 1; l < plan->model.layers; l++)
        if (plan->recompute[l] != plan->recompute[0])
            return false;
    return true;
}

void export_print_recompute(const struct plan *plan, struct text *out)
{
    recompute_print(&plan->model, plan->recompute, out);
}

/* ------------------------------------------------------------------------------------------------------------- groups */

int64_t export_group_nodes(const struct plan_group *group, int64_t *each)
{
    *each = min_i64(group->ranks_per_node, group->ranks);
    return (group->ranks + *each - 1) / *each;
}

void export_print_groups(const struct plan *plan, struct text *out)
{
    int64_t first = 0, each;
    for (int i = 0; i < plan->group_count; first += plan->groups[i++].ranks) {
        const struct plan_group *group = &plan->groups[i];
        export_group_nodes(group, &each);
        text_printf(out, "%s%" PRId64 "-%" PRId64 " on %s, %" PRId64 " a node", i ? "; " : "ranks ", first,
                    first + group->ranks - 1, group->device, each);
    }
}

void export_note_torchrun(const struct export_request *request, struct export_result *out)
{
    const struct plan *plan = request->plan;
    int64_t ranks = layout_ranks(&plan->layout), each = min_i64(request->ranks_per_node, ranks);
    int64_t first = 0, own = each;
    bool even = ranks % each == 0;
    struct text order = {0};
    for (int i = 0; i < plan->group_count; i++) {
        int64_t nodes = export_group_nodes(&plan->groups[i], &own);
        text_printf(&order, "%s%" PRId64 "-%" PRId64 " with %s", i ? ", " : "nodes ", first,
                    first + nodes - 1, plan->groups[i].device);
        even = even && own == each && plan->groups[i].ranks % each == 0;
        first += nodes;
    }
    if (order.data)
        export_note(out, "NODE_RANK counts nodes in the plan's order: %s", order.data);
    if (!even)
        export_note(out,
                    "torchrun starts equally many processes on each node, and %" PRId64
                    " ranks are no multiple of %" PRId64 "%s; give --ranks-per-node",
                    ranks, each, plan->group_count ? " on each kind of node" : "");
    text_free(&order);
}

/* ------------------------------------------------------------------------------------------------------------ writing */

static int write_body(enum export_target target, const struct export_request *request,
                      struct export_result *out, struct error *err)
{
    switch (target) {
    case EXPORT_MEGATRON:
        return export_megatron(request, out, err);
    case EXPORT_TORCHTITAN:
        return export_torchtitan(request, out, err);
    case EXPORT_SLURM:
        export_slurm(request, out);
        return 0;
    case EXPORT_MPIRUN:
        export_mpirun(request, out);
        return 0;
    }
    return error_set(err, "target %d of an export is not known", target);
}

int export_write(enum export_target target, const struct export_request *request, struct export_result *out,
                 struct error *err)
{
    *out = (struct export_result){0};
    if (!write_body(target, request, out, err))
        return 0;
    text_free(&out->body);
    text_free(&out->notes);
    return -1;
}
