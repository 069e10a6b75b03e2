/* TOML (toml.io, version 1.0) as dotted keys with their lines. Debian has no library of it for C. */
#ifndef MEMPLAN_JOBS_TOML_H
#define MEMPLAN_JOBS_TOML_H

#include "jobs/setting.h"

/* Appends to *out, whose file names it in messages: "FILE:LINE: ...". Dates stay as they are written, lists are joined by
 * commas; the tables of [[lists]] become "name.0", "name.1". */
int toml_read(const char *text, size_t length, struct arena *arena, struct pairs *out, struct error *err);

#endif
