/* Who holds the allocated peak, term by term. */
#include "tests/test.h"

#include "planner/frameworks/workload_memory.h"
#include "planner/frameworks/workload_terms.h"

#include <string.h>

static uint64_t random_state = 12345;

static int64_t pick(int64_t count)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)count);
}

static int64_t one_of(const int64_t *list, int64_t count)
{
    return list[pick(count)];
}

static void random_model(struct workload_model *m)
{
    int64_t heads = one_of((const int64_t[]){4, 8, 12, 16}, 4);
    *m = (struct workload_model){.layers = 2 + pick(6),
                                 .heads = heads,
                                 .kv_heads = pick(2) ? heads : heads / 4,
                                 .head_size = one_of((const int64_t[]){40, 64, 128}, 3),
                                 .ffn = 256 * (1 + pick(12)),
                                 .vocab = 1000 * (1 + pick(120)),
                                 .gated = pick(2),
                                 .rms_norm = pick(2),
                                 .tied = pick(2),
                                 .positions = pick(2) ? 1024 : 0};
    m->hidden = m->heads * m->head_size;
    if (!pick(4)) {
        m->experts = 8;
        m->active_experts = 1 + pick(2);
        m->expert_ffn = 512;
    }
}

static struct workload random_workload(void)
{
    enum workload_library library = (enum workload_library)pick(WORKLOAD_LLMC + 1);
    struct workload w = workload_default(library, (enum workload_sharding)pick(WORKLOAD_SHARDINGS));
    random_model(&w.model);
    w.dp = 1 + pick(8);
    w.tp = one_of((const int64_t[]){1, 2, 4}, 3);
    w.sequence_parallel = pick(2);
    w.micro_batch = 1 + pick(4);
    w.sequence = 128 * (1 + pick(8));
    w.micro_batches = 1 + pick(4);
    w.recompute = (enum workload_recompute)pick(WORKLOAD_FULL + 1);
    w.modules = (unsigned)pick(2 * WORKLOAD_NORM_RESULTS);
    w.attention = (enum workload_attention)pick(3);
    w.loss = (enum workload_loss)pick(WORKLOAD_LOSS_CLASSES + 1);
    w.optimizer = (enum workload_optimizer)pick(WORKLOAD_NO_OPTIMIZER + 1);
    w.step = (enum workload_step)pick(3);
    w.hidden_dropout = w.attention_dropout = pick(2);
    w.autocast = !pick(4);
    w.offload_optimizer = !pick(4);
    w.bucket_elements = w.bucket_elements ? 1000000 : 0;
    w.wraps_layers = pick(4);
    w.wraps_ends = pick(2);
    w.accumulates_without_sync = !pick(4);
    w.allocator.expandable_segments = pick(2);
    if (!pick(3)) {
        w.pp = 2;
        w.micro_batches = 4;
    }
    if (!pick(5)) {
        w.lora_rank = 4;
        w.lora_linears = LINEAR_Q | LINEAR_K | LINEAR_V | LINEAR_O;
    }
    return w;
}

static void check_terms(const struct workload *w)
{
    struct arena *arena = arena_create();
    struct error err = {0};
    struct workload_memory memory;
    struct workload_terms terms;
    int64_t by_role[ROLE_COUNT] = {0}, sum = 0;
    ASSERT_OK(workload_memory(w, &memory, &err));
    ASSERT_OK(workload_terms(w, memory.stage, arena, &terms, &err));
    ASSERT(terms.count > 0);
    for (int i = 0; i < terms.count; i++) {
        const struct workload_term *term = &terms.list[i];
        ASSERT(!i || term->bytes <= terms.list[i - 1].bytes);
        ASSERT(term->count > 0 && term->bytes > 0 && *term->name && *term->formula && *term->source);
        by_role[term->role] += term->bytes;
        sum += term->bytes;
    }
    ASSERT_INT(sum, memory.peak.bytes);
    ASSERT_INT(terms.bytes, memory.peak.bytes);
    ASSERT_INT(terms.moment, memory.peak.moment);
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_INT(by_role[role], memory.peak.by_role[role]);
    arena_free(arena);
}

TEST(workload_terms_sum, "terms add up to the allocated peak, to the byte, for any job")
{
    for (int i = 0; i < 300; i++) {
        struct workload w = random_workload();
        check_terms(&w);
    }
}

static const struct workload_term *find(const struct workload_terms *terms, const char *name)
{
    for (int i = 0; i < terms->count; i++)
        if (!strcmp(terms->list[i].name, name))
            return &terms->list[i];
    ASSERT_MSG(false, "no term \"%s\"", name);
    return NULL;
}

/* 8 layers of 512, 2 sequences of 256 tokens: an input is 2 x 512 x 512 B = 512 KiB, and at the loss, where logits of 65,536 words
 * are, all layers have kept theirs and nothing else. Logits: 4 x 65536 x 512 B. */
TEST(workload_terms_merged, "equal rules of several layers are one term with a count, and say their formula")
{
    struct arena *arena = arena_create();
    struct error err = {0};
    struct workload_terms terms;
    struct workload w = workload_default(WORKLOAD_TITAN, WORKLOAD_FSDP2);
    w.model = (struct workload_model){.layers = 8,
                                      .hidden = 512,
                                      .heads = 8,
                                      .kv_heads = 8,
                                      .head_size = 64,
                                      .ffn = 2048,
                                      .vocab = 65536,
                                      .gated = true,
                                      .rms_norm = true};
    w.dp = 64;
    w.micro_batch = 2;
    w.sequence = 256;
    w.recompute = WORKLOAD_FULL;
    ASSERT_OK(workload_terms(&w, 0, arena, &terms, &err));
    const struct workload_term *input = find(&terms, "layer input"), *logits = find(&terms, "log-softmax");
    ASSERT_INT(input->count, 8);
    ASSERT_INT(input->bytes, 8 * 512 * 1024);
    ASSERT_STR(input->formula, "2 x hidden x tokens");
    ASSERT_INT(input->role, ROLE_ACTIVATION);
    ASSERT_INT(logits->count, 1);
    ASSERT_INT(logits->bytes, 4LL * 65536 * 512);
    ASSERT_STR(logits->formula, "4 x vocab x tokens");
    ASSERT_INT(terms.moment, REPLAY_BACKWARD);
    arena_free(arena);
}
