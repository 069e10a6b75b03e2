/* Low-rank adapters of a frozen model: which linear layers have one, how large they are, and what they keep of their inputs. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_ADAPTERS_H
#define MEMPLAN_PLANNER_FRAMEWORKS_ADAPTERS_H

#include "planner/frameworks/workload.h"

/* The adapters beside the matrices of one part of a layer. */
enum adapter_part { ADAPTERS_OF_ATTENTION, ADAPTERS_OF_FFN, ADAPTERS_OF_EXPERTS };

/* Whether an input that several matrices read, some of them with adapters, is kept once for all of these; else each adapter has
 * a copy of its own, or there is none. */
bool adapters_share_input(const struct workload *workload);
/* Whether any linear layer of `linears` has one. */
bool adapters_beside(const struct workload *workload, unsigned linears);
/* Of the elements that adapters compute with, and so of what they keep. */
int adapters_element_bytes(const struct workload *workload);
/* Elements of copies of inputs that adapters of a part keep, for each token: each its own, or none. */
double adapters_inputs(const struct workload *workload, enum adapter_part part);
/* Of the widest of those that PEFT casts to fp32 on the way, whatever is kept of it then. */
double adapters_widest_cast(const struct workload *workload, enum adapter_part part);
/* Of masks of dropout, one for each input. */
double adapters_masks(const struct workload *workload, enum adapter_part part);
/* Of what first matrices make, which second ones read. */
double adapters_products(const struct workload *workload, enum adapter_part part);

#endif
