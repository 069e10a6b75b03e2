#include "bench/score/csv.h"

#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Far above any size of a job, so that products of a few stay exact. */
static const int64_t most = 1LL << 31;

static int count_char(const char *text, char wanted)
{
    int count = 0;
    for (; *text; text++)
        count += *text == wanted;
    return count;
}

/* Cuts the line at its commas. */
static char **split(struct arena *arena, char *line, int columns)
{
    char **cells = arena_array(arena, (size_t)columns, sizeof *cells);
    for (int i = 0; i < columns; i++) {
        cells[i] = line;
        line = strchr(line, ',');
        if (line)
            *line++ = '\0';
    }
    return cells;
}

static int add_line(struct arena *arena, struct csv *csv, char *line, int number, struct error *err)
{
    int columns = count_char(line, ',') + 1;
    if (!csv->names) {
        csv->columns = columns;
        csv->names = split(arena, line, columns);
        return 0;
    }
    if (columns != csv->columns)
        return error_set(err, "%s:%d: %d fields, where the first line names %d: %.60s", csv->path, number,
                         columns, csv->columns, line);
    csv->lines[csv->rows] = number;
    csv->cells[csv->rows++] = split(arena, line, columns);
    return 0;
}

static int fill(struct arena *arena, char *text, struct csv *out, struct error *err)
{
    size_t lines = (size_t)count_char(text, '\n') + 1;
    out->cells = arena_array(arena, lines, sizeof *out->cells);
    out->lines = arena_array(arena, lines, sizeof *out->lines);
    char *rest = text, *line;
    for (int number = 1; (line = strsep(&rest, "\n")); number++) {
        line[strcspn(line, "\r")] = '\0';
        if (*line && *line != '#' && add_line(arena, out, line, number, err))
            return -1;
    }
    return out->names ? 0 : error_set(err, "%s is empty; its first line names the columns", out->path);
}

int csv_read(const char *path, struct arena *arena, struct csv *out, struct error *err)
{
    char *text;
    size_t length;
    if (text_read_file(path, 64 << 20, &text, &length, err))
        return -1;
    *out = (struct csv){.path = arena_strdup(arena, path)};
    int failed = fill(arena, arena_strdup(arena, text), out, err);
    free(text);
    return failed;
}

const char *csv_text(const struct csv *csv, int row, const char *column)
{
    for (int i = 0; i < csv->columns; i++)
        if (!strcmp(csv->names[i], column))
            return csv->cells[row][i];
    return "";
}

int csv_refuse(const struct csv *csv, int row, const char *column, struct error *err, const char *why)
{
    return error_set(err, "%s:%d: %s is \"%.60s\"; %s", csv->path, csv->lines[row], column,
                     csv_text(csv, row, column), why);
}

int csv_int(const struct csv *csv, int row, const char *column, int64_t least, int64_t otherwise,
            int64_t *out, struct error *err)
{
    const char *text = csv_text(csv, row, column);
    char *end;
    errno = 0;
    *out = *text ? strtoll(text, &end, 10) : otherwise;
    if (*text && (*end || errno || *out < least || *out > most))
        return csv_refuse(csv, row, column, err,
                          least ? "it must be a whole number from 1 on"
                                : "it must be a whole number, not negative");
    return 0;
}

int csv_real(const struct csv *csv, int row, const char *column, double *out, struct error *err)
{
    const char *text = csv_text(csv, row, column);
    char *end;
    *out = *text ? strtod(text, &end) : NAN;
    if (*text && (*end || !isfinite(*out) || *out <= 0))
        return csv_refuse(csv, row, column, err, "it must be a number above 0");
    return 0;
}
