/* Launch scripts as workloads: each of the examples has an answer, in time, and says what its options say. */
#include "tests/test.h"

#include "jobs/job_workload.h"
#include "jobs/jobs.h"
#include "planner/frameworks/workload_memory.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FOLDER "examples/launch/"

static struct workload read_example(const char *name, struct arena *arena)
{
    struct error err = {0};
    struct training_job job;
    struct workload w;
    struct jobs_request request = {.script = arena_printf(arena, FOLDER "%s", name)};
    ASSERT_MSG(!jobs_read(&request, arena, &job, &err), "%s: %s", name, err.text);
    ASSERT_MSG(!job_workload(&job, &w, &err), "%s: %s", name, err.text);
    return w;
}

static void check_example(const char *name)
{
    struct arena *arena = arena_create();
    struct error err = {0};
    struct workload_memory m;
    struct timespec from, to;
    struct workload w = read_example(name, arena);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    ASSERT_MSG(!workload_memory(&w, &m, &err), "%s: %s", name, err.text);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
    if (getenv("SHOW"))
        printf("%-36s allocated %6.1f reserved %6.1f device %6.1f GiB, states %6.1f, %s, stage %d, %.1f ms\n",
               name, (double)m.peak.bytes / (1 << 30), (double)m.reserved_bytes / (1 << 30),
               (double)m.device_bytes / (1 << 30), (double)m.states_bytes / (1 << 30),
               replay_moment_name(m.peak.moment), (int)m.stage, ms);
    ASSERT(m.peak.bytes > 0 && m.reserved_bytes >= m.peak.bytes && m.device_bytes > m.reserved_bytes);
    ASSERT_MSG(ms < 500, "%s: %.0f ms", name, ms); /* 50 are promised; sanitizers are slow */
    arena_free(arena);
}

TEST(job_workload_examples, "each launch script of the examples has an answer")
{
    DIR *folder = opendir(FOLDER);
    int scripts = 0;
    ASSERT(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".sh"))
            continue;
        check_example(entry->d_name);
        scripts++;
    }
    closedir(folder);
    ASSERT(scripts >= 20);
}

TEST(job_workload_options, "options of launch lines become what they mean for memory")
{
    struct arena *arena = arena_create();
    struct workload w = read_example("hf-qwen-qlora.sh", arena);
    ASSERT(w.lora_rank > 0);
    ASSERT_INT(w.frozen_bits, 4);
    w = read_example("hf-llama-zero3.sh", arena);
    ASSERT_INT(w.sharding, WORKLOAD_ZERO3);
    w = read_example("torchtitan-llama3-8b.sh", arena);
    ASSERT_INT(w.sharding, WORKLOAD_FSDP2);
    ASSERT_INT(w.weight_bytes, 4);
    ASSERT_INT(w.compute_bytes, 2);
    w = read_example("megatron-mixtral-8x7b.sh", arena);
    ASSERT_INT(w.model.experts, 8);
    ASSERT_INT(w.model.active_experts, 2);
    w = read_example("megatron-bert-large.sh", arena);
    ASSERT(w.model.encoder);
    arena_free(arena);
}
