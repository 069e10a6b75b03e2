/* What a recording knows of GPUs besides the tensors: who holds the rest of their memory, and when they did what. Joins the CUDA
 * library's profiler (cupti.h) to a recorder.
 *
 * Memory is measured in two ways that must agree. From above: the driver says how much of the GPU is free, and by how much
 * that falls with each step of setting up (the context, CUPTI itself, the device, the first training step, in which code is
 * loaded). From below: the driver's ledger has every allocation, with who asked for it. What is in use and in neither is the
 * residual, a row of its own, never hidden.
 *
 * Where CUPTI cannot be had there are only the figures from above, the residual has what the ledger would have named, and a note
 * says why. */
#ifndef MEMPLAN_PROFILER_GPU_RECORDER_H
#define MEMPLAN_PROFILER_GPU_RECORDER_H

#include "device/cuda_library.h"
#include "device/device.h"
#include "profiler/recorder.h"

struct gpu_recorder;

struct gpu_recorder_spec {
    const struct cuda_library *library;
    struct recorder *recorder;
    int first_rank, ranks;              /* of this process */
    int first_device;                   /* GPU of the first rank; the others follow */
    int64_t event_steps;                /* as in struct store_run */
    bool timeline;                      /* when every kernel, copy and fill ran */
    void (*say)(const char *sentence); /* what could not be recorded */
};

/* Before the devices are opened. Never fails: what cannot be watched is said. */
struct gpu_recorder *gpu_recorder_open(const struct gpu_recorder_spec *spec);
/* When the devices are closed; before the recorder. NULL is fine. */
void gpu_recorder_close(struct gpu_recorder *gpu);

/* Of one rank, from its thread. For device_observe(): */
struct observer gpu_recorder_observer(struct gpu_recorder *gpu, int rank);
/* Its device was opened. */
void gpu_recorder_start(struct gpu_recorder *gpu, int rank, struct device *device);
void gpu_recorder_step_begin(struct gpu_recorder *gpu, int rank);
void gpu_recorder_step_end(struct gpu_recorder *gpu, int rank);
/* No step follows; its tensors still live. */
void gpu_recorder_finish(struct gpu_recorder *gpu, int rank);

#endif
