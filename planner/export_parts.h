/* What the writers of export.h share. */
#ifndef MEMPLAN_PLANNER_EXPORT_PARTS_H
#define MEMPLAN_PLANNER_EXPORT_PARTS_H

#include "planner/export.h"

#include <stdbool.h>

/* As one word of a shell, whatever it holds. */
void export_quote(struct text *out, const char *word);
/* Likewise the name of a file: one that begins with "-" is no option. */
void export_quote_path(struct text *out, const char *path);
/* Behind a "#", on one line: other characters than printable ASCII become "?". */
void export_comment(struct text *out, const char *text);

/* "ranks 0-7 on a100-80g, 8 a node; 8-15 on h100-80g, 8 a node": where the plan says that ranks differ. */
void export_print_groups(const struct plan *plan, struct text *out);
/* Ranks and nodes of one of its groups: all of its nodes but the last have `each`. */
int64_t export_group_nodes(const struct plan_group *group, int64_t *each);

/* A line of notes. */
void export_note(struct export_result *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Notes in what order torchrun must number nodes that differ, and where they are more than the plan has. */
void export_note_torchrun(const struct export_request *request, struct export_result *out);

/* Sizes of the chunks of the pipeline, in its order; to be freed. */
int64_t *export_chunk_layers(const struct plan *plan);
/* The plan's recomputation for notes: as on the command line, or how many ranges of layers that would be. */
void export_print_recompute(const struct plan *plan, struct text *out);

void export_megatron(const struct export_request *request, struct export_result *out);
void export_torchtitan(const struct export_request *request, struct export_result *out);
void export_slurm(const struct export_request *request, struct export_result *out);
void export_mpirun(const struct export_request *request, struct export_result *out);

#endif
