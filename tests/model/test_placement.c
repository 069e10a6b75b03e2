/* The arena: no two tensors that live at the same time may overlap, and the arena may not be much larger than the peak. The
 * lives are those of a plain walk over the step; every persistent state takes part. */
#include "model/program.h"

#include "base/arena.h"
#include "base/checked.h"
#include "tests/model/configurations.h"
#include "tests/test.h"

#include <stdlib.h>

/* Tensors alive now, in no order. */
struct live_set {
    struct placed *tensors;
    int count, most;
    const struct program *program;
};

static bool overlap(const struct placed *a, const struct placed *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Plain ifs: Check reports every ASSERT that holds to the runner, and there are millions here. */
static void check_place(const struct live_set *set, const struct placed *t)
{
    const char *model = set->program->model.name;
    if (t->offset % ARENA_ALIGN)
        ck_abort_msg("%s: %s lies at %lld", model, t->name, (long long)t->offset);
    if (t->offset < 0 || t->offset + t->bytes > set->program->arena_bytes)
        ck_abort_msg("%s: %s of instance %lld leaves the arena", model, t->name, (long long)t->instance);
    for (int i = 0; i < set->count; i++)
        if (overlap(t, &set->tensors[i]))
            ck_abort_msg("%s: %s of instance %lld overlaps %s of instance %lld", model, t->name,
                         (long long)t->instance, set->tensors[i].name, (long long)set->tensors[i].instance);
}

static void add(struct live_set *set, struct placed t)
{
    check_place(set, &t);
    set->tensors[set->count++] = t;
    set->most = set->count > set->most ? set->count : set->most;
}

static void drop(struct live_set *set, int64_t id)
{
    for (int i = 0; i < set->count; i++)
        if (set->tensors[i].id == id) {
            set->tensors[i] = set->tensors[--set->count];
            return;
        }
    ck_abort_msg("%s: tensor %lld dies without having lived", set->program->model.name, (long long)id);
}

static void add_persistent(struct live_set *set)
{
    const struct program *p = set->program;
    for (int64_t instance = 0; instance < p->instances; instance++)
        for (int i = 0; i < program_block(p, instance)->parameter_count; i++)
            for (int state = 0; state < STATE_COUNT; state++)
                if (program_has_state(p, (enum state)state))
                    add(set, program_state(p, instance, i, (enum state)state));
    for (int scalar = 0; scalar < SCALAR_COUNT; scalar++)
        add(set, program_scalar(p, (enum scalar)scalar));
    for (int i = 0; p->layout.pp > 1 && i < 2 * BUFFER_KINDS; i++)
        add(set, program_buffer(p, (enum buffer)(i / 2), i % 2));
}

/* Returns the largest number of tensors alive at once. */
static int check_no_overlap(const struct program *p)
{
    struct live_set set = {.program = p};
    set.tensors = host_alloc((size_t)program_tensor_count(p) * sizeof *set.tensors);
    add_persistent(&set);
    int persistent = set.count;
    struct program_cursor walk = program_walk(p);
    for (struct step_op op; program_next(&walk, &op);) {
        for (int i = 0; op.op && i < op.op->birth_count; i++)
            add(&set, program_tensor(p, op.instance, op.micro_batch, op.op->births[i]));
        for (int i = 0; op.op && i < op.op->death_count; i++)
            drop(&set, program_tensor(p, op.instance, op.micro_batch, op.op->deaths[i]).id);
    }
    ASSERT_INT(set.count, persistent);
    free(set.tensors);
    return set.most;
}

/* Alignment may cost each tensor up to 63 bytes, which shows in steps of a few MiB whose vectors are shorter than that. */
static void check_size(const struct program *p, int alive)
{
    int64_t allowed = p->peak_bytes + p->peak_bytes / 100;
    if (p->peak_bytes < 4 << 20)
        allowed += (int64_t)ARENA_ALIGN * alive;
    ASSERT_MSG(p->arena_bytes <= allowed, "%s: arena %lld, peak %lld", p->model.name,
               (long long)p->arena_bytes, (long long)p->peak_bytes);
    ASSERT(p->arena_bytes >= p->peak_bytes);
}

static void check_configurations(bool large)
{
    for (uint64_t seed = 0; seed < 600; seed++) {
        struct configuration c;
        struct program *p = configuration_program(seed, large, &c);
        check_size(p, check_no_overlap(p));
        program_free(p);
    }
}

TEST(placement_small,
     "in 600 small random steps nothing overlaps, and the arena is the peak, 1% and alignment")
{
    check_configurations(false);
}

TEST(placement_large, "in 600 large random steps nothing overlaps, and the arena is within 1% of the peak")
{
    check_configurations(true);
}

TEST(placement_bare_ends, "nothing overlaps where the embedding or the head is a chunk of its own")
{
    for (uint64_t seed = 6000; seed < 6200; seed++) {
        struct configuration c;
        struct pipeline *pipeline = configuration_pipeline(seed, false, true, &c);
        for (int stage = 0; stage < pipeline->count; stage++)
            check_no_overlap(pipeline->stages[stage]);
        pipeline_free(pipeline);
    }
}

/* Some stages have no packing near their peak: where a head's logits are most of it, they need one stretch, and what other
 * micro-batches keep must not lie across it. */
static void check_pipelines(bool large)
{
    int stages = 0, above_1 = 0, above_3 = 0;
    for (uint64_t seed = 5000; seed < 5600; seed++) {
        struct configuration c;
        struct pipeline *pipeline = configuration_pipeline(seed, large, false, &c);
        for (int stage = 0; stage < pipeline->count; stage++) {
            const struct program *p = pipeline->stages[stage];
            int64_t align = p->peak_bytes < 4 << 20 ? ARENA_ALIGN * check_no_overlap(p) : 0;
            if (!align)
                check_no_overlap(p);
            ASSERT_MSG(p->arena_bytes <= p->peak_bytes + p->peak_bytes * 16 / 100 + align,
                       "%s stage %d: arena %lld, peak %lld", p->model.name, stage, (long long)p->arena_bytes,
                       (long long)p->peak_bytes);
            ASSERT(p->arena_bytes >= p->peak_bytes);
            above_1 += p->arena_bytes > p->peak_bytes + p->peak_bytes / 100 + align;
            above_3 += p->arena_bytes > p->peak_bytes + p->peak_bytes * 3 / 100 + align;
            stages++;
        }
        pipeline_free(pipeline);
    }
    ASSERT_MSG(above_1 * 20 <= stages, "%d of %d stages are more than 1%% above their peak", above_1, stages);
    ASSERT_MSG(above_3 * 100 <= stages, "%d of %d stages are more than 3%% above their peak", above_3,
               stages);
}

TEST(placement_pipelines_small, "in 600 small random pipelines nothing overlaps on any stage; 95% are within "
                                "1% of the peak and alignment, 99% within 3%")
{
    check_pipelines(false);
}

TEST(placement_pipelines_large, "in 600 large random pipelines nothing overlaps on any stage; 95% are within "
                                "1% of the peak, 99% within 3%")
{
    check_pipelines(true);
}

/* `layers` 0: as many as it has. */
static struct pipeline *gpt2_pipeline(int64_t layers, enum schedule_kind kind, int64_t pp,
                                      int64_t virtual_stages, int64_t micro_batches)
{
    struct error err;
    struct model_overrides overrides = {.layers = layers};
    struct model model;
    struct pipeline *pipeline;
    struct layout layout = {.pp = pp,
                            .micro_batch = 2,
                            .global_batch = 2 * micro_batches,
                            .schedule = kind,
                            .virtual_stages = virtual_stages};
    ASSERT_OK(model_read("gpt2-124m", &overrides, &model, &err));
    ASSERT_OK(layout_complete(&layout, &model, &err));
    struct program_spec spec = {.model = &model, .layout = &layout};
    ASSERT_OK(pipeline_create(&spec, &pipeline, &err));
    return pipeline;
}

/* 2 micro-batches never fill the pipeline, 16 do, and 160 are too many for each to be placed by itself. */
TEST(placement_pipelines_usual,
     "gpt2-124m's arenas are within 2% of the peak on every stage of every schedule, long or short")
{
    static const struct {
        enum schedule_kind kind;
        int64_t pp, virtual_stages;
    } cases[] = {{SCHEDULE_1F1B, 4, 1},        {SCHEDULE_GPIPE, 4, 1}, {SCHEDULE_INTERLEAVED, 4, 3},
                 {SCHEDULE_INTERLEAVED, 2, 6}, {SCHEDULE_ZB_H1, 2, 1}, {SCHEDULE_ZB_H1, 4, 1},
                 {SCHEDULE_ZB_H1, 6, 1}};
    static const int64_t micro_batches[] = {4, 16, 160};
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        int64_t count = micro_batches[i % 3];
        struct pipeline *pipeline =
            gpt2_pipeline(0, cases[i / 3].kind, cases[i / 3].pp, cases[i / 3].virtual_stages, count);
        for (int stage = 0; stage < pipeline->count; stage++) {
            const struct program *p = pipeline->stages[stage];
            check_no_overlap(p);
            ASSERT_MSG(p->arena_bytes * 100 <= p->peak_bytes * 102,
                       "%s of %lld micro-batches, stage %d: arena %lld, peak %lld",
                       schedule_name(p->layout.schedule), (long long)count, stage, (long long)p->arena_bytes,
                       (long long)p->peak_bytes);
        }
        pipeline_free(pipeline);
    }
}

/* Long schedules are placed as well as short ones, and at once: a way that takes the square of their length would need hours
 * for gpipe's, where all micro-batches are kept. */
TEST(placement_pipelines_long, "200,000 micro-batches are placed as tightly as a few")
{
    static const enum schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_GPIPE, SCHEDULE_INTERLEAVED,
                                               SCHEDULE_ZB_H1};
    for (int i = 0; i < 4; i++) {
        struct pipeline *pipeline =
            gpt2_pipeline(0, kinds[i], 4, kinds[i] == SCHEDULE_INTERLEAVED ? 3 : 1, 200000);
        for (int stage = 0; stage < pipeline->count; stage++) {
            const struct program *p = pipeline->stages[stage];
            int64_t percent = kinds[i] == SCHEDULE_INTERLEAVED ? 5 : 2;
            ASSERT_MSG(p->arena_bytes * 100 <= p->peak_bytes * (100 + percent),
                       "%s stage %d: arena %lld, peak %lld", schedule_name(kinds[i]), stage,
                       (long long)p->arena_bytes, (long long)p->peak_bytes);
        }
        pipeline_free(pipeline);
    }
}

/* Of which a micro-batch alone has more tensors than are packed one by one. */
TEST(placement_pipelines_deep, "stages of hundreds of layers are placed, in slots")
{
    for (int64_t layers = 400; layers <= 3200; layers *= 2) {
        struct pipeline *pipeline = gpt2_pipeline(layers, SCHEDULE_1F1B, 2, 1, 16);
        for (int stage = 0; stage < pipeline->count; stage++) {
            const struct program *p = pipeline->stages[stage];
            ASSERT_MSG(p->arena_bytes * 100 <= p->peak_bytes * 102,
                       "%lld layers, stage %d: arena %lld, peak %lld", (long long)layers, stage,
                       (long long)p->arena_bytes, (long long)p->peak_bytes);
        }
        pipeline_free(pipeline);
    }
}

/* The peak of a block does not see where its tensors lie, so each subset of what a layer keeps is a packing of its own. */
static void check_every_mask(const char *name, int64_t layers, struct layout layout)
{
    struct error err;
    struct model model;
    struct model_overrides overrides = {.layers = layers};
    ASSERT_OK(model_read(name, &overrides, &model, &err));
    ASSERT_OK(layout_complete(&layout, &model, &err));
    uint32_t masks[4];
    for (uint32_t mask = 0; mask <= recompute_full(&model); mask++) {
        for (int64_t layer = 0; layer < layers; layer++)
            masks[layer] = mask;
        struct program *p;
        ASSERT_OK(program_create(&model, &layout, masks, &p, &err));
        check_size(p, check_no_overlap(p));
        program_free(p);
    }
}

TEST(placement_masks_gpt2, "every set of dropped tensors packs within 1%: gpt2")
{
    check_every_mask("gpt2-small-bytes", 1, (struct layout){.micro_batch = 64});
}

TEST(placement_masks_llama, "every set of dropped tensors packs within 1%: llama")
{
    check_every_mask("llama2-7b", 2, (struct layout){.precision = PRECISION_BF16});
}

TEST(placement_masks_qwen3, "every set of dropped tensors packs within 1%: qwen3")
{
    check_every_mask("qwen3-0.6b", 2, (struct layout){.precision = PRECISION_BF16});
}

TEST(placement_masks_gemma3, "every set of dropped tensors packs within 1%: gemma3")
{
    check_every_mask("gemma3-1b", 2, (struct layout){.precision = PRECISION_BF16, .seq_len = 4096});
}

TEST(placement_masks_olmo2, "every set of dropped tensors packs within 1%: olmo2")
{
    check_every_mask("olmo2-1b", 2, (struct layout){.precision = PRECISION_BF16});
}

TEST(placement_masks_encoder,
     "every set of dropped tensors packs within 1%: encoder of one and of three layers")
{
    check_every_mask("block-768", 1, (struct layout){.micro_batch = 64});
    check_every_mask("block-768", 3, (struct layout){.micro_batch = 4});
}
