/* Which transport reaches the memory of which device. */
#include "comm/comm_device.h"

#include "device/cuda_library.h"

#include <string.h>

int comm_open_device(struct comm *host, struct device *device, struct comm **out, struct error *err)
{
    const struct cuda_library *library;
    *out = host;
    if (strcmp(device_name(device), "cuda") != 0)
        return 0;
    if (!cuda_library_open(&library, err) && !library->open_comm(host, device_context(device), out, err))
        return 0;
    comm_close(host);
    *out = NULL;
    return -1;
}
