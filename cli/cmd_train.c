/* memplan train: runs a plan, or a model with a layout, in one arena per rank. */
#include "cli/commands.h"
#include "cli/training.h"
#include "cli/world.h"

static const struct option_spec options[] = {
    TRAINING_RUN_OPTIONS,
    {"schedule", 0, OPTION_CHOICE, NULL, "constant|cosine|linear|wsd",
     "learning-rate schedule; default cosine", offsetof(struct training_options, schedule)},
    {"warmup", 0, OPTION_COUNT, "N", NULL, "steps of linear warm-up",
     offsetof(struct training_options, warmup)},
    {"decay", 0, OPTION_REAL, "X", NULL, "weight decay of matrices; default 0.1",
     offsetof(struct training_options, decay)},
    {"clip", 0, OPTION_REAL, "X", NULL, "largest gradient norm; default 1, 0: no clipping",
     offsetof(struct training_options, clip)},
    {"validate-every", 0, OPTION_COUNT, "N", NULL, "steps between validations on held-out data",
     offsetof(struct training_options, validate_every)},
    {"checkpoint", 0, OPTION_TEXT, "FOLDER", NULL, "write checkpoints there",
     offsetof(struct training_options, checkpoint)},
    {"checkpoint-every", 0, OPTION_COUNT, "N", NULL, "steps between them; default only after the last",
     offsetof(struct training_options, checkpoint_every)},
    {"resume", 0, OPTION_TEXT, "FOLDER", NULL, "continue from a checkpoint",
     offsetof(struct training_options, resume)},
    {"overwrite", 0, OPTION_FLAG, NULL, NULL,
     "--checkpoint may replace the checkpoint of another run; without it only --resume of the same folder "
     "does",
     offsetof(struct training_options, overwrite)},
    {"no-graph", 0, OPTION_FLAG, NULL, NULL,
     "on a GPU, launch every kernel of every step (default: one graph a step)",
     offsetof(struct training_options, no_graph)},
    {"output", 'o', OPTION_TEXT, "RUN.DB", NULL, "record the run in this database",
     offsetof(struct training_options, output)},
    {"event-steps", 0, OPTION_COUNT, "N", NULL,
     "record memory events and times of the first N steps; default 2, 0: all",
     offsetof(struct training_options, event_steps)},
    CONFIGURATION_MODEL_OPTIONS(struct training_options, configuration),
    CONFIGURATION_LAYOUT_OPTIONS(struct training_options, configuration),
    {0},
};

static const struct command_spec spec = {
    .name = "train",
    .summary = "train a model or a plan; it runs out of memory at launch or never",
    .usage = "train MODEL|PLAN --data FILE [options]",
    .about = "Trains on this machine. Each rank takes all the memory of its step at launch, as one arena "
             "whose size was "
             "predicted; what does not fit is refused before anything runs (exit 1), with the nearest change "
             "that would "
             "fit. Ranks are threads of this process: --dp of them share out the batch, --tp every layer, "
             "--pp the "
             "layers. Started by mpirun or srun as several processes, each process is a rank. Ctrl-C or "
             "SIGTERM ends the run after the step at work, with a checkpoint if --checkpoint is given.",
    .examples =
        {"memplan train plan.json --data corpus.txt --steps 200 --checkpoint ckpt",
         "memplan train gpt2-small-bytes --data corpus.txt --tp 2 --pp 2 --micro-batch 2 --memory 150MiB"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

static int run(int argc, char **argv, struct error *err)
{
    struct training_options o = training_default_options();
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on < 0 ? world_refuse(err) : 0;
    char line[256];
    configuration_command_line(argc, argv, line, sizeof line);
    return training_execute(operands[0], &o, MEMORY_ARENA, line, err);
}

const struct command command_train = {&spec, run};
