/* The entry points of CUPTI in use. They are found at run time, so that where CUPTI is missing only the profiler is. */
#ifndef MEMPLAN_PROFILER_CUPTI_CALLS_H
#define MEMPLAN_PROFILER_CUPTI_CALLS_H

#include "base/error.h"

#include <cupti.h>

#define CUPTI_CALLS(CALL)                                                                                    \
    CALL(cuptiGetVersion)                                                                                    \
    CALL(cuptiGetResultString)                                                                               \
    CALL(cuptiSubscribe_v2)                                                                                  \
    CALL(cuptiUnsubscribe)                                                                                   \
    CALL(cuptiEnableCallback)                                                                                \
    CALL(cuptiGetDeviceId)                                                                                   \
    CALL(cuptiActivityRegisterTimestampCallback)                                                             \
    CALL(cuptiActivityRegisterCallbacks)                                                                     \
    CALL(cuptiActivityEnable)                                                                                \
    CALL(cuptiActivityDisable)                                                                               \
    CALL(cuptiActivityEnableDriverApi)                                                                       \
    CALL(cuptiActivityEnableRuntimeApi)                                                                      \
    CALL(cuptiActivityGetNextRecord)                                                                         \
    CALL(cuptiActivityGetNumDroppedRecords)                                                                  \
    CALL(cuptiActivityPushExternalCorrelationId)                                                             \
    CALL(cuptiActivityPopExternalCorrelationId)                                                              \
    CALL(cuptiActivityFlushAll)

struct cupti_calls {
#define CUPTI_CALL_MEMBER(name) __typeof__(name) *name;
    CUPTI_CALLS(CUPTI_CALL_MEMBER)
#undef CUPTI_CALL_MEMBER
};

/* Those of a CUPTI that is in the process already, or of libcupti.so beside the toolkit. Never unloaded. Fails where there is
 * none, or an entry is missing. */
int cupti_calls_open(const struct cupti_calls **out, struct error *err);

/* The file that the calls are in, as the system loaded it; NULL: not known. */
const char *cupti_calls_file(const struct cupti_calls *calls);

/* "cuptiSubscribe_v2 failed: CUPTI_ERROR_...; a way out". Returns -1. */
int cupti_calls_error(const struct cupti_calls *calls, const char *call, CUptiResult result,
                      struct error *err);

#endif
