/* What store.c and store_read.c share: the connection, and how SQLite's trouble becomes ours. */
#ifndef MEMPLAN_PROFILER_STORE_SQL_H
#define MEMPLAN_PROFILER_STORE_SQL_H

#include "profiler/store.h"

struct sqlite3;
struct sqlite3_stmt;

enum { STORE_INSERTS = 15 };

struct store {
    struct sqlite3 *db;
    char *path;
    bool writes;
    int64_t version;                             /* of the schema in the file; 0: there is none yet */
    bool made;                                   /* the file was not there before */
    struct sqlite3_stmt *inserts[STORE_INSERTS]; /* prepared when first used; by enum insert in store.c */
    bool batch_failed;                           /* in the open transaction; batch_error says why */
    struct error batch_error;
};

/* Turns the connection's last error into a sentence; `doing` is "read", "written", ... Returns -1. */
int store_sql_error(struct store *store, const char *doing, struct error *err);

#endif
