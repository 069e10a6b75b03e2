/* A report before it is inked: a title, a few facts, then sections of tables and remarks. What is said is decided here and
 * in the files that build reports; how it looks is the writers' (ink_text.h). Everything lives in one arena. */
#ifndef MEMPLAN_REPORTS_REPORT_H
#define MEMPLAN_REPORTS_REPORT_H

#include "base/arena.h"
#include "reports/table.h"

#include <stdint.h>

struct report_fact {
    struct report_fact *next;
    const char *label, *text;
    double gauge; /* 0 .. 1: a bar stands before the text; < 0: none */
};

/* What a section is about, for writers that draw: each has one picture. */
enum report_topic { TOPIC_NONE, TOPIC_MEMORY, TOPIC_ROLES, TOPIC_LAYERS, TOPIC_STAGES, TOPIC_TIMELINE, TOPIC_CANDIDATES, TOPIC_PAIRS };

/* A table or a remark, each with a heading or none. */
struct report_section {
    enum report_topic topic;
    struct report_section *next;
    const char *heading;       /* NULL: none */
    const struct table *table; /* NULL: `remark` instead */
    const char *remark;        /* one paragraph */
};

struct report {
    struct arena *arena;
    const char *title;
    struct report_fact *facts, *last_fact;
    struct report_section *sections, *last_section;
};

/* The report lives as long as the arena; texts are copied. */
struct report *report_create(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void report_fact(struct report *report, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "7.52 GiB of 8.00 GiB, 94.0%" behind a bar. A `limit_bytes` of 0 or INT64_MAX is none: then no bar. */
void report_capacity(struct report *report, const char *label, int64_t bytes, int64_t limit_bytes);
/* An empty table to fill. `columns` are borrowed. `heading` may be NULL. */
struct table *report_table(struct report *report, const char *heading, const struct table_column *columns,
                           int column_count);
/* Of the section that was added last. */
void report_set_topic(struct report *report, enum report_topic topic);
void report_remark(struct report *report, const char *heading, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
