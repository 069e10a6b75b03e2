/* Names of kernels as their sources have them. CUPTI has those of the linker: _Z11norm_kernelIfLi4ELb0EEv9norm_args. */
#ifndef MEMPLAN_PROFILER_CUPTI_NAMES_H
#define MEMPLAN_PROFILER_CUPTI_NAMES_H

/* norm_kernel<float, 4, false>: without the types of its arguments; `name` itself where it is no such name, NULL of NULL. CUPTI has one
 * address for the name of a kernel, by which the answer is kept. From one thread. */
const char *cupti_names_readable(const char *name);
/* Forgets all answers. */
void cupti_names_free(void);

#endif
