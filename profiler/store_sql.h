/* What the files of the store share: the connection, and how SQLite's trouble becomes ours. The only file that
 * includes SQLite. */
#ifndef MEMPLAN_PROFILER_STORE_SQL_H
#define MEMPLAN_PROFILER_STORE_SQL_H

#include "profiler/store.h"

#include <sqlite3.h>

enum { STORE_INSERTS = 15 };

struct store {
    sqlite3 *db;
    char *path;
    bool writes;
    int64_t version;                             /* of the schema in the file; 0: there is none yet */
    bool made;                                   /* the file was not there before */
    int64_t own_run, batch_run;                  /* the last that was added here, and that of the open batch; 0: none */
    sqlite3_stmt *inserts[STORE_INSERTS];        /* prepared when first used; by enum insert in store_add.c */
    bool batch_failed;                           /* in the open transaction; batch_error says why */
    struct error batch_error;
};

/* Unless SQLite has done so by itself. */
void store_roll_back(struct store *store);
int store_execute(struct store *store, const char *sql, const char *doing, struct error *err);
/* Turns the connection's last error into a sentence; `doing` is "read", "written", ... Returns -1. */
int store_sql_error(struct store *store, const char *doing, struct error *err);

#endif
