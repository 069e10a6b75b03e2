#include "bench/score/csv.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
        cells[i] = line ? line : "";
        line = line ? strchr(line, ',') : NULL;
        if (line)
            *line++ = '\0';
    }
    return cells;
}

static void fill(struct arena *arena, char *text, struct csv *out)
{
    out->cells = arena_array(arena, (size_t)count_char(text, '\n') + 1, sizeof *out->cells);
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        line[strcspn(line, "\r")] = '\0';
        if (!*line || *line == '#')
            continue;
        if (!out->names) {
            out->columns = count_char(line, ',') + 1;
            out->names = split(arena, line, out->columns);
        } else {
            out->cells[out->rows++] = split(arena, line, out->columns);
        }
    }
}

int csv_read(const char *path, struct arena *arena, struct csv *out, struct error *err)
{
    char *text;
    size_t length;
    if (text_read_file(path, 64 << 20, &text, &length, err))
        return -1;
    *out = (struct csv){0};
    fill(arena, arena_strdup(arena, text), out);
    free(text);
    return out->names ? 0 : error_set(err, "%s is empty; its first line names the columns", path);
}

const char *csv_text(const struct csv *csv, int row, const char *column)
{
    for (int i = 0; i < csv->columns; i++)
        if (!strcmp(csv->names[i], column))
            return csv->cells[row][i];
    return "";
}

int64_t csv_int(const struct csv *csv, int row, const char *column, int64_t otherwise)
{
    const char *text = csv_text(csv, row, column);
    return *text ? strtoll(text, NULL, 10) : otherwise;
}

double csv_real(const struct csv *csv, int row, const char *column)
{
    const char *text = csv_text(csv, row, column);
    return *text ? strtod(text, NULL) : NAN;
}
