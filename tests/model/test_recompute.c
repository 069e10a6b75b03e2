/* Recompute sets: their spelling, and the transformation of a block. The transformation is proved by simulation: every
 * tensor's value is a hash of the operation that wrote it and of the values that one read. If backward reads the same hashes
 * with a set dropped as without, it computes the same gradients. */
#include "model/recompute.h"

#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static struct error err;

static struct model read_model(const char *name)
{
    struct model m = {0};
    ASSERT_OK(model_read(name, NULL, &m, &err));
    return m;
}

/* ---- spelling ---- */

static uint32_t parse_set(const struct model *m, const char *text)
{
    uint32_t mask = 0;
    ASSERT_OK(recompute_parse_set(text, m, &mask, &err));
    return mask;
}

TEST(recompute_names, "none, selective and full have their names, and other sets are sums of tensors")
{
    struct model m = read_model("gpt2-124m");
    ASSERT_INT(parse_set(&m, "none"), 0);
    ASSERT_INT(parse_set(&m, "full"), 0x7f); /* norm1, qkv, attention, mid, norm2, up, gelu */
    ASSERT_INT(parse_set(&m, "attention+lse"), parse_set(&m, "selective"));
    ASSERT_INT(parse_set(&m, "selective"), recompute_selective(&m));
    ASSERT_INT(parse_set(&m, "gelu+norm1"), parse_set(&m, "norm1+gelu"));
    ASSERT_INT(__builtin_popcount(parse_set(&m, "norm1+norm2+gelu")), 3);
    ASSERT_INT(parse_set(&m, "mean1"), parse_set(&m, "norm1")); /* made together, dropped together */
    struct model llama = read_model("llama3-8b"), encoder = read_model("block-768");
    ASSERT_INT(recompute_full(&llama), 0x7f);
    struct model qwen3 = read_model("qwen3-tiny");
    ASSERT_INT(recompute_full(&qwen3), 0xff); /* qk_norm too */
    struct model olmo2 = read_model("olmo2-tiny");
    ASSERT_INT(recompute_full(&olmo2), 0xff); /* qkv, qk_norm, attention, proj, mid, gate_up, swiglu, down */
    struct model gemma3 = read_model("gemma3-tiny");
    ASSERT_INT(recompute_full(&gemma3), 0x3ff); /* norm1 and norm2 besides */
    ASSERT_INT(recompute_full(&encoder), 0x7f); /* sum1 and sum2 in place of mid and norm2 */
}

TEST(recompute_set_round_trip, "every set prints as text that reads as the same set, in every family")
{
    const char *const names[] = {"gpt2-124m", "llama3-8b", "qwen3-8b", "olmo2-7b", "block-768"};
    for (int i = 0; i < 5; i++) {
        struct model m = read_model(names[i]);
        for (uint32_t mask = 0; mask <= recompute_full(&m); mask++) {
            struct text text = {0};
            uint32_t again = ~mask;
            recompute_print_set(&m, mask, &text);
            if (recompute_parse_set(text.data, &m, &again, &err) || again != mask)
                ck_abort_msg("%s of %s reads as %x", text.data, names[i], again);
            text_free(&text);
        }
    }
}

static void check_ranges(const struct model *m, const char *text, const char *printed)
{
    uint32_t masks[12], again[12];
    struct text out = {0};
    ASSERT_OK(recompute_parse(text, m, masks, &err));
    recompute_print(m, masks, &out);
    ASSERT_STR(out.data, printed);
    ASSERT_OK(recompute_parse(out.data, m, again, &err));
    ASSERT(!memcmp(masks, again, sizeof masks));
    text_free(&out);
}

TEST(recompute_ranges, "ranges of layers read, print in the shortest way, and read again")
{
    struct model m = read_model("gpt2-124m");
    check_ranges(&m, "full", "full");
    check_ranges(&m, "none", "none");
    check_ranges(&m, "0-3=full,4-11=selective", "0-3=full,4-11=selective");
    check_ranges(&m, "0-5=gelu,6-11=gelu", "gelu");
    check_ranges(&m, "5=full", "5=full");
    check_ranges(&m, "0-11=norm1+gelu,3-4=none", "0-2=norm1+gelu,5-11=norm1+gelu");
    check_ranges(&m, "11=lse+attention,0=full", "0=full,11=selective");
    check_ranges(&m, "0-11=full", "full");
}

static void refuse(const char *text, const char *piece)
{
    struct model m = read_model("gpt2-124m");
    uint32_t masks[12];
    err = (struct error){0};
    ASSERT_MSG(recompute_parse(text, &m, masks, &err) == -1, "accepted: %s", text);
    ASSERT_HAS(err.text, piece);
}

TEST(recompute_refusals, "a set or range that cannot be names itself and what there is")
{
    refuse("", "keeps no tensor \"\"");
    refuse("some", "use none, selective, full, or a sum of norm1, qkv, attention, mid, norm2, up, gelu");
    refuse("norm1+", "keeps no tensor \"\"");
    refuse("norm1++gelu", "keeps no tensor \"\"");
    refuse("swiglu", "keeps no tensor \"swiglu\"");
    refuse("full+norm1", "keeps no tensor \"full\"");
    refuse("0-12=full", "layers of gpt2-124m go from 0 to 11");
    refuse("-1=full", "layers of gpt2-124m go from 0 to 11");
    refuse("5-3=full", "layers of gpt2-124m go from 0 to 11");
    refuse("99999999999999999999=full", "layers of gpt2-124m go from 0 to 11");
    refuse("0-3=full,", "FIRST-LAST=SET");
    refuse("0-3,4=full", "FIRST-LAST=SET");
    refuse("a-b=full", "FIRST-LAST=SET");
    refuse("0-=full", "FIRST-LAST=SET");
    refuse("=full", "FIRST-LAST=SET");
    refuse("0-3=", "keeps no tensor \"\"");
    refuse("0-3=full=none", "keeps no tensor \"full=none\"");
}

/* ---- transformation ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash + value + 1) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

enum { UNDEFINED = 0 };

struct simulation {
    const struct block *block;
    uint64_t values[BLOCK_TENSORS]; /* UNDEFINED: not written, or given up */
    uint64_t ops[BLOCK_OPS];        /* what each operation computed: its kind, attributes and inputs */
};

static uint64_t read_value(const struct simulation *s, int op, int tensor)
{
    if (s->values[tensor] == UNDEFINED)
        ck_abort_msg("set %x: operation %d (%s) reads %s, which has no value", s->block->dropped, op,
                     op_kind_name(s->block->ops[op].kind), s->block->tensors[tensor].name);
    return s->values[tensor];
}

static void run_op(struct simulation *s, int index)
{
    const struct op *op = &s->block->ops[index];
    uint64_t hash = mix(mix(1, op->kind), op->flags & ~(unsigned)OP_RECOMPUTE);
    for (int i = 0; i < OP_INPUTS; i++)
        hash = mix(hash, op->inputs[i] < 0 ? 7 : read_value(s, index, op->inputs[i]));
    if (op->flags & OP_ADD)
        hash = mix(hash, read_value(s, index, op->outputs[0]));
    s->ops[index] = hash;
    for (int i = 0; i < OP_OUTPUTS; i++)
        if (op->outputs[i] >= 0)
            s->values[op->outputs[i]] = mix(hash, (uint64_t)i + 1);
}

/* What backward does not find any more: the set, and all that was exchanged with other ranks. */
static bool is_gone(const struct block *block, const struct tensor *t)
{
    return t->role == ROLE_COMMUNICATION || (t->drop_bit >= 0 && (block->dropped >> t->drop_bit & 1));
}

/* Weights and x have values from the start; d gets one for backward; what is gone loses its value in between, but not in
 * the plain block. */
static void simulate(const struct block *block, bool plain, struct simulation *s)
{
    *s = (struct simulation){.block = block};
    for (int t = 0; t < block->tensor_count; t++)
        if (block->tensors[t].span == SPAN_WEIGHT || block->tensors[t].span == SPAN_INPUT)
            s->values[t] = mix(2, (uint64_t)t);
    for (int i = 0; i < block->forward_count; i++)
        run_op(s, i);
    for (int t = 0; t < block->tensor_count; t++)
        if (!plain && is_gone(block, &block->tensors[t]))
            s->values[t] = UNDEFINED;
    s->values[block->stream] = mix(3, 0);
    for (int i = block->forward_count; i < block->op_count; i++)
        run_op(s, i);
}

static bool reads(const struct op *op, int tensor)
{
    for (int i = 0; i < OP_INPUTS; i++)
        if (op->inputs[i] == tensor)
            return true;
    return false;
}

/* Does something that is dropped and read later come from this operation? */
static bool is_useful(const struct block *block, int index)
{
    for (int i = 0; i < OP_OUTPUTS; i++) {
        int tensor = block->ops[index].outputs[i];
        if (tensor < 0 || !block->tensors[tensor].recomputed)
            continue;
        for (int later = index + 1; later < block->op_count; later++)
            if (reads(&block->ops[later], tensor))
                return true;
    }
    return false;
}

static void check_recomputation(const struct block *block, const struct simulation *s)
{
    for (int i = block->forward_count; i < block->op_count; i++) {
        if (!(block->ops[i].flags & OP_RECOMPUTE))
            continue;
        if (!is_useful(block, i))
            ck_abort_msg("set %x: operation %d is made again for nothing", block->dropped, i);
        for (int other = block->forward_count; other < i; other++)
            if (s->ops[other] == s->ops[i])
                ck_abort_msg("set %x: operation %d is made again twice", block->dropped, i);
    }
}

/* Backward without its recomputation is the backward of the plain block: the same operations on the same values. */
static void check_same_backward(const struct simulation *plain, const struct simulation *s)
{
    int expected = plain->block->forward_count;
    for (int i = s->block->forward_count; i < s->block->op_count; i++)
        if (!(s->block->ops[i].flags & OP_RECOMPUTE) && s->ops[i] != plain->ops[expected++])
            ck_abort_msg("set %x: operation %d (%s) reads other values than without recomputation",
                         s->block->dropped, i, op_kind_name(s->block->ops[i].kind));
    if (expected != plain->block->op_count)
        ck_abort_msg("set %x: backward lost operations", s->block->dropped);
    for (int t = 0; t < plain->block->tensor_count; t++) {
        enum span span = plain->block->tensors[t].span;
        if ((span == SPAN_GRADIENT || span == SPAN_STREAM) && s->values[t] != plain->values[t])
            ck_abort_msg("set %x: %s ends with another value", s->block->dropped,
                         plain->block->tensors[t].name);
    }
}

/* Whatever is dropped, exactly its bytes are no longer kept from forward to backward: no other tensor starts to be. */
static void check_saved(const struct block *none, struct block *block)
{
    int64_t expected = none->saved_bytes;
    for (int t = 0; t < none->tensor_count; t++)
        if (none->tensors[t].drop_bit >= 0 && (block->dropped >> none->tensors[t].drop_bit & 1))
            expected -= none->tensors[t].bytes;
    block_measure(block, false);
    if (block->saved_bytes != expected)
        ck_abort_msg("set %x keeps %lld bytes, expected %lld", block->dropped, (long long)block->saved_bytes,
                     (long long)expected);
}

static void check_sets_in_shape(const struct model *m, struct block_shape shape, bool first)
{
    struct block plain, none;
    struct simulation expected, s;
    block_build_layer(&plain, m, shape, first);
    simulate(&plain, true, &expected);
    none = plain;
    recompute_apply(&none, 0);
    block_measure(&none, false);
    for (uint32_t mask = 0; mask <= recompute_full(m); mask++) {
        struct block block;
        block_build_layer(&block, m, shape, first);
        recompute_apply(&block, mask);
        simulate(&block, false, &s);
        check_recomputation(&block, &s);
        check_same_backward(&expected, &s);
        check_saved(&none, &block);
    }
}

/* On one rank, and as one of two that share the layer, in both ways. */
static void check_every_set(const char *name, bool first)
{
    struct model m = read_model(name);
    for (int i = 0; i < 3; i++)
        check_sets_in_shape(
            &m,
            (struct block_shape){
                .B = 2, .T = 8, .dtype = DTYPE_F32, .tp = i ? 2 : 1, .sequence_parallel = i == 2},
            first);
}

TEST(recompute_every_set_gpt2, "with any set dropped, backward sees the same values: gpt2")
{
    check_every_set("gpt2-tiny", false);
}

TEST(recompute_every_set_llama, "with any set dropped, backward sees the same values: llama")
{
    check_every_set("llama-tiny", false);
}

TEST(recompute_every_set_qwen3, "with any set dropped, backward sees the same values: qwen3")
{
    check_every_set("qwen3-tiny", false);
}

TEST(recompute_every_set_gemma3, "with any set dropped, backward sees the same values: gemma3")
{
    check_every_set("gemma3-tiny", false);
}

TEST(recompute_every_set_olmo2, "with any set dropped, backward sees the same values: olmo2")
{
    check_every_set("olmo2-tiny", false);
}

/* What the product made is there, so that one pass over it is all that has to be done again. */
TEST(recompute_qk_norm_alone, "normed queries and keys are made again from the product, and nothing else is")
{
    struct model m = read_model("qwen3-tiny");
    struct block block;
    block_build_layer(&block, &m, (struct block_shape){.B = 1, .T = 4, .dtype = DTYPE_F32, .tp = 1}, false);
    recompute_apply(&block, parse_set(&m, "qk_norm"));
    int again = 0;
    for (int i = block.forward_count; i < block.op_count; i++)
        if (block.ops[i].flags & OP_RECOMPUTE) {
            ASSERT_INT(block.ops[i].kind, OP_QK_NORM);
            again++;
        }
    ASSERT_INT(again, 1);
}

TEST(recompute_every_set_encoder, "with any set dropped, backward sees the same values: encoder")
{
    check_every_set("block-tiny", false);
    check_every_set("block-tiny", true);
}

/* Made again in a llama layer with everything dropped: norm, qkv, rope, attention, proj, norm, gate_up, swiglu: all of
 * forward but the last product, whose output the next layer's x is. */
TEST(recompute_full_is_forward, "full makes all of forward again but the product that makes the output")
{
    struct model m = read_model("llama-tiny");
    struct block block;
    block_build_layer(&block, &m, (struct block_shape){.B = 1, .T = 4, .dtype = DTYPE_F32, .tp = 1}, false);
    int again = 0;
    recompute_apply(&block, recompute_full(&m));
    for (int i = block.forward_count; i < block.op_count; i++)
        again += (block.ops[i].flags & OP_RECOMPUTE) != 0;
    ASSERT_INT(block.forward_count, 9);
    ASSERT_INT(again, 8);
}
