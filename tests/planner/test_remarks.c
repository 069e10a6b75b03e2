/* What is said of questions that leave much on the table. */
#include "tests/test.h"

#include "model/presets.h"
#include "planner/remarks.h"

#include <stdlib.h>
#include <string.h>

struct asked {
    struct cluster cluster;
    struct machine_speed speeds[CLUSTER_GROUPS];
    struct search_request request;
    struct search_result result;
    struct remarks remarks;
};

static void ask(struct asked *a, const char *model, const char *cluster, int64_t batch, int64_t seq_len,
                enum precision precision)
{
    struct error err = {0};
    ASSERT_OK(cluster_read(cluster, &a->cluster, &err));
    for (int g = 0; g < a->cluster.group_count; g++)
        machine_speed_for_group(&a->cluster.groups[g], precision, 1, &a->speeds[g]);
    a->request = (struct search_request){.model = presets_find(model),
                                         .cluster = &a->cluster,
                                         .speeds = a->speeds,
                                         .global_batch = batch,
                                         .seq_len = seq_len,
                                         .precision = precision};
    ASSERT_OK(search_run(&a->request, &a->result, &err));
    ASSERT(a->result.alternative_count > 0);
    remarks_find(&a->request, &a->result, &a->remarks);
}

static void drop(struct asked *a)
{
    remarks_clear(&a->remarks);
    search_clear(&a->result);
}

/* The batch that is named takes what is said. */
TEST(remarks_batch, "of a batch that ranks cannot share, the nearest that is much faster is named, and is")
{
    struct asked a, named;
    ask(&a, "gpt2-124m", "1x7:a100-40g", 64, 0, PRECISION_BF16);
    ASSERT_HAS(a.remarks.batch.data,
               "64 sequences are hard to share among 7 ranks: --global-batch 63 takes ");
    ASSERT(!a.remarks.precision.length && !a.remarks.network.length && !a.remarks.bubble.length);
    ask(&named, "gpt2-124m", "1x7:a100-40g", 63, 0, PRECISION_BF16);
    ASSERT_INT(layout_ranks(&named.result.alternatives[0].layout), 7);
    double gain = 63 / named.result.alternatives[0].time.total / (64 / a.result.alternatives[0].time.total);
    ASSERT_NEAR(strtod(strstr(a.remarks.batch.data, "with ") + 5, NULL), gain, 0.006);
    ASSERT(gain >= 1.05);
    ASSERT(!named.remarks.batch.length);
    drop(&a);
    drop(&named);
}

/* A model so small that ranks wait for each other longer than for themselves: it is none of the batch's doing. */
TEST(remarks_idle,
     "where ranks could share the batch and are idle all the same, it is not said to be hard to share")
{
    static const int64_t batches[] = {2, 4, 6, 8};
    struct asked a;
    for (int i = 0; i < 4; i++) {
        ask(&a, "gpt2-tiny", "1x2:cpu(64MiB)", batches[i], 0, PRECISION_FP32);
        ASSERT_INT(layout_ranks(&a.result.alternatives[0].layout), 1);
        ASSERT_HAS(a.remarks.batch.data, "1 of 2 ranks has no part in it: ");
        drop(&a);
    }
    ask(&a, "gpt2-124m", "1x3:a100-40g", 1, 0, PRECISION_BF16);
    ASSERT_HAS(a.remarks.batch.data, "1 sequence is hard to share among 3 ranks");
    drop(&a);
}

TEST(remarks_bubble,
     "of a pipeline that mostly waits it is said, with a larger batch and what is not searched")
{
    struct asked a;
    ask(&a, "llama3-70b", "16x8:h100-80g", 8, 32768, PRECISION_BF16);
    ASSERT(a.result.alternatives[0].time.bubble > a.result.alternatives[0].time.total / 3);
    ASSERT_HAS(a.remarks.bubble.data, "of the step stages wait: 8 sequences are ");
    ASSERT_HAS(a.remarks.bubble.data, "; --global-batch ");
    ASSERT_HAS(a.remarks.bubble.data, "context parallelism");
    drop(&a);
    ask(&a, "llama3-8b", "1x8:h100-80g", 64, 0, PRECISION_BF16);
    ASSERT(!a.remarks.bubble.length && !a.remarks.batch.length);
    drop(&a);
}

TEST(remarks_precision, "cards without bf16 units, and bf16 units that are not asked for")
{
    struct asked a;
    ask(&a, "gpt2-124m", "1x2:v100-32g", 8, 0, PRECISION_BF16);
    ASSERT_HAS(a.remarks.precision.data,
               "v100-32g has no units for bf16: products run at its fp32 rate, 15.7 TFLOP/s");
    drop(&a);
    ask(&a, "gpt2-124m", "1x2:v100-32g", 8, 0, PRECISION_FP32);
    ASSERT(!a.remarks.precision.length);
    drop(&a);
    ask(&a, "gpt2-124m", "1x2:a100-40g", 8, 0, PRECISION_FP32);
    ASSERT_HAS(a.remarks.precision.data,
               "fp32 runs at 19.5 TFLOP/s at most on a100-40g, --precision bf16 at 312 TFLOP/s");
    drop(&a);
}

TEST(remarks_network,
     "a node's network of one port is asked about; a given one that is usual is not, nor one node's")
{
    static const struct {
        const char *cluster, *said;
    } cases[] = {
        {"2x8:h100-80g,net=400Gb/s", "400 Gb/s for 8 h100-80g, where a DGX H100 has 3.20 Tb/s for as many; "
                                     "is that one port of 8? Then write net=3200Gb/s"},
        {"2x8:a100-40g,net=100Gb/s", "100 Gb/s for 8 a100-40g, where a DGX A100 has 1.60 Tb/s for as many"},
        {"2x8:h100-80g,net=3200Gb/s", NULL},
        {"2x8:h100-80g", NULL},
        {"1x8:h100-80g,net=400Gb/s", NULL},
        {"2x4:l40s,net=10Gb/s", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct asked a;
        ask(&a, "gpt2-124m", cases[i].cluster, 64, 0, PRECISION_BF16);
        if (cases[i].said)
            ASSERT_HAS(a.remarks.network.data, cases[i].said);
        else
            ASSERT(!a.remarks.network.length);
        drop(&a);
    }
}
