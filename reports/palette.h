/* One colour for each role and each kind of work, the same in every picture. They are chosen so that people who see fewer
 * colours tell them apart too: of any two roles the CIEDE2000 difference is at least 12 in normal sight and in simulated
 * protanopia and deuteranopia, 10 in tritanopia (tests/reports/test_palette.c). Each has a pattern besides, for print and as a
 * second sign. */
#ifndef MEMPLAN_REPORTS_PALETTE_H
#define MEMPLAN_REPORTS_PALETTE_H

#include "base/role.h"
#include "base/text.h"
#include "reports/spans.h"

/* "#2f4b9a" */
const char *palette_role(enum role role);

/* The nearest of the 6 x 6 x 6 colours that terminals have had for decades, as the number that ESC[38;5;Nm takes. */
int palette_terminal(const char *colour);

/* The patterns as SVG definitions, ids "role-parameter" and "work-forward" behind `prefix`, which keeps the ids of several
 * pictures on a page apart. */
void palette_add_patterns(struct text *out, const char *prefix);
/* A square of one, for legends and tables of a page. `scale` is "role" or "work". */
void palette_add_swatch(struct text *out, const char *scale, const char *name);

#endif
