#include "planner/frameworks/host_time.h"

#include "base/checked.h"

/* PCI Express 4.0 x16 has 31.5 GB/s a direction; programs reach four fifths of it from pinned memory, which is assumed. Cards on
 * a newer bus are faster than this, and on an older one half as fast. */
static const double link_bytes_per_s = 25e9;

/* Ren et al. 2021 ("ZeRO-Offload"), table 4: an update of 10e9 parameters takes DeepSpeed's CPU-Adam 2.57 s, and PyTorch's Adam 14.76 s,
 * on two sockets of 24 cores. In elements of a node. */
static const double cpu_adam_per_s = 10e9 / 2.57, torch_adam_per_s = 10e9 / 14.76;

double host_time_moved(double bytes)
{
    return bytes / link_bytes_per_s;
}

/* DeepSpeed takes no other than its own (engine.py, zero_force_ds_cpu_optimizer); PyTorch's is as fast where it is fused, since 2.4. */
double host_time_update(const struct pricing *p, double elements)
{
    const struct workload *w = p->w;
    double sharing = (double)min_i64(p->ranks, p->speed->ranks_per_node > 0 ? p->speed->ranks_per_node : 1);
    bool vectorized = workload_is_deepspeed(w) || w->step == WORKLOAD_STEP_FUSED;
    return w->optimizer == WORKLOAD_NO_OPTIMIZER
               ? 0
               : elements * sharing / (vectorized ? cpu_adam_per_s : torch_adam_per_s);
}
