#include "reports/ranges.h"

#include "base/text.h"

enum { MOST_STRETCHES = 3 };

const char *ranges_print(struct arena *arena, const int64_t *numbers, int64_t count)
{
    struct text text = {0};
    int64_t from = 0, next;
    for (int stretch = 0; from < count && stretch < MOST_STRETCHES; stretch++, from = next) {
        for (next = from + 1; next < count && numbers[next] == numbers[next - 1] + 1;)
            next++;
        text_printf(&text, "%s%lld", stretch ? ", " : "", (long long)numbers[from]);
        if (next > from + 1)
            text_printf(&text, "-%lld", (long long)numbers[next - 1]);
    }
    if (from < count)
        text_printf(&text, " and %lld more", (long long)(count - from));
    const char *printed = arena_strdup(arena, count ? text.data : "");
    text_free(&text);
    return printed;
}

const char *ranges_span(struct arena *arena, int64_t first, int64_t count)
{
    return count > 1 ? arena_printf(arena, "%lld-%lld", (long long)first, (long long)(first + count - 1))
                     : arena_printf(arena, "%lld", (long long)first);
}

const char *ranges_name(struct arena *arena, const char *thing, const int64_t *numbers, int64_t count)
{
    return arena_printf(arena, "%s%s %s", thing, count == 1 ? "" : "s", ranges_print(arena, numbers, count));
}
