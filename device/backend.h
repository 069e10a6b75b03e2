/* What a kind of device must be able to do, so that device.c can do the rest: take memory, give it back, fill it, copy. The
 * ledger, capacity, observers and arenas are the same for every device and live in device.c. */
#ifndef MEMPLAN_DEVICE_BACKEND_H
#define MEMPLAN_DEVICE_BACKEND_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct device;

/* `context` is the back end's own, handed to device_create(). Back ends count nothing.
 *
 * A device that works beside the host has `finish` and does what it is asked in the order in which it is asked; what fails
 * there is told by the next `finish`, and until then nothing more is done. */
struct backend {
    const char *name; /* "cpu" */
    /* `bytes` > 0, aligned to DEVICE_ALIGN, or NULL when the machine has no more. `arena`: long-lived and used whole. */
    void *(*take)(void *context, int64_t bytes, bool arena);
    void (*give_back)(void *context, void *memory, int64_t bytes, bool arena); /* as it was taken */
    void (*fill)(void *context, void *memory, int byte, int64_t bytes);
    /* `write` may return before the bytes are there, but not before `from` may change; `read` has them when it returns. */
    void (*write)(void *context, void *to, const void *from, int64_t bytes);
    void (*read)(void *context, void *to, const void *from, int64_t bytes);
    void (*copy)(void *context, void *to, const void *from, int64_t bytes); /* within the device */
    void (*close)(void *context); /* NULL when there is nothing to close */
    /* Waits for all that was asked. NULL: everything is done when its call returns, and none can fail. */
    int (*finish)(void *context, struct error *err);
    /* What the machine's allocator held for this device at most. NULL: what was taken. */
    int64_t (*held_peak)(void *context);
    /* As device_record() and what follows it. NULL: there are no recordings. */
    int (*record)(void *context, struct error *err);
    int (*recorded)(void *context, struct error *err);
    void (*rewrite)(void *context);
    int (*replay)(void *context, struct error *err);
    void (*forget)(void *context);
    /* As device_is_watched() and device_label_begin(), or with NULL device_label_end(). NULL: nobody ever watches. */
    bool (*is_watched)(void *context);
    void (*label)(void *context, const char *text);
};

/* A device over `backend`, which must outlive it. Owns `context` from here on. Capacity and poison as in
 * device_open_cpu(). */
struct device *device_create(const struct backend *backend, void *context, int64_t capacity, bool poison);

#endif
