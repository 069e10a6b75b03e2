/* How `memplan train` is started with all of a plan's ranks: by Slurm, and by Open MPI. Both run the plan itself, so that
 * nothing of it is lost. */
#include "planner/export_parts.h"

#include "base/checked.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static bool is_cpu(const struct plan *plan)
{
    return !strcmp(plan->device, "cpu");
}

static int64_t ranks_of_node(const struct export_request *request)
{
    return min_i64(request->ranks_per_node, layout_ranks(&request->plan->layout));
}

static int64_t nodes(const struct export_request *request)
{
    const struct plan *plan = request->plan;
    int64_t group_nodes = 0, group_each;
    for (int i = 0; i < plan->group_count; i++)
        group_nodes += export_group_nodes(&plan->groups[i], &group_each);
    if (plan->group_count)
        return group_nodes;
    int64_t each = ranks_of_node(request);
    return (layout_ranks(&request->plan->layout) + each - 1) / each;
}

/* A plan for a card runs on the GPUs at hand. */
static void add_settings(const struct export_request *request, struct text *out)
{
    if (request->steps)
        text_printf(out, " --steps %" PRId64, request->steps);
    if (!is_cpu(request->plan))
        text_add(out, " --device cuda");
}

static void note_device(const struct export_request *request, struct export_result *out)
{
    const char *device = request->plan->device;
    if (!is_cpu(request->plan) && strcmp(device, "cuda"))
        export_note(out,
                    "the plan is for %s; --device cuda takes the GPUs it finds, and refuses the plan where "
                    "they hold less",
                    device);
}

/* Open MPI fills the hosts of a file in their order, each with as many ranks as it has slots. */
static void note_hosts(const struct plan *plan, struct export_result *out)
{
    struct text hosts = {0};
    for (int i = 0; i < plan->group_count; i++) {
        int64_t each, count = export_group_nodes(&plan->groups[i], &each),
                      last = plan->groups[i].ranks - (count - 1) * each;
        text_printf(&hosts, "%s%" PRId64 " with %s, slots=%" PRId64, i ? "; " : "", count,
                    plan->groups[i].device, each);
        if (last != each)
            text_printf(&hosts, " (the last of them slots=%" PRId64 ")", last);
    }
    export_note(out, "HOSTS names a host file with the nodes in this order: %s", hosts.data);
    text_free(&hosts);
}

void export_mpirun(const struct export_request *request, struct export_result *out)
{
    int64_t ranks = layout_ranks(&request->plan->layout);
    text_printf(&out->body, "mpirun -n %" PRId64, ranks);
    if (request->plan->group_count)
        text_add(&out->body, " --hostfile \"$HOSTS\" --map-by slot");
    else if (nodes(request) > 1)
        text_printf(&out->body, " --map-by ppr:%" PRId64 ":node", ranks_of_node(request));
    /* Else each rank and all its threads get one core. */
    text_add(&out->body, " --bind-to none memplan train ");
    export_quote_path(&out->body, request->plan_path);
    text_add(&out->body, " --data ");
    if (request->data)
        export_quote_path(&out->body, request->data);
    else
        text_add(&out->body, "\"$DATA\"");
    add_settings(request, &out->body);
    text_add(&out->body, "\n");
    note_device(request, out);
    if (request->plan->group_count)
        note_hosts(request->plan, out);
}

/* Slurm shows it in lists, and names files after it. */
static void add_job_name(const char *model, struct text *out)
{
    for (const char *c = model; *c; c++)
        text_printf(out, "%c", isalnum((unsigned char)*c) || strchr("-_.", *c) ? *c : '_');
}

static void add_slurm_head(const struct export_request *request, struct text *out)
{
    const struct plan *plan = request->plan;
    text_add(out, "#!/bin/bash\n#SBATCH --job-name=memplan-");
    add_job_name(plan->model.name, out);
    text_printf(out, "\n#SBATCH --nodes=%" PRId64 "\n#SBATCH --ntasks=%" PRId64 "\n", nodes(request),
                layout_ranks(&plan->layout));
    if (!plan->group_count)
        text_printf(out, "#SBATCH --ntasks-per-node=%" PRId64 "\n", ranks_of_node(request));
    if (!is_cpu(plan) && plan->group_count)
        text_add(out, "#SBATCH --gpus-per-task=1\n");
    else if (!is_cpu(plan))
        text_printf(out, "#SBATCH --gpus-per-node=%" PRId64 "\n", ranks_of_node(request));
    text_add(out, "#SBATCH --exclusive\n#SBATCH --output=%x-%j.out\n");
}

/* Which node is of which kind only the site knows. */
static void add_slurm_hosts(const struct plan *plan, struct text *out)
{
    text_add(out, ": \"${SLURM_HOSTFILE:?name a file with the node of each rank, one a line: ");
    export_print_groups(plan, out);
    text_add(out, "}\"\n");
}

void export_slurm(const struct export_request *request, struct export_result *out)
{
    add_slurm_head(request, &out->body);
    export_comment(&out->body, request->plan->made_by);
    text_add(&out->body, "set -euo pipefail\n\nplan=");
    export_quote_path(&out->body, request->plan_path);
    text_add(&out->body, "\ndata=");
    if (request->data)
        export_quote_path(&out->body, request->data);
    else
        text_add(&out->body, "${1:?name the data: sbatch SCRIPT FILE}");
    text_add(&out->body, "\n\n");
    if (request->plan->group_count)
        add_slurm_hosts(request->plan, &out->body);
    /* Each rank shares out the cores of its node by itself. */
    text_printf(&out->body, "exec srun --mpi=pmix%s --cpu-bind=none memplan train \"$plan\" --data \"$data\"",
                request->plan->group_count ? " --distribution=arbitrary" : "");
    add_settings(request, &out->body);
    text_add(&out->body, "\n");
    note_device(request, out);
}
