/* What a kind of device must be able to do, so that device.c can do the rest: take memory, give it back, fill it, copy. The
 * ledger, capacity, observers and arenas are the same for every device and live in device.c. */
#ifndef MEMPLAN_DEVICE_BACKEND_H
#define MEMPLAN_DEVICE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

struct device;

/* `context` is the back end's own, handed to device_create(). Back ends count nothing. */
struct backend {
    const char *name; /* "cpu" */
    /* `bytes` > 0, aligned to DEVICE_ALIGN, or NULL when the machine has no more. `arena`: long-lived and used whole. */
    void *(*take)(void *context, int64_t bytes, bool arena);
    void (*give_back)(void *context, void *memory, int64_t bytes); /* `bytes` as they were taken */
    void (*fill)(void *context, void *memory, int byte, int64_t bytes);
    void (*copy)(void *context, void *to, const void *from, int64_t bytes); /* within the device, or from or to the host */
    void (*close)(void *context); /* NULL when there is nothing to close */
};

/* A device over `backend`, which must outlive it. Owns `context` from here on. Capacity and poison as in
 * device_open_cpu(). */
struct device *device_create(const struct backend *backend, void *context, int64_t capacity, bool poison);

#endif
