/* The answer of a command, on stdout. */
#ifndef MEMPLAN_CLI_OUTPUT_H
#define MEMPLAN_CLI_OUTPUT_H

#include "base/json.h"
#include "reports/report.h"

/* Takes the reference. */
int output_json(json_t *document, struct error *err);
/* Blocks and bars fine on a terminal, ASCII elsewhere and where NO_COLOR is set. */
int output_report(const struct report *report, struct error *err);

#endif
