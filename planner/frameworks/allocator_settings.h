/* PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF since PyTorch 2.9), "expandable_segments:True,max_split_size_mb:128", as options
 * of the allocator's replica. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_ALLOCATOR_SETTINGS_H
#define MEMPLAN_PLANNER_FRAMEWORKS_ALLOCATOR_SETTINGS_H

#include "base/error.h"
#include "planner/frameworks/caching_allocator.h"

/* NULL and "" are the defaults. out->capacity_bytes stays. Fails on what PyTorch would stop at, and on what no rule is about
 * (backend:cudaMallocAsync), with the setting's name and a way out; then *out is left alone. */
int allocator_settings_read(const char *text, struct caching_allocator_options *out, struct error *err);

#endif
