/* The tables and views of run.db as one SQL script, and the two numbers in its header that say whose file it is. */
#ifndef MEMPLAN_PROFILER_SCHEMA_H
#define MEMPLAN_PROFILER_SCHEMA_H

enum {
    SCHEMA_APPLICATION_ID = 0x6d656d70, /* "memp": PRAGMA application_id */
    SCHEMA_VERSION = 3,                 /* PRAGMA user_version */
};

/* Version 1, and what versions 2 and 3 add to it. */
extern const char schema_1_sql[], schema_2_sql[], schema_3_sql[];

#endif
