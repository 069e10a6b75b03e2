/* DeepSpeed's balance of pipeline stages, against partitions worked out by hand. */
#include "jobs/deepspeed_stages.h"

#include "base/text.h"
#include "jobs/job_workload.h"
#include "jobs/jobs.h"
#include "tests/test.h"

#include <string.h>

enum { MOST = 8 };

static const struct {
    int64_t weights[MOST], count, stages, parts[MOST];
} rows[] = {
    /* sums 1|14, 3|12, 6|9, 10|5 */
    {{1, 2, 3, 4, 5}, 5, 2, {0, 3, 5}},
    /* 5|5 */
    {{5, 1, 1, 1, 1, 1}, 6, 2, {0, 1, 6}},
    /* 4|4|4 */
    {{3, 1, 1, 3, 1, 3}, 6, 3, {0, 2, 4, 6}},
    /* 1|2 and 2|1 are as good: the later cut */
    {{1, 1, 1}, 3, 2, {0, 2, 3}},
    /* 2|1|0 by 2, 1|1|1 by nothing */
    {{0, 1, 1, 1, 0}, 5, 3, {0, 2, 3, 5}},
    /* one each where there are no more than stages */
    {{9, 1}, 2, 4, {0, 1, 2, 2, 2}},
    {{9, 1, 1}, 3, 3, {0, 1, 2, 3}},
};

TEST_LOOP(deepspeed_balance, "a row of weights is cut where the sums differ least",
          sizeof rows / sizeof rows[0])
{
    int64_t parts[MOST];
    struct error err = {0};
    ASSERT_OK(deepspeed_stages_balance(rows[_i].weights, rows[_i].count, rows[_i].stages, parts, &err));
    for (int64_t p = 0; p <= rows[_i].stages; p++)
        ASSERT_INT(parts[p], rows[_i].parts[p]);
}

TEST(deepspeed_balance_long, "a search that takes too long is refused, with a way out")
{
    static int64_t weights[5000], parts[100];
    struct error err = {0};
    ASSERT_INT(deepspeed_stages_balance(weights, 5000, 64, parts, &err), -1);
    ASSERT_HAS(err.text, "64 stages of 5000 modules");
    ASSERT_HAS(err.text, "try fewer stages");
}

/* The layers of each stage of a launch, "4 3". */
static void list_stages(const char *layers, const char *stages, const char *options, struct text *out)
{
    struct arena *arena = arena_create();
    struct error err = {0};
    struct training_job job;
    struct workload w;
    struct jobs_request request = {0};
    const char *script = arena_printf(
        arena,
        "deepspeed --num_gpus 8 pretrain_gpt.py --deepspeed --deepspeed_config '{}' --hidden-size 64 "
        "--num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size 100 "
        "--micro-batch-size 1 --num-layers %s --pipeline-model-parallel-size %s %s",
        layers, stages, options);
    ASSERT_MSG(!jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err), "%s",
               err.text);
    ASSERT_MSG(!job_workload(&job, &w, &err), "%s", err.text);
    for (int64_t stage = 0; stage < w.pp; stage++)
        text_printf(out, stage ? " %lld" : "%lld", (long long)workload_chunk_layers(&w, stage, 0));
    arena_free(arena);
}

TEST(deepspeed_fork, "Megatron-DeepSpeed balances layers alone, whatever stands before and behind them")
{
    static const struct {
        const char *layers, *stages, *options, *each;
    } launches[] = {
        {"8", "4", "--bf16", "2 2 2 2"},
        {"7", "2", "--bf16", "4 3"},
        {"7", "2", "", "4 3"}, /* fp32: no cast behind the head */
        {"7", "4", "--fp16", "2 2 2 1"},
        {"10", "4", "--bf16", "3 3 2 2"},
        {"31", "8", "--bf16 --untie-embeddings-and-output-weights", "4 4 4 4 4 4 4 3"},
        {"7", "2", "--bf16 --no-pipeline-parallel", "7"},
    };
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++) {
        struct text list = {0};
        list_stages(launches[i].layers, launches[i].stages, launches[i].options, &list);
        ASSERT_MSG(!strcmp(list.data, launches[i].each), "%s layers over %s: %s", launches[i].layers,
                   launches[i].stages, list.data);
        text_free(&list);
    }
}
