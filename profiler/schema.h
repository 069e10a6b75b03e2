/* The tables and views of run.db as one SQL script, and the two numbers in its header that say whose file it is. */
#ifndef MEMPLAN_PROFILER_SCHEMA_H
#define MEMPLAN_PROFILER_SCHEMA_H

enum {
    SCHEMA_APPLICATION_ID = 0x6d656d70, /* "memp": PRAGMA application_id */
    SCHEMA_VERSION = 1,                 /* PRAGMA user_version */
};

extern const char schema_sql[];

#endif
