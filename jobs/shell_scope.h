/* What a shell script knows while it is read: variables, and texts of which each character keeps the line it was written on,
 * and whether it stands for something unknown. All of it is the arena's. For the shell*.c files alone. */
#ifndef MEMPLAN_JOBS_SHELL_SCOPE_H
#define MEMPLAN_JOBS_SHELL_SCOPE_H

#include "jobs/shell.h"

#include <stdbool.h>
#include <stddef.h>

enum { GLYPH_QUOTED = 1, GLYPH_BREAK = 2 /* one field ends, and another begins */, GLYPH_EMPTY = 4 /* "" */ };

struct glyph {
    unsigned char character, flags;
    unsigned short unknown; /* 0, or 1 + the place in scope.unknowns */
    int line;
};

struct glyphs {
    struct glyph *list;
    int count, room;
};

enum { SHELL_UNKNOWN_ARGUMENTS = -1 }; /* of a function that nobody calls */

struct variable {
    const char *name;
    struct glyphs *values;
    int count, room;
    bool array, fixed; /* fixed: the caller gave it */
};

struct unknown {
    const char *why, *name;
    bool added;
    const char *more; /* as in struct word */
};

/* Lines of other files than the first have the number of their file above these bits. */
enum { SHELL_LINE_BITS = 23, SHELL_MOST_FILES = 200 };

struct scope {
    struct arena *arena;
    const char *file; /* that is being read */
    const char *files[SHELL_MOST_FILES]; /* all of them, the script first */
    int file_count;
    struct variable *variables;
    int variable_count, variable_room;
    struct unknown *unknowns;
    int unknown_count, unknown_room;
    const struct glyphs *arguments; /* $1 is the first */
    int argument_count;
    long budget; /* glyphs that may still be made */
};

struct variable *shell_find(const struct scope *scope, const char *name, size_t length);
/* Adds it if need be; NULL with err: too many. */
struct variable *shell_declare(struct scope *scope, const char *name, size_t length, struct error *err);
/* Makes it one value that is unknown. */
int shell_forget(struct scope *scope, const char *name, size_t length, const char *why, int line, struct error *err);
void shell_append_value(struct scope *scope, struct variable *variable, struct glyphs value);

int shell_glyphs_add(struct scope *scope, struct glyphs *out, const struct glyph *list, int count, struct error *err);
int shell_add_character(struct scope *scope, char c, int flags, int line, struct glyphs *out, struct error *err);
/* Text that stands for something unknown. */
int shell_add_unknown(struct scope *scope, const char *from, const char *end, int line, const char *why,
                      const char *name, struct glyphs *out, struct error *err);
/* "$NAME" for what may be added to that variable, or not. */
int shell_add_addition(struct scope *scope, const char *name, int line, const char *why, const char *more,
                       struct glyphs *out, struct error *err);
/* A word as it is; what is unknown stays so. */
int shell_glyphs_from_word(struct scope *scope, const struct word *word, struct glyphs *out, struct error *err);
/* Fields: cut at breaks, and (unless `whole`) at blanks that are not quoted. */
void shell_split(struct scope *scope, const struct glyphs *text, bool whole, struct words *out, int *room);

/* Of a line as it is kept: the file, and the line in it; and for messages both: "5", or "5 of env.sh". */
const char *shell_file_of(const struct scope *scope, int line);
int shell_line_in_file(int line);
/* As it is kept, of a word. */
int shell_line_of_word(const struct scope *scope, const struct word *word);
const char *shell_line_text(struct scope *scope, int line);

/* A file as the script names it, if it lies beside the script or below; NULL: elsewhere, where another machine has others. */
const char *shell_file_beside(const struct scope *scope, const char *path);

/* The list, or a longer copy when `count` fill its room. */
void *shell_grown(struct arena *arena, void *list, int count, int *room, size_t size);

#endif
