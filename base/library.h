/* Libraries that are opened at run time, because only some runs need what they need. */
#ifndef MEMPLAN_BASE_LIBRARY_H
#define MEMPLAN_BASE_LIBRARY_H

/* Opens `file`, a name without a folder. Where the environment variable `named` is set, that path and no other; else beside
 * the program, where a build puts it; in ../lib from there, where it is installed; where the system looks. `flags` are those
 * of dlopen(). NULL: dlerror() says why. */
void *library_open(const char *file, const char *named, int flags);

#endif
