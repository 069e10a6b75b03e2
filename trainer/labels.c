#include "trainer/labels.h"

#include <stdio.h>

enum { LABEL = 96 };

struct labels labels_for(struct device *device, const struct program *program)
{
    return (struct labels){.device = device_is_watched(device) ? device : NULL, .program = program};
}

void labels_begin_step(struct labels *labels, const char *what, int64_t step)
{
    char text[LABEL];
    if (!labels->device)
        return;
    snprintf(text, sizeof text, "%s %lld", what, (long long)step + 1);
    device_label_begin(labels->device, text);
}

static void end_phase(struct labels *labels)
{
    if (labels->in_phase)
        device_label_end(labels->device);
    labels->in_phase = false;
}

void labels_end_step(struct labels *labels)
{
    if (!labels->device)
        return;
    end_phase(labels);
    device_label_end(labels->device);
}

static void begin_phase(struct labels *labels, const struct step_op *s)
{
    char text[LABEL];
    if (labels->in_phase && labels->phase == s->phase && labels->micro_batch == s->micro_batch)
        return;
    end_phase(labels);
    if (s->micro_batch >= 0 && labels->program->micro_batches > 1)
        snprintf(text, sizeof text, "%s of micro-batch %lld", phase_name(s->phase),
                 (long long)s->micro_batch);
    else
        snprintf(text, sizeof text, "%s", phase_name(s->phase));
    device_label_begin(labels->device, text);
    labels->in_phase = true;
    labels->phase = s->phase;
    labels->micro_batch = s->micro_batch;
}

void labels_begin_operation(struct labels *labels, const struct step_op *s)
{
    char text[LABEL], instance[PROGRAM_NAME] = "";
    if (!labels->device)
        return;
    begin_phase(labels, s);
    if (s->instance >= 0)
        program_instance_name(labels->program, s->instance, instance);
    int made = s->op ? s->op->outputs[0] : -1;
    snprintf(text, sizeof text, "%s%s%s%s%s", instance, instance[0] ? " " : "", op_kind_name(s->kind),
             made >= 0 ? ": " : "", made >= 0 ? s->block->tensors[made].name : "");
    device_label_begin(labels->device, text);
}

void labels_end_operation(struct labels *labels)
{
    if (labels->device)
        device_label_end(labels->device);
}
