#include "base/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of the program that runs, or ".". */
static void find_program(char folder[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    else
        strcpy(folder, ".");
}

void *library_open(const char *file, const char *named, int flags)
{
    static const char *const places[] = {"", "/../lib"};
    const char *path = getenv(named);
    char folder[PATH_MAX], beside[PATH_MAX + 64];
    if (path)
        return dlopen(path, flags);
    find_program(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(beside, sizeof beside, "%s%s/%s", folder, places[i], file);
        if (access(beside, R_OK) == 0)
            return dlopen(beside, flags);
    }
    return dlopen(file, flags);
}
