/* Subscribes to CUPTI, passes its callbacks on to the ledger (cupti_ledger.c), and its records through cupti_records.c. CUPTI is
 * never finalized: that is allowed only inside of its callbacks, and crashes some versions. */
#include "profiler/cupti.h"

#include "base/units.h"
#include "profiler/cupti_calls.h"
#include "profiler/cupti_ledger.h"
#include "profiler/cupti_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const struct cupti_calls *calls;
    CUpti_SubscriberHandle subscriber;
    struct cupti_sink sink;
    int64_t missed; /* changes of the ledger that found no room */
    bool records;   /* are there any? */
} profiler;

static _Thread_local struct cupti_work thread_work = {-1, -1};

static void CUPTIAPI on_callback(void *context, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data)
{
    (void)context;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        cupti_ledger_note(id, data);
}

/* CUPTI names the other tool, or its environment gives it away. */
static int refuse_second(const char *holder, struct error *err)
{
    const char *injected = getenv("CUDA_INJECTION64_PATH");
    if (!holder[0] && getenv("NSYS_PROFILING_SESSION_ID"))
        holder = "Nsight Systems";
    else if (!holder[0])
        holder = injected ? injected : "another tool, which it does not name";
    return error_set(err, "CUPTI is held by %s; end that and profile again", holder);
}

static int subscribe(struct error *err)
{
    char holder[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN + 1] = "";
    CUpti_SubscriberParams params = {
        .structSize = CUpti_SubscriberParams_STRUCT_SIZE,
        .subscriberName = "memplan",
        .oldSubscriberName = holder,
        .oldSubscriberSize = sizeof holder,
    };
    CUptiResult result = profiler.calls->cuptiSubscribe_v2(&profiler.subscriber, on_callback, NULL, &params);
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
        return refuse_second(holder, err);
    if (result != CUPTI_SUCCESS)
        return cupti_calls_error(profiler.calls, "cuptiSubscribe_v2", result, err);
    return 0;
}

static int enable_ledger(struct error *err)
{
    for (const CUpti_CallbackId *id = cupti_ledger_calls; *id; id++) {
        CUptiResult result =
            profiler.calls->cuptiEnableCallback(1, profiler.subscriber, CUPTI_CB_DOMAIN_DRIVER_API, *id);
        if (result != CUPTI_SUCCESS)
            return cupti_calls_error(profiler.calls, "cuptiEnableCallback", result, err);
    }
    return 0;
}

/* Every library that has NVTX in it loads the tool that this names when it first opens a range, and CUPTI is one. Whoever has
 * come before, such as Nsight Systems, stays. */
static void take_ranges(void)
{
    const char *file = cupti_calls_file(profiler.calls);
    if (file)
        setenv("NVTX_INJECTION64_PATH", file, 0);
}

static int start(bool timeline, const struct cupti_sink *sink, struct error *err)
{
    struct error error;
    if (cupti_calls_open(&profiler.calls, err))
        return -1;
    profiler.sink = *sink;
    profiler.missed = 0;
    if (subscribe(err))
        return -1;
    cupti_ledger_start(profiler.calls);
    if (enable_ledger(err)) {
        profiler.calls->cuptiUnsubscribe(profiler.subscriber);
        cupti_ledger_stop();
        return -1;
    }
    if (timeline)
        take_ranges();
    profiler.records = !cupti_records_start(profiler.calls, timeline, &profiler.sink, &error);
    if (!profiler.records)
        profiler.sink.note(profiler.sink.context, error.text, true);
    return 0;
}

static void drain(void)
{
    profiler.missed += cupti_ledger_drain(&profiler.sink);
    if (profiler.records)
        cupti_records_drain(&profiler.sink);
}

static void note_count(int64_t count, const char *what)
{
    char text[200];
    snprintf(text, sizeof text, "%lld %s", (long long)count, what);
    if (count)
        profiler.sink.note(profiler.sink.context, text, true);
}

static void note_seconds(int64_t ns, const char *what)
{
    char text[200];
    snprintf(text, sizeof text, "%.3f s %s", (double)ns * 1e-9, what);
    if (ns)
        profiler.sink.note(profiler.sink.context, text, false);
}

/* Two witnesses of the same allocations. No manual says whether CUPTI has records of cuMemCreate, so either is right. */
static void compare(const struct cupti_counts *counts)
{
    char text[200];
    int64_t given_bytes, created_bytes;
    cupti_ledger_given_bytes(&given_bytes, &created_bytes);
    if (!counts->given_bytes || counts->dropped ||
        (counts->given_bytes >= given_bytes && counts->given_bytes <= given_bytes + created_bytes))
        return;
    snprintf(
        text, sizeof text,
        "CUPTI has records of %lld bytes given out, and the driver's calls say %lld: one of them misses some",
        (long long)counts->given_bytes, (long long)given_bytes);
    profiler.sink.note(profiler.sink.context, text, true);
}

static void note_pool(int64_t bytes)
{
    char text[100], amount[UNITS_TEXT];
    snprintf(text, sizeof text, "the largest memory pool held %s at most", units_format_bytes(bytes, amount));
    if (bytes)
        profiler.sink.note(profiler.sink.context, text, false);
}

/* The subscriber goes last: no manual says what becomes of records when it goes before them. */
static void stop(void)
{
    struct cupti_counts counts = {0};
    if (profiler.records)
        counts = cupti_records_stop(&profiler.sink);
    profiler.calls->cuptiUnsubscribe(profiler.subscriber);
    profiler.missed += cupti_ledger_drain(&profiler.sink);
    compare(&counts);
    cupti_ledger_stop();
    note_pool(counts.pool_bytes);
    note_count(profiler.missed, "allocations or releases found no room and are missing from driver_events");
    note_count(counts.dropped, "records were dropped by CUPTI for want of room");
    note_count(counts.untimed, "spans have no times, because CUPTI's buffers on the GPU were full");
    note_seconds(counts.overhead_ns, "of the run were CUPTI's own");
    note_seconds(counts.module_loading_ns, "of the run went into loading kernels when they first ran");
}

static void work(struct cupti_work next)
{
    cupti_ledger_work(next);
    if (profiler.records)
        cupti_records_work(thread_work, next);
    thread_work = next;
}

const struct cupti cupti_profiler = {
    .start = start,
    .drain = drain,
    .stop = stop,
    .work = work,
    .claim = cupti_ledger_claim,
    .live_bytes = cupti_ledger_live_bytes,
    .unclaimed = cupti_ledger_unclaimed,
};
