/* Which operations some kernels may do in one: that neighbours are neighbours in every order of execution, that what the pair
 * needs is alive, and how many there are. */
#include "model/pipeline.h"
#include "tests/test.h"
#include "tests/trainer/runs.h"
#include "trainer/pairs.h"

/* Of one step of one stage, or of all. */
struct counts {
    int forward, backward, with_other;
};

static bool is_at(const struct step_op *s, const struct step_op *other, const struct op *op)
{
    return s->op == op && s->instance == other->instance && s->micro_batch == other->micro_batch;
}

/* The other of each pair comes right before or behind. */
static void count_stage(const struct program *program, struct counts *out)
{
    struct program_cursor cursor = program_walk(program);
    struct step_op before = {0}, s, awaited = {0};
    for (; program_next(&cursor, &s); before = s) {
        enum pair pair = pair_of(&s);
        if (awaited.op)
            ASSERT(is_at(&s, &awaited, awaited.op + 1) && pair == PAIR_WITH_OTHER);
        awaited = (struct step_op){0};
        if (pair == PAIR_MATMUL_GELU) {
            ASSERT(is_at(&before, &s, s.op - 1) && pair_of(&before) == PAIR_WITH_OTHER);
            ASSERT_INT(pair_neighbour(&s, -1).kind, OP_MATMUL);
            out->forward++;
        } else if (pair == PAIR_DGRAD_GELU) {
            ASSERT_INT(pair_neighbour(&s, 1).kind, OP_GELU_GRAD);
            awaited = s;
            out->backward++;
        }
        out->with_other += pair == PAIR_WITH_OTHER;
    }
    ASSERT(!awaited.op);
}

static const struct {
    const char *model, *layout, *recompute;
    int forward, backward; /* of all stages */
} cases[] = {
    {"gpt2-tiny layers=3", "micro=1 batch=2 seq=8", "none", 6, 6},
    /* The second norm's result is dropped after the first product: that one and its GELU are apart, and the one made again is
     * with its own. */
    {"gpt2-tiny layers=3", "micro=1 batch=2 seq=8", "full", 6, 6},
    {"gpt2-tiny layers=3", "tp=2 micro=1 batch=2 seq=8", "none", 6, 6},
    /* Gathered sequences die with the product. */
    {"gpt2-tiny layers=3", "tp=2 sp micro=1 batch=2 seq=8", "none", 0, 6},
    {"gpt2-tiny layers=4", "pp=2 micro=1 batch=4 seq=8", "none", 16, 16},
    {"gpt2-tiny layers=4", "pp=2 micro=1 batch=4 seq=8 zb-h1", "none", 16, 16},
    {"llama-tiny layers=3", "micro=1 batch=2 seq=8", "none", 0, 0},
};

TEST_LOOP(pairs_are_neighbours,
          "products with a GELU behind, and with its slope: neighbours in every schedule", 7)
{
    struct pipeline *pipeline = runs_pipeline(cases[_i].model, cases[_i].layout, cases[_i].recompute);
    struct counts counts = {0};
    for (int stage = 0; stage < pipeline->count; stage++)
        count_stage(pipeline->stages[stage], &counts);
    ASSERT_INT(counts.forward, cases[_i].forward);
    ASSERT_INT(counts.backward, cases[_i].backward);
    ASSERT_INT(counts.with_other, counts.forward + counts.backward);
    pipeline_free(pipeline);
}
