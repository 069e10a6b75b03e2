/* The parameters of a whole model, numbered embedding, layers, head: what they are called in files and where they stand
 * there depends on no layout. A rank finds the number of what it holds by program_parameter(). */
#ifndef MEMPLAN_TRAINER_CATALOGUE_H
#define MEMPLAN_TRAINER_CATALOGUE_H

#include "model/program.h"

#include <stdint.h>

enum { CATALOGUE_PARTS = 3 /* PART_EMBED, PART_LAYER, PART_HEAD */ };

struct catalogue {
    int64_t layers;
    int counts[CATALOGUE_PARTS]; /* parameters of each part; of PART_LAYER, of one layer */
    struct parameter parameters[CATALOGUE_PARTS][PART_PARAMETERS_MAX]; /* whole */
};

struct catalogue catalogue_of(const struct model *model);
int64_t catalogue_count(const struct catalogue *catalogue);

/* Numbers are 0 .. count-1. The copy of a tied embedding has the number of the embedding. */
int64_t catalogue_number(const struct catalogue *catalogue, struct parameter_name name);
struct parameter_name catalogue_name(const struct catalogue *catalogue, int64_t number);
const struct parameter *catalogue_parameter(const struct catalogue *catalogue, int64_t number);

#endif
