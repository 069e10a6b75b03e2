/* Who holds the bytes: the table by role that every command shows. */
#ifndef MEMPLAN_REPORTS_ROLE_TABLE_H
#define MEMPLAN_REPORTS_ROLE_TABLE_H

#include "base/role.h"
#include "reports/report.h"

#include <stdint.h>

int64_t role_table_total(const int64_t by_role[ROLE_COUNT]);

/* Adds a section with bytes, share and bar of each role that holds any, and their sum. With `predicted` (else NULL) it and
 * its error stand beside. */
void role_table_add(struct report *report, const char *heading, const int64_t by_role[ROLE_COUNT],
                    const int64_t predicted[ROLE_COUNT]);

#endif
