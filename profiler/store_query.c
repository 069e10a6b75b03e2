/* See store_query.h. */
#include "profiler/store_query.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int prepare(struct store *store, const struct query *query, sqlite3_stmt **statement,
                   struct error *err)
{
    if (sqlite3_prepare_v2(store->db, query->sql, -1, statement, NULL) != SQLITE_OK)
        return store_sql_error(store, "read", err);
    for (int i = 0; i < sqlite3_bind_parameter_count(*statement); i++)
        sqlite3_bind_int64(*statement, i + 1, query->arguments[i]);
    return 0;
}

/* Rows grow in a block of their own and move to the arena at the end. */
int query_rows(struct store *store, const struct query *query, struct arena *arena, void *rows,
               int64_t *count, struct error *err)
{
    struct reading reading = {.arena = arena};
    size_t used = 0, room = 0;
    char *block = NULL;
    int rc = -1, code;
    if (prepare(store, query, &reading.statement, err))
        goto done;
    while ((code = sqlite3_step(reading.statement)) == SQLITE_ROW) {
        if (used == room)
            block = host_resize(block, (room = room ? 2 * room : 64) * query->row_bytes);
        void *row = block + used++ * query->row_bytes;
        memset(row, 0, query->row_bytes);
        query->fill(&reading, row);
    }
    if (code != SQLITE_DONE) {
        store_sql_error(store, "read", err);
        goto done;
    }
    void *array = arena_array(arena, used, query->row_bytes);
    if (used)
        memcpy(array, block, used * query->row_bytes);
    memcpy(rows, &array, sizeof array);
    *count = (int64_t)used;
    rc = 0;
done:
    sqlite3_finalize(reading.statement);
    free(block);
    return rc;
}

static void fill_integer(const struct reading *reading, void *row)
{
    *(int64_t *)row = integer_at(reading, 0);
}

int query_integer(struct store *store, const struct query *query, int64_t *value, bool *found,
                  struct error *err)
{
    struct query one = *query;
    struct arena *arena = arena_create();
    int64_t *rows, count;
    one.row_bytes = sizeof *rows;
    one.fill = fill_integer;
    int rc = query_rows(store, &one, arena, &rows, &count, err);
    if (rc == 0 && count)
        *value = rows[0];
    if (rc == 0 && found)
        *found = count > 0;
    arena_free(arena);
    return rc;
}

int query_walk(struct store *store, const struct query *query, see_row *see, void *context, struct error *err)
{
    struct reading reading = {0};
    int rc = -1, code;
    if (prepare(store, query, &reading.statement, err))
        goto done;
    while ((code = sqlite3_step(reading.statement)) == SQLITE_ROW)
        see(&reading, context);
    rc = code == SQLITE_DONE ? 0 : store_sql_error(store, "read", err);
done:
    sqlite3_finalize(reading.statement);
    return rc;
}

int64_t integer_at(const struct reading *reading, int column)
{
    return sqlite3_column_int64(reading->statement, column);
}

bool null_at(const struct reading *reading, int column)
{
    return sqlite3_column_type(reading->statement, column) == SQLITE_NULL;
}

double real_at(const struct reading *reading, int column)
{
    return null_at(reading, column) ? NAN : sqlite3_column_double(reading->statement, column);
}

const char *text_at(const struct reading *reading, int column)
{
    const unsigned char *text = sqlite3_column_text(reading->statement, column);
    return text ? arena_strdup(reading->arena, (const char *)text) : NULL;
}

const char *word_at(const struct reading *reading, int column)
{
    const char *word = text_at(reading, column);
    return word ? word : "";
}

enum role role_at(const struct reading *reading, int column)
{
    const unsigned char *name = sqlite3_column_text(reading->statement, column);
    int role = name ? role_find((const char *)name) : -1;
    return role < 0 ? ROLE_RUNTIME : (enum role)role;
}
