/* A map by first bytes. */
#include "tests/ptx/ptx_memory.h"

#include <map>
#include <mutex>

namespace
{

std::mutex lock;

/* Made at the first call: modules register themselves before main(). */
std::map<const unsigned char *, ptx_span> &spans()
{
    static auto *all = new std::map<const unsigned char *, ptx_span>;
    return *all;
}

} // namespace

void ptx_memory_add(const void *start, size_t bytes, bool constant)
{
    std::lock_guard<std::mutex> hold(lock);
    const auto *first = static_cast<const unsigned char *>(start);
    spans()[first] = {first, bytes, constant};
}

bool ptx_memory_remove(const void *start)
{
    std::lock_guard<std::mutex> hold(lock);
    return spans().erase(static_cast<const unsigned char *>(start)) == 1;
}

struct ptx_span ptx_memory_find(const void *address)
{
    const auto *byte = static_cast<const unsigned char *>(address);
    {
        std::lock_guard<std::mutex> hold(lock);
        auto next = spans().upper_bound(byte);
        if (next != spans().begin()) {
            const ptx_span &it = std::prev(next)->second;
            if (byte < it.start + it.bytes)
                return it;
        }
    }
    return ptx_memory_of_doubles(address);
}
