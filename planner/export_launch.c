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

void export_mpirun(const struct export_request *request, struct export_result *out)
{
    int64_t ranks = layout_ranks(&request->plan->layout);
    text_printf(&out->body, "mpirun -n %" PRId64, ranks);
    if (nodes(request) > 1)
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
    text_printf(out, "#SBATCH --ntasks-per-node=%" PRId64 "\n", ranks_of_node(request));
    if (!is_cpu(plan))
        text_printf(out, "#SBATCH --gpus-per-node=%" PRId64 "\n", ranks_of_node(request));
    text_add(out, "#SBATCH --exclusive\n#SBATCH --output=%x-%j.out\n");
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
    /* Each rank shares out the cores of its node by itself. */
    text_add(&out->body, "\n\nexec srun --mpi=pmix --cpu-bind=none memplan train \"$plan\" --data \"$data\"");
    add_settings(request, &out->body);
    text_add(&out->body, "\n");
    note_device(request, out);
}
