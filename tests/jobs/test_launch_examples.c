/* Every script of examples/launch/ as memplan understands it, what it needs of a card and what is proposed for it, against a
 * page in golden/. GOLDEN_UPDATE=1 writes them anew: read the difference before committing it. */
#include "base/text.h"
#include "jobs/job_changes.h"
#include "jobs/job_workload.h"
#include "jobs/jobs.h"
#include "planner/cluster.h"
#include "planner/frameworks/workload_odds.h"
#include "tests/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "examples/launch/"
#define GOLDEN "tests/jobs/golden/"

enum { LEAST_SCRIPTS = 20 };

static const char *const precisions[] = {"fp32",          "bf16",          "fp16",
                                         "autocast bf16", "autocast fp16", "pure bf16"};
static const char *const shardings[] = {
    "replicated", "distributed optimizer", "zero 1", "zero 2", "zero 3", "fsdp1", "fsdp2"};
static const char *const granularities[] = {"none", "selective", "full", "budget"};
static const char *const kernels[] = {"default", "eager", "sdpa", "flash", "flex", "flash 3"};

static void dump_model(const struct training_job *job, struct text *out)
{
    const struct job_model *m = &job->model;
    text_printf(out,
                "model: %s, layers %lld hidden %lld heads %lld kv %lld head %lld ffn %lld vocab %lld "
                "positions %lld\n",
                m->name, (long long)m->layers, (long long)m->hidden, (long long)m->heads,
                (long long)m->kv_heads, (long long)m->head_size, (long long)m->ffn, (long long)m->vocab,
                (long long)m->max_seq_len);
    text_printf(
        out,
        "  %s, gated %d, tied %d, biases %d%d%d, experts %lld of %lld (ffn %lld, shared %lld), latent %lld\n",
        m->norm == JOB_RMS_NORM ? "RMSNorm" : "LayerNorm", m->gated, m->tied, m->qkv_bias, m->proj_bias,
        m->ffn_bias, (long long)m->experts.active, (long long)m->experts.count, (long long)m->experts.ffn,
        (long long)m->experts.shared_ffn, (long long)m->latent.kv_rank);
    text_printf(out, "  adapter rank %lld on %s, weights of %lld bits\n", (long long)job->adapter.rank,
                job->adapter.targets ? job->adapter.targets : "nothing", (long long)job->adapter.weight_bits);
}

static void dump(const struct training_job *job, struct text *out)
{
    const struct job_layout *l = &job->layout;
    text_printf(out, "%s, started by %s: nodes %lld x %lld, ranks %lld\n", job_framework_name(job->framework),
                job->launch.launchers ? job->launch.launchers : "python", (long long)job->launch.nodes,
                (long long)job->launch.processes_per_node, (long long)job->launch.ranks);
    dump_model(job, out);
    text_printf(out,
                "layout: dp %lld (%lld x %lld) tp %lld pp %lld cp %lld ep %lld, virtual stages %lld, "
                "sequence parallel %d\n",
                (long long)l->dp, (long long)l->dp_replicate, (long long)l->dp_shard, (long long)l->tp,
                (long long)l->pp, (long long)l->cp, (long long)l->ep, (long long)l->virtual_stages,
                l->sequence_parallel);
    text_printf(out, "batch: micro %lld, accumulated %lld, global %lld, sequence %lld\n",
                (long long)job->batch.micro, (long long)job->batch.accumulation, (long long)job->batch.global,
                (long long)job->batch.sequence);
    text_printf(
        out, "memory: %s, %s, gradients fp32 %d, offload %d %d, recompute %s, attention %s, optimizer %s\n",
        precisions[job->precision], shardings[job->shards.sharding], job->gradients_fp32,
        job->shards.offload_optimizer, job->shards.offload_parameters,
        granularities[job->recompute.granularity], kernels[job->kernels.attention],
        job->optimizer.name ? job->optimizer.name : "?");
    for (int i = 0; i < job->facts.count; i++) {
        const struct fact *f = &job->facts.list[i];
        text_printf(out, "%-10s %s = %s <- %s\n", fact_kind_name(f->kind), f->name, f->value, f->origin);
    }
}

/* ---- what follows ---- */

#define CARD "h100-80g"
static const double gib = 1 << 30;

static void dump_verdict(const struct training_job *job, const char *name, struct text *out)
{
    struct workload w;
    struct workload_memory m;
    struct rank_device card;
    struct error err = {0};
    int jobs;
    ASSERT_MSG(!job_workload(job, &w, &err), "%s: %s", name, err.text);
    ASSERT_OK(cluster_read_device(CARD, 1, &card, &err));
    w.capacity_bytes = card.capacity_bytes;
    w.cublas_bytes = card.card->cublas_workspace_bytes;
    ASSERT_MSG(!workload_memory(&w, &m, &err), "%s: %s", name, err.text);
    text_printf(out, "on " CARD ": needs %.2f of %.2f GiB, fits with %.0f%%, peak in %s of stage %lld\n",
                (double)workload_odds_needed_bytes(&w, &m) / gib, (double)w.capacity_bytes / gib,
                100 * workload_odds_fits(&w, &m, &jobs), replay_moment_name(m.peak.moment),
                (long long)m.stage);
    for (int i = 0; i < WORKLOAD_FIGURES; i++)
        text_printf(out, "  %s %.2f GiB\n", workload_figure_name((enum workload_figure)i),
                    (double)workload_figure_bytes(&m, (enum workload_figure)i) / gib);
}

static void dump_changes(const struct training_job *job, bool larger, struct text *out)
{
    struct job_changes changes;
    job_changes_find(job, larger, &changes);
    for (int i = 0; i < changes.count; i++) {
        const struct job_change *c = &changes.list[i];
        text_printf(out, "%s %s%s:", larger ? "to use more:" : "to need less:", c->name,
                    c->alters ? " *" : "");
        for (int k = 0; k < c->count; k++) {
            const struct job_edit *e = &c->edits[k];
            text_printf(out, " [%s%s%s%s%s]", e->file ? e->file : "", e->file ? ": " : "", e->name,
                        e->value ? " = " : " left out", e->value ? e->value : "");
        }
        text_add(out, "\n");
    }
}

/* Line by line, so that the first that differs is shown. */
static void assert_pages(const char *name, const char *got, const char *wanted)
{
    for (int line = 1; *got || *wanted; line++) {
        size_t ours = strcspn(got, "\n"), theirs = strcspn(wanted, "\n");
        ASSERT_MSG(ours == theirs && !strncmp(got, wanted, ours), "%s, line %d is\n  %.*s\nand not\n  %.*s",
                   name, line, (int)ours, got, (int)theirs, wanted);
        got += ours + (got[ours] == '\n');
        wanted += theirs + (wanted[theirs] == '\n');
    }
}

static void check_example(const char *name)
{
    setenv("TRANSFORMERS_CACHE", "/nowhere", 1); /* what was downloaded here changes no page */
    struct arena *arena = arena_create();
    struct training_job job;
    struct error err = {0};
    struct text page = {0};
    char *wanted;
    size_t length;
    const char *golden = arena_printf(arena, GOLDEN "%.*s.txt", (int)strlen(name) - 3, name);
    struct jobs_request request = {.script = arena_printf(arena, FOLDER "%s", name)};
    ASSERT_MSG(!jobs_read(&request, arena, &job, &err), "%s: %s", name, err.text);
    dump(&job, &page);
    dump_verdict(&job, name, &page);
    dump_changes(&job, false, &page);
    dump_changes(&job, true, &page);
    if (getenv("GOLDEN_UPDATE"))
        ASSERT_OK(text_write(&page, golden, &err));
    ASSERT_OK(text_read_file(golden, 1 << 20, &wanted, &length, &err));
    assert_pages(golden, page.data, wanted);
    free(wanted);
    text_free(&page);
    arena_free(arena);
}

/* Files of a folder by the end of their name; returns how many. */
static int for_each(const char *path, const char *end, void (*check)(const char *name))
{
    DIR *folder = opendir(path);
    int files = 0;
    ASSERT(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!text_ends_with(entry->d_name, end))
            continue;
        check(entry->d_name);
        files++;
    }
    closedir(folder);
    return files;
}

/* A page whose script is gone says nothing. */
static void check_page(const char *name)
{
    char script[300];
    snprintf(script, sizeof script, FOLDER "%.*s.sh", (int)strlen(name) - 4, name);
    ASSERT_MSG(!access(script, R_OK), GOLDEN "%s: there is no %s", name, script);
}

TEST(launch_examples, "each launch script of the examples is understood as its golden page says")
{
    int scripts = for_each(FOLDER, ".sh", check_example);
    ASSERT(scripts >= LEAST_SCRIPTS);
    ASSERT_INT(for_each(GOLDEN, ".txt", check_page), scripts);
}

/* ---- launch lines ---- */

static struct arena *arena;

static int read_line(const char *line, struct training_job *job, struct error *err)
{
    enum { MOST = 100 };
    static const char *words[MOST];
    arena = arena_create();
    struct jobs_request request = {.command = words};
    char *state = NULL, *copy = arena_strdup(arena, line);
    for (char *word = strtok_r(copy, " ", &state); word; word = strtok_r(NULL, " ", &state))
        words[request.command_count++] = word;
    return jobs_read(&request, arena, job, err);
}

static const struct fact *find_fact(const struct training_job *job, const char *name)
{
    for (int i = 0; i < job->facts.count; i++)
        if (!strcmp(job->facts.list[i].name, name))
            return &job->facts.list[i];
    ck_abort_msg("there is no fact %s", name);
}

#define TINY                                                                                                 \
    "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "               \
    "--max-position-embeddings "                                                                             \
    "32 --micro-batch-size 1 --vocab-size 100"

static void assert_ranks(const char *launcher, int64_t ranks, int64_t nodes)
{
    struct training_job job;
    struct error err = {0};
    char line[1000];
    snprintf(line, sizeof line, "%s " TINY, launcher);
    ASSERT_OK(read_line(line, &job, &err));
    ASSERT_MSG(job.launch.ranks == ranks && job.launch.nodes == nodes, "%s: %lld ranks on %lld nodes",
               launcher, (long long)job.launch.ranks, (long long)job.launch.nodes);
    arena_free(arena);
}

TEST(launch_ranks, "each launcher says how many ranks there are, one inside the other too")
{
    assert_ranks("python", 1, 1);
    assert_ranks("torchrun --nproc_per_node=8 --nnodes=4", 32, 4);
    assert_ranks("torchrun --nproc-per-node 4", 4, 1);
    assert_ranks("torchrun --nnodes 1:3 --nproc_per_node 2", 6, 3);
    assert_ranks("python3 -u -m torch.distributed.run --nproc_per_node 2", 2, 1);
    assert_ranks("python -m torch.distributed.launch --nproc_per_node=8 --nnodes 2 --node_rank 0", 16, 2);
    assert_ranks("srun -N 2 --ntasks-per-node=8 python -u", 16, 2);
    assert_ranks("srun -n 16 --nodes=2 python", 16, 2);
    assert_ranks("srun -N2 -n16 -l python", 16, 2);
    assert_ranks("srun -N 4 torchrun --nnodes 4 --nproc-per-node 8", 32, 4);
    assert_ranks("mpirun -np 16 -npernode 8 -x PATH -mca btl tcp python", 16, 2);
    assert_ranks("mpirun -n 8 --map-by ppr:4:node python", 8, 2);
    assert_ranks("deepspeed --num_nodes=2 --num_gpus=8 --master_port 9", 16, 2);
    assert_ranks("deepspeed --include localhost:0,1,2", 3, 1);
    assert_ranks("deepspeed --num_nodes 2 --num_gpus 4 --hostfile hosts", 8, 2);
    assert_ranks("accelerate launch --num_processes 8 --num_machines 2 --mixed_precision bf16", 8, 2);
    assert_ranks("numactl -N 0 singularity exec --nv image.sif torchrun --nproc_per_node 2", 2, 1);
}

TEST(launch_unknown, "an option that nothing knows is listed, with what it may have meant")
{
    struct training_job job;
    struct error err = {0};
    ASSERT_OK(read_line("torchrun " TINY " --micro-batch-sise 2 --made-up a b --lr 1", &job, &err));
    ASSERT_INT(find_fact(&job, "--made-up")->kind, FACT_UNKNOWN);
    ASSERT_STR(find_fact(&job, "--made-up")->value, "a,b");
    ASSERT_HAS(find_fact(&job, "--micro-batch-sise")->origin, "did you mean --micro-batch-size?");
    ASSERT_INT(find_fact(&job, "--lr")->kind, FACT_IRRELEVANT);
    ASSERT_INT(job_count(&job, FACT_MISSING), 0);
    arena_free(arena);
}

TEST(launch_missing, "what matters and is not given is missing, with the option that gives it")
{
    struct training_job job;
    struct error err = {0};
    ASSERT_OK(read_line("torchrun pretrain_gpt.py --num-layers 2 --bf16 --tokenizer-type TikTokenizer", &job,
                        &err));
    static const char *const names[] = {"--hidden-size", "--num-attention-heads", "--vocab-size",
                                        "--micro-batch-size", "--seq-length"};
    for (int i = 0; i < 5; i++)
        ASSERT_INT(find_fact(&job, names[i])->kind, FACT_MISSING);
    ASSERT_HAS(find_fact(&job, "--hidden-size")->origin, "--with='--hidden-size 4096'");
    ASSERT_HAS(find_fact(&job, "--vocab-size")->origin, "that of the TikTokenizer, which is not read");
    arena_free(arena);
    ASSERT_OK(read_line("deepspeed run_clm.py --model_name_or_path no/such-model", &job, &err));
    ASSERT_INT(find_fact(&job, "ranks")->kind, FACT_MISSING);
    ASSERT_HAS(find_fact(&job, "--model_name_or_path")->origin, "--model FOLDER");
    arena_free(arena);
}

TEST(launch_given_ranks, "where the launcher leaves the number of ranks to the machine, --ranks gives it")
{
    static const char *const lines[] = {"torchrun --nproc_per_node gpu " TINY,
                                        "deepspeed --hostfile hosts --num_gpus 8 " TINY,
                                        "accelerate launch " TINY};
    for (int i = 0; i < 3; i++) {
        struct training_job job;
        struct error err = {0};
        ASSERT_OK(read_line(lines[i], &job, &err));
        ASSERT_INT(find_fact(&job, "ranks")->kind, FACT_MISSING);
        arena_free(arena);
        struct text script = {0};
        struct jobs_request request = {.ranks = 4};
        text_add(&script, lines[i]);
        arena = arena_create();
        ASSERT_OK(jobs_read_text(&request, "run.sh", script.data, script.length, arena, &job, &err));
        ASSERT_INT(job.layout.dp, 4);
        ASSERT_INT(job_count(&job, FACT_MISSING), 0);
        arena_free(arena);
        text_free(&script);
    }
}

TEST(launch_unknown_values,
     "an option whose value is unknown is missing, in every framework, and has no default instead")
{
    static const struct {
        const char *script, *name;
    } scripts[] = {
        {"torchrun -m torchtitan.train --model.name $X --model.flavor=$Y --training.dtype $Z", "model.name"},
        {"torchrun -m torchtitan.train --parallelism.data_parallel_shard_degree $X",
         "parallelism.data_parallel_shard_degree"},
        {"torchrun " TINY
         " --optimizer $X --transformer-impl $Y --normalization $Z --position-embedding-type $P",
         "--optimizer"},
        {"torchrun " TINY " --num-experts 4 --moe-layer-freq $X --main-grads-dtype $Y", "--moe-layer-freq"},
        {"python run_clm.py --model_name_or_path gpt2-tiny --optim $X --torch_dtype $Y --bf16 $Z", "--optim"},
        {"deepspeed --num_gpus 2 run_clm.py --model_name_or_path $M --deepspeed $X", "--deepspeed"},
        {"accelerate launch --config_file $X sft.py --model_name_or_path gpt2-tiny",
         "accelerate configuration"},
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        struct training_job job;
        struct error err = {0};
        struct jobs_request request = {.ranks = 2};
        arena = arena_create();
        ASSERT_OK(jobs_read_text(&request, "run.sh", scripts[i].script, strlen(scripts[i].script), arena,
                                 &job, &err));
        ASSERT_MSG(find_fact(&job, scripts[i].name)->kind == FACT_MISSING, "%s", scripts[i].script);
        arena_free(arena);
    }
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[200];
    struct text out = {0};
    struct error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    text_add(&out, text);
    ASSERT_OK(text_write(&out, path, &err));
    text_free(&out);
}

TEST(launch_model_folder,
     "of a model folder the weights are counted by their header, and its adapter is read")
{
    static char folder[] = "/tmp/memplan-model-XXXXXX";
    struct training_job job;
    struct error err = {0};
    char line[300];
    ASSERT(mkdtemp(folder));
    write_text(folder, "config.json",
               "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, "
               "\"num_attention_heads\": 2, "
               "\"intermediate_size\": 16, \"vocab_size\": 10}");
    write_text(folder, "adapter_config.json",
               "{\"r\": 4, \"lora_alpha\": 8, \"target_modules\": [\"q_proj\", \"v_proj\"]}");
    /* A header of 64 bytes, in little-endian order in front of it. */
    FILE *out = fopen(strcat(strcpy(line, folder), "/model.safetensors"), "w");
    fwrite("\x40\0\0\0\0\0\0\0", 1, 8, out);
    fprintf(out, "%-64s%24s", "{\"a\":{\"dtype\":\"F16\",\"shape\":[3,4],\"data_offsets\":[0,24]}}", "");
    fclose(out);
    snprintf(line, sizeof line, "python run_clm.py --bf16 --model_name_or_path %s", folder);
    ASSERT_OK(read_line(line, &job, &err));
    ASSERT_INT(job.model.counted_parameters, 12);
    ASSERT_STR(job.model.counted_dtype, "F16");
    ASSERT_INT(job.adapter.rank, 4);
    ASSERT_STR(job.adapter.targets, "q_proj,v_proj");
    /* The description has more: embeddings 2 x 80, attention 4 x 64, ffn 3 x 128, norms 3 x 8. */
    ASSERT_STR(find_fact(&job, "parameters")->value, "824");
    ASSERT_HAS(find_fact(&job, "parameters in the weights")->origin, "not as many as the description has");
    arena_free(arena);
}

static void assert_refused(const char *line, const char *message)
{
    struct training_job job;
    struct error err = {0};
    ASSERT_INT(read_line(line, &job, &err), -1);
    ASSERT_HAS(err.text, message);
    arena_free(arena);
}

TEST(launch_refusals, "launches that no framework would start are refused in one sentence")
{
    assert_refused("torchrun --nproc_per_node 8 " TINY " --tensor-model-parallel-size 3",
                   "8 ranks are no multiple of tensor 3");
    assert_refused("torchrun --nproc_per_node 8 " TINY " --global-batch-size 12",
                   "no multiple of micro-batch 1 x 8");
    assert_refused("torchrun " TINY " --num-layers two",
                   "--num-layers is \"two\"; it must be a whole number");
    assert_refused("torchrun " TINY " --hidden-size", "--hidden-size has no value");
    assert_refused("torchrun --nproc_per_node 8", "no Python program in this launch");
    assert_refused("torchrun serve.py --port 1", "is a script of none of the frameworks");
}

TEST(launch_script_choices, "of several launches in a script one is chosen by its line")
{
    static const char script[] = "torchrun " TINY "\ntorchrun --nproc_per_node 2 " TINY "\n";
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    arena = arena_create();
    ASSERT_INT(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err), -1);
    ASSERT_HAS(err.text, "it starts several jobs, on lines 1, 2; choose one: --line 2");
    request.line = 2;
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
    ASSERT_INT(job.launch.ranks, 2);
    arena_free(arena);
}

TEST(launch_set, "a variable that is set outside of the script is asked for by name, and given with --set")
{
    static const char script[] = "torchrun --nproc_per_node $GPUS " TINY " --num-layers $LAYERS\n";
    struct training_job job;
    struct error err = {0};
    struct jobs_request request = {0};
    arena = arena_create();
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
    ASSERT_HAS(find_fact(&job, "--num-layers")->origin, "give --set LAYERS=VALUE");
    ASSERT_HAS(find_fact(&job, "--nproc_per_node")->origin, "give --set GPUS=N");
    const struct shell_variable set[] = {{"LAYERS", "6"}, {"GPUS", "4"}};
    request.set = set;
    request.set_count = 2;
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
    ASSERT_INT(job.model.layers, 6);
    ASSERT_INT(job.launch.ranks, 4);
    ASSERT_INT(job_count(&job, FACT_MISSING), 0);
    arena_free(arena);
}
