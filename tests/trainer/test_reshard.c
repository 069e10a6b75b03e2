/* Initial weights and checkpoints under every layout: each rank fills and writes its part, and the parts make up the same
 * model. Nothing is trained here. */
#include "base/text.h"
#include "tests/test.h"
#include "tests/trainer/crowd.h"
#include "trainer/checkpoint.h"
#include "trainer/random.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A vocabulary that neither 2 nor 4 divides, grouped queries, parameters that neither 3 nor 2 x 3 divides (ZeRO pads them),
 * uneven stages, a tied embedding on two stages and one that is not tied. */
static const char
    *const gpt2 = "gpt2-tiny layers=4 hidden=16 vocab=37",
           *const llama = "llama-tiny layers=5 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=35",
           *const wide_llama = "llama-tiny layers=1 hidden=16 heads=8 kv_heads=4 ffn=20 vocab=35",
           *const qwen3 = "qwen3-tiny layers=3 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=35",
           *const olmo2 = "olmo2-tiny layers=3 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=35",
           *const gemma3 = "gemma3-tiny layers=3 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=35",
           *const encoder = "block-tiny layers=4 hidden=16", *const two_classes = "block-tiny vocab=2";

static const struct spread {
    const char *model, *layout;
} spreads[] = {
    {gpt2, "seq=8 tp=2"},
    {gpt2, "seq=8 tp=4"},
    {gpt2, "seq=8 tp=2 sp"},
    {gpt2, "seq=8 dp=2"},
    {gpt2, "seq=8 dp=3 zero=1"},
    {gpt2, "seq=8 dp=3 tp=2 zero=1 bf16"},
    {gpt2, "seq=8 pp=2"},
    {gpt2, "seq=8 pp=2 virtual=2"},
    {gpt2, "seq=8 pp=4 bf16"},
    {gpt2, "seq=8 pp=3 virtual=2 chunks=0,1,1,1,1,0"},
    {llama, "seq=8 dp=2 pp=2 zero=1 chunks=0,5"},
    {gpt2, "seq=8 dp=2 tp=2 pp=2 zero=1 bf16"},
    {llama, "seq=8 tp=2 bf16"},
    {llama, "seq=8 tp=2 sp"},
    {llama, "seq=8 dp=2 tp=2 pp=2 chunks=4,1 zero=1"},
    {llama, "seq=8 dp=3 pp=3 zero=1 bf16"},
    {wide_llama, "seq=8 tp=4 sp"},
    {wide_llama, "seq=8 dp=2 tp=4 zero=1"},
    {qwen3, "seq=8 tp=2 bf16"},
    {qwen3, "seq=8 dp=2 tp=2 pp=2 zero=1"},
    {olmo2, "seq=8 dp=3 pp=2 zero=1 bf16"},
    {gemma3, "seq=8 dp=2 tp=2 pp=2 zero=1"},
    {encoder, "tp=2"},
    {encoder, "dp=3 tp=2 zero=1"},
    {encoder, "pp=2"},
    {two_classes, "dp=2 tp=2 zero=1"}, /* a bias of one element, which one replica has */
};
enum { SPREADS = sizeof spreads / sizeof *spreads };

/* One rank that holds all of it. */
static const char *alone(const char *model)
{
    return strncmp(model, "block", 5) ? "seq=8" : "";
}

/* Initial values of seed 1, as one rank has drawn them since the first version: by part of the model, parameter, element. */
static float initial(const struct catalogue *c, int64_t number, enum state state, int64_t element)
{
    struct parameter_name name = catalogue_name(c, number);
    const struct parameter *p = catalogue_parameter(c, number);
    int64_t part = name.part == PART_EMBED ? 0 : name.part == PART_LAYER ? 1 + name.layer : 1 + c->layers;
    struct random_stream stream = random_stream(1, (uint64_t)part * 18 + name.id);
    if (state == STATE_MOMENT1 || state == STATE_MOMENT2)
        return 0;
    float value = (float)p->init_value;
    if (p->init_std > 0)
        random_fill_normal(stream, (uint64_t)element, p->init_std, &value, 1);
    return value;
}

/* 24 bits that no two places share by chance often: every bit of a checkpoint counts. The weight is the exact state's
 * rounding. */
static float scattered(const struct catalogue *c, int64_t number, enum state state, int64_t element)
{
    (void)c;
    int64_t kept = state == STATE_WEIGHT ? STATE_MASTER : state;
    struct random_stream stream = random_stream(9, (uint64_t)(number * STATE_COUNT + kept));
    return (float)(random_below(stream, (uint64_t)element, 1 << 24) - (1 << 23)) / 4096;
}

static void assert_initial(const char *model, const char *layout, int threads)
{
    struct crowd crowd;
    crowd_open(&crowd, model, layout);
    crowd_assert_complete(&crowd);
    for (int i = 0; i < crowd.count; i++)
        weights_initialize(&crowd.ranks[i], 1, threads);
    crowd_assert(&crowd, initial);
    crowd_close(&crowd);
}

TEST_LOOP(reshard_initial, "initial weights are those of one rank, whatever part of them a rank holds",
          SPREADS)
{
    assert_initial(spreads[_i].model, spreads[_i].layout, 1);
    assert_initial(spreads[_i].model, alone(spreads[_i].model), 1);
}

/* A part of the embedding has 500 x 200 elements, more than the 2^16 that one thread fills at a time. */
TEST(reshard_initial_threads, "so they are when several threads fill a matrix")
{
    assert_initial("gpt2-tiny layers=1 hidden=200 vocab=1000", "seq=8 tp=2", 3);
}

static const struct checkpoint_info info = {.step = 3, .seed = 1, .global_batch = 4, .seq_len = 8};

static void write_one(const struct state_access *rank, struct comm *comm, void *context)
{
    struct error err = {0};
    ASSERT_OK(checkpoint_write(context, rank, &info, comm, &err));
}

/* Of what several ranks hold, one writes: replica 0 unless it is sharded, part 0 unless it is shared, never the copy of a
 * tied embedding. Here the others hold zeros. */
static void spoil_copies(const struct state_access *rank, int64_t instance, int index)
{
    const struct program *program = rank->program;
    const struct parameter *p = &program_block(program, instance)->parameters[index];
    const enum state states[] = {weights_exact_state(program), STATE_MOMENT1, STATE_MOMENT2};
    bool copy = program_parameter(program, instance, index).copy ||
                (p->sharing == SHARED_NOT && rank->place.part > 0);
    float *zeros = calloc((size_t)p->count, sizeof *zeros);
    for (int i = 0; i < 3; i++) {
        bool sharded = program->layout.zero && states[i] >= STATE_MASTER;
        if (copy || (rank->place.replica > 0 && !sharded))
            weights_write(rank, instance, index, states[i], 0, p->count, zeros);
    }
    free(zeros);
}

/* A checkpoint of scattered values. */
static void write_scattered(const char *model, const char *layout, char *folder)
{
    struct crowd crowd;
    crowd_open(&crowd, model, layout);
    crowd_fill(&crowd, scattered);
    for (int i = 0; i < crowd.count; i++)
        for (int64_t instance = 0; instance < crowd.ranks[i].program->instances; instance++)
            for (int k = 0; k < program_block(crowd.ranks[i].program, instance)->parameter_count; k++)
                spoil_copies(&crowd.ranks[i], instance, k);
    crowd_each(&crowd, write_one, folder);
    crowd_close(&crowd);
}

static void assert_scattered(const char *model, const char *layout, const char *folder)
{
    struct crowd crowd;
    crowd_open(&crowd, model, layout);
    for (int i = 0; i < crowd.count; i++) {
        struct error err = {0};
        struct checkpoint_info got;
        ASSERT_OK(checkpoint_read(folder, &crowd.ranks[i], &got, &err));
        ASSERT_INT(got.step, info.step);
    }
    crowd_assert(&crowd, scattered);
    crowd_close(&crowd);
}

static void assert_same_file(const char *folder, const char *other, const char *name)
{
    char path[RUNS_PATH + 40], *got, *expected;
    size_t got_bytes, expected_bytes;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ASSERT_OK(text_read_file(path, 1 << 24, &got, &got_bytes, &err));
    snprintf(path, sizeof path, "%s/%s", other, name);
    ASSERT_OK(text_read_file(path, 1 << 24, &expected, &expected_bytes, &err));
    ASSERT_INT(got_bytes, expected_bytes);
    ASSERT_MSG(!memcmp(got, expected, got_bytes), "%s differs", name);
    free(got);
    free(expected);
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *list = opendir(folder);
    ASSERT(list != NULL);
    for (struct dirent *entry; (entry = readdir(list));)
        count += entry->d_name[0] != '.';
    closedir(list);
    return count;
}

TEST_LOOP(reshard_checkpoint, "all ranks write the file that one would, and read from it what they held",
          SPREADS)
{
    const struct spread *spread = &spreads[_i];
    char folder[RUNS_PATH], one[RUNS_PATH];
    runs_open_folder(folder);
    runs_open_folder(one);
    write_scattered(spread->model, spread->layout, folder);
    write_scattered(spread->model, alone(spread->model), one);
    ASSERT_INT(count_entries(folder), 2);
    assert_same_file(folder, one, "step-000003.safetensors");
    assert_same_file(folder, one, "checkpoint.json");
    assert_scattered(spread->model, alone(spread->model), folder);
    assert_scattered(spread->model, spread->layout, one);
    runs_remove_folder(folder);
    runs_remove_folder(one);
}

static void assert_moves(const char *model, const char *from, const char *to)
{
    char there[RUNS_PATH], back[RUNS_PATH];
    struct crowd crowd;
    runs_open_folder(there);
    runs_open_folder(back);
    write_scattered(model, from, there);
    crowd_open(&crowd, model, to);
    for (int i = 0; i < crowd.count; i++) {
        struct error err = {0};
        struct checkpoint_info got;
        ASSERT_OK(checkpoint_read(there, &crowd.ranks[i], &got, &err));
    }
    crowd_assert(&crowd, scattered);
    crowd_each(&crowd, write_one, back);
    crowd_close(&crowd);
    assert_scattered(model, from, back);
    assert_same_file(there, back, "step-000003.safetensors");
    runs_remove_folder(there);
    runs_remove_folder(back);
}

TEST(reshard_round_trip, "from dp2 tp2 pp1 to dp1 tp1 pp4 and back, and other ways round, no bit changes")
{
    assert_moves(gpt2, "seq=8 dp=2 tp=2 pp=1", "seq=8 dp=1 tp=1 pp=4");
    assert_moves(llama, "seq=8 dp=2 tp=2 pp=1", "seq=8 dp=1 tp=1 pp=4");
    assert_moves(llama, "seq=8 dp=2 tp=2 pp=1 zero=1 bf16", "seq=8 dp=1 tp=1 pp=4");
    assert_moves(gpt2, "seq=8 dp=4 zero=1", "seq=8 dp=3 tp=4 zero=1 bf16");
    assert_moves(gpt2, "seq=8 pp=2 virtual=2 tp=2", "seq=8 pp=4 dp=2 zero=1");
    assert_moves(gpt2, "seq=8 pp=3 virtual=2 chunks=0,1,1,1,1,0", "seq=8 dp=2 pp=2 tp=2 zero=1 chunks=4,0");
}

/* Rank 1 fails; the others learn it as soon as they wait for it. */
static void fail_on_one(const struct state_access *rank, struct comm *comm, void *context)
{
    struct error err = {0};
    struct checkpoint_info later = info;
    later.step = 4;
    if (comm_rank(comm) == 1) {
        comm_abort(comm, "rank 1 has no more room");
        return;
    }
    ASSERT_INT(checkpoint_write(context, rank, &later, comm, &err), -1);
    ASSERT_INT(err.kind, ERROR_STOPPED);
    comm_abort(comm, err.text);
}

TEST(reshard_failure, "when one rank fails, all do, and the checkpoint before stands alone")
{
    char folder[RUNS_PATH];
    struct crowd crowd;
    runs_open_folder(folder);
    write_scattered(gpt2, "seq=8 dp=2 tp=2", folder);
    crowd_open(&crowd, gpt2, "seq=8 dp=2 tp=2");
    crowd_fill(&crowd, initial);
    crowd_each(&crowd, fail_on_one, folder);
    crowd_close(&crowd);
    ASSERT_INT(count_entries(folder), 2);
    assert_scattered(gpt2, "seq=8", folder);
    runs_remove_folder(folder);
}
