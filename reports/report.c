#include "reports/report.h"

#include "base/text.h"
#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>

static const char *print(struct arena *arena, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    size_t room = (size_t)vsnprintf(NULL, 0, format, again) + 1;
    va_end(again);
    char *text = arena_alloc(arena, room);
    vsnprintf(text, room, format, args);
    return text;
}

struct report *report_create(struct arena *arena, const char *format, ...)
{
    struct report *report = arena_alloc(arena, sizeof *report);
    va_list args;
    va_start(args, format);
    *report = (struct report){.arena = arena, .title = print(arena, format, args)};
    va_end(args);
    return report;
}

static struct report_fact *add_fact(struct report *report, const char *label, const char *text, double gauge)
{
    struct report_fact *fact = arena_alloc(report->arena, sizeof *fact);
    *fact = (struct report_fact){.label = arena_strdup(report->arena, label), .text = text, .gauge = gauge};
    if (report->last_fact)
        report->last_fact->next = fact;
    else
        report->facts = fact;
    return report->last_fact = fact;
}

void report_fact(struct report *report, const char *label, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_fact(report, label, print(report->arena, format, args), -1);
    va_end(args);
}

void report_capacity(struct report *report, const char *label, int64_t bytes, int64_t limit_bytes)
{
    char used[UNITS_TEXT], limit[UNITS_TEXT];
    units_format_bytes(bytes, used);
    if (limit_bytes <= 0 || limit_bytes == INT64_MAX) {
        report_fact(report, label, "%s, without a limit", used);
        return;
    }
    double share = (double)bytes / (double)limit_bytes;
    char percent[TABLE_CELL];
    const char *text =
        arena_printf(report->arena, "%s of %s, %s", used, units_format_bytes(limit_bytes, limit),
                     table_percent_text(share, percent));
    add_fact(report, label, text, share < 1 ? share : 1);
}

static struct report_section *add_section(struct report *report, const char *heading)
{
    struct report_section *section = arena_alloc(report->arena, sizeof *section);
    section->heading = heading ? arena_strdup(report->arena, heading) : NULL;
    if (report->last_section)
        report->last_section->next = section;
    else
        report->sections = section;
    return report->last_section = section;
}

struct table *report_table(struct report *report, const char *heading, const struct table_column *columns,
                           int column_count)
{
    struct table *table = table_create(report->arena, columns, column_count);
    add_section(report, heading)->table = table;
    return table;
}

void report_set_topic(struct report *report, enum report_topic topic)
{
    report->last_section->topic = topic;
}

void report_remark(struct report *report, const char *heading, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_section(report, heading)->remark = print(report->arena, format, args);
    va_end(args);
}
