/* Libraries opened at run time, with the C library's own as the one that the system knows. */
#include "base/library.h"

#include "tests/test.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLAGS = RTLD_NOW | RTLD_LOCAL };
static const char *const variable = "MEMPLAN_TEST_LIBRARY";

TEST(library_of_the_system, "a library that is not beside the program is found where the system looks")
{
    unsetenv(variable);
    void *library = library_open("libm.so.6", variable, FLAGS);
    ASSERT_MSG(library && dlsym(library, "cos"), "%s", dlerror());
    dlclose(library);
}

TEST(library_named, "a library that the environment names is the one, or there is none")
{
    setenv(variable, "libm.so.6", 1);
    void *library = library_open("libnothing.so", variable, FLAGS);
    ASSERT_MSG(library && dlsym(library, "cos"), "%s", dlerror());
    dlclose(library);
    setenv(variable, "/nowhere/libm.so.6", 1);
    ASSERT(!library_open("libm.so.6", variable, FLAGS));
    ASSERT_HAS(dlerror(), "/nowhere/libm.so.6");
    unsetenv(variable);
}

/* A file that is no library, so that the message shows which was tried. */
TEST(library_beside, "a library beside the program comes before the system's")
{
    char path[PATH_MAX], *end;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    ASSERT(length > 0);
    path[length] = '\0';
    end = strrchr(path, '/') + 1;
    snprintf(end, 64, "libmemplan_test_%d.so", (int)getpid());
    FILE *file = fopen(path, "w");
    ASSERT(file && fputs("no library", file) >= 0 && !fclose(file));
    void *library = library_open(end, variable, FLAGS);
    unlink(path);
    ASSERT(!library);
    ASSERT_HAS(dlerror(), path);
}
