/* Which attention a family's job runs, where the launch asks for none or for one: some have no fused one of PyTorch's. */
#include "tests/test.h"

#include "jobs/job_workload.h"
#include "jobs/jobs.h"

#include <string.h>

static enum workload_attention attention_of(struct workload_traits traits, int kernel)
{
    static const char script[] =
        "python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 1 "
        "--block_size 512 --output_dir out --do_train --dataset_name wikitext\n";
    struct error err = {0};
    struct arena *arena = arena_create();
    struct training_job job;
    struct workload w;
    struct jobs_request request = {0};
    ASSERT_OK(jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err));
    job.model.traits = traits;
    job.kernels.attention = kernel;
    ASSERT_OK(job_workload(&job, &w, &err));
    arena_free(arena);
    ASSERT(w.model.traits.flash_2_alone == traits.flash_2_alone);
    return w.attention;
}

TEST(families_attention,
     "without FlashAttention 2 scores are made by families that have no other fused attention")
{
    struct workload_traits alone = {.flash_2_alone = true}, others = {.flash_2_alone = false};
    ASSERT(attention_of(alone, JOB_ATTENTION_DEFAULT) == WORKLOAD_EAGER);
    ASSERT(attention_of(alone, JOB_SDPA) == WORKLOAD_EAGER);
    ASSERT(attention_of(alone, JOB_FLASH) == WORKLOAD_FLASH);
    ASSERT(attention_of(others, JOB_ATTENTION_DEFAULT) == WORKLOAD_FLASH);
    ASSERT(attention_of(others, JOB_EAGER) == WORKLOAD_EAGER);
}
