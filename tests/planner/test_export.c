/* Plans for other systems: whole files beside golden ones, file names of every kind, scripts that shells and parsers accept,
 * and that nothing a target cannot do goes unsaid. */
#include "tests/planner/planner_sample.h"
#include "tests/profiler/sample.h"

#include "base/arena.h"
#include "model/plan.h"
#include "model/recompute.h"
#include "planner/export.h"

#include <stdlib.h>
#include <string.h>

static struct error err;

static struct plan make_plan(const char *preset, struct layout layout, const char *recompute)
{
    struct plan plan = {.layout = layout, .capacity_bytes = INT64_MAX};
    ASSERT_OK(model_read(preset, NULL, &plan.model, &err));
    ASSERT_OK(layout_complete(&plan.layout, &plan.model, &err));
    plan.recompute = host_alloc((size_t)plan.model.layers * sizeof *plan.recompute);
    ASSERT_OK(recompute_parse(recompute, &plan.model, plan.recompute, &err));
    strcpy(plan.device, "h100-80g");
    strcpy(plan.made_by, "memplan plan ...");
    return plan;
}

static void set_chunk_layers(struct plan *plan, const int64_t *layers)
{
    size_t bytes = (size_t)layout_chunks(&plan->layout) * sizeof *layers;
    plan->chunk_layers = host_alloc(bytes);
    memcpy(plan->chunk_layers, layers, bytes);
}

/* The plan is gone afterwards. */
static struct export_result export_as(enum export_target target, struct plan *plan)
{
    struct export_result out;
    struct export_request request = {.plan = plan, .plan_path = "plan.json", .ranks_per_node = 8};
    ASSERT_OK(export_write(target, &request, &out, &err));
    plan_clear(plan);
    return out;
}

static void release(struct export_result *result)
{
    export_clear(result);
}

/* GOLDEN_UPDATE=1 in the environment writes the file anew, to be read before it is committed. */
static void check_golden(const struct text *text, const char *name)
{
    char path[128], *golden;
    size_t length;
    snprintf(path, sizeof path, "tests/planner/golden/%s", name);
    if (getenv("GOLDEN_UPDATE"))
        ASSERT_OK(text_write(text, path, &err));
    ASSERT_OK(text_read_file(path, 1 << 20, &golden, &length, &err));
    ASSERT_STR(text->data, golden);
    free(golden);
}

/* Runs `command` in the shell with the text as its input. */
static int pipe_into(const char *command, const struct text *text)
{
    FILE *pipe = popen(command, "w");
    ASSERT(pipe != NULL);
    fputs(text->data, pipe);
    return pclose(pipe);
}

static bool can_run(const char *command)
{
    char line[128];
    snprintf(line, sizeof line, "%s >/dev/null 2>&1", command);
    return !system(line);
}

static void check_script(const struct text *script)
{
    ASSERT_INT(pipe_into("bash -n", script), 0);
    if (can_run("command -v shellcheck"))
        ASSERT_INT(pipe_into("shellcheck -", script), 0);
}

/* 32 layers as 9, 8, 8 and 7. */
static struct plan uneven_llama(const char *recompute)
{
    static const int64_t layers[] = {9, 8, 8, 7};
    struct plan plan = make_plan("llama3-8b",
                                 (struct layout){.dp = 2,
                                                 .tp = 4,
                                                 .pp = 4,
                                                 .zero = 1,
                                                 .sequence_parallel = true,
                                                 .micro_batch = 1,
                                                 .global_batch = 64,
                                                 .precision = PRECISION_BF16},
                                 recompute);
    set_chunk_layers(&plan, layers);
    return plan;
}

static struct plan interleaved_gpt2(const char *recompute)
{
    return make_plan(
        "gpt2-124m",
        (struct layout){.dp = 4, .pp = 2, .virtual_stages = 3, .micro_batch = 2, .global_batch = 64},
        recompute);
}

TEST(export_megatron_uneven,
     "an uneven pipeline is Megatron's layout of layers, and whole first layers its block method")
{
    struct plan plan = uneven_llama("0-1=full,9-10=full,17-18=full,25-26=full");
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    check_golden(&result.body, "megatron-llama3-8b.sh");
    check_script(&result.body);
    ASSERT_HAS(result.body.data, "--pipeline-model-parallel-layout 'Et*9|(t*8|)*2t*7L'");
    ASSERT_HAS(result.body.data, "--recompute-method block --recompute-num-layers 2");
    ASSERT(strstr(result.notes.data, "recomputation") == NULL);
    release(&result);
}

/* 32 layers in 34 chunks. */
static struct plan bare_llama(void)
{
    int64_t layers[34] = {0};
    struct plan plan = make_plan(
        "llama3-8b", (struct layout){.pp = 2, .virtual_stages = 17, .micro_batch = 1, .global_batch = 4},
        "none");
    for (int i = 1; i < 33; i++)
        layers[i] = 1;
    set_chunk_layers(&plan, layers);
    return plan;
}

TEST(export_bare_ends, "an embedding and a head alone are chunks of their own in both systems")
{
    struct plan plan = bare_llama();
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    ASSERT_HAS(result.body.data, "--pipeline-model-parallel-layout 'E|(t|)*32L'");
    check_script(&result.body);
    release(&result);
    plan = bare_llama();
    result = export_as(EXPORT_TORCHTITAN, &plan);
    ASSERT_HAS(result.body.data, "[\"tok_embeddings\"],\n    [\"layers.0\"],\n");
    ASSERT_HAS(result.body.data, "[\"layers.31\"],\n    [\"norm\", \"output\"],\n]");
    release(&result);
}

TEST(export_megatron_modules, "sets of tensors that are modules are said exactly")
{
    struct plan plan = interleaved_gpt2("attention+norm2+up+gelu");
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    check_golden(&result.body, "megatron-gpt2-124m.sh");
    check_script(&result.body);
    ASSERT_HAS(result.body.data, "--num-virtual-stages-per-pipeline-rank 3");
    ASSERT_HAS(result.body.data, "--recompute-granularity selective --recompute-modules core_attn mlp\n");
    ASSERT(strstr(result.notes.data, "recomputation") == NULL);
    release(&result);
}

/* {recomputed in the plan, what Megatron is told, the same}: two stages of 6 layers. */
static const struct {
    const char *plan, *option;
    bool exact;
} recomputations[] = {
    {"selective", "--recompute-modules core_attn\n", true},
    {"full", "--recompute-method uniform --recompute-num-layers 1\n", true},
    {"0-2=full,6-8=full", "--recompute-method block --recompute-num-layers 3\n", true},
    /* The second stage has fewer whole layers than the first. */
    {"0-2=full,6-7=full", "--recompute-method block --recompute-num-layers 3\n", false},
    /* Whole layers behind others. */
    {"2=full", "--recompute-method block --recompute-num-layers 3\n", false},
    {"norm2+up+gelu", "--recompute-modules mlp\n", true},
    /* Norms are part of products. */
    {"norm1+norm2", "--recompute-method uniform --recompute-num-layers 1\n", false},
    /* No module gives up mid. */
    {"0=mid", "--recompute-method block --recompute-num-layers 1\n", false},
    /* Half of a module. */
    {"gelu", "--recompute-modules mlp\n", false},
    /* Sets that differ from layer to layer. */
    {"0-3=attention,4-11=up+gelu", "--recompute-modules core_attn mlp\n", false},
};

TEST_LOOP(export_megatron_recompute, "Megatron recomputes what the plan does or, with a note, more",
          sizeof recomputations / sizeof recomputations[0])
{
    struct plan plan = make_plan("gpt2-124m", (struct layout){.pp = 2}, recomputations[_i].plan);
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    ASSERT_HAS(result.body.data, recomputations[_i].option);
    ASSERT_INT(strstr(result.notes.data, "no recomputation of") == NULL, recomputations[_i].exact);
    release(&result);
}

TEST_LOOP(export_megatron_runs,
          "what runs in Megatron gives up all that the plan does, and is told where it differs",
          sizeof recomputations / sizeof recomputations[0])
{
    struct plan plan = make_plan("gpt2-124m", (struct layout){.pp = 2}, recomputations[_i].plan);
    uint32_t planned[12];
    memcpy(planned, plan.recompute, sizeof planned);
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    ASSERT_INT(result.differs, !recomputations[_i].exact);
    ASSERT_INT(memcmp(planned, result.recompute, sizeof planned) != 0, !recomputations[_i].exact);
    for (int l = 0; l < 12; l++)
        ASSERT_INT(planned[l] & ~result.recompute[l], 0);
    release(&result);
}

TEST(export_ranges, "a recomputation of many ranges is counted, and cut nowhere")
{
    const char *alternating =
        "0=norm1+qkv,1=norm2+qkv,2=norm1+qkv,3=norm2+qkv,4=norm1+qkv,5=norm2+qkv,6=norm1+qkv,"
        "7=norm2+qkv,8=norm1+qkv,9=norm2+qkv,10=norm1+qkv,11=norm2+norm1+attention+qkv";
    static const enum export_target targets[] = {EXPORT_MEGATRON, EXPORT_TORCHTITAN};
    for (int i = 0; i < 2; i++) {
        struct plan plan = make_plan("gpt2-124m", (struct layout){.pp = 2}, alternating);
        plan.model.family = targets[i] == EXPORT_TORCHTITAN ? MODEL_LLAMA : MODEL_GPT2;
        struct export_result result = export_as(targets[i], &plan);
        ASSERT_HAS(result.notes.data, "what the plan says for 12 ranges of layers");
        ASSERT(strstr(result.notes.data, "0=norm1") == NULL);
        release(&result);
    }
}

TEST_LOOP(export_megatron_vocabulary, "the vocabulary is the plan's, padded to the tensor-parallel ranks", 2)
{
    struct plan plan = make_plan("gpt2-124m", (struct layout){.tp = _i ? 4 : 1}, "none");
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    /* 50257 = 4 * 12564 + 1. Versions that add a token to --vocab-size, and those that do not, stay below. */
    ASSERT_HAS(result.body.data, _i ? "--vocab-size 50256 --padded-vocab-size 50260\n"
                                    : "--vocab-size 50256 --padded-vocab-size 50257\n");
    release(&result);
}

static void check_refused(const char *preset, enum export_target target, const char *named)
{
    struct export_result result;
    struct plan plan = make_plan(preset, (struct layout){.dp = 1}, "none");
    struct export_request request = {.plan = &plan, .plan_path = "plan.json", .ranks_per_node = 8};
    ASSERT_INT(export_write(target, &request, &result, &err), -1);
    ASSERT_HAS(err.text, named);
    ASSERT(result.body.data == NULL);
    plan_clear(&plan);
}

TEST(export_megatron_qk_norm, "norms of queries and keys are an option, and heads have their own size")
{
    struct plan plan = make_plan("qwen3-32b", (struct layout){.tp = 2}, "none");
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    ASSERT_HAS(result.body.data, "--qk-layernorm\n");
    ASSERT_HAS(result.body.data, "--hidden-size 5120");
    ASSERT_HAS(result.body.data, "--kv-channels 128");
    release(&result);
    plan = make_plan("llama3-8b", (struct layout){.tp = 2}, "none");
    result = export_as(EXPORT_MEGATRON, &plan);
    ASSERT(!strstr(result.body.data, "qk-layernorm"));
    release(&result);
}

TEST(export_megatron_part,
     "RoPE of a part of each head is a per cent of Megatron-LM's, and torchtitan turns the whole")
{
    struct plan plan = make_plan("microsoft/Phi-4-mini-instruct", (struct layout){.tp = 2}, "none");
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    ASSERT_HAS(result.body.data, "--rotary-percent 0.75\n");
    release(&result);
    check_refused("microsoft/Phi-4-mini-instruct", EXPORT_TORCHTITAN, "a part of each");
}

TEST(export_windows, "a window that every layer has is told, with the option that asks for it")
{
    struct plan plan = make_plan("mistralai/Mistral-7B-v0.1", (struct layout){.tp = 2}, "none");
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    ASSERT_HAS(result.notes.data, "windows of 4096 positions; --window-size 4095,0 asks for them");
    release(&result);
    plan = make_plan("mistralai/Mistral-7B-v0.1", (struct layout){.tp = 2}, "none");
    result = export_as(EXPORT_TORCHTITAN, &plan);
    ASSERT_HAS(result.notes.data, "the model's sees windows of 4096 positions");
    release(&result);
    check_refused("gemma3-1b", EXPORT_MEGATRON, "gemma3-1b");
}

TEST(export_megatron_none, "nothing is recomputed where the plan keeps all")
{
    struct plan plan = make_plan("gpt2-124m", (struct layout){.pp = 2}, "none");
    struct export_result result = export_as(EXPORT_MEGATRON, &plan);
    ASSERT(strstr(result.body.data, "recompute") == NULL);
    release(&result);
}

TEST_LOOP(export_schedules, "schedules that the others lack are said, and run as 1f1b", 2)
{
    static const enum export_target targets[] = {EXPORT_MEGATRON, EXPORT_TORCHTITAN};
    struct plan plan = make_plan(
        "llama3-8b", (struct layout){.pp = 4, .global_batch = 8, .schedule = SCHEDULE_ZB_H1}, "none");
    struct export_result result = export_as(targets[_i], &plan);
    ASSERT_HAS(result.notes.data, "no zb-h1 schedule");
    ASSERT(result.differs && result.schedule == SCHEDULE_1F1B);
    release(&result);
}

TEST_LOOP(export_gpipe, "gpipe is torchtitan's too, and Megatron runs 1f1b", 2)
{
    static const enum export_target targets[] = {EXPORT_MEGATRON, EXPORT_TORCHTITAN};
    struct plan plan = make_plan(
        "llama3-8b", (struct layout){.pp = 4, .global_batch = 8, .schedule = SCHEDULE_GPIPE}, "none");
    struct export_result result = export_as(targets[_i], &plan);
    ASSERT_INT(result.differs, !_i);
    ASSERT_INT(result.schedule, _i ? SCHEDULE_GPIPE : SCHEDULE_1F1B);
    ASSERT(!result.notes.data || !strstr(result.notes.data, "as fast"));
    release(&result);
}

TEST(export_torchtitan_uneven, "torchtitan is told the modules of every stage, and its file is TOML")
{
    struct plan plan = uneven_llama("full");
    struct export_result result = export_as(EXPORT_TORCHTITAN, &plan);
    check_golden(&result.body, "torchtitan-llama3-8b.toml");
    ASSERT_HAS(result.notes.data, "ZeRO-1");
    ASSERT_HAS(result.notes.data, "bf16");
    if (can_run("python3 -c 'import tomllib'")) {
        /* 64 sequences over 2 replicas are 32 micro-batches of one; 32 layers and the three ends have 35 names. */
        const char *check =
            "python3 -c 'import sys, tomllib; d = tomllib.loads(sys.stdin.read()); p = d[\"parallelism\"];"
            "parts = p[\"module_fqns_per_model_part\"];"
            "assert [len(x) for x in parts] == [10, 8, 8, 9];"
            "assert len({n for x in parts for n in x}) == 35;"
            "assert d[\"training\"][\"local_batch_size\"] == 32;"
            "assert d[\"activation_checkpoint\"][\"mode\"] == \"full\"'";
        ASSERT_INT(pipe_into(check, &result.body), 0);
    }
    release(&result);
}

TEST(export_torchtitan_own,
     "a llama that torchtitan has no name for is described with its exact feed-forward size")
{
    struct plan plan = make_plan("llama2-7b", (struct layout){.dp = 8}, "0-3=norm1");
    struct export_result result = export_as(EXPORT_TORCHTITAN, &plan);
    ASSERT_HAS(result.body.data, "multiple_of=11008");
    ASSERT_HAS(result.body.data, "flavor = \"memplan\"");
    ASSERT_HAS(result.body.data, "data_parallel_replicate_degree = 8");
    ASSERT_HAS(result.notes.data, "0-3=norm1");
    /* As torchtitan rounds: int(2/3 * 4 * 4096) = 10922, times 11008 / 4096 / 16, up to a multiple of 11008. */
    ASSERT_INT((int64_t)(10922 * (11008.0 / 4096 / 16)) / 11008, 0);
    release(&result);
}

/* What a shell must not read as anything but a name. */
static const char *const awkward[] = {"a b.json", "it's.json",   "$(touch x).json",
                                      "-rf.json", "a\nb\".json", "`x`;&|*.json"};

/* The words that a stand-in for `program` gets, one a line, when the script runs with it first in PATH. */
static char *words_of(const char *folder, const char *program, const struct text *script)
{
    char path[128], command[512], *words;
    size_t length;
    struct text stand_in = {0};
    text_printf(&stand_in, "#!/bin/bash\nprintf '<%%s>' \"$@\" >%s/words\n", folder);
    ASSERT_OK(text_write(&stand_in, scratch_path(folder, program, path), &err));
    text_free(&stand_in);
    ASSERT_INT(chmod(path, 0755), 0);
    snprintf(command, sizeof command, "cd %s && PATH=%s:$PATH bash", folder, folder);
    ASSERT_INT(pipe_into(command, script), 0);
    ASSERT_OK(text_read_file(scratch_path(folder, "words", path), 1 << 20, &words, &length, &err));
    return words;
}

static void check_names(enum export_target target, const char *program)
{
    char folder[64], expected[128];
    struct plan plan = make_plan("gpt2-124m", (struct layout){.dp = 4}, "none");
    scratch_open(folder);
    for (size_t i = 0; i < sizeof awkward / sizeof awkward[0]; i++) {
        struct export_result result;
        struct export_request request = {
            .plan = &plan, .plan_path = awkward[i], .data = awkward[i], .steps = 7, .ranks_per_node = 2};
        ASSERT_OK(export_write(target, &request, &result, &err));
        ASSERT_INT(pipe_into("bash -n", &result.body), 0);
        char *words = words_of(folder, program, &result.body);
        const char *dot = awkward[i][0] == '-' ? "./" : "";
        snprintf(expected, sizeof expected, "<memplan><train><%s%s><--data><%s%s><--steps><7>", dot,
                 awkward[i], dot, awkward[i]);
        ASSERT_HAS(words, expected);
        free(words);
        release(&result);
    }
    plan_clear(&plan);
    scratch_close(folder);
}

TEST(export_slurm_names, "whatever a file is called, srun gets its name as one word")
{
    check_names(EXPORT_SLURM, "srun");
}

TEST(export_mpirun_names, "whatever a file is called, mpirun gets its name as one word")
{
    check_names(EXPORT_MPIRUN, "mpirun");
}

TEST(export_slurm_nodes, "32 ranks on GPUs are four nodes of eight")
{
    struct plan plan = uneven_llama("none");
    struct export_result result = export_as(EXPORT_SLURM, &plan);
    check_golden(&result.body, "slurm-llama3-8b.sh");
    check_script(&result.body);
    ASSERT_HAS(result.body.data, "--nodes=4\n");
    ASSERT_HAS(result.body.data, "--ntasks-per-node=8\n");
    release(&result);
}

TEST(export_mpirun_nodes, "mpirun is told how many ranks a node has where there are several")
{
    struct plan plan = uneven_llama("none");
    struct export_result result = export_as(EXPORT_MPIRUN, &plan);
    ASSERT_STR(result.body.data,
               "mpirun -n 32 --map-by ppr:8:node --bind-to none memplan train plan.json --data "
               "\"$DATA\" --device cuda\n");
    release(&result);
}

/* A comment must not end early: what follows would be run. */
/* 12 ranks on two nodes of 8 cards and 4 on one of another kind. */
static struct plan make_mixed(void)
{
    struct plan plan =
        make_plan("llama3-8b",
                  (struct layout){.dp = 4, .pp = 4, .global_batch = 64, .precision = PRECISION_BF16}, "none");
    plan.groups[0] = (struct plan_group){"h100-80g", 80LL << 30, 2, 8, 12, 5e10};
    plan.groups[1] = (struct plan_group){"a100-80g", 79LL << 30, 4, 4, 4, 5e10};
    plan.group_count = 2;
    strcpy(plan.device, "h100-80g+a100-80g");
    return plan;
}

/* Refused by that name. The plan is gone afterwards. */
static void refuse(enum export_target target, struct plan *plan, int64_t ranks_per_node, const char *named)
{
    struct export_result result;
    struct export_request request = {
        .plan = plan, .plan_path = "plan.json", .ranks_per_node = ranks_per_node};
    ASSERT_INT(export_write(target, &request, &result, &err), -1);
    ASSERT_HAS(err.text, named);
    ASSERT(result.body.data == NULL && result.notes.data == NULL);
    plan_clear(plan);
}

static struct plan llama_of(int64_t dp, int64_t tp)
{
    struct plan plan = make_plan(
        "llama3-8b", (struct layout){.dp = dp, .tp = tp, .global_batch = dp, .precision = PRECISION_BF16},
        "none");
    plan.ranks_per_node = 8;
    return plan;
}

TEST_LOOP(export_uneven_nodes, "ranks that torchrun cannot start are refused, with those that it could", 2)
{
    enum export_target target = _i ? EXPORT_TORCHTITAN : EXPORT_MEGATRON;
    struct plan plan = llama_of(9, 1);
    refuse(target, &plan, 8,
           "9 ranks are not equally many on each node of 8, as torchrun starts them; `memplan");
    plan = llama_of(12, 1);
    refuse(target, &plan, 8, "; --ranks-per-node 6 has as many on each of 2; ");
    /* With 6 on a node, a part of four would be on two nodes. */
    plan = llama_of(3, 4);
    refuse(target, &plan, 8, "as torchrun starts them; `memplan plan --for");
    plan = llama_of(12, 1);
    struct export_result out;
    struct export_request request = {.plan = &plan, .plan_path = "plan.json", .ranks_per_node = 3};
    ASSERT_OK(export_write(target, &request, &out, &err));
    ASSERT_HAS(out.body.data, "--nnodes 4 --nproc-per-node 3");
    ASSERT_HAS(out.notes.data, "what is written takes 4 nodes, and the plan 2 of 8 ranks");
    release(&out);
    plan_clear(&plan);
    plan = llama_of(9, 1);
    out = export_as(_i ? EXPORT_SLURM : EXPORT_MPIRUN, &plan);
    release(&out);
}

TEST(export_mixed_nodes,
     "where nodes differ each system is told which come first, and how many ranks each has")
{
    struct plan plan = make_mixed();
    struct export_result out = export_as(EXPORT_MPIRUN, &plan);
    ASSERT_HAS(out.body.data, "mpirun -n 16 --hostfile \"$HOSTS\" --map-by slot ");
    ASSERT_HAS(
        out.notes.data,
        "in this order: 2 with h100-80g, slots=8 (the last of them slots=4); 1 with a100-80g, slots=4");
    release(&out);
    plan = make_mixed();
    out = export_as(EXPORT_SLURM, &plan);
    ASSERT_HAS(out.body.data, "--nodes=3\n");
    ASSERT_HAS(out.body.data, "ranks 0-11 on h100-80g, 8 a node; 12-15 on a100-80g, 4 a node}");
    ASSERT_HAS(out.body.data, "srun --mpi=pmix --distribution=arbitrary ");
    ASSERT(!strstr(out.body.data, "ntasks-per-node"));
    ASSERT_INT(pipe_into("bash -n", &out.body), 0);
    release(&out);
    plan = make_mixed();
    refuse(EXPORT_MEGATRON, &plan, 8, "16 ranks are not equally many on each node of 8 and of each kind");
    plan = make_mixed();
    plan.groups[0].ranks = 8;
    plan.groups[1] = (struct plan_group){"a100-80g", 79LL << 30, 1, 8, 8, 5e10};
    out = export_as(EXPORT_TORCHTITAN, &plan);
    ASSERT_HAS(out.notes.data, "nodes 0-0 with h100-80g, 1-1 with a100-80g");
    release(&out);
}

TEST(export_comments, "whatever made the plan stays in its comment")
{
    struct plan plan = make_plan("gpt2-124m", (struct layout){.dp = 1}, "none");
    strcpy(plan.made_by, "memplan plan x\ntouch y");
    struct export_result result = export_as(EXPORT_SLURM, &plan);
    ASSERT_HAS(result.body.data, "# memplan plan x?touch y\n");
    release(&result);
}

TEST(export_refused, "a model that a system does not know is refused by name")
{
    check_refused("block-768", EXPORT_MEGATRON, "block-768");
    check_refused("gpt2-124m", EXPORT_TORCHTITAN, "gpt2-124m");
    check_refused("qwen3-8b", EXPORT_TORCHTITAN, "qwen3-8b");
    check_refused("olmo2-7b", EXPORT_TORCHTITAN, "olmo2-7b");
    check_refused("olmo2-7b", EXPORT_MEGATRON, "olmo2-7b");
    check_refused("gemma-2b", EXPORT_MEGATRON, "gemma-2b");
}
