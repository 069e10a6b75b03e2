/* The YAML that configurations are written in: keys with values, nested by indentation, lists of plain values, texts of
 * several lines, which are passed over. Anything else of YAML is refused. */
#ifndef MEMPLAN_JOBS_YAML_H
#define MEMPLAN_JOBS_YAML_H

#include "jobs/setting.h"

/* As toml_read(). */
int yaml_read(const char *text, size_t length, struct arena *arena, struct pairs *out, struct error *err);

#endif
