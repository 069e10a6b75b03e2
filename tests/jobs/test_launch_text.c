/* Edits written into scripts and configuration files: what is to change does, and every other byte stays. That whole examples
 * read back as what was promised is checked from outside: tests/cli/check_tune.py. */
#include "jobs/jobs.h"
#include "jobs/launch_text.h"

#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL                                                                                                \
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "  \
    "--vocab-size 100 --bf16"

static struct arena *arena;
static struct launch_text launch;
static struct training_job job;
static struct shell_script script;

static void open_script(const char *text)
{
    struct error err = {0};
    struct jobs_request request = {0};
    struct shell_input input = {.text = text, .length = strlen(text), .file = "run.sh", .first_line = 1};
    arena = arena_create();
    ASSERT_OK(jobs_read_text(&request, "run.sh", text, strlen(text), arena, &job, &err));
    ASSERT_OK(shell_read(&input, arena, &script, &err));
    launch =
        (struct launch_text){.file = "run.sh", .text = text, .job = &job, .script = &script, .arena = arena};
}

static void set(const char *name, const char *value)
{
    struct error err = {0};
    struct job_edit edit = {.place = JOB_EDIT_OPTION, .name = name, .value = value};
    edit.words = value && !strcmp(name, "--recompute-modules");
    ASSERT_OK(launch_text_edit(&launch, &edit, &err));
}

static void assert_written(const char *wanted)
{
    ASSERT_STR(launch_text_written(&launch), wanted);
    arena_free(arena);
}

TEST(option_in_place, "an option's value changes where it stands, be it a variable, quoted, or behind =")
{
    open_script("MICRO=2 # of each\n"
                "torchrun pretrain_gpt.py " MODEL " --micro-batch-size $MICRO \\\n"
                "    --global-batch-size=${GLOBAL:-64} --tensor-model-parallel-size \"1\" # end\n");
    set("--micro-batch-size", "4");
    set("--global-batch-size", "8");
    set("--tensor-model-parallel-size", "2");
    assert_written("MICRO=2 # of each\n"
                   "torchrun pretrain_gpt.py " MODEL " --micro-batch-size 4 \\\n"
                   "    --global-batch-size=8 --tensor-model-parallel-size 2 # end\n");
}

TEST(option_new, "an option that was not there goes behind the program, within its quotes or behind them")
{
    open_script("torchrun \"$DIR/pretrain_gpt.py\" --micro-batch-size 1 " MODEL "\n");
    set("--sequence-parallel", "");
    assert_written("torchrun \"$DIR/pretrain_gpt.py\" --sequence-parallel --micro-batch-size 1 " MODEL "\n");
    open_script("# torchrun pretrain_gpt.py\n"
                "run=\"torchrun pretrain_gpt.py\"\n"
                "$run --micro-batch-size 1 " MODEL "\n");
    set("--sequence-parallel", "");
    assert_written("# torchrun pretrain_gpt.py\n"
                   "run=\"torchrun pretrain_gpt.py --sequence-parallel\"\n"
                   "$run --micro-batch-size 1 " MODEL "\n");
    open_script("SCRIPT=pretrain_gpt.py\n"
                "torchrun $SCRIPT --micro-batch-size 1 " MODEL "\n");
    set("--sequence-parallel", "");
    assert_written("SCRIPT=pretrain_gpt.py\n"
                   "torchrun $SCRIPT --sequence-parallel --micro-batch-size 1 " MODEL "\n");
}

TEST(option_of_that_launch, "a new option goes to the launch that is changed, and not where its program is "
                            "spoken of or started again")
{
    struct error err = {0};
    static const char two[] = "torchrun pretrain_gpt.py --micro-batch-size 1 " MODEL "\n"
                              "torchrun pretrain_gpt.py --micro-batch-size 2 " MODEL "\n";
    struct jobs_request request = {.line = 1};
    open_script("torchrun pretrain_gpt.py --micro-batch-size 1 " MODEL "\n");
    ASSERT_OK(jobs_read_text(&request, "run.sh", two, strlen(two), arena, &job, &err));
    launch.text = two;
    set("--sequence-parallel", "");
    assert_written("torchrun pretrain_gpt.py --sequence-parallel --micro-batch-size 1 " MODEL "\n"
                   "torchrun pretrain_gpt.py --micro-batch-size 2 " MODEL "\n");
    open_script(
        "RUN=\"pretrain_gpt.py\"\ntorchrun --nproc_per_node 2 \\\n  \"$RUN\" --micro-batch-size 1 " MODEL
        "\necho \"done: pretrain_gpt.py\"\n");
    set("--sequence-parallel", "");
    assert_written("RUN=\"pretrain_gpt.py\"\ntorchrun --nproc_per_node 2 \\\n  \"$RUN\" --sequence-parallel "
                   "--micro-batch-size 1 " MODEL "\necho \"done: pretrain_gpt.py\"\n");
}

TEST(option_behind_positional,
     "a new option goes behind the words that the program is given before its options")
{
    open_script("cat >r.yaml <<E\nmodel_name_or_path: gpt2-tiny\nper_device_train_batch_size: 1\nE\n"
                "torchrun --nproc_per_node 2 scripts/run_sft.py r.yaml --seed=1\n");
    set("--fsdp", "full_shard");
    assert_written("cat >r.yaml <<E\nmodel_name_or_path: gpt2-tiny\nper_device_train_batch_size: 1\nE\n"
                   "torchrun --nproc_per_node 2 scripts/run_sft.py r.yaml --fsdp full_shard --seed=1\n");
}

TEST(option_dropped, "an option that goes takes its values along, and its line where nothing else is on it")
{
    open_script("torchrun pretrain_gpt.py " MODEL " \\\n"
                "    --recompute-granularity selective --recompute-modules core_attn mlp \\\n"
                "    --sequence-parallel $MORE --micro-batch-size 1\n");
    set("--recompute-granularity", NULL);
    set("--recompute-modules", NULL);
    set("--sequence-parallel", NULL);
    assert_written("torchrun pretrain_gpt.py " MODEL " \\\n"
                   "     \\\n"
                   "    $MORE --micro-batch-size 1\n");
    open_script("torchrun pretrain_gpt.py " MODEL " \\\n"
                "    --sequence-parallel \\\n"
                "    --micro-batch-size 1\n");
    set("--sequence-parallel", NULL);
    assert_written("torchrun pretrain_gpt.py " MODEL " \\\n"
                   "    --micro-batch-size 1\n");
    open_script("O=\"" MODEL
                " --micro-batch-size 1 --recompute-activations\"\ntorchrun pretrain_gpt.py $O\n");
    set("--recompute-activations", NULL);
    assert_written("O=\"" MODEL " --micro-batch-size 1\"\ntorchrun pretrain_gpt.py $O\n");
}

TEST(option_words, "an option of several words has all of them replaced")
{
    open_script("torchrun pretrain_gpt.py " MODEL " --micro-batch-size 1 --recompute-granularity selective "
                "--recompute-modules core_attn mlp --lr 1\n");
    set("--recompute-modules", "mlp layernorm");
    assert_written("torchrun pretrain_gpt.py " MODEL
                   " --micro-batch-size 1 --recompute-granularity selective "
                   "--recompute-modules mlp layernorm --lr 1\n");
}

TEST(option_elsewhere, "an option that stands outside of the script is refused, by name and place")
{
    static const char text[] = "torchrun pretrain_gpt.py " MODEL " --micro-batch-size 1 $@\n";
    static const char *const arguments[] = {"--global-batch-size", "8"};
    struct error err = {0};
    struct jobs_request request = {.command = arguments, .command_count = 2};
    open_script(text);
    ASSERT_OK(jobs_read_text(&request, "run.sh", text, strlen(text), arena, &job, &err));
    struct job_edit edit = {.place = JOB_EDIT_OPTION, .name = "--global-batch-size", .value = "16"};
    ASSERT(launch_text_edit(&launch, &edit, &err) < 0);
    ASSERT_HAS(err.text, "--global-batch-size stands in ");
    arena_free(arena);
}

TEST(variable_in_place,
     "a variable changes where it is set, and is set above the first command where it is not")
{
    struct error err = {0};
    struct job_edit edit = {.place = JOB_EDIT_ENVIRONMENT,
                            .name = "PYTORCH_CUDA_ALLOC_CONF",
                            .value = "max_split_size_mb:64,expandable_segments:True"};
    open_script("PYTORCH_CUDA_ALLOC_CONF=\"max_split_size_mb:64\" torchrun pretrain_gpt.py " MODEL
                " --micro-batch-size 1\n");
    ASSERT_OK(launch_text_edit(&launch, &edit, &err));
    assert_written("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True torchrun "
                   "pretrain_gpt.py " MODEL " --micro-batch-size 1\n");
    open_script("#!/bin/bash\n#SBATCH --nodes=2\n\ntorchrun pretrain_gpt.py " MODEL
                " --micro-batch-size 1\n");
    ASSERT_OK(launch_text_edit(&launch, &edit, &err));
    ASSERT_INT(launch.lines_above, 1);
    assert_written("#!/bin/bash\n#SBATCH --nodes=2\n\n"
                   "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True\n"
                   "torchrun pretrain_gpt.py " MODEL " --micro-batch-size 1\n");
}

TEST(file_renamed,
     "another file is named wherever the script names this one, and not in comments or other names")
{
    struct error err = {0};
    open_script("# ds.json is DeepSpeed's\nC=ds.json\n"
                "torchrun pretrain_gpt.py " MODEL " --micro-batch-size 1 --data-path my-ds.json\n");
    ASSERT_OK(launch_text_rename(&launch, "ds.json", "tuned.ds.json", &err));
    assert_written("# ds.json is DeepSpeed's\nC=tuned.ds.json\n"
                   "torchrun pretrain_gpt.py " MODEL " --micro-batch-size 1 --data-path my-ds.json\n");
    open_script("torchrun pretrain_gpt.py " MODEL " --micro-batch-size 1\n");
    ASSERT(launch_text_rename(&launch, "ds.json", "tuned.ds.json", &err) < 0);
    ASSERT_HAS(err.text, "ds.json does not stand in it");
    arena_free(arena);
}

static const char *edited(const char *text, const char *name, const char *value, bool yaml)
{
    struct error err = {0};
    struct splices splices = {.count = 0};
    struct job_edit edit = {.place = JOB_EDIT_FILE, .file = "f", .name = name, .value = value};
    size_t length = strlen(text);
    ASSERT_OK(yaml ? config_text_yaml(text, 0, length, &edit, arena, &splices, &err)
                   : config_text_json(text, 0, length, &edit, arena, &splices, &err));
    return splices_apply(&splices, text, arena);
}

TEST(json_in_place, "keys of JSON change where they stand, and nested ones that are not there come first")
{
    arena = arena_create();
    static const char text[] = "{\n  \"a\": {\"stage\": $STAGE, \"s\": \"}\"},\n  \"stage\": 1\n}\n";
    ASSERT_STR(edited(text, "a.stage", "3", false),
               "{\n  \"a\": {\"stage\": 3, \"s\": \"}\"},\n  \"stage\": 1\n}\n");
    ASSERT_STR(edited(text, "stage", "auto", false),
               "{\n  \"a\": {\"stage\": $STAGE, \"s\": \"}\"},\n  \"stage\": \"auto\"\n}\n");
    ASSERT_STR(
        edited(text, "a.b.c", "cpu", false),
        "{\n  \"a\": { \"b\": {\"c\": \"cpu\"},\"stage\": $STAGE, \"s\": \"}\"},\n  \"stage\": 1\n}\n");
    ASSERT_STR(edited("{}", "x.y", "true", false), "{\"x\": {\"y\": true}}");
    arena_free(arena);
}

TEST(yaml_in_place,
     "keys of YAML change where they stand, before a comment; others go to their section or the end")
{
    arena = arena_create();
    static const char text[] = "a: 1 # one\ndeepspeed_config:\n  zero_stage: 2\n";
    ASSERT_STR(edited(text, "a", "2", true), "a: 2 # one\ndeepspeed_config:\n  zero_stage: 2\n");
    ASSERT_STR(edited(text, "zero_stage", "3", true), "a: 1 # one\ndeepspeed_config:\n  zero_stage: 3\n");
    ASSERT_STR(edited(text, "offload_optimizer_device", "cpu", true),
               "a: 1 # one\ndeepspeed_config:\n  offload_optimizer_device: cpu\n  zero_stage: 2\n");
    ASSERT_STR(edited("a: 1", "b", "2", true), "a: 1\nb: 2\n");
    ASSERT_STR(edited(text, "zero_stage", NULL, true), "a: 1 # one\ndeepspeed_config:\n");
    ASSERT_STR(edited("a:\n- 1\n- 2\nb: 3\n", "a", NULL, true), "b: 3\n");
    ASSERT_STR(edited("b: 3\na: 1", "a", NULL, true), "b: 3\n");
    arena_free(arena);
}

TEST(command_as_script, "a command becomes a script whose words a shell reads as they were")
{
    static const char *const words[] = {"torchrun", "run.py", "--fsdp", "full_shard auto_wrap", "--x", "$1"};
    arena = arena_create();
    ASSERT_STR(launch_text_of_command(words, 6, arena),
               "#!/bin/bash\ntorchrun run.py --fsdp 'full_shard auto_wrap' --x '$1'\n");
    arena_free(arena);
}

TEST(text_cut_anywhere,
     "a script that ends anywhere is edited or refused, and nothing behind its end is read")
{
    static const char text[] =
        "# a 'comment\ncat <<-E >ds.json\n\t{\"a\": {\"b\": [1, \"}\"]}}\nE\nX='it' Y=\"${Z:-\\\"q\\\"}\" "
        "torchrun pretrain_gpt.py " MODEL " --micro-batch-size $(echo 1) \\\n  --sequence-parallel\n";
    struct job_edit edits[] = {{.name = "--micro-batch-size", .value = "2"},
                               {.name = "--sequence-parallel"},
                               {.name = "--recompute-granularity", .value = "full"},
                               {.place = JOB_EDIT_ENVIRONMENT, .name = "X", .value = "1"},
                               {.place = JOB_EDIT_FILE, .file = "ds.json", .name = "a.b", .value = "2"}};
    open_script(text);
    int written = 0;
    for (size_t length = 0; length < sizeof text; length++) {
        struct error err = {0};
        struct launch_text cut = launch;
        char *copy = host_alloc(length + 1); /* of its own, so that a sanitizer sees its end */
        memcpy(copy, text, length);
        cut.text = copy;
        for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++)
            launch_text_edit(&cut, &edits[i], &err);
        launch_text_rename(&cut, "ds.json", "other.json", &err);
        written += strlen(launch_text_written(&cut)) > length;
        free(copy);
    }
    ASSERT(written > 0);
    arena_free(arena);
}
