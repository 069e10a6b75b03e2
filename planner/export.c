#include "planner/export.h"

#include "base/arena.h"
#include "base/checked.h"
#include "model/recompute.h"
#include "planner/export_parts.h"
#include "planner/export_recompute.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As options say it. */
static const char *const words[] = {"megatron", "torchtitan", "slurm", "mpirun"};

int export_target_find(const char *name, enum export_target *out, struct error *err)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(name, words[i])) {
            *out = (enum export_target)i;
            return 0;
        }
    return error_set(err, "--to %s is not known; use megatron, torchtitan, slurm or mpirun", name);
}

const char *export_target_name(enum export_target target)
{
    static const char *const names[] = {"Megatron-LM", "torchtitan", "Slurm", "Open MPI"};
    return names[target];
}

int export_check(enum export_target target, const struct model *model, enum precision precision,
                 struct error *err)
{
    if (export_restricts(target) && (model->norms != NORMS_BEFORE || model->qk_norm_whole))
        return error_set(err,
                         "%s has no norms behind attention and the feed-forward or of all queries together, "
                         "and %s has; --to "
                         "slurm and --to mpirun run it with memplan train",
                         export_target_name(target), model->name);
    if (export_restricts(target) && (model->norm_add_one || model->gelu_gate || model->scale_embedding ||
                                     model->query_scalar > 0 || model->full_every || model->local_theta > 0))
        return error_set(
            err,
            "the script for %s does not say weights of norms less one, GELU's gates, scaled embeddings, a "
            "scale of scores or layers that differ, and %s has some of these; --to slurm and --to mpirun "
            "run it with memplan train",
            export_target_name(target), model->name);
    if (target == EXPORT_MEGATRON && model->family == MODEL_ENCODER)
        return error_set(err,
                         "%s reads feature vectors and classifies each position, which Megatron-LM has no "
                         "model for; --to slurm and --to mpirun run it with memplan train",
                         model->name);
    if (target == EXPORT_TORCHTITAN && model->family != MODEL_LLAMA)
        return error_set(
            err,
            "torchtitan has llama models and no %s such as %s; --to slurm and --to mpirun run it "
            "with memplan train",
            model_family_name(model->family), model->name);
    if (target == EXPORT_TORCHTITAN && model->unturned)
        return error_set(
            err,
            "torchtitan's llama3 turns whole heads by RoPE, and %s a part of each; --to megatron exports "
            "it, and --to slurm and --to mpirun run it with memplan train",
            model->name);
    if (target == EXPORT_TORCHTITAN && model->qk_norm)
        return error_set(
            err,
            "torchtitan's llama3 has no norms of queries and keys, and %s has; --to megatron exports it, and "
            "--to slurm and --to mpirun run it with memplan train",
            model->name);
    if (export_restricts(target) && precision == PRECISION_FP64)
        return error_set(err, "%s does not train in fp64; plan with --precision fp32 or bf16",
                         export_target_name(target));
    return 0;
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

void export_print_recompute(const struct plan *plan, struct text *out)
{
    enum { SHORT = 160 };
    int64_t ranges = 1;
    struct text text = {0};
    recompute_print(&plan->model, plan->recompute, &text);
    for (const char *c = text.data; *c; c++)
        ranges += *c == ',';
    if (text.length <= SHORT)
        text_add(out, text.data);
    else
        text_printf(out, "what the plan says for %" PRId64 " ranges of layers", ranges);
    text_free(&text);
}

/* ----------------------------------------------------------------------------------------------------------- what runs */

bool export_restricts(enum export_target target)
{
    return target == EXPORT_MEGATRON || target == EXPORT_TORCHTITAN;
}

enum schedule_kind export_schedule(enum export_target target, enum schedule_kind schedule)
{
    bool lacks = (target == EXPORT_MEGATRON && schedule == SCHEDULE_GPIPE) ||
                 (export_restricts(target) && schedule == SCHEDULE_ZB_H1);
    return lacks ? SCHEDULE_1F1B : schedule;
}

bool export_parts_need_replicas(enum export_target target, enum precision precision)
{
    return target == EXPORT_TORCHTITAN && precision != PRECISION_FP32;
}

bool export_needs_even_nodes(enum export_target target)
{
    return export_restricts(target);
}

bool export_computes_alike(enum export_target target, const struct layout *layout)
{
    return layout->dp > 1 || layout->tp * layout->pp == 1 ||
           !export_parts_need_replicas(target, layout->precision);
}

static void find_differences(enum export_target target, const struct plan *plan, struct export_result *out)
{
    out->schedule = export_schedule(target, plan->layout.schedule);
    out->recompute = host_alloc((size_t)plan->model.layers * sizeof *out->recompute);
    struct export_recompute recompute = export_recompute_of(target, plan);
    export_recompute_fill(plan, &recompute, out->recompute);
    out->differs = !recompute.exact || (plan->layout.pp > 1 && out->schedule != plan->layout.schedule);
}

/* ------------------------------------------------------------------------------------------------------------- groups */

static int64_t nodes_of(int64_t ranks, int64_t each)
{
    return (ranks + each - 1) / each;
}

int64_t export_group_nodes(const struct plan_group *group, int64_t *each)
{
    *each = min_i64(group->ranks_per_node, group->ranks);
    return nodes_of(group->ranks, *each);
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
    int64_t first = 0, own, ranks = layout_ranks(&plan->layout), planned = plan->ranks_per_node;
    struct text order = {0};
    for (int i = 0; i < plan->group_count; i++) {
        int64_t nodes = export_group_nodes(&plan->groups[i], &own);
        text_printf(&order, "%s%" PRId64 "-%" PRId64 " with %s", i ? ", " : "nodes ", first,
                    first + nodes - 1, plan->groups[i].device);
        first += nodes;
    }
    if (order.data)
        export_note(out, "NODE_RANK counts nodes in the plan's order: %s", order.data);
    if (planned && nodes_of(ranks, request->ranks_per_node) > nodes_of(ranks, planned))
        export_note(out,
                    "what is written takes %" PRId64 " nodes, and the plan %" PRId64 " of %" PRId64 " ranks",
                    nodes_of(ranks, request->ranks_per_node), nodes_of(ranks, planned), planned);
    text_free(&order);
}

/* ------------------------------------------------------------------------------------------------------------ writing */

static void write_body(enum export_target target, const struct export_request *request,
                       struct export_result *out)
{
    static void (*const writers[])(const struct export_request *, struct export_result *) = {
        [EXPORT_MEGATRON] = export_megatron,
        [EXPORT_TORCHTITAN] = export_torchtitan,
        [EXPORT_SLURM] = export_slurm,
        [EXPORT_MPIRUN] = export_mpirun,
    };
    writers[target](request, out);
}

/* Have all nodes equally many ranks? */
static bool is_even(const struct export_request *request)
{
    const struct plan *plan = request->plan;
    int64_t ranks = layout_ranks(&plan->layout), each = min_i64(request->ranks_per_node, ranks), own;
    bool even = ranks % each == 0;
    for (int i = 0; i < plan->group_count; i++) {
        export_group_nodes(&plan->groups[i], &own);
        even = even && own == each && plan->groups[i].ranks % each == 0;
    }
    return even;
}

/* As many nodes may have equally many ranks where each has fewer, as long as tensor-parallel ranks stay on one. */
static int check_even(enum export_target target, const struct export_request *request, struct error *err)
{
    const struct plan *plan = request->plan;
    int64_t ranks = layout_ranks(&plan->layout), nodes = nodes_of(ranks, request->ranks_per_node);
    char instead[96] = "";
    if (!export_needs_even_nodes(target) || is_even(request))
        return 0;
    if (!plan->group_count && ranks % nodes == 0 && ranks / nodes % plan->layout.tp == 0)
        snprintf(instead, sizeof instead, "--ranks-per-node %" PRId64 " has as many on each of %" PRId64 "; ",
                 ranks / nodes, nodes);
    return error_set(err,
                     "%" PRId64 " ranks are not equally many on each node of %" PRId64
                     "%s, as torchrun starts them; %s`memplan plan --for %s` finds ranks that are",
                     ranks, request->ranks_per_node, plan->group_count ? " and of each kind" : "", instead,
                     words[target]);
}

int export_write(enum export_target target, const struct export_request *request, struct export_result *out,
                 struct error *err)
{
    *out = (struct export_result){0};
    if (export_check(target, &request->plan->model, request->plan->layout.precision, err) ||
        check_even(target, request, err))
        return -1;
    write_body(target, request, out);
    if (export_restricts(target))
        find_differences(target, request->plan, out);
    return 0;
}

void export_clear(struct export_result *result)
{
    text_free(&result->body);
    text_free(&result->notes);
    free(result->recompute);
    result->recompute = NULL;
}
