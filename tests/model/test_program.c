/* Step programs: the arithmetic of the peak against a plain walk over every operation, ids, the order of a step, and how long
 * it all takes. */
#include "model/program.h"

#include "base/arena.h"
#include "base/clock.h"
#include "tests/model/configurations.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

static struct error err;

static struct program *create(const char *name, struct model_overrides overrides, struct layout layout,
                              const char *recompute)
{
    struct model m;
    uint32_t masks[200];
    struct program *p;
    ASSERT_OK(model_read(name, &overrides, &m, &err));
    ASSERT_OK(layout_complete(&layout, &m, &err));
    ASSERT_OK(recompute_parse(recompute, &m, masks, &err));
    ASSERT_OK(program_create(&m, &layout, masks, &p, &err));
    return p;
}

/* ---- the peak, by walking ---- */

/* By id: the tensor, and the positions in the step of the operations that touch it first and last. */
struct life {
    struct placed tensor;
    int64_t first, last;
    bool touched;
};

struct walk {
    const struct program *program;
    struct life *lives;
    int64_t ops, births, deaths;
    int64_t persistent_bytes, peak_bytes, at_peak[ROLE_COUNT];
    struct step_op peak;
};

static void touch(struct walk *w, struct placed t, int64_t position)
{
    if (t.micro_batch < 0)
        return; /* a weight, a gradient or the loss: always there */
    struct life *life = &w->lives[t.id];
    if (!life->touched)
        *life = (struct life){t, position, position, true};
    life->last = position;
}

static void find_lives(struct walk *w)
{
    struct program_cursor cursor = program_walk(w->program);
    struct step_op s;
    for (w->ops = 0; program_next(&cursor, &s); w->ops++) {
        for (int i = 0; s.op && i < OP_INPUTS; i++)
            if (s.op->inputs[i] >= 0)
                touch(w, program_tensor(w->program, s.instance, s.micro_batch, s.op->inputs[i]), w->ops);
        for (int i = 0; s.op && i < OP_OUTPUTS; i++)
            if (s.op->outputs[i] >= 0)
                touch(w, program_tensor(w->program, s.instance, s.micro_batch, s.op->outputs[i]), w->ops);
    }
}

/* The program says by itself where lives begin and end; that must be where they do. */
static void check_births_and_deaths(struct walk *w, const struct step_op *s, int64_t position)
{
    const struct program *p = w->program;
    w->births += s->op->birth_count;
    w->deaths += s->op->death_count;
    for (int i = 0; i < s->op->birth_count; i++) {
        struct placed t = program_tensor(p, s->instance, s->micro_batch, s->op->births[i]);
        if (w->lives[t.id].first != position)
            ck_abort_msg("%s: %s is not born where it is first touched", p->model.name, t.name);
    }
    for (int i = 0; i < s->op->death_count; i++) {
        struct placed t = program_tensor(p, s->instance, s->micro_batch, s->op->deaths[i]);
        if (w->lives[t.id].last != position)
            ck_abort_msg("%s: %s does not die where it is last touched", p->model.name, t.name);
    }
}

static int64_t count_states(const struct program *p, int64_t live[ROLE_COUNT])
{
    int64_t total = 0;
    for (int64_t instance = 0; instance < p->instances; instance++)
        for (int i = 0; i < program_block(p, instance)->parameter_count; i++)
            for (int state = 0; state < STATE_COUNT; state++)
                if (program_has_state(p, (enum state)state)) {
                    struct placed t = program_state(p, instance, i, (enum state)state);
                    live[t.role] += t.bytes;
                    total += t.bytes;
                }
    for (int scalar = 0; scalar < SCALAR_COUNT; scalar++) {
        struct placed t = program_scalar(p, (enum scalar)scalar);
        live[t.role] += t.bytes;
        total += t.bytes;
    }
    for (int i = 0; p->layout.pp > 1 && i < 2 * BUFFER_KINDS; i++) {
        struct placed t = program_buffer(p, (enum buffer)(i / 2), i % 2);
        live[t.role] += t.bytes;
        total += t.bytes;
    }
    return total;
}

/* Changes of live bytes at each position: what begins before the operation and what ends after it. */
static void sum_changes(const struct walk *w, int64_t (*begin)[ROLE_COUNT], int64_t (*end)[ROLE_COUNT])
{
    for (int64_t id = 0; id < program_tensor_count(w->program); id++)
        if (w->lives[id].touched) {
            const struct placed *t = &w->lives[id].tensor;
            begin[w->lives[id].first][t->role] += t->bytes;
            end[w->lives[id].last][t->role] += t->bytes;
        }
}

static void sweep(struct walk *w)
{
    int64_t live[ROLE_COUNT] = {0}, total = count_states(w->program, live), position = 0;
    int64_t(*begin)[ROLE_COUNT] = host_alloc((size_t)w->ops * sizeof *begin);
    int64_t(*end)[ROLE_COUNT] = host_alloc((size_t)w->ops * sizeof *end);
    sum_changes(w, begin, end);
    struct program_cursor cursor = program_walk(w->program);
    for (struct step_op s; program_next(&cursor, &s); position++) {
        for (int role = 0; role < ROLE_COUNT; role++) {
            live[role] += begin[position][role];
            total += begin[position][role];
        }
        if (total > w->peak_bytes) {
            w->peak_bytes = total;
            w->peak = s;
            memcpy(w->at_peak, live, sizeof live);
        }
        for (int role = 0; role < ROLE_COUNT; role++) {
            live[role] -= end[position][role];
            total -= end[position][role];
        }
        if (s.op)
            check_births_and_deaths(w, &s, position);
    }
    w->persistent_bytes = total;
    free(begin);
    free(end);
}

static void check_peak(const struct program *p)
{
    struct walk w = {.program = p};
    w.lives = host_alloc((size_t)program_tensor_count(p) * sizeof *w.lives);
    find_lives(&w);
    sweep(&w);
    ASSERT_MSG(w.peak_bytes == p->peak_bytes, "%s: peak %lld, walked %lld", p->model.name,
               (long long)p->peak_bytes, (long long)w.peak_bytes);
    ASSERT_INT(p->persistent_bytes, w.persistent_bytes);
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_MSG(w.at_peak[role] == p->at_peak[role], "%s: %s %lld, walked %lld", p->model.name,
                   role_name((enum role)role), (long long)p->at_peak[role], (long long)w.at_peak[role]);
    ASSERT_INT(p->peak.phase, w.peak.phase);
    ASSERT_INT(p->peak.instance, w.peak.instance);
    ASSERT_INT(p->peak.op, w.peak.op - w.peak.block->ops);
    ASSERT_INT(p->peak.micro_batch, w.peak.micro_batch);
    int64_t lives = 0;
    for (int64_t id = 0; id < program_tensor_count(p); id++)
        lives += w.lives[id].touched;
    ASSERT_INT(w.births, lives);
    ASSERT_INT(w.deaths, lives);
    free(w.lives);
}

static void check_peaks(bool large)
{
    for (uint64_t seed = 1000; seed < 1400; seed++) {
        struct configuration c;
        struct program *p = configuration_program(seed, large, &c);
        check_peak(p);
        program_free(p);
    }
}

static void check_pipeline_peaks(bool large)
{
    for (uint64_t seed = 7000; seed < 7300; seed++) {
        struct configuration c;
        struct pipeline *pipeline = configuration_pipeline(seed, large, seed % 2, &c);
        for (int stage = 0; stage < pipeline->count; stage++)
            check_peak(pipeline->stages[stage]);
        pipeline_free(pipeline);
    }
}

TEST(program_peak_pipelines, "on every stage of 300 small and 300 large random pipelines too")
{
    check_pipeline_peaks(false);
    check_pipeline_peaks(true);
}

TEST(program_peak_small,
     "in 400 small random steps the peak is what a walk finds: bytes, roles and first operation")
{
    check_peaks(false);
}

TEST(program_peak_large,
     "in 400 large random steps the peak is what a walk finds: bytes, roles and first operation")
{
    check_peaks(true);
}

/* 124,439,808 parameters x 16 bytes, plus the loss and the sum of squares. */
TEST(program_states_fp32, "fp32 keeps 16 bytes a parameter")
{
    struct program *p = create("gpt2-124m", (struct model_overrides){0}, (struct layout){0}, "none");
    ASSERT_INT(p->persistent_bytes, 124439808LL * 16 + 8);
    ASSERT_INT(p->at_peak[ROLE_PARAMETER], 124439808LL * 4);
    ASSERT_INT(p->at_peak[ROLE_GRADIENT], 124439808LL * 4);
    ASSERT_INT(p->at_peak[ROLE_OPTIMIZER], 124439808LL * 8 + 4);
    program_free(p);
}

/* Weight 2, gradient 4, master 4, two moments 8. */
TEST(program_states_bf16, "bf16 keeps 18 bytes a parameter")
{
    struct layout layout = {.precision = PRECISION_BF16};
    struct program *p = create("gpt2-124m", (struct model_overrides){0}, layout, "none");
    ASSERT_INT(p->persistent_bytes, 124439808LL * 18 + 8);
    program_free(p);
}

/* What a layer keeps, in elements of a row of B T (docs/memory-model.md). Micro-batch 2, sequence 64, fp32.
 * gpt2: x, norm1, mid, norm2, attention 5 C, qkv 3 C, up and gelu 8 C, 4 statistics, H of lse: 16 C + 4 + H.
 * llama: 5 C, (H + 2K) D of qkv, 3 F, 2 statistics, H. Normed queries and keys have (H + 2K) D more; and of qwen3-tiny H D is
 * not C, so that x, norm1, mid and norm2 are 4 C and attention is H D.
 * olmo2: x, attention, proj, mid, down 5 C, (H + 2K) D twice, 3 F, 2 statistics, H.
 * gemma3: olmo2's, and norm1 and norm2 2 C, 2 statistics.
 * encoder: x, attention, sum1, norm1, sum2 5 C, qkv 3 C, 8 C, 4 statistics, H. */
TEST(program_saved_bytes, "a layer keeps exactly the bytes of the formula, in each family")
{
    struct layout layout = {.micro_batch = 2, .seq_len = 64};
    static const struct {
        const char *name;
        int64_t row;
    } cases[] = {
        {"gpt2-tiny", 16 * 32 + 4 + 4},
        {"llama-tiny", 5 * 32 + 64 + 3 * 88 + 2 + 4},
        {"qwen3-tiny", 4 * 32 + 64 + 2 * 128 + 3 * 88 + 2 + 4},
        {"olmo2-tiny", 5 * 32 + 2 * 64 + 3 * 88 + 2 + 4},
        {"gemma-tiny", 4 * 32 + 64 + 128 + 3 * 88 + 2 + 4},
        {"gemma3-tiny", 6 * 32 + 64 + 2 * 128 + 3 * 88 + 4 + 4},
        {"block-tiny", 16 * 32 + 4 + 4},
    };
    for (int i = 0; i < 7; i++) {
        struct program *p = create(cases[i].name, (struct model_overrides){0}, layout, "none");
        ASSERT_INT(program_block(p, 1)->saved_bytes, 2 * 64 * 4 * cases[i].row);
        program_free(p);
    }
}

/* Micro-batch 8 of 1024 tokens. Without recomputation and with all of it, the peak is the head's: states 1,991,036,936, 12
 * layers of 403,177,472 or 25,165,824 (x alone), tokens and targets 65,536, x and final norm 50,331,648, its statistics
 * 65,536, logits 8192 x 50257 x 4 = 1,646,821,376. */
TEST(program_documented_peaks, "the peaks of docs/memory-model.md are what the program says")
{
    static const struct {
        const char *recompute;
        int64_t kept, peak;
    } cases[] = {
        {"none", 403177472, 8526450696},
        {"selective", 377618432, 8219742216},
        {"norm1+norm2+gelu", 252051456, 6712938504},
        {"full", 25165824, 3990310920},
    };
    struct layout layout = {.micro_batch = 8};
    for (int i = 0; i < 4; i++) {
        struct program *p = create("gpt2-124m", (struct model_overrides){0}, layout, cases[i].recompute);
        ASSERT_INT(program_block(p, 1)->saved_bytes, cases[i].kept);
        ASSERT_INT(p->peak_bytes, cases[i].peak);
        ASSERT_INT(p->peak.instance, p->instances - 1);
        program_free(p);
    }
}

/* One layer: all that is dropped is made again at once, so the peak moves into the layer's backward and hardly falls. */
TEST(program_single_layer, "full recomputation of a single layer saves next to nothing")
{
    struct program *none = create("block-768", (struct model_overrides){0}, (struct layout){0}, "none");
    struct program *full = create("block-768", (struct model_overrides){0}, (struct layout){0}, "full");
    ASSERT_INT(none->peak_bytes, 222549576);
    ASSERT_INT(full->peak_bytes, 221722184);
    ASSERT_INT(full->peak.phase, PHASE_BACKWARD);
    program_free(none);
    program_free(full);
}

TEST(program_overflow, "a step whose sizes do not fit 63 bits is refused")
{
    struct model m;
    struct program *p;
    struct layout layout = {.micro_batch = 1 << 24, .seq_len = 1LL << 31};
    ASSERT_OK(model_read("llama3-405b", NULL, &m, &err));
    ASSERT_OK(layout_complete(&layout, &m, &err));
    ASSERT_INT(program_create(&m, &layout, NULL, &p, &err), -1);
    ASSERT_HAS(err.text, "63 bits");
    /* A micro-batch of 2^12 x 8192 rows is fine, and 2^18 of them, all kept by gpipe, are not. */
    layout =
        (struct layout){.micro_batch = 1 << 12, .global_batch = 1 << 30, .pp = 2, .schedule = SCHEDULE_GPIPE};
    ASSERT_OK(layout_complete(&layout, &m, &err));
    ASSERT_INT(program_create(&m, &layout, NULL, &p, &err), -1);
    ASSERT_HAS(err.text, "of which a step has 262144");
    layout.schedule = SCHEDULE_1F1B;
    ASSERT_OK(program_create(&m, &layout, NULL, &p, &err));
    program_free(p);
}

/* ---- ids and order ---- */

static void check_op_ids(const struct program *p)
{
    int64_t count = program_op_count(p), walked = 0;
    bool *seen = host_alloc((size_t)count);
    struct program_cursor cursor = program_walk(p);
    for (struct step_op s; program_next(&cursor, &s); walked++) {
        if (s.id < 0 || s.id >= count || seen[s.id])
            ck_abort_msg("%s: operation id %lld of %lld is out of range or taken", p->model.name,
                         (long long)s.id, (long long)count);
        seen[s.id] = true;
        ASSERT_INT(program_op_instance(p, s.id), s.instance);
    }
    ASSERT_INT(walked, count);
    ASSERT_INT(program_op_instance(p, count), -1);
    free(seen);
}

struct owners {
    struct placed *by_id;
    int64_t count;
};

static void claim(struct owners *owners, struct placed t)
{
    if (t.id < 0 || t.id >= owners->count)
        ck_abort_msg("tensor id %lld of %lld is out of range", (long long)t.id, (long long)owners->count);
    struct placed *owner = &owners->by_id[t.id];
    if (owner->name && memcmp(owner, &t, sizeof t))
        ck_abort_msg("id %lld is both %s of %lld and %s of %lld", (long long)t.id, owner->name,
                     (long long)owner->instance, t.name, (long long)t.instance);
    *owner = t;
}

static void check_tensor_ids(const struct program *p)
{
    struct owners owners = {NULL, program_tensor_count(p)};
    owners.by_id = host_alloc((size_t)owners.count * sizeof *owners.by_id);
    int64_t states = 0;
    for (int64_t instance = 0; instance < p->instances; instance++)
        for (int i = 0; i < program_block(p, instance)->parameter_count; i++)
            for (int state = 0; state < STATE_COUNT; state++)
                if (program_has_state(p, (enum state)state)) {
                    claim(&owners, program_state(p, instance, i, (enum state)state));
                    states++;
                }
    for (int scalar = 0; scalar < SCALAR_COUNT; scalar++)
        claim(&owners, program_scalar(p, (enum scalar)scalar));
    for (int64_t id = 0; id < states + SCALAR_COUNT; id++)
        if (!owners.by_id[id].name)
            ck_abort_msg("%s: no state or scalar has id %lld", p->model.name, (long long)id);
    for (int64_t micro_batch = 0; micro_batch < p->micro_batches; micro_batch++)
        for (int64_t instance = 0; instance < p->instances; instance++)
            for (int t = 0; t < program_block(p, instance)->tensor_count; t++)
                claim(&owners, program_tensor(p, instance, micro_batch, t));
    free(owners.by_id);
}

TEST(program_ids, "every operation has its own id from 0 to count-1, and no two tensors share one")
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct configuration c;
        struct program *p = configuration_program(seed, false, &c);
        check_op_ids(p);
        check_tensor_ids(p);
        program_free(p);
        struct pipeline *pipeline = configuration_pipeline(seed, false, seed % 2, &c);
        for (int stage = 0; stage < pipeline->count; stage++) {
            check_op_ids(pipeline->stages[stage]);
            check_tensor_ids(pipeline->stages[stage]);
        }
        pipeline_free(pipeline);
    }
}

/* Two layers, two micro-batches of one sequence over two ranks: forward and backward twice, then the loss's all-reduce, wait,
 * and 4 parts twice. Buckets of 1 byte: one for each of head, layers and embedding, in the second backward only. */
TEST(program_order,
     "a step is forward and backward per micro-batch, buckets in the last, then wait, norm and updates")
{
    struct layout layout = {.dp = 2, .micro_batch = 1, .global_batch = 4, .bucket_bytes = 1};
    struct program *p = create("llama-tiny", (struct model_overrides){0}, layout, "none");
    int64_t last_micro_batch = 0, updates = 0, sums = 0, buckets = 0, waits = 0;
    enum phase last = PHASE_FORWARD;
    struct program_cursor cursor = program_walk(p);
    for (struct step_op s; program_next(&cursor, &s);) {
        if (s.micro_batch >= 0) {
            ASSERT(s.micro_batch >= last_micro_batch);
            ASSERT(s.phase >= last || s.micro_batch > last_micro_batch || last == PHASE_REDUCE);
            ASSERT_INT(s.add_gradient, s.micro_batch > 0);
            last_micro_batch = s.micro_batch;
            last = s.phase;
        }
        if (s.kind == OP_ALL_REDUCE) {
            ASSERT_INT(last_micro_batch, 1);
            ASSERT_INT(s.bucket, buckets);
            ASSERT_INT(s.instance, p->instances - 1 - buckets);
            buckets++;
        }
        waits += s.kind == OP_WAIT;
        sums += s.kind == OP_SQUARE_SUM;
        ASSERT(s.kind != OP_SQUARE_SUM || waits == 1);
        updates += s.kind == OP_ADAMW;
        ASSERT(s.kind != OP_ADAMW || sums == 4);
    }
    ASSERT_INT(buckets, 4);
    ASSERT_INT(updates, 4);
    program_free(p);
}

/* Gradients lie in one stretch, head last, so a bucket is a stretch of it; buckets hold every gradient exactly once. */
TEST(program_buckets, "buckets cover every gradient once and close at their size")
{
    struct layout layout = {.dp = 2, .bucket_bytes = 25 << 20};
    struct program *p = create("gpt2-124m", (struct model_overrides){0}, layout, "none");
    int64_t bytes = 0, next = p->instances - 1;
    for (int i = 0; i < p->bucket_count; i++) {
        ASSERT_INT(p->buckets[i].last, next);
        ASSERT(p->buckets[i].first <= p->buckets[i].last);
        ASSERT(p->buckets[i].bytes >= 25 << 20 || i == p->bucket_count - 1);
        next = p->buckets[i].first - 1;
        bytes += p->buckets[i].bytes;
    }
    ASSERT_INT(next, -1);
    /* 124,439,808 floats, all rows a multiple of 64 bytes. */
    ASSERT_INT(bytes, 124439808LL * 4);
    program_free(p);
}

TEST(program_names, "instances are called embed, layer N and head")
{
    struct program *p = create("llama-tiny", (struct model_overrides){0}, (struct layout){0}, "none");
    char name[PROGRAM_NAME];
    ASSERT_STR(program_instance_name(p, 0, name), "embed");
    ASSERT_STR(program_instance_name(p, 2, name), "layer 1");
    ASSERT_STR(program_instance_name(p, 3, name), "head");
    program_free(p);
}

/* ---- speed ---- */

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

TEST(program_peak_time, "finding the peak of llama3-405b takes under 50 microseconds, the median of 999")
{
    struct layout layout = {.micro_batch = 1, .global_batch = 64, .precision = PRECISION_BF16};
    struct program *p =
        create("llama3-405b", (struct model_overrides){0}, layout, "0-62=full,63-125=selective");
    int64_t times[999];
    for (int i = 0; i < 999; i++) {
        int64_t start = clock_ns();
        program_find_peak(p);
        times[i] = clock_ns() - start;
    }
    qsort(times, 999, sizeof *times, by_time);
    ASSERT_MSG(times[499] < 50000, "%lld ns", (long long)times[499]);
    program_free(p);
}

TEST(program_create_time, "making the program of llama3-405b takes under 5 milliseconds, the median of 25")
{
    static const char *const sets[] = {"none", "selective", "full", "0-62=full,63-125=norm1+gate_up"};
    for (int set = 0; set < 4; set++) {
        int64_t times[25];
        for (int i = 0; i < 25; i++) {
            int64_t start = clock_ns();
            struct program *p = create("llama3-405b", (struct model_overrides){0},
                                       (struct layout){.precision = PRECISION_BF16}, sets[set]);
            times[i] = clock_ns() - start;
            program_free(p);
        }
        qsort(times, 25, sizeof *times, by_time);
        ASSERT_MSG(times[12] < 5000000, "%s: %lld ns", sets[set], (long long)times[12]);
    }
}
