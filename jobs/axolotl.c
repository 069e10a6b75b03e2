/* Axolotl's launches, its entry, and what is proposed in its own words. */
#include "jobs/axolotl.h"

#include "base/text.h"
#include "jobs/hf.h"
#include "jobs/hf_keys.h"

#include <string.h>

/* ---- its launches ---- */

/* Of an option that is handed to accelerate; its value may be the next word. */
static bool is_handed_on(const char *word)
{
    static const char *const names[] = {"--num-processes", "--num_processes", "--main-process-port",
                                        "--main_process_port"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strncmp(word, names[i], strlen(names[i])))
            return true;
    return false;
}

bool axolotl_is_file(const struct words *words, int at)
{
    const char *text = words->list[at].text;
    bool value = at && word_is_option(words->list[at - 1].text) && !strchr(words->list[at - 1].text, '=');
    return !value && (text_ends_with(text, ".yml") || text_ends_with(text, ".yaml"));
}

static void take(struct words *from, int *at, struct words *to)
{
    bool attached = strchr(from->list[*at].text, '=') != NULL;
    to->list[to->count++] = from->list[*at];
    if (!attached && *at + 1 < from->count)
        to->list[to->count++] = from->list[++*at];
}

/* cli/main.py and cli/utils/train.py: what stands behind "--" is the launcher's. */
struct axolotl_line axolotl_split(const struct words *given, struct arena *arena)
{
    static const char choice[] = "--launcher";
    size_t room = (size_t)given->count + 1;
    struct words all = *given;
    struct axolotl_line line = {.own.list = arena_array(arena, room, sizeof(struct word)),
                                .launcher.list = arena_array(arena, room, sizeof(struct word)),
                                .called = "accelerate"};
    for (int i = 0; i < all.count; i++) {
        const char *text = all.list[i].text;
        if (!strcmp(text, "--")) {
            while (++i < all.count)
                line.launcher.list[line.launcher.count++] = all.list[i];
        } else if (!strcmp(text, choice) && i + 1 < all.count) {
            line.called = all.list[++i].text;
        } else if (!strncmp(text, choice, sizeof choice - 1) && text[sizeof choice - 1] == '=') {
            line.called = text + sizeof choice;
        } else if (is_handed_on(text)) {
            take(&all, &i, &line.launcher);
        } else {
            line.own.list[line.own.count++] = all.list[i];
        }
    }
    for (int i = 1; i < line.own.count; i++) {
        struct word file = line.own.list[i];
        if (!axolotl_is_file(&line.own, i) || axolotl_is_file(&line.own, 0))
            continue;
        memmove(line.own.list + 1, line.own.list, (size_t)i * sizeof file);
        line.own.list[0] = file;
    }
    return line;
}

/* accelerate starts a process for each GPU that it sees. */
static int count_processes(struct training_job *job, const struct launch *launch,
                           const struct job_files *files, struct error *err)
{
    struct job_launch *l = &job->launch;
    struct axolotl_line line = axolotl_split(&launch->arguments, job->facts.arena);
    const struct launcher *called = launchers_find(line.called);
    if (l->ranks) /* --ranks */
        return 0;
    if (!strcmp(line.called, "python")) {
        l->ranks = 1;
        return 0;
    }
    if (strcmp(line.called, "accelerate") && strcmp(line.called, "torchrun"))
        return error_set(err,
                         "--launcher %.40s: axolotl calls accelerate, torchrun or python; name one of them",
                         line.called);
    l->nodes = called->nodes;
    l->processes_per_node = called->per_node;
    launcher_read_options(job, called, &line.launcher);
    if (l->ranks || l->processes_per_node)
        return 0;
    l->processes_per_node = job_environment_devices(job, files);
    l->nodes = l->nodes ? l->nodes : 1;
    return 0;
}

static const struct launcher command = {
    .name = "axolotl",
    .words = "axolotl",
    .commands = "train",
    .trains = true,
    .is_program = true,
    .counts = true,
    .read = count_processes,
};

/* "axolotl.cli.train" */
static bool is(const struct launch *launch)
{
    return launcher_was_met(launch, &command) || strstr(launch->program, "axolotl");
}

/* ---- what could be written otherwise ---- */

static const struct hf_key keys[] = {
    {"--per_device_train_batch_size", NULL, "micro_batch_size", NULL},
    {"--gradient_checkpointing", "True", "gradient_checkpointing", "true"},
    {"--gradient_checkpointing", "False", "gradient_checkpointing", "false"},
    {"--optim", NULL, "optimizer", NULL},
    {"--bf16", NULL, "bf16", "true"},
    {"--load_in_4bit", NULL, "load_in_4bit", "true"},
    {"--use_liger_kernel", NULL, "liger_fused_linear_cross_entropy", "true"},
    {0},
};

static bool edits(const struct job_change *change, const char *option)
{
    for (int i = 0; i < change->count; i++)
        if (change->edits[i].place == JOB_EDIT_OPTION && !strcmp(change->edits[i].name, option))
            return true;
    return false;
}

/* Adds what must be said besides; false: it cannot be said by single keys. */
static bool complete_change(struct proposals *p, struct job_change *change)
{
    const struct training_job *job = p->job;
    if (edits(change, "--fsdp") || (edits(change, "--gradient_checkpointing") && job->recompute.on_cpu))
        return false;
    if (edits(change, "--attn_implementation") && job->own_switch[AXOLOTL_EAGER]) {
        change->count = 0;
        changes_option(p, change, "--eager_attention", "false");
    }
    if (edits(change, "--load_in_4bit"))
        changes_option(p, change, "--adapter", "qlora");
    if (!edits(change, "--use_liger_kernel"))
        return true;
    if (job->own[AXOLOTL_PLUGINS] && !axolotl_has_plugin(job, "LigerPlugin"))
        return false;
    if (!job->own[AXOLOTL_PLUGINS])
        changes_option(p, change, "--plugins", "[axolotl.integrations.liger.LigerPlugin]");
    if (!job->kernels.fused_norm)
        changes_option(p, change, "--liger_rms_norm", "true");
    if (!job->kernels.fused_gate)
        changes_option(p, change, "--liger_glu_activation", "true");
    return true;
}

static void changes(struct proposals *p, bool larger)
{
    int first = p->out->count, kept = first;
    hf_changes(p, larger);
    for (int i = first; i < p->out->count; i++)
        if (complete_change(p, &p->out->list[i]))
            p->out->list[kept++] = p->out->list[i];
    p->out->count = kept;
    hf_keys_rename(p, first, keys, changes_file_of(p->job, "--base_model"));
}

const struct framework axolotl_framework = {
    .name = "Axolotl",
    .version = AXOLOTL_VERSION,
    .programs = "axolotl.cli.train",
    .launcher = &command,
    .keys = "base_model",
    .launch = "axolotl train FILE",
    .is = is,
    .read = axolotl_read,
    .changes = changes,
    .modules = &hf_modules,
};
