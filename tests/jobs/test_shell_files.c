/* Scripts that read or start others: what bash would make of them together, without running any. */
#include "jobs/shell.h"

#include "base/text.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    ASSERT(file);
    fputs(text, file);
    fclose(file);
}

static void begin(void)
{
    strcpy(folder, "/tmp/memplan-scripts-XXXXXX");
    ASSERT(mkdtemp(folder));
    ASSERT_INT(mkdir(path_of("env"), 0700), 0);
    write_file("env/gpus.sh", "GPUS=8\n. \"$(dirname \"${BASH_SOURCE[0]}\")/more.sh\"\n");
    write_file("env/more.sh", "MORE=(-m\n  \"$1\")\ncount() { N=$1; }\n");
    write_file("inner.sh", "#!/bin/bash\n#SBATCH --nodes=2\nV=inner\nrun $1 ${2:-none} $GPUS\n");
    write_file("broken.sh", "if x; then\n");
    write_file("itself.sh", "source itself.sh\nsource itself.sh\nrun itself\n");
}

static void end(void)
{
    static const char *const names[] = {"env/gpus.sh", "env/more.sh", "inner.sh", "broken.sh", "itself.sh"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    rmdir(path_of("env"));
    rmdir(folder);
}

static int read_script(const char *text, struct arena *arena, struct shell_script *script, struct error *err)
{
    char file[160];
    snprintf(file, sizeof file, "%s", path_of("main.sh"));
    struct shell_input input = {
        .text = text, .length = strlen(text), .file = arena_strdup(arena, file), .first_line = 1};
    return shell_read(&input, arena, script, err);
}

/* The words of the last command, each in brackets, with file and line of the last behind them. */
static void assert_words(const char *text, const char *expected)
{
    struct arena *arena = arena_create();
    struct shell_script script;
    struct error err = {0};
    struct text got = {0};
    ASSERT_OK(read_script(text, arena, &script, &err));
    ASSERT(script.command_count > 0);
    const struct words *w = &script.commands[script.command_count - 1].words;
    for (int i = 0; i < w->count; i++)
        text_printf(&got, "%s[%s]", w->list[i].unknown ? "?" : "", w->list[i].text);
    if (w->count)
        text_printf(&got, " %s:%d", w->list[w->count - 1].file + strlen(folder) + 1,
                    w->list[w->count - 1].line);
    ASSERT_STR(got.data, expected);
    text_free(&got);
    arena_free(arena);
}

TEST(shell_source, "a script that is read by source is read there, its words keep their own file and line")
{
    begin();
    assert_words("source env/gpus.sh\nrun $GPUS", "[run][8] env/gpus.sh:1");
    assert_words(". ./env/gpus.sh one\nrun \"${MORE[@]}\"", "[run][-m][one] main.sh:1");
    assert_words("D=\"$(cd -- \"$(dirname -- \"$0\")\" &>/dev/null && pwd)\"\nsource \"${D}/env/gpus.sh\"\n"
                 "count 4\nrun $N",
                 "[run][4] main.sh:3");
    assert_words("if x; then source env/gpus.sh; fi\nrun $GPUS", "[run]?[$GPUS] env/gpus.sh:1");
    assert_words("[ -f env/gpus.sh ] && source env/gpus.sh\nrun $GPUS", "[run][8] env/gpus.sh:1");
    end();
}

TEST(shell_started,
     "a script that is started is read with its arguments, behind what starts it, and leaves nothing")
{
    begin();
    assert_words("export GPUS=4\nsrun -n 2 bash -e inner.sh 24", "[srun][-n][2][run][24][none][4] main.sh:1");
    assert_words("sbatch --nodes 4 inner.sh 1 2", "[run][1][2]?[$GPUS] inner.sh:4");
    assert_words("V=1\n./inner.sh\nrun $V", "[run][1] main.sh:1");
    assert_words("sbatch --wrap=\"run $UNSET a\"", "[run]?[$UNSET][a] main.sh:1");
    assert_words("A=1\nsbatch <<E\n#SBATCH --nodes=2\nrun $A \\$SLURM_NNODES\nE\n", "[run][1][2] main.sh:3");
    /* what is only named starts nothing */
    assert_words("cp inner.sh x.sh", "[cp][inner.sh][x.sh] main.sh:1");
    assert_words("run train.py inner.sh", "[run][train.py][inner.sh] main.sh:1");
    end();
}

TEST(shell_not_there, "scripts that are not there are named, and what no shell would read with its own file")
{
    struct arena *arena = arena_create();
    struct shell_script script;
    struct error err = {0};
    begin();
    ASSERT_OK(read_script("source none.sh\nsource /dev/zero\nsrun none2.sh\nrun", arena, &script, &err));
    ASSERT_INT(script.skipped_count, 2);
    ASSERT_STR(script.skipped[0].text, "source none.sh");
    ASSERT_STR(script.missing.text, "none2.sh");
    ASSERT_INT(script.missing.line, 3);
    ASSERT_OK(read_script("\nsource broken.sh", arena, &script, &err));
    ASSERT_HAS(script.skipped[0].unknown, "broken.sh:2: the script ends inside a block");
    ASSERT_INT(read_script("\nbash broken.sh", arena, &script, &err), -1);
    ASSERT_HAS(err.text, "broken.sh:2: the script ends inside a block");
    ASSERT_OK(read_script("source itself.sh", arena, &script, &err));
    ASSERT(script.command_count < 40);
    end();
    arena_free(arena);
}
