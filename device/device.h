/* A device: memory with a real capacity, copies, and an exact ledger of who holds what. A back end (backend.h) says how
 * memory is taken: device_cpu.c, device_cuda.c.
 *
 * The ledger is the measured side of every comparison: it counts bytes where they are taken and given back, and knows
 * nothing of the step program. One device belongs to one rank; allocation calls come from that rank's thread only. */
#ifndef MEMPLAN_DEVICE_DEVICE_H
#define MEMPLAN_DEVICE_DEVICE_H

#include "base/error.h"
#include "device/observe.h"

#include <stdbool.h>
#include <stdint.h>

/* Every tensor starts on a multiple of this in an arena, and every separate allocation too. */
enum { DEVICE_ALIGN = 64 };

struct device;

/* A block of device memory taken once, in which tensors are then placed at offsets decided beforehand. */
struct device_arena;

/* What the ledger says. Bytes are those asked for by tensors; alignment is not counted. */
struct device_usage {
    int64_t live_bytes, live[ROLE_COUNT];
    int64_t peak_bytes, at_peak[ROLE_COUNT]; /* at_peak: by role at the first moment live_bytes reached peak_bytes */
    int64_t recent_peak_bytes; /* the most that was live since device_watch_peak() */
    int64_t reserved_bytes;                  /* taken from the machine now: separate allocations and whole arenas */
    int64_t reserved_peak_bytes;
    int64_t allocations; /* separate allocations and arena placements so far */
    /* What the machine's own allocator held for us at most, where it rounds up or keeps what was freed; else reserved_peak_bytes. */
    int64_t machine_peak_bytes;
};

/* Which device, for one rank. */
struct device_choice {
    const char *kind;       /* "cpu", "cuda"; NULL: "cpu" */
    int ordinal, used;      /* of a machine with several GPUs: which, and how many of them this process uses */
    int64_t capacity_bytes; /* <= 0: no limit of its own */
    bool poison;            /* as in device_open_cpu() */
};

/* Unknown kinds, and those that this machine has not, are refused. */
int device_open(const struct device_choice *choice, struct device **out, struct error *err);

/* Opens the CPU as a device of `capacity` bytes (<= 0: no limit of its own). Freed memory goes back to the machine. With
 * `poison`, new and freed memory is filled with NaN bytes (0xff), so that a use outside its life shows in the loss. */
int device_open_cpu(int64_t capacity, bool poison, struct device **out, struct error *err);
/* Frees what is still held, without telling observers. NULL is fine. */
void device_close(struct device *device);

const char *device_name(const struct device *device); /* "cpu" */
/* The back end's own, for the kernels of that back end; NULL on the CPU. */
void *device_context(const struct device *device);
/* Does it work beside the host, so that device_finish() is worth calling? */
bool device_is_asynchronous(const struct device *device);

/* Up to 4 observers; they are called in order of addition. They must outlive the device or be removed. */
int device_observe(struct device *device, const struct observer *observer, struct error *err);
void device_unobserve(struct device *device, const struct observer *observer);

/* Separate allocation, 64-byte aligned, contents undefined (zero bytes is an error). When capacity is exceeded, returns
 * NULL with an ERROR_MEMORY message that names the tensor, its bytes, the capacity and what is held by role. */
void *device_alloc(struct device *device, int64_t bytes, struct memory_tag tag, struct error *err);
void device_free(struct device *device, void *memory); /* NULL is fine */

/* One arena of `bytes`; counts against capacity at once, as reserved, not as live, and is no event for observers: only
 * its tensors are. Remove them before closing it. */
int device_arena_open(struct device *device, int64_t bytes, struct device_arena **out, struct error *err);
void device_arena_close(struct device *device, struct device_arena *arena);
/* Tensor `tag` now lives at [offset, offset + bytes). Refuses what does not fit the arena or is misaligned; with `poison`
 * also what overlaps a tensor that still lives. Returns its address, or NULL with err. */
void *device_arena_place(struct device *device, struct device_arena *arena, int64_t offset, int64_t bytes,
                         struct memory_tag tag, struct error *err);
/* The tensor at `memory`, placed before, is dead. `tag` and `bytes` as they were given to device_arena_place(). */
void device_arena_remove(struct device *device, struct device_arena *arena, void *memory, int64_t bytes,
                         struct memory_tag tag);

/* Copies between host and device memory, in the order of what else the device is asked. The host may change what it has
 * written, and has what it has read, when these return. */
void device_write(struct device *device, void *to, const void *from_host, int64_t bytes);
void device_read(struct device *device, void *to_host, const void *from, int64_t bytes);

/* The same within the device. */
void device_copy(struct device *device, void *to, const void *from, int64_t bytes);

/* Waits until everything asked of the device is done. Fails when any of it has; after that nothing works. */
int device_finish(struct device *device, struct error *err);

/* Recordings: work that is asked once and done many times, in one go.
 *
 *     device_record()      what is asked from here on is written down instead of done; nothing may be taken or read
 *     device_recorded()    ends that, and does it once
 *     device_rewrite()     from here on each device_write() says what the next write of the recording, in order, will write
 *     device_replay()      ends that, and does the recording again
 *     device_forget()      there is none from here on; one that is being made is given up, with nothing done since
 *
 * One recording a device; a new one replaces it. device_record() and device_recorded() fail where something cannot be
 * recorded, with nothing done since device_record(). Exchanges between ranks (comm/) become part of it; what they go over may
 * be closed only when it is forgotten. */
bool device_can_record(const struct device *device);
int device_record(struct device *device, struct error *err);
int device_recorded(struct device *device, struct error *err);
void device_rewrite(struct device *device);
int device_replay(struct device *device, struct error *err);
void device_forget(struct device *device); /* also where nothing can be recorded */

/* Ranges: work between begin and end carries this operation id, >= 0 (memory events name it; observers get its times).
 * They do not nest. */
void device_range_begin(struct device *device, int64_t operation, int step);
void device_range_end(struct device *device);

/* Labels: names of what the calling thread is about, which may nest, for tools that watch the process from outside, such as
 * Nsight Systems. Only where somebody watches; that does not change while a process runs. */
bool device_is_watched(const struct device *device);
void device_label_begin(struct device *device, const char *text); /* copied */
void device_label_end(struct device *device);

struct device_usage device_usage(const struct device *device);
/* A peak of its own begins here, for a step: usage.recent_peak_bytes. The others stay. */
void device_watch_peak(struct device *device);

#endif
