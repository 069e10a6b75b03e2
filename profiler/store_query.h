/* Queries of run.db: one reading for all kinds of rows, and what fills a row from the columns of the one it stands on. */
#ifndef MEMPLAN_PROFILER_STORE_QUERY_H
#define MEMPLAN_PROFILER_STORE_QUERY_H

#include "profiler/store_sql.h"

/* The row that a query stands on, and where its texts go. */
struct reading {
    sqlite3_stmt *statement;
    struct arena *arena;
};

typedef void fill_row(const struct reading *reading, void *row);

/* `arguments` are bound to ?1, ?2, ... */
struct query {
    const char *sql;
    int64_t arguments[4];
    size_t row_bytes;
    fill_row *fill;
};

/* `rows` points to the caller's typed array pointer. */
int query_rows(struct store *store, const struct query *query, struct arena *arena, void *rows, int64_t *count,
               struct error *err);
/* The first column of the first row; *found, or NULL where there is always one: is there any? */
int query_integer(struct store *store, const struct query *query, int64_t *value, bool *found, struct error *err);

/* Calls `see` for every row, and keeps none. */
typedef void see_row(const struct reading *reading, void *context);
int query_walk(struct store *store, const struct query *query, see_row *see, void *context, struct error *err);

/* Columns, from 0. */
int64_t integer_at(const struct reading *reading, int column);
bool null_at(const struct reading *reading, int column);
double real_at(const struct reading *reading, int column); /* NAN for NULL */
const char *text_at(const struct reading *reading, int column);
const char *word_at(const struct reading *reading, int column); /* as text_at(), but never NULL */
/* A role that this program does not know belongs to no tensor of ours. */
enum role role_at(const struct reading *reading, int column);

#endif
