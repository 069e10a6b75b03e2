/* Names of what a thread is about, nested, for tools that watch the process from outside: ranges of NVTX, in a domain of their
 * own. */
#ifndef MEMPLAN_DEVICE_DEVICE_CUDA_LABELS_H
#define MEMPLAN_DEVICE_DEVICE_CUDA_LABELS_H

#include <stdbool.h>

#define DEVICE_CUDA_DOMAIN "memplan"

/* As the entries of struct backend; the context is of no use. */
bool device_cuda_is_watched(void *context);
void device_cuda_label(void *context, const char *text);

#endif
