/* What a recorded run trained: model, layout and recomputation, read back from the texts in its row. Each may be missing:
 * the file may be another tool's, or an older one. */
#ifndef MEMPLAN_REPORTS_RUN_SETUP_H
#define MEMPLAN_REPORTS_RUN_SETUP_H

#include "base/arena.h"
#include "model/program.h"
#include "profiler/store.h"

#include <stdbool.h>

struct run_setup {
    bool has_model, has_layout;
    struct model model;
    struct layout layout;
    const char *recompute; /* as on the command line; NULL: unknown */
};

/* Texts live as long as the arena. */
void run_setup_read(const struct store_run *run, struct arena *arena, struct run_setup *out);
/* The step program that was run, whose ids the recording carries: program_free(). NULL when the row does not say all. */
struct program *run_setup_program(const struct run_setup *setup);

#endif
