/* Which layers each chunk of a pipeline has, by the options of each framework; and what the frameworks refuse. */
#include "tests/jobs/launches.h"

#include "base/text.h"
#include "tests/test.h"

#define STAGES(n)       MEGATRON "--pipeline-model-parallel-size " #n " "
#define LAYOUT          "--pipeline-model-parallel-layout "
#define TITAN_STAGES(n) TITAN "--parallelism.pipeline_parallel_degree " #n " "
#define PARTS           "--parallelism.module_fqns_per_model_part "
#define DEBUG_STAGES                                                                                         \
    "torchrun --nproc_per_node 8 -m torchtitan.train --model.flavor debugmodel "                             \
    "--parallelism.pipeline_parallel_degree 2 "

/* Of 8 layers, of torchtitan's 8B 32, of its debugmodel 6; chunks in the model's order. */
static const struct {
    const char *script, *layers;
} chunk_rows[] = {
    {MEGATRON, "even"},
    {STAGES(4), "2 2 2 2"},
    {STAGES(2) "--num-virtual-stages-per-pipeline-rank 2", "2 2 2 2"},
    {STAGES(2) "--num-layers-per-virtual-pipeline-stage 1", "1 1 1 1 1 1 1 1"},
    {STAGES(4) "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3", "1 2 2 3"},
    {STAGES(2) "--decoder-first-pipeline-num-layers 2", "2 6"},
    {STAGES(2) "--decoder-last-pipeline-num-layers 2 --num-virtual-stages-per-pipeline-rank 2", "3 1 3 1"},
    {STAGES(2) "--num-layers 7 --account-for-loss-in-pipeline-split", "4 3"},
    {STAGES(4) "--num-layers 14 --account-for-embedding-in-pipeline-split "
               "--account-for-loss-in-pipeline-split --num-virtual-stages-per-pipeline-rank 2",
     "1 2 2 2 2 2 2 1"},
    {STAGES(2) LAYOUT "'Et*5|t*3L'", "5 3"},
    {STAGES(4) LAYOUT "'E|(tt|)*2,t*4L'", "0 2 2 4"},
    {STAGES(2) LAYOUT "'Et,*3|(t|t,)*2tL'", "3 1 2 2"},
    /* 34 of them, with the ends: 9 9 8 8 */
    {TITAN_STAGES(4), "8 9 8 7"},
    {TITAN_STAGES(2) "--parallelism.pipeline_parallel_schedule Interleaved1F1B", "8 9 8 7"},
    {TITAN_STAGES(2) "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
                     "--parallelism.pipeline_parallel_layers_per_stage 9",
     "8 9 8 7"},
    {TITAN_STAGES(2) "--parallelism.pipeline_parallel_first_stage_less_layers 4 "
                     "--parallelism.pipeline_parallel_last_stage_less_layers 0",
     "14 18"},
    {TITAN_STAGES(2) "--parallelism.pipeline_parallel_split_points layers.12", "12 20"},
    {DEBUG_STAGES PARTS "'tok_embeddings,layers.0;layers.1,layers.2,layers.3,layers.4,layers.5,norm,output'",
     "1 5"},
    {"cat > t.toml <<'EOF'\n[model]\nflavor = \"debugmodel\"\n[parallelism]\npipeline_parallel_degree = 2\n"
     "module_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\", \"layers.1\"],\n"
     "  [\"layers.2\", \"layers.3\", \"layers.4\", \"layers.5\", \"norm\", \"output\"],]\nEOF\n"
     "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file t.toml",
     "2 4"},
};

static void list_chunks(const struct workload *w, struct text *out)
{
    for (int64_t i = 0; w->chunk_layers && i < w->pp * w->virtual_stages; i++) {
        ASSERT_INT(workload_chunk_layers(w, i % w->pp, i / w->pp), w->chunk_layers[i]);
        text_printf(out, i ? " %lld" : "%lld", (long long)w->chunk_layers[i]);
    }
    if (!w->chunk_layers)
        text_add(out, "even");
}

TEST(workload_chunks, "each chunk of a pipeline has the layers that the framework gives it")
{
    for (size_t i = 0; i < sizeof chunk_rows / sizeof chunk_rows[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct text list = {0};
        struct workload w;
        ASSERT_MSG(!launch_workload(chunk_rows[i].script, arena, &w, &err), "%s: %s", chunk_rows[i].script,
                   err.text);
        list_chunks(&w, &list);
        ASSERT_MSG(!strcmp(list.data, chunk_rows[i].layers), "%s: %s", chunk_rows[i].script, list.data);
        ASSERT_OK(workload_check(&w, &err));
        text_free(&list);
        arena_free(arena);
    }
}

TEST(chunks_refused, "what the framework itself would refuse is refused by the option with its value")
{
    static const struct {
        const char *script, *message;
    } refused[] = {
        {STAGES(4) "--decoder-first-pipeline-num-layers 3",
         "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3: the other stages cannot "
         "share 5 layers"},
        {STAGES(4) "--num-layers 7", "--pipeline-model-parallel-size 4: the other stages cannot share 7"},
        {STAGES(2) "--decoder-last-pipeline-num-layers 9", "--decoder-last-pipeline-num-layers 9: the model"},
        {STAGES(2) "--decoder-last-pipeline-num-layers 3 --num-virtual-stages-per-pipeline-rank 2",
         "2 virtual stages cannot share the 5 layers of stage 0"},
        {STAGES(2) "--decoder-first-pipeline-num-layers 4 --num-layers-per-virtual-pipeline-stage 2",
         "--num-layers-per-virtual-pipeline-stage 2 does not go with --decoder-first-pipeline-num-layers 4"},
        {STAGES(2) "--decoder-first-pipeline-num-layers 4 --account-for-loss-in-pipeline-split",
         "--decoder-first-pipeline-num-layers 4 and --account-for-loss-in-pipeline-split"},
        {STAGES(2) LAYOUT "'Et*5|t*2L'", LAYOUT "Et*5|t*2L: it has 7 layers (t), and the model 8"},
        {STAGES(2) LAYOUT "'Et*4|t*2|t*2L'", LAYOUT "Et*4|t*2|t*2L: 3 parts, which 2 stages cannot share"},
        {STAGES(2) LAYOUT "'Et*4|t*4'", "end with L"},
        {STAGES(2) LAYOUT "'Et*4|x*4L'", "'x' stands where it means nothing"},
        {STAGES(2) LAYOUT "'E(t|)*99999999999L'", "no layout that can be written out"},
        {STAGES(2) LAYOUT "'Et*4|t*4mL'", "(m) 1, and the model 0"},
        {TITAN_STAGES(2) "--parallelism.pipeline_parallel_split_points layers.12,layers.20",
         "parallelism.pipeline_parallel_split_points layers.12,layers.20: 3 chunks, which 1F1B over 2 ranks"},
        {TITAN_STAGES(2) "--parallelism.pipeline_parallel_split_points layers.33", "layers.33: its layers"},
        {TITAN_STAGES(2) "--parallelism.pipeline_parallel_first_stage_less_layers 33",
         "first_stage_less_layers 33: the model has 32 layers"},
        {DEBUG_STAGES PARTS "'layers.0,layers.2;layers.1,layers.3,layers.4,layers.5'",
         "parallelism.module_fqns_per_model_part layers.0,layers.2;layers.1,layers.3,layers.4,layers.5: its "
         "layers are not"},
        {DEBUG_STAGES PARTS "'layers.0,layers.1;layers.2'", "it has not as many layers as the model"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct workload w;
        ASSERT_MSG(launch_workload(refused[i].script, arena, &w, &err), "%s is not refused",
                   refused[i].script);
        ASSERT_MSG(strstr(err.text, refused[i].message), "%s: %s", refused[i].script, err.text);
        arena_free(arena);
    }
}
