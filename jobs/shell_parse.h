/* A script while it is walked over: what the files of the shell reader share. shell.c reads commands; shell_word.c says where
 * words end; shell_assign.c keeps what is assigned; shell_blocks.c knows the words that open and close blocks; shell_condition.c which
 * commands and branches run; shell_decide.c the truth of tests; shell_here.c redirections and here-documents; shell_function.c
 * functions; shell_file.c scripts that it reads or starts; shell_batch.c the lines of Slurm. Whoever fails has set p->err. */
#ifndef MEMPLAN_JOBS_SHELL_PARSE_H
#define MEMPLAN_JOBS_SHELL_PARSE_H

#include "jobs/shell.h"
#include "jobs/shell_expand.h"

enum { SHELL_MOST_OPEN = 64, SHELL_MOST_HERE = 8, SHELL_MOST_ASSIGNED = 64, SHELL_MOST_FUNCTIONS = 64,
       SHELL_MOST_NESTED = 4,
       SHELL_MOST_CALLS = 500 };

struct span {
    const char *from, *end;
    int line;
};

struct here {             /* a here-document whose body has not come yet */
    struct glyphs target; /* the file it is written to; nothing: none */
    const char *word;
    bool quoted, tabs;
    bool script; /* the command runs it */
};

struct shell_function {
    struct span name;
    const char *from, *end; /* of its body; end: NULL until it is known */
    int line;               /* of `from` */
    int first, last;        /* commands that walking over its body found */
    /* What stood before its body, and stands again behind it. */
    struct variable *variables;
    int variable_count;
    const struct glyphs *arguments;
    int argument_count;
};

struct shell_functions {
    struct shell_function list[SHELL_MOST_FUNCTIONS];
    int count;
    int calls;      /* that were followed */
    int64_t walked; /* bytes of bodies in these */
};

/* How a condition or a command ends. SHELL_LIKELY: a command that is not executed, which succeeds as far as `&&` behind it goes. */
enum shell_truth { SHELL_UNDECIDED, SHELL_FALSE, SHELL_TRUE, SHELL_LIKELY };
enum shell_branch { SHELL_MAY_RUN, SHELL_RUNS, SHELL_PASSED };

/* Commands joined by && and ||. */
struct shell_list {
    enum shell_branch branch; /* of the command that comes next */
    enum shell_truth truth;   /* of those so far */
    bool or;                  /* the next is joined by || */
    bool piped, negated;      /* what comes stands behind |, behind ! */
    bool waits;               /* for a command, even on the next line */
};

/* A block that is open. */
struct shell_choice {
    struct shell_list around; /* that the block is a command of */
    enum shell_branch branch; /* of the part that is being read, of an `if`, a `case` or a loop */
    enum { SHELL_ASKS_NOTHING, SHELL_ASKS_WHILE, SHELL_ASKS_UNTIL } asks; /* a loop whose condition is being read */
    bool taken; /* no part behind it runs, since this or one before is sure to be the one */
    bool open;  /* of a part so far it is not known whether it runs */
    const char *subject; /* of a case, NULL: unknown */
};

/* Of the lists of the script that is put together. */
struct shell_rooms {
    int commands, files, skipped, batch;
};

struct parser {
    struct scope *scope;
    const char *at, *end;
    int line;
    struct shell_script *out;
    struct shell_rooms *rooms;
    char open[SHELL_MOST_OPEN];
    struct shell_choice choices[SHELL_MOST_OPEN];
    struct shell_list list;
    enum shell_branch outer_branch; /* of the command that this text is read for: it may run, or runs */
    struct shell_function *function_of[SHELL_MOST_OPEN]; /* of an open 'f' */
    int open_count, open_base; /* blocks below open_base are those of a caller */
    struct shell_functions *functions;
    struct span function_name; /* of the next one */
    bool called;               /* it reads the body of a function that is called */
    struct variable *locals;   /* as they were before `local` */
    int local_count;
    struct here here[SHELL_MOST_HERE];
    int here_count;
    bool pattern;       /* before a pattern of a case */
    bool function_next; /* the next { opens a function */
    const char *prefix_unknown;
    const struct words *prefix; /* of a script in `bash -c`: what stands before it */
    int nested;
    struct error *err;
};

/* One command while it is read. */
struct command {
    struct words words;
    int room, line;
    struct span assigned[SHELL_MOST_ASSIGNED];
    int assigned_count;
    struct glyphs target; /* of > */
    bool declares;        /* export, local ...: its words are assignments */
};

/* ---- shell_word.c ---- */

/* Sets the error, with the line, and returns -1. */
int shell_broken(const struct parser *p, const char *what);
/* Moves to `to`, counting lines. */
void shell_advance(struct parser *p, const char *to);
/* Blanks, and line ends behind a backslash. */
void shell_skip_blanks(struct parser *p);
bool shell_starts(const struct parser *p, const char *text);
bool shell_is_one_of(const char *word, const char *const *list);
/* Past the raw word at p->at. NULL: it does not end. */
const char *shell_word_end(struct parser *p);
/* The length of NAME before = or +=; 0: no assignment. */
size_t shell_assigned_name(const char *from, const char *end, const char **value, bool *append);
/* Past the ) of an array's values, which begin at `at`. NULL: there is none. */
const char *shell_array_end(struct parser *p, const char *at);

/* ---- shell_assign.c ---- */

/* NAME=value, NAME+=value, NAME=(...). */
int shell_assign(struct parser *p, struct span assignment);
/* `read A B`: they are unknown from here on. */
int shell_forget_words(struct parser *p, const struct words *words);
void shell_unset_words(struct parser *p, const struct words *words);
int shell_set_number(struct parser *p, const char *name, int64_t number);
int shell_give_variables(struct scope *scope, const struct shell_input *input, struct error *err);
/* Whether it sets a variable of shell_script.settings, which is wanted even when it is set for one command alone. */
bool shell_is_setting(struct span assignment);
void shell_find_settings(struct scope *scope, struct shell_script *out);

/* ---- shell_blocks.c ---- */

/* "an if", "a loop"; NULL: the place is in no block that may not run, or often. */
const char *shell_inside(const struct parser *p);
int shell_open_block(struct parser *p, char kind);
/* `kinds` are those that `word` may close. */
int shell_close_block(struct parser *p, const char *kinds, const char *word);
/* A pattern of a case, with its ). */
int shell_read_pattern(struct parser *p);
/* Whether NAME ( ) stands there, whose name ends at `stop`; moves behind it. */
bool shell_skip_function_name(struct parser *p, const char *stop);
/* The reserved word up to `stop`, and what belongs to it. 1: it is none. */
int shell_read_reserved(struct parser *p, const char *stop);

/* ---- shell_condition.c ---- */

/* Whether what is known here may be otherwise the next time: in loops, and in functions before they are called. */
bool shell_may_be_otherwise(const struct parser *p);
/* A new list begins: behind ; and at the end of a line. */
void shell_fresh_list(struct parser *p);
/* At &&, || and |. */
void shell_join(struct parser *p, const char *operator);
/* Behind a command or a block: how it ends. */
void shell_settle(struct parser *p, enum shell_truth truth);
/* Of `test` and `[`, with its word before; with one bracket the last word is its own. */
enum shell_truth shell_test(struct parser *p, const struct words *words, int brackets);
/* Behind [[: up to its ]], and behind that. */
int shell_read_condition(struct parser *p);
/* At `if` and `elif`; at `then`; at `else`; at `do`. */
void shell_begin_condition(struct parser *p);
void shell_begin_branch(struct parser *p);
void shell_begin_else(struct parser *p);
void shell_begin_body(struct parser *p);
/* Whether what stands here is sure not to run. */
bool shell_is_passed(const struct parser *p);
/* What stands behind `case`, up to `end`; a pattern from there to there. */
int shell_read_subject(struct parser *p, const char *end);
int shell_match(struct parser *p, const char *from, const char *end);

/* ---- shell_decide.c ---- */

/* A word of a condition, or an operator. */
struct shell_operand {
    const char *text, *pattern; /* pattern: with a backslash before what is quoted */
    const char *unknown;        /* as in struct word */
    bool quoted;                /* no operator */
};
enum shell_truth shell_decide(const struct scope *scope, const struct shell_operand *list, int count, bool doubled);
/* Whether a text is of a pattern of the shell's. */
enum shell_truth shell_matches(const char *subject, const char *pattern);

/* ---- shell_function.c ---- */

/* At the first character of a body, whose name is p->function_name. */
int shell_open_function(struct parser *p);
/* Before the block that ends at `end` is closed; nothing, where that is no function. */
void shell_close_function(struct parser *p, const char *end);
/* A parser of what is read in the middle of another's text, inside the same blocks. */
struct parser shell_nested(const struct parser *p, const char *from, const char *end, int line);
/* 1: there is no such function, or no more of them are followed. */
int shell_call_function(struct parser *p, const struct command *c);
/* Words from there on become $1, $2, ... */
int shell_give_words(struct scope *scope, const struct words *words, int from, struct error *err);
/* Remembers a variable that `local` is about, until the call ends. */
int shell_keep_local(struct parser *p, const char *name, size_t length);

/* ---- shell.c ---- */

/* Up to the end. */
int shell_parse(struct parser *p);

/* `bash -c TEXT`, behind the words that start it. */
int shell_read_inner(struct parser *p, const struct words *prefix, const struct word *text);

/* ---- shell_file.c ---- */

/* `source FILE ARGUMENTS`, with the word before; why not all of it was read, NULL: it was. */
const char *shell_read_source(struct parser *p, const struct words *words);
/* A command that starts a script; 1: it starts none, or it is not here. */
int shell_start_script(struct parser *p, const struct words *words);
/* Whether a command runs what a here-document gives it. */
bool shell_reads_here(const struct words *words);

/* ---- shell_here.c ---- */

bool shell_at_redirection(const struct parser *p);
/* At < or >; moves behind the redirection. */
int shell_read_redirection(struct parser *p, struct command *c);
/* The bodies of those that the line before named, from the start of a line. */
int shell_read_here_documents(struct parser *p);

/* ---- shell_batch.c ---- */

/* Words from there up to `end` as if they stood on #SBATCH lines. */
int shell_add_batch_words(struct parser *p, const struct words *words, int from, int end);
/* A comment, up to the end of its line. #SBATCH lines set variables. */
int shell_skip_comment(struct parser *p);

#endif
