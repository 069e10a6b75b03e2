/* Layouts: what is filled in, and each refusal. */
#include "model/layout.h"

#include "tests/test.h"

#include <string.h>

static struct error err;

static struct model read_model(const char *name)
{
    struct model m = {0};
    ASSERT_OK(model_read(name, NULL, &m, &err));
    return m;
}

TEST(layout_defaults,
     "an empty layout is one rank, the usual micro-batch once, and the model's whole sequence")
{
    struct model m = read_model("block-768");
    struct layout l = {0};
    ASSERT_OK(layout_complete(&l, &m, &err));
    ASSERT_INT(l.dp, 1);
    ASSERT_INT(l.micro_batch, 4);
    ASSERT_INT(l.global_batch, 4);
    ASSERT_INT(l.seq_len, 512);
    ASSERT_INT(l.bucket_bytes, 25 * 1024 * 1024);
    ASSERT_INT(layout_micro_batches(&l), 1);
    ASSERT_INT(l.precision, PRECISION_FP32);
}

/* 48 sequences over 2 ranks in micro-batches of 4: 6 each. */
TEST(layout_accumulates, "a global batch of 48 over 2 ranks and micro-batches of 4 makes 6 of them")
{
    struct model m = read_model("block-768");
    struct layout l = {.dp = 2, .global_batch = 48};
    ASSERT_OK(layout_complete(&l, &m, &err));
    ASSERT_INT(l.micro_batch, 4);
    ASSERT_INT(layout_micro_batches(&l), 6);
}

/* block-768's usual micro-batch is 4; 2 ranks would need 8. */
TEST(layout_small_global_batch, "a global batch below the usual micro-batches gets micro-batches of 1")
{
    struct model m = read_model("block-768");
    struct layout l = {.dp = 2, .global_batch = 6};
    ASSERT_OK(layout_complete(&l, &m, &err));
    ASSERT_INT(l.micro_batch, 1);
    ASSERT_INT(layout_micro_batches(&l), 3);
}

static void refuse(const char *model, struct layout layout, const char *piece)
{
    struct model m = read_model(model);
    struct layout before = layout;
    err = (struct error){0};
    ASSERT_INT(layout_complete(&layout, &m, &err), -1);
    ASSERT_HAS(err.text, piece);
    ASSERT(!memcmp(&before, &layout, sizeof layout));
}

TEST(layout_refusals, "each layout that cannot be names the option and a way out, and is left alone")
{
    refuse("gpt2-124m", (struct layout){.dp = 4, .global_batch = 6},
           "multiple of dp 4 x micro-batch 1; try 8");
    refuse("gpt2-124m", (struct layout){.seq_len = 1025}, "at most 1024");
    refuse("gpt2-124m", (struct layout){.dp = -1}, "--dp -1");
    refuse("gpt2-124m", (struct layout){.micro_batch = -2}, "--micro-batch -2");
    refuse("gpt2-124m", (struct layout){.seq_len = -3}, "--seq-len -3");
    refuse("gpt2-124m", (struct layout){.global_batch = -4}, "--global-batch -4");
    refuse("gpt2-124m", (struct layout){.bucket_bytes = -5}, "--bucket-bytes -5");
    refuse("gpt2-124m", (struct layout){.dp = INT64_MAX, .global_batch = 1}, "--dp");
    refuse("gpt2-124m", (struct layout){.micro_batch = INT64_MAX}, "--micro-batch");
    refuse("gpt2-124m", (struct layout){.global_batch = INT64_MAX}, "--global-batch");
    refuse("llama3-8b", (struct layout){.seq_len = INT64_MAX}, "--seq-len");
    refuse("gpt2-124m", (struct layout){.zero = 2}, "--zero 2 is not there; use 1");
    refuse("gpt2-124m", (struct layout){.tp = INT64_MAX}, "--tp");
    refuse("gpt2-124m", (struct layout){.pp = INT64_MAX}, "--pp");
    refuse("gpt2-124m", (struct layout){.pp = 2, .virtual_stages = INT64_MAX}, "--virtual-stages");
    refuse("gpt2-124m", (struct layout){.micro_batch = 1, .global_batch = 1LL << 40},
           "are more than 4194304 passes; use a larger --micro-batch");
}

/* gpt2-124m has 12 layers. */
TEST(layout_pipeline_refusals, "each pipeline that cannot be names the option and a way out")
{
    refuse("gpt2-124m", (struct layout){.pp = 15},
           "--pp 15 with --virtual-stages 1 cuts the layers into 15 chunks, and gpt2-124m has 12 layers: "
           "only the "
           "first and the last may have none");
    refuse("block-tiny", (struct layout){.pp = 3},
           "cuts the layers into 3 chunks, and block-tiny has 2 layers: some");
    refuse("gpt2-124m", (struct layout){.pp = 4, .virtual_stages = 4}, "into 16 chunks");
    refuse("gpt2-124m", (struct layout){.virtual_stages = 2}, "give --pp 2 or more");
    refuse("gpt2-124m", (struct layout){.pp = 2, .virtual_stages = 2, .dp = 2, .global_batch = 6},
           "which the 3 of --global-batch 6 do not fill; try --global-batch 8, or --virtual-stages 1");
    refuse("gpt2-124m", (struct layout){.pp = 2, .schedule = SCHEDULE_INTERLEAVED},
           "use --virtual-stages 2 or more, or --pipeline-schedule 1f1b");
    refuse("gpt2-124m", (struct layout){.pp = 2, .virtual_stages = 2, .schedule = SCHEDULE_ZB_H1},
           "use --pipeline-schedule interleaved or --virtual-stages 1");
}

TEST(layout_spreads_layers,
     "an even split leaves what is over to the last chunks but the very last, and the ends bare only "
     "where there are fewer layers than chunks")
{
    static const struct {
        int64_t pp, virtual_stages, layers;
        const char *split;
    } cases[] = {{2, 2, 8, "2*4"},     {2, 2, 9, "2*2,3,2"}, {4, 1, 7, "2*3,1"}, {2, 2, 7, "2*3,1"},
                 {2, 4, 6, "0,1*6,0"}, {2, 4, 7, "1*7,0"},   {2, 1, 1, "1,0"},   {16, 8, 126, "0,1*126,0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct layout l = {.pp = cases[i].pp, .virtual_stages = cases[i].virtual_stages};
        int64_t layers[128];
        struct text text = {0};
        layout_spread_layers(&l, cases[i].layers, layers);
        layout_print_layers(layers, layout_chunks(&l), &text);
        ASSERT_STR(text.data, cases[i].split);
        text_free(&text);
    }
}

TEST(layout_pipeline_defaults, "every stage has work, and 1f1b of several chunks is interleaved")
{
    struct model m = read_model("gpt2-124m");
    struct layout l = {.pp = 3, .dp = 2};
    ASSERT_OK(layout_complete(&l, &m, &err));
    ASSERT_INT(layout_micro_batches(&l), 3);
    ASSERT_INT(l.schedule, SCHEDULE_1F1B);
    l = (struct layout){.pp = 3, .virtual_stages = 2};
    ASSERT_OK(layout_complete(&l, &m, &err));
    ASSERT_INT(l.schedule, SCHEDULE_INTERLEAVED);
    ASSERT_INT(layout_chunks(&l), 6);
    l = (struct layout){.pp = 1, .schedule = SCHEDULE_GPIPE};
    ASSERT_OK(layout_complete(&l, &m, &err));
    ASSERT_INT(l.schedule, SCHEDULE_1F1B);
}

TEST(layout_places, "tensor-parallel ranks are neighbours, then come replicas, then stages")
{
    struct layout l = {.dp = 2, .tp = 3, .pp = 4};
    ASSERT_INT(layout_ranks(&l), 24);
    int64_t rank = 0;
    for (int64_t stage = 0; stage < 4; stage++)
        for (int64_t replica = 0; replica < 2; replica++)
            for (int64_t part = 0; part < 3; part++) {
                struct layout_place place = layout_place_of(&l, rank++);
                ASSERT_INT(place.stage, stage);
                ASSERT_INT(place.replica, replica);
                ASSERT_INT(place.part, part);
            }
}

/* 14 = 4 x 3 + 2: the two go to the chunks before the last, which has the head. */
TEST(layout_spread, "layers that do not divide go to the last stages but the very last")
{
    struct layout l = {.pp = 4, .virtual_stages = 1};
    int64_t layers[4];
    layout_spread_layers(&l, 14, layers);
    ASSERT_INT(layers[0], 3);
    ASSERT_INT(layers[1], 4);
    ASSERT_INT(layers[2], 4);
    ASSERT_INT(layers[3], 3);
}

TEST(layout_rope_is_longer, "RoPE has no last position: a llama may be longer than its max_seq_len")
{
    struct model m = read_model("llama3-8b");
    struct layout l = {.seq_len = 20000};
    ASSERT_OK(layout_complete(&l, &m, &err));
}

TEST(layout_precision, "precisions are found by name, and an unknown one says which there are")
{
    enum precision p;
    for (int i = PRECISION_FP32; i <= PRECISION_FP64; i++) {
        ASSERT_OK(precision_find(precision_name((enum precision)i), &p, &err));
        ASSERT_INT(p, i);
    }
    ASSERT_INT(precision_find("fp8", &p, &err), -1);
    ASSERT_HAS(err.text, "fp32 or bf16");
}

TEST(layout_json, "a layout written and read again is the same")
{
    struct layout l = {.dp = 2,
                       .tp = 4,
                       .pp = 2,
                       .virtual_stages = 3,
                       .schedule = SCHEDULE_INTERLEAVED,
                       .zero = 1,
                       .sequence_parallel = true,
                       .micro_batch = 3,
                       .global_batch = 12,
                       .seq_len = 76,
                       .bucket_bytes = 1000,
                       .precision = PRECISION_BF16},
                  again;
    json_t *object = layout_to_json(&l);
    ASSERT_OK(layout_from_json(object, "memory", &again, &err));
    json_t *object_again = layout_to_json(&again);
    ASSERT(json_equal(object, object_again));
    json_decref(object_again);
    json_object_set_new(object, "zero", json_integer(2));
    ASSERT_INT(layout_from_json(object, "p.json", &again, &err), -1);
    ASSERT_HAS(err.text, "zero is 2");
    json_object_set_new(object, "zero", json_integer(1));
    json_object_set_new(object, "precision", json_string("int4"));
    ASSERT_INT(layout_from_json(object, "p.json", &again, &err), -1);
    ASSERT_HAS(err.text, "p.json: precision \"int4\"");
    json_object_del(object, "precision");
    json_object_del(object, "seq_len");
    ASSERT_INT(layout_from_json(object, "p.json", &again, &err), -1);
    ASSERT_HAS(err.text, "seq_len");
    json_decref(object);
}

/* gpt2-124m: 12 heads, feed-forward 3072, vocabulary 50257, which is padded and need not divide. */
TEST(layout_tensor_parallel,
     "ranks that cannot share the heads or the sequence are refused with a number that can")
{
    struct model m;
    ASSERT_OK(model_read("gpt2-124m", NULL, &m, &err));
    struct layout l = {.tp = 4, .seq_len = 100, .sequence_parallel = true};
    ASSERT_OK(layout_complete(&l, &m, &err));
    ASSERT_INT(layout_ranks(&l), 4);
    l = (struct layout){.tp = 5};
    ASSERT_INT(layout_complete(&l, &m, &err), -1);
    ASSERT_HAS(err.text, "--tp 5 does not divide heads 12; try --tp 4");
    l = (struct layout){.tp = 4, .seq_len = 99, .sequence_parallel = true};
    ASSERT_INT(layout_complete(&l, &m, &err), -1);
    ASSERT_HAS(err.text, "--tp 4, which does not divide --seq-len 99; try --seq-len 96");
    l = (struct layout){.sequence_parallel = true};
    ASSERT_INT(layout_complete(&l, &m, &err), -1);
    ASSERT_HAS(err.text, "--tp 2");
    ASSERT_OK(model_read("llama3-8b", NULL, &m, &err));
    l = (struct layout){.tp = 16};
    ASSERT_INT(layout_complete(&l, &m, &err), -1);
    ASSERT_HAS(err.text, "key/value heads 8; try --tp 8");
}
