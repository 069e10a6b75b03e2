/* Work: floating-point operations and bytes of the operations of a step, against sums done by hand. */
#include "model/work.h"

#include "model/pipeline.h"
#include "tests/model/first_stage.h"
#include "tests/test.h"

static struct error err;

static struct program *create(const char *name, struct layout layout)
{
    struct model m;
    struct program *p;
    ASSERT_OK(model_read(name, NULL, &m, &err));
    ASSERT_OK(layout_complete(&layout, &m, &err));
    ASSERT_OK(program_create(&m, &layout, NULL, &p, &err));
    return p;
}

struct sums {
    double matmul, attention, attention_grad, other;
};

static struct sums add_up(const struct program *p)
{
    struct sums sums = {0};
    struct program_cursor cursor = program_walk(p);
    for (struct step_op s; program_next(&cursor, &s);) {
        double flops = work_of(p, &s).flops;
        if (s.kind == OP_MATMUL || s.kind == OP_MATMUL_DGRAD || s.kind == OP_MATMUL_WGRAD)
            sums.matmul += flops;
        else if (s.kind == OP_ATTENTION)
            sums.attention += flops;
        else if (s.kind == OP_ATTENTION_GRAD)
            sums.attention_grad += flops;
        else
            sums.other += flops;
    }
    return sums;
}

/* Each weight of a matrix product costs 2 flops per token forward and 4 backward. Those weights are all parameters but the
 * positions and the vectors: 124,439,808 - 786,432 - (12 x 13 x 768 + 2 x 768) = 123,532,032; the tied embedding counts once,
 * as the head. 6 x 123,532,032 x 1024 tokens = 758,980,804,608. */
TEST(work_matmul_flops, "matrix products of gpt2-124m are 6 flops per token and weight that is multiplied")
{
    struct program *p = create("gpt2-124m", (struct layout){0});
    struct sums sums = add_up(p);
    ASSERT(sums.matmul == 758980804608.0);
    ASSERT(sums.other == 0);
    program_free(p);
}

/* 2 products of 2 T T D H flops, halved by the mask: 2 x 1024 x 1024 x 768 = 1,610,612,736 a layer; backward 5 products. */
TEST(work_attention_flops, "attention is 2 products forward and 5 backward, half of each under the mask")
{
    struct program *p = create("gpt2-124m", (struct layout){0});
    struct sums sums = add_up(p);
    ASSERT(sums.attention == 12 * 1610612736.0);
    ASSERT(sums.attention_grad == 12 * 2.5 * 1610612736.0);
    program_free(p);
    /* The encoder has no mask: 4 x 4 sequences x 512 x 512 x 768 forward in its one layer. */
    p = create("block-768", (struct layout){0});
    ASSERT(add_up(p).attention == 4 * 4.0 * 512 * 512 * 768);
    program_free(p);
}

/* 3 micro-batches of 2 sequences of 64: three times the flops of one. */
TEST(work_micro_batches, "micro-batches repeat the same work")
{
    struct program *one = create("llama-tiny", (struct layout){.micro_batch = 2});
    struct program *three = create("llama-tiny", (struct layout){.micro_batch = 2, .global_batch = 6});
    ASSERT(add_up(three).matmul == 3 * add_up(one).matmul);
    /* 2 layers x (qkv 64 x 32, proj 32 x 32, gate_up 176 x 32, down 32 x 88) and the head 256 x 32: 31,232 weights. */
    ASSERT(add_up(one).matmul == 6.0 * 31232 * 128);
    program_free(one);
    program_free(three);
}

/* Finds the first operation of a kind in an instance. */
static struct work first_work(const struct program *p, int64_t instance, enum op_kind kind)
{
    struct program_cursor cursor = program_walk(p);
    for (struct step_op s; program_next(&cursor, &s);)
        if (s.instance == instance && s.kind == kind)
            return work_of(p, &s);
    ck_abort_msg("no %s in instance %lld", op_kind_name(kind), (long long)instance);
    return (struct work){0};
}

/* qkv: x 1024 x 768, w 2304 x 768, bias 2304, y 1024 x 2304, in floats. */
TEST(work_matmul_bytes, "a matrix product moves its matrices once each, and knows its shape")
{
    struct program *p = create("gpt2-124m", (struct layout){0});
    struct work w = first_work(p, 1, OP_MATMUL);
    ASSERT_INT(w.m, 1024);
    ASSERT_INT(w.n, 2304);
    ASSERT_INT(w.k, 768);
    ASSERT(w.flops == 2.0 * 1024 * 2304 * 768);
    ASSERT(w.bytes_moved == 4.0 * (1024 * 768 + 2304 * 768 + 2304 + 1024 * 2304));
    /* The first weight gradient of backward in a layer is down's: (768, 3072) over 1024 rows. */
    w = first_work(p, 1, OP_MATMUL_WGRAD);
    ASSERT_INT(w.m, 768);
    ASSERT_INT(w.n, 3072);
    ASSERT_INT(w.k, 1024);
    program_free(p);
}

/* fp32: the gradient is read, weight and two moments are read and written: 4 + 3 x 8 = 28 bytes. bf16: the gradient 4,
 * weight 2 x 2, master and moments 3 x 8: 32. A layer of gpt2-124m has 7,087,872 parameters. */
TEST(work_update_bytes, "AdamW moves 28 bytes a parameter in fp32 and 32 in bf16, the square sum 4")
{
    struct program *p = create("gpt2-124m", (struct layout){0});
    ASSERT(first_work(p, 1, OP_ADAMW).bytes_moved == 28.0 * 7087872);
    ASSERT(first_work(p, 1, OP_SQUARE_SUM).bytes_moved == 4.0 * 7087872);
    ASSERT_INT(first_work(p, 1, OP_ADAMW).m, 7087872);
    program_free(p);
    p = create("gpt2-124m", (struct layout){.precision = PRECISION_BF16});
    ASSERT(first_work(p, 1, OP_ADAMW).bytes_moved == 32.0 * 7087872);
    program_free(p);
}

/* A ring of 4 ranks: each sends 2 x 3/4 of the vector (Patarasuk & Yuan 2009). All gradients: 124,439,808 floats; the loss
 * is one more. */
TEST(work_all_reduce, "all buckets together send 2 (n-1)/n of the gradients; besides, only the loss is sent")
{
    struct program *p = create("gpt2-124m", (struct layout){.dp = 4});
    double sent = 0, loss_sent = 0;
    struct program_cursor cursor = program_walk(p);
    for (struct step_op s; program_next(&cursor, &s);) {
        struct work w = work_of(p, &s);
        if (s.kind == OP_ALL_REDUCE) {
            sent += w.bytes_sent;
            ASSERT_INT(w.group.ranks, 4);
        } else if (s.kind == OP_REDUCE_LOSS) {
            loss_sent += w.bytes_sent;
        } else {
            ASSERT(w.bytes_sent == 0);
        }
    }
    ASSERT(sent == 1.5 * 4 * 124439808.0);
    ASSERT(loss_sent == 1.5 * 4);
    program_free(p);
}

/* gpt2-tiny: C = 32; B = 1, T = 8: (B, T, C) is 1024 bytes. */
TEST(work_exchanges,
     "tensor-parallel ranks send 2 (n-1)/n of what they sum, and (n-1)/n of what they gather or scatter")
{
    struct program *p = create("gpt2-tiny", (struct layout){.tp = 4, .micro_batch = 1, .seq_len = 8});
    struct work w = first_work(p, 1, OP_SUM_PARTIAL);
    ASSERT(w.bytes_moved == 2 * 1024 && w.bytes_sent == 1.5 * 1024);
    ASSERT_INT(w.group.ranks, 4);
    ASSERT_INT(w.group.stride, 1);
    program_free(p);
    p = create("gpt2-tiny",
               (struct layout){.dp = 3, .tp = 4, .sequence_parallel = true, .micro_batch = 1, .seq_len = 8});
    w = first_work(p, 1, OP_ALL_GATHER);
    ASSERT(w.bytes_moved == 1024 + 256 && w.bytes_sent == 768);
    w = first_work(p, 1, OP_REDUCE_SCATTER);
    ASSERT(w.bytes_moved == 1024 + 256 && w.bytes_sent == 768);
    /* Norms: 2 layers with two and a final one, weight and bias of 32 floats each. */
    w = first_work(p, -1, OP_REDUCE_NORMS);
    ASSERT(w.bytes_moved == 2 * 5 * 2 * 32 * 4 && w.bytes_sent == 1.5 * 5 * 2 * 32 * 4);
    /* Of 12 ranks those at 0, 4 and 8 average their gradients, and three more such groups. */
    w = first_work(p, -1, OP_REDUCE_LOSS);
    ASSERT_INT(w.group.ranks, 3);
    ASSERT_INT(w.group.stride, 4);
    ASSERT_INT(w.group.extent, 12);
    w = first_work(p, -1, OP_REDUCE_SQUARES);
    ASSERT_INT(w.group.ranks, 4);
    program_free(p);
}

static bool has_op(const struct program *p, enum op_kind kind)
{
    struct program_cursor cursor = program_walk(p);
    for (struct step_op s; program_next(&cursor, &s);)
        if (s.kind == kind)
            return true;
    return false;
}

/* qwen3-tiny: 2 layers, D = 16, C = 32. */
TEST(work_qk_norms,
     "ranks that share heads add up the gradients of their norms, with sequence parallelism all norms'")
{
    struct program *p = create("qwen3-tiny", (struct layout){.tp = 2});
    struct work w = first_work(p, -1, OP_REDUCE_NORMS);
    ASSERT(w.bytes_moved == 2 * 2 * 2 * 16 * 4 && w.bytes_sent == 2 * 2 * 16 * 4);
    program_free(p);
    p = create("qwen3-tiny", (struct layout){.tp = 2, .sequence_parallel = true});
    w = first_work(p, -1, OP_REDUCE_NORMS);
    ASSERT(w.bytes_moved == 2 * (2 * 2 * 16 + 5 * 32) * 4);
    program_free(p);
    p = create("qwen3-tiny", (struct layout){.dp = 2});
    ASSERT(!has_op(p, OP_REDUCE_NORMS));
    program_free(p);
    p = create("llama-tiny", (struct layout){.tp = 2});
    ASSERT(!has_op(p, OP_REDUCE_NORMS));
    program_free(p);
}

/* 2 layers of gemma3-tiny, T = 64: the second sees 64 x 64 / 2 = 2,048 pairs, the first, in windows of 5, 5 x 64 - 12.5 = 307.5. */
TEST(work_windows, "attention in windows counts the pairs that are seen; a layer's are the mean over all")
{
    struct program *p = create("gemma3-tiny", (struct layout){.micro_batch = 1, .seq_len = 64});
    ASSERT_NEAR(first_work(p, 1, OP_ATTENTION).flops, 2 * 2 * 16 * 4 * (2048 + 307.5) / 2, 1e-6);
    ASSERT_NEAR(first_work(p, 2, OP_ATTENTION_GRAD).flops, 2.5 * 2 * 2 * 16 * 4 * (2048 + 307.5) / 2, 1e-6);
    ASSERT_NEAR(work_model_flops(p), 6.0 * 37728 * 64 + 12 * 2 * 64 * (2048 + 307.5) / 2, 1e-3);
    program_free(p);
    p = create("gemma3-tiny", (struct layout){.micro_batch = 1, .seq_len = 5});
    ASSERT_NEAR(first_work(p, 1, OP_ATTENTION).flops, 2 * 2 * 16 * 4 * 12.5, 1e-6);
    program_free(p);
}

/* Sums what all operations of a kind send. */
static double sent_by(const struct program *p, enum op_kind kind)
{
    double sent = 0;
    struct program_cursor cursor = program_walk(p);
    for (struct step_op s; program_next(&cursor, &s);)
        sent += s.kind == kind ? work_of(p, &s).bytes_sent : 0;
    return sent;
}

/* 124,439,808 parameters: gradients in fp32, weights in bf16; all tensors are multiples of 4 elements and of 64 bytes. */
TEST(work_zero, "with ZeRO gradients are scattered and weights gathered, in their own types")
{
    struct program *p = create("gpt2-124m", (struct layout){.dp = 4, .zero = 1, .precision = PRECISION_BF16});
    ASSERT_NEAR(sent_by(p, OP_SCATTER_GRADIENTS), 0.75 * 4 * 124439808.0, 1);
    ASSERT_NEAR(sent_by(p, OP_GATHER_WEIGHTS), 0.75 * 2 * 124439808.0, 1);
    ASSERT(sent_by(p, OP_ALL_REDUCE) == 0);
    program_free(p);
}

TEST_LOOP(work_parts, "tensor-parallel ranks compute equal shares of what one rank computes", 4)
{
    static const char *const names[] = {"gpt2-tiny", "llama-tiny", "qwen3-tiny", "block-tiny"};
    for (int sequence = 0; sequence < 2; sequence++) {
        struct program *one = create(names[_i], (struct layout){.micro_batch = 2});
        struct program *two =
            create(names[_i], (struct layout){.tp = 2, .micro_batch = 2, .sequence_parallel = sequence});
        struct sums whole = add_up(one), part = add_up(two);
        ASSERT(2 * part.matmul == whole.matmul);
        ASSERT(2 * part.attention == whole.attention);
        ASSERT(2 * part.attention_grad == whole.attention_grad);
        ASSERT(2 * work_model_flops(two) == work_model_flops(one));
        program_free(one);
        program_free(two);
    }
}

static struct pipeline *create_pipeline(const char *name, struct layout layout, const int64_t *chunk_layers)
{
    struct model m;
    struct pipeline *pipeline;
    struct model_overrides overrides = {.layers = 8};
    ASSERT_OK(model_read(name, &overrides, &m, &err));
    ASSERT_OK(layout_complete(&layout, &m, &err));
    struct program_spec spec = {.model = &m, .layout = &layout, .chunk_layers = chunk_layers};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    return pipeline;
}

TEST_LOOP(work_stages, "the stages of a pipeline together compute what one rank computes, layer for layer", 4)
{
    static const char *const names[] = {"gpt2-tiny", "llama-tiny", "qwen3-tiny", "block-tiny"};
    static const int64_t uneven[] = {1, 3, 3, 1};
    static const struct layout layouts[] = {{.pp = 2},
                                            {.pp = 4, .schedule = SCHEDULE_GPIPE},
                                            {.pp = 2, .virtual_stages = 2, .tp = 2},
                                            {.pp = 4, .schedule = SCHEDULE_ZB_H1, .dp = 2, .zero = 1}};
    struct pipeline *one =
        create_pipeline(names[_i], (struct layout){.micro_batch = 2, .global_batch = 8}, NULL);
    struct sums whole = add_up(one->stages[0]);
    for (int i = 0; i < 4; i++) {
        struct layout layout = layouts[i];
        layout.micro_batch = 2;
        layout.global_batch = 8 * (layout.dp ? layout.dp : 1);
        struct pipeline *pipeline = create_pipeline(names[_i], layout, i ? uneven : NULL);
        struct sums sum = {0};
        double model_flops = 0, tp = layout.tp ? (double)layout.tp : 1;
        for (int stage = 0; stage < pipeline->count; stage++) {
            struct sums own = add_up(pipeline->stages[stage]);
            sum.matmul += tp * own.matmul;
            sum.attention += tp * own.attention;
            sum.attention_grad += tp * own.attention_grad;
            model_flops += tp * work_model_flops(pipeline->stages[stage]);
        }
        ASSERT(sum.matmul == whole.matmul);
        ASSERT(sum.attention == whole.attention);
        ASSERT(sum.attention_grad == whole.attention_grad);
        ASSERT(model_flops == work_model_flops(one->stages[0]));
        pipeline_free(pipeline);
    }
    pipeline_free(one);
}

/* gpt2-tiny: (1, 8, 32) floats are 1024 bytes; the embedding 256 x 32 floats. */
TEST(work_messages,
     "a stage copies what it sends and receives, and sends it to one peer; tied gradients once a step")
{
    struct pipeline *pipeline = create_pipeline(
        "gpt2-tiny", (struct layout){.dp = 3, .tp = 2, .pp = 2, .micro_batch = 1, .seq_len = 8}, NULL);
    const struct program *first = pipeline->stages[0];
    struct work w = first_work(first, first->instances - 1, OP_SEND);
    ASSERT(w.bytes_sent == 1024 && w.bytes_moved == 2048);
    ASSERT_INT(w.group.ranks, 2);
    ASSERT_INT(w.group.stride, 6);
    ASSERT_INT(w.group.extent, 12);
    w = first_work(pipeline->stages[1], 0, OP_RECEIVE);
    ASSERT(w.bytes_sent == 0 && w.bytes_moved == 2048);
    /* Half the vocabulary a part: each of two ranks sends 2 x 1/2 of 16,384 bytes. */
    w = first_work(first, -1, OP_REDUCE_TIED);
    ASSERT(w.bytes_sent == 16384);
    /* The copy is updated with the others, and counted by the other stage. */
    int64_t head = program_find_part(pipeline->stages[1], PART_HEAD);
    ASSERT_INT(first_work(pipeline->stages[1], head, OP_ADAMW).m, 2 * 32 + 128 * 32);
    ASSERT_INT(first_work(pipeline->stages[1], head, OP_SQUARE_SUM).m, 2 * 32);
    pipeline_free(pipeline);
}

/* A layer of gpt2-124m has 7,087,872 parameters, and all of its tensors divide by 4. */
TEST(work_shards, "with ZeRO a rank updates its share: 28 bytes a parameter of it")
{
    struct program *p = create("gpt2-124m", (struct layout){.dp = 4, .zero = 1});
    ASSERT(first_work(p, 1, OP_ADAMW).bytes_moved == 28.0 * 7087872 / 4);
    ASSERT(first_work(p, 1, OP_SQUARE_SUM).bytes_moved == 7087872);
    program_free(p);
}

/* 6 x 124,439,808 x 1024 + 6 x 12 x 768 x 1024 x 1024 = 764,558,180,352 + 57,982,058,496 */
TEST(work_model_flops_gpt2, "the model's flops are 6 N + 6 L C T a token")
{
    struct program *p = create("gpt2-124m", (struct layout){0});
    ASSERT(work_model_flops(p) == 822540238848.0);
    program_free(p);
}
