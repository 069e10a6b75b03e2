/* Tables of measured jobs: what they say becomes jobs, and what cannot be is refused by file, line and value. The readers belong to
 * a program and not to the library, so they are compiled in here. */
#include "tests/test.h"

#include "bench/score/csv.c"
#include "bench/score/rows.c"

#include <stdio.h>
#include <unistd.h>

#define STEPS "gpus,gpu,layers,hidden,heads,vocab,seq_len,global_batch,micro_batch,tp,dp,pp,step_seconds\n"
#define SWEEP                                                                                                \
    "problem,model,hidden,layers,heads,ffn,vocab,seq_len,gpus,micro_batch,tp,pp,dp,global_batch,sequence_"   \
    "parallel,"                                                                                              \
    "recompute,kernels,outcome,step_seconds\n"
#define SWEEP_ROW "p,llama-13B,5120,40,40,13824,128000,2048,8,2,2,2,2,64,1,none,"

typedef int reader(const char *path, struct arena *arena, struct verdicts *out, struct error *err);

/* Reads a file of this text. */
static int read_text(reader *read, const char *text, struct arena *arena, struct verdicts *out,
                     struct error *err)
{
    char path[] = "/tmp/memplan-rows-XXXXXX";
    int file = mkstemp(path);
    ASSERT(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    int failed = read(path, arena, out, err);
    unlink(path);
    return failed;
}

TEST(score_rows_steps, "a row of step times is a GPT job with full recomputation")
{
    struct error err = {0};
    struct verdicts v;
    struct arena *arena = arena_create();
    ASSERT_OK(read_text(rows_read_steps, "# a note\n" STEPS "8,A100,24,1024,16,,1024,32,4,2,2,2,0.25\n",
                        arena, &v, &err));
    ASSERT_INT(v.count, 1);
    const struct workload *w = &v.rows[0].job;
    ASSERT_INT(w->micro_batches, 4);
    ASSERT_INT(w->model.vocab, 51200);
    ASSERT_INT(w->model.ffn, 4096);
    ASSERT_INT(w->recompute, WORKLOAD_FULL);
    ASSERT_NEAR(v.rows[0].measured_s, 0.25, 1e-12);
    ASSERT(isnan(v.rows[0].allocated_bytes) && strstr(v.rows[0].where, ":3"));
    arena_free(arena);
}

TEST(score_rows_sweep, "a row of the sweep says its kernels and its outcome")
{
    struct error err = {0};
    struct verdicts v;
    struct arena *arena = arena_create();
    ASSERT_OK(read_text(rows_read_sweep,
                        SWEEP SWEEP_ROW "flash_attentionv1.0.8,oom,\n" SWEEP_ROW "fused,ok,3.5\n" SWEEP_ROW
                                        "flash_attention2 + RMS kernel,ok,3\n",
                        arena, &v, &err));
    ASSERT_INT(v.count, 3);
    ASSERT(v.rows[0].out_of_memory && v.rows[0].job.first_flash && v.rows[0].job.sequence_parallel);
    ASSERT(!v.rows[1].out_of_memory && v.rows[1].job.attention == WORKLOAD_FUSED_SOFTMAX);
    ASSERT(v.rows[1].job.norm == WORKLOAD_NORM_WRITTEN && v.rows[2].job.norm == WORKLOAD_NORM_FUSED);
    ASSERT(v.rows[2].job.model.gated && !v.rows[2].job.first_flash);
    arena_free(arena);
}

TEST(score_rows_refused, "what cannot be is refused by file, line and value")
{
    static const struct {
        reader *read;
        const char *text, *says;
    } cases[] = {
        {rows_read_steps, "", "is empty"},
        {rows_read_steps, STEPS "8,A100\n", ":2: 2 fields, where the first line names 13"},
        {rows_read_steps, STEPS "8,A100,24,1024,16,,1024,32,4,2,2,2,fast\n", ":2: step_seconds is \"fast\""},
        {rows_read_steps, STEPS "8,A100,24,1024,16,,1024,32,4,2,2,2,-1\n", ":2: step_seconds is \"-1\""},
        {rows_read_steps, STEPS "8,A100,24,1024,16,,1024,32,4,2,2,2,nan\n", ":2: step_seconds is \"nan\""},
        {rows_read_steps, "# a note\n" STEPS "8,A100,24x,1024,16,,1024,32,4,2,2,2,1\n",
         ":3: layers is \"24x\""},
        {rows_read_steps, STEPS "8,A100,24,99999999999999999999,16,,1024,32,4,2,2,2,1\n",
         ":2: hidden is \"9999"},
        {rows_read_steps, STEPS "8,A100,24,,16,,1024,32,4,2,2,2,1\n", ":2: hidden is \"\"; it must be said"},
        {rows_read_steps, STEPS "8,A100,24,1024,16,,1024,32,4,0,2,2,1\n", ":2: tp is \"0\""},
        {rows_read_steps, STEPS "8,A100,24,1024,16,,1024,32,4,2,1,2,1\n", ":2: gpus is \"8\"; dp x tp x pp"},
        {rows_read_steps, STEPS "8,A100,24,1024,16,,1024,33,4,2,2,2,1\n", ":2: global_batch is \"33\""},
        {rows_read_steps, STEPS "8,A100,24,1024,16,,1024,0,4,2,2,2,1\n", ":2: global_batch is \"0\""},
        {rows_read_sweep, SWEEP SWEEP_ROW "fused,fine,1\n", ":2: outcome is \"fine\"; it must be ok or oom"},
        {rows_read_sweep, SWEEP SWEEP_ROW "unfused,ok,1\n", ":2: kernels is \"unfused\""},
        {rows_read_published, "table,schedule," STEPS "t,zigzag,8,A100,24,1024,16,,1024,32,4,2,2,2,1\n",
         ":2: schedule is \"zigzag\""},
        {rows_read_published, "table,recompute," STEPS "t,some,8,A100,24,1024,16,,1024,32,4,2,2,2,1\n",
         ":2: recompute is \"some\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        struct verdicts v;
        struct arena *arena = arena_create();
        ASSERT_INT(read_text(cases[i].read, cases[i].text, arena, &v, &err), -1);
        if (!strstr(err.text, cases[i].says))
            ASSERT_STR(err.text, cases[i].says);
        arena_free(arena);
    }
}
