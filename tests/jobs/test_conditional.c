/* Words of which a script does not say what they hold: what matters and may stand in them is asked for, and what is answered all
 * the same says on what it rests. */
#include "tests/jobs/launches.h"

#include "base/text.h"
#include "tests/test.h"

#define SHAPE                                                                                                \
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 "   \
    "--seq-length 32 --max-position-embeddings 48 --micro-batch-size 1 "

/* The names of what is missing, a blank before each, and on what the rest is said to rest. */
static void assert_asks(const char *script, const char *missing, const char *condition)
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct jobs_request request = {0};
    struct error err = {0};
    struct text got = {0};
    ASSERT_OK(jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, &err));
    for (int i = 0; i < job.facts.count; i++)
        if (job.facts.list[i].kind == FACT_MISSING)
            text_printf(&got, " %s", job.facts.list[i].name);
    ASSERT_STR(got.data ? got.data : "", missing);
    ASSERT_STR(job.condition ? job.condition : "", condition);
    text_free(&got);
    arena_free(arena);
}

TEST(conditional_words, "a vocabulary and a precision that an unknown word may hold are no defaults")
{
    assert_asks(SHAPE "--bf16 $MORE", " --vocab-size",
                "$MORE (examples/launch/run.sh:1) holds no option that counts");
    assert_asks(SHAPE "--vocab-size 100 $MORE", " --bf16",
                "$MORE (examples/launch/run.sh:1) holds no option that counts");
    assert_asks(SHAPE "--vocab-size 100 --bf16 $MORE", "",
                "$MORE (examples/launch/run.sh:1) holds no option that counts");
    assert_asks(SHAPE "--tokenizer-type GPT2BPETokenizer --fp16 $(cat more)", "",
                "$(cat more) (examples/launch/run.sh:1) holds no option that counts");
    assert_asks(SHAPE "--bf16 --overlap-grad-reduce $EXTRA_ARGS", " --vocab-size",
                "$EXTRA_ARGS (examples/launch/run.sh:1) holds no option that counts");
    /* what is only the value of an option holds no others, and what is empty holds none */
    assert_asks(SHAPE "--bf16 --lr $LR", "", "");
    assert_asks("MORE=\n" SHAPE "--bf16 $MORE ${OTHER:-}", "", "");
    assert_asks(HF "$MORE", " --per_device_train_batch_size --bf16",
                "$MORE (examples/launch/run.sh:1) holds no option that counts");
    assert_asks(HF "--bf16 --per_device_train_batch_size 2 $MORE", "",
                "$MORE (examples/launch/run.sh:1) holds no option that counts");
}

TEST(conditional_branches, "what a branch that may run would add is asked for, where nothing else gives it")
{
    assert_asks("A=()\nif x; then A+=(--vocab-size 1); else A+=(\"--vocab-size 2\"); fi\n" SHAPE
                "--bf16 ${A[@]}",
                " --vocab-size", "");
    assert_asks("A=\"--bf16\"\nif x; then A+=\" --recompute-num-layers 2\"; fi\n" SHAPE "--vocab-size 100 $A",
                " --recompute-num-layers", "");
    assert_asks("A=(--bf16)\nx && A+=(--vocab-size 1)\nif x; then A+=(--wandb-project y); fi\n" SHAPE
                "--vocab-size 2 ${A[@]}",
                "", "");
    /* a switch cannot be asked for: the answer says that it is taken for absent */
    assert_asks("A=(--bf16)\nif x; then A+=(--sequence-parallel); fi\n" SHAPE "--vocab-size 2 ${A[@]}", "",
                "--sequence-parallel is not given ($A grows inside an if on line 2)");
    assert_asks("A=(--lr 1)\nif x; then A+=(--bf16); fi\n" SHAPE "--vocab-size 2 ${A[@]}", " --bf16",
                "--bf16 is not given ($A grows inside an if on line 2)");
    assert_asks("A=()\nif [ a = a ] || x; then A+=(--vocab-size 1); else A+=(--vocab-size 2); fi\n" SHAPE
                "--bf16 ${A[@]}",
                "", "");
}
