/* The driver's ledger: every block of device memory that it has given out in this process, with who asked for it. Fed by
 * callbacks, from any thread. */
#ifndef MEMPLAN_PROFILER_CUPTI_LEDGER_H
#define MEMPLAN_PROFILER_CUPTI_LEDGER_H

#include "profiler/cupti.h"
#include "profiler/cupti_calls.h"

void cupti_ledger_start(const struct cupti_calls *calls);
void cupti_ledger_stop(void);

/* The calls of the driver's API that change it: for cuptiEnableCallback(). 0 ends the list. */
extern const CUpti_CallbackId cupti_ledger_calls[];
/* One of these has returned. */
void cupti_ledger_note(CUpti_CallbackId id, const CUpti_CallbackData *data);

/* Entries of struct cupti. */
void cupti_ledger_work(struct cupti_work work);
void cupti_ledger_claim(int device, int64_t address);
int64_t cupti_ledger_live_bytes(int device);
int cupti_ledger_unclaimed(int device, struct cupti_holding out[CUPTI_OWNERS]);

/* Of all allocations with an address since the start, and of those behind a handle. */
void cupti_ledger_given_bytes(int64_t *given_bytes, int64_t *created_bytes);

/* Hands over the changes since the last time; returns how many found no room meanwhile. */
int64_t cupti_ledger_drain(const struct cupti_sink *sink);

#endif
