#include "profiler/cupti_names.h"

#include "base/arena.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Of the C++ library, with which the back end is linked for its kernels (Itanium C++ ABI, 3.4). */
char *__cxa_demangle(const char *name, char *buffer, size_t *bytes, int *status);

static struct {
    struct known {
        const char *name;
        char *readable; /* NULL: the name itself */
    } * list;           /* some hundreds */
    int count, room;
} names;

/* Cuts off the result's type and the arguments', as far as there are such. */
static void shorten(char *text)
{
    size_t length = strlen(text);
    int depth = 0;
    for (size_t i = length; length && text[length - 1] == ')' && i-- > 0;) {
        depth += (text[i] == ')') - (text[i] == '(');
        if (depth == 0) {
            text[i] = '\0';
            break;
        }
    }
    if (!strncmp(text, "void ", 5))
        memmove(text, text + 5, strlen(text + 5) + 1);
}

static char *read_name(const char *name)
{
    char *readable = strncmp(name, "_Z", 2) ? NULL : __cxa_demangle(name, NULL, NULL, NULL);
    if (readable)
        shorten(readable);
    return readable;
}

const char *cupti_names_readable(const char *name)
{
    for (int i = 0; name && i < names.count; i++)
        if (names.list[i].name == name)
            return names.list[i].readable ? names.list[i].readable : name;
    if (!name)
        return NULL;
    if (names.count == names.room) {
        names.room = names.room ? 2 * names.room : 64;
        names.list = host_resize(names.list, (size_t)names.room * sizeof *names.list);
    }
    char *readable = read_name(name);
    names.list[names.count++] = (struct known){name, readable};
    return readable ? readable : name;
}

void cupti_names_free(void)
{
    for (int i = 0; i < names.count; i++)
        free(names.list[i].readable);
    free(names.list);
    names.list = NULL;
    names.count = names.room = 0;
}
