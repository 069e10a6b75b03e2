/* How anyone listens to a device: every byte taken or given back, and every range of work. The device calls; listeners
 * (the recorder, tests) must return quickly and may not call back into the device. */
#ifndef MEMPLAN_DEVICE_OBSERVE_H
#define MEMPLAN_DEVICE_OBSERVE_H

#include "base/role.h"

#include <stdbool.h>
#include <stdint.h>

/* Who asks for bytes. Travels with every allocation, so that each byte of the device has a name. */
struct memory_tag {
    int64_t tensor;   /* id in the step program, or -1 */
    enum role role;
    const char *name; /* for messages: "layer 3 qkv"; must outlive the allocation */
};

struct memory_event {
    int64_t time_ns; /* clock_ns() */
    int64_t bytes;   /* > 0 taken, < 0 given back */
    int64_t address;
    int64_t live_bytes; /* of the device, after this event */
    int64_t operation;  /* id of the range open on this device, or -1 */
    struct memory_tag tag;
    bool arena; /* a tensor placed in, or removed from, an arena that was taken before: no new device memory */
};

struct range_event {
    int64_t start_ns, end_ns;
    int64_t operation; /* id in the step program */
    int step;          /* training step, from 0 */
};

/* Each entry may be NULL. `context` is passed back. */
struct observer {
    void *context;
    void (*begin)(void *context, int64_t operation, int step); /* of a range */
    void (*memory)(void *context, const struct memory_event *event);
    void (*range)(void *context, const struct range_event *event);
};

#endif
