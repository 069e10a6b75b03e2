/* Scripts read without a shell: what bash would make of each is in the comment or plain from the line. */
#include "jobs/shell.h"

#include "base/text.h"
#include "tests/test.h"

#include <string.h>

static struct arena *arena;
static struct shell_script script;

static int read_script(const char *text, struct error *err)
{
    static const char *const arguments[] = {"one", "2 words"};
    static const struct shell_variable given[] = {{"GIVEN", "16"}};
    struct shell_input input = {.text = text,
                                .length = strlen(text),
                                .file = "run.sh",
                                .first_line = 1,
                                .given = given,
                                .given_count = 1,
                                .arguments = arguments,
                                .argument_count = 2};
    arena = arena_create();
    return shell_read(&input, arena, &script, err);
}

/* The words of the last command, each in brackets, with a ? before what is unknown. */
static void assert_words(const char *text, const char *expected)
{
    struct error err = {0};
    struct text got = {0};
    ASSERT_OK(read_script(text, &err));
    ASSERT(script.command_count > 0);
    const struct words *w = &script.commands[script.command_count - 1].words;
    for (int i = 0; i < w->count; i++)
        text_printf(&got, "%s[%s]", w->list[i].unknown ? "?" : "", w->list[i].text);
    ASSERT_STR(got.data, expected);
    text_free(&got);
    arena_free(arena);
}

static void assert_refused(const char *text, const char *message)
{
    struct error err = {0};
    ASSERT_INT(read_script(text, &err), -1);
    ASSERT_HAS(err.text, message);
    arena_free(arena);
}

TEST(shell_words, "words are cut at blanks, and quotes and backslashes are taken away")
{
    assert_words("run a 'b  c' \"d  e\" f\\ g h'i'\"j\"", "[run][a][b  c][d  e][f g][hij]");
    assert_words("run '' \"\" a", "[run][][][a]");
    assert_words("run a \\\n   b # c\n", "[run][a][b]");
    assert_words("run 'a\\b' \"a\\b\\$\\\"\" a\\b a#b", "[run][a\\b][a\\b$\"][ab][a#b]");
}

TEST(shell_variables, "variables are replaced, and cut at blanks where they are not quoted")
{
    assert_words("A=1\nrun $A ${A}x \"$A\" '$A'", "[run][1][1x][1][$A]");
    assert_words("A='x  y'\nrun $A \"$A\"", "[run][x][y][x  y]");
    assert_words("A=\nrun $A \"$A\" b", "[run][][b]");
    assert_words("A=1; A=2; A+=3\nrun $A", "[run][23]");
    assert_words("A='-x 1'\nA=\"$A -y 2\"\nrun $A", "[run][-x][1][-y][2]");
    assert_words("export A=4 B=5\nrun $A $B", "[run][4][5]");
    assert_words("A=1 run $A", "[run]?[$A]"); /* set for the command, which does not see it in its words */
    assert_words("A=\"-x 1 \\\n  -y 2\"\nrun $A", "[run][-x][1][-y][2]");
}

TEST(shell_defaults, "defaults, alternatives, lengths and trimmed ends of variables")
{
    assert_words("A=1\nrun ${A:-2} ${B:-3} ${B-4} ${A:+5} ${B:+6} ${B:-\"7 8\"}", "[run][1][3][4][5][7 8]");
    assert_words("A=\nrun ${A:-2} \"${A-3}\"", "[run][2][]");
    assert_words("A=abc\nrun ${#A}", "[run][3]");
    assert_words("A=/x/y.tar.gz\nrun ${A##*/} ${A%.gz} ${A%%.*} ${A#/x}",
                 "[run][y.tar.gz][/x/y.tar][/x/y][/y.tar.gz]");
}

TEST(shell_arrays, "arrays keep their elements whole, and grow")
{
    assert_words("A=(a \"b c\" d)\nrun \"${A[@]}\"", "[run][a][b c][d]");
    assert_words("A=(a \"b c\")\nrun ${A[@]} ${A[1]} $A ${#A[@]}", "[run][a][b][c][b][c][a][2]");
    assert_words("A=(\n  a  # one\n  b\n)\nA+=(c)\nrun \"${A[@]}\"", "[run][a][b][c]");
    assert_words("A=()\nrun x \"${A[@]}\" ${A[@]}", "[run][x]");
    assert_words("A=(a)\nA=(\"${A[@]}\" b)\nrun \"${A[@]}\"", "[run][a][b]");
    assert_words("A=(\"\" x)\nrun \"${A[@]}\"", "[run][][x]");
}

TEST(shell_arithmetic_values, "arithmetic is worked out, with the precedence of C")
{
    assert_words("A=8\nrun $((A * 4 + 2)) $(($A/3)) $((2 ** 3 ** 2)) $(( (1+2) * -3 )) $((7 % 4 << 1))",
                 "[run][34][2][512][-9][6]");
    assert_words("run $((GIVEN / 2 == 8)) $((1 < 2 && 3 > 4))", "[run][1][0]");
    assert_words("run $((9223372036854775807 + 1)) $((1 / 0))",
                 "[run]?[$((9223372036854775807 + 1))]?[$((1 / 0))]");
}

TEST(shell_unknown, "what depends on something that is not executed or not set is unknown, and says why")
{
    struct error err = {0};
    assert_words("run $UNSET \"$(date)\" `date` $?", "[run]?[$UNSET]?[$(date)]?[`date`]?[$?]");
    assert_words("A=$(nproc)\nB=$((A * 2))\nrun $B", "[run]?[$((A * 2))]");
    ASSERT_OK(read_script("if [ -f x ]; then\n  A=1\nfi\nrun $A", &err));
    const struct word *word = &script.commands[0].words.list[1];
    ASSERT_STR(word->unknown, "$A is set inside an if on line 2");
    ASSERT_STR(word->name, "A");
    arena_free(arena);
}

TEST(shell_place, "what asks only where the script is, is known without running anything")
{
    assert_words(
        "D=$(dirname \"$0\")\nrun $D/x $0 $(pwd) \"$( cd \"$( dirname \"${BASH_SOURCE[0]}\" )\" && pwd )\"",
        "[run][./x][run.sh][.][.]");
    assert_words("run $(dirname $1)", "[run]?[$(dirname $1)]");
}

TEST(shell_given, "what the caller gives replaces what the script says")
{
    assert_words("GIVEN=3\nif x; then GIVEN=4; fi\nrun $GIVEN", "[run][16]");
    assert_words("run \"$1\" \"$2\" $# $3 \"$@\"", "[run][one][2 words][2][one][2 words]");
    assert_words("shift\nrun \"$1\"", "[run][2 words]");
}

TEST(shell_blocks, "blocks are walked over once; commands inside say so")
{
    struct error err = {0};
    ASSERT_OK(read_script(
        "f() { run a; }\nfor i in 1 2; do run $i; done\ncase $UNSET in a|b) run b;; *) run c;; esac\n"
        "while true; do run d; done\nif a; then run e; elif b; then run f; else run g; fi\nrun h\n",
        &err));
    static const char *const inside[] = {"a function", "a loop", "a case", "a case", "a loop", "an if"};
    int found = 0;
    for (int i = 0; i < script.command_count; i++)
        if (!strcmp(script.commands[i].words.list[0].text, "run") && found < 6) {
            ASSERT(script.commands[i].inside);
            ASSERT_STR(script.commands[i].inside, inside[found++]);
        }
    ASSERT(!script.commands[script.command_count - 1].inside);
    arena_free(arena);
}

TEST(shell_decided, "conditions of which all is known are decided: what does not run is passed over")
{
    assert_words("if [ \"$1\" = one ]; then A=1; else A=2; fi\nrun $A", "[run][1]");
    assert_words("if [ \"$1\" != one ]; then A=1; elif [[ $# -ge 2 ]]; then A=2; else A=3; fi\nrun $A",
                 "[run][2]");
    assert_words("A=0\nif [[ $1 == two ]]; then\n  A=1\nelif [ -n \"${B:-}\" ]; then A=2\nfi\nrun $A",
                 "[run][0]");
    assert_words("if [ ! -z \"$1\" ]; then run yes; else run no; fi", "[run][yes]");
    assert_words("if [ x = y ]; then cat > f <<E\nfi\nE\nfi\nrun it", "[run][it]");
    assert_words("case \"$1\" in two) A=2;; o?e|three) A=1;; *) A=3;; esac\nrun $A", "[run][1]");
    assert_words("case $# in \"1\") A=1;; esac\nA=${A:-none}\nrun $A", "[run][none]");
    assert_words("if [ a = b ]; then f() { A=1; }; else f() { A=2; }; fi\nf\nrun $A", "[run][2]");
    /* a part that runs inside of one that may not */
    assert_words("if x; then if [ a = a ]; then A=1; fi; fi\nrun $A", "[run]?[$A]");
}

/* The first branch of an `if` with that condition, and what stands behind && and || after it. */
static void assert_condition(const char *condition, bool holds)
{
    struct text script_text = {0};
    text_printf(&script_text,
                "T=MOCK\nN=8\nFLAG=true\nif %s; then A=yes; else A=no; fi\n%s && B=yes || B=no\n"
                "while %s; do C=yes; done\nrun $A $B ${C:-no}",
                condition, condition, condition);
    if (holds)
        assert_words(script_text.data, "[run][yes][yes]?[$C]");
    else
        assert_words(script_text.data, "[run][no][no][no]");
    text_free(&script_text);
}

TEST(shell_truths,
     "each kind of condition is decided as bash decides it, in an if, before && and ||, and of a loop")
{
    static const char *const true_ones[] = {
        "[[ $T == X ]] || [[ $N -eq 8 ]]",
        "[[ $T == M* ]]",
        "[[ $T == \"MOCK\" ]]",
        "[[ $T == @(MOCK|Y) ]]",
        "[[ $T =~ ^MO(CK|X)$ ]]",
        "[[ $T == X || ( $N -eq 8 && -n $T ) ]]",
        "[[ \"$UNSET\" == 1 || $T == MOCK ]]",
        "[[ $T < N ]]",
        "[[ N+1 -eq 9 ]]",
        "[[ $T ]]",
        "[[ ! $T == X ]]",
        "! [[ $T == X ]]",
        "(( N == 8 ))",
        "(( N > 4 && (N < 16) ))",
        "test \"$T\" = MOCK",
        "[ \"$T\" ]",
        "[ \"$T\" = X -o \"$N\" -eq 8 ]",
        "[ \"$T\" = MOCK -a ! \"$N\" = 9 ]",
        "[ \"!\" = \"!\" ]",
        "[ ! -z \"$T\" ]",
        "[ -d . -a -e Makefile -a -f ./Makefile ]",
        "$FLAG",
        "true && :",
        "{ [ $T = X ] || [ $T = MOCK ]; }",
        "( [ $T = MOCK ] )",
    };
    static const char *const false_ones[] = {
        "[[ $T == X ]] && [[ $N -eq 8 ]]",
        "[[ $T == \"M*\" ]]",
        "[[ $T =~ \"^M\" ]]",
        "[[ \"$UNSET\" == 1 && $T == X ]]",
        "(( N ))  && false",
        "! $FLAG",
        "[ ]",
        "[ -d Makefile ]",
        "[ \"\" -gt 0 ]",
        "[[ \"\" -gt 0 ]]",
        "[ $T != MOCK ]",
    };
    for (size_t i = 0; i < sizeof true_ones / sizeof true_ones[0]; i++)
        assert_condition(true_ones[i], true);
    for (size_t i = 0; i < sizeof false_ones / sizeof false_ones[0]; i++)
        assert_condition(false_ones[i], false);
}

TEST(shell_lists, "what stands behind && and || runs, or does not, by what is known of what stands before")
{
    assert_words("[ a = b ] && { A=1; B=2; }\nrun ${A:-none}", "[run][none]");
    assert_words("[ a = b ] || { A=1\nB=2\n}\nrun $A $B", "[run][1][2]");
    assert_words("[ a = a ] &&\n  # why\n A=1\nrun $A", "[run][1]");
    assert_words("[[ -n \"${D:-}\" ]] && C=(x \"${C[@]}\")\nrun ${C:-none}", "[run][none]");
    assert_words("C=(a b)\n[[ -n \"${D:-}\" ]] && C=(x \"${C[@]}\")\nrun \"${C[@]}\"", "[run][a][b]");
    assert_words("cd x && A=1\nmkdir y || exit 1\nrun $A", "[run][1]");
    assert_words("A=1\n[ a = b ] && if true; then A=2; fi\nrun $A", "[run][1]");
    assert_words("A=1\n[ a = b ] && x | A=2\nrun $A", "[run][1]");
    assert_words("A=1\nfor i in ; do A=2; done\nuntil true; do A=3; done\nrun $A", "[run][1]");
    assert_words("A=1\nfor i in ${B:-}; do A=2; done\nrun $A", "[run][1]");
    assert_words("A=1\nset_a() { A=2; }\n[ a = b ] && set_a\n[ x ] || set_a\nrun $A", "[run][1]");
    assert_words("shift 2\nwhile getopts a: o; do case $o in a) A=$OPTARG;; esac; done\nrun ${A:-none}",
                 "[run][none]");
    assert_words("case b in $1|\"b\") A=1;; *) A=2;; esac\nrun $A", "[run][1]");
}

TEST(shell_undecided,
     "conditions of which something is unknown, or that may be otherwise the next time, are not")
{
    assert_words("if [ \"$UNSET\" = one ]; then A=1; else A=2; fi\nrun $A", "[run]?[$A]");
    assert_words("if x; then A=1; elif [ a = a ]; then A=2; else A=3; fi\nrun $A", "[run]?[$A]");
    assert_words("if [ a = a ] && x; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("if ! x; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("if [ -f \"$1\" ]; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("if [[ a == a && $UNSET ]]; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("if [ a = a -a \"$UNSET\" = b ]; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("if [[ $1 == o* ]] | x; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("if [[ a =~ (a{1,9}){9} ]]; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("if (( UNSET > 1 )); then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("N=1\n(( N += 2 ))\nrun $N", "[run]?[$N]");
    assert_words("if [ a -nt b ]; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("[ x = \"$UNSET\" ] && { A=1; B=2; }\nrun $A $B", "[run]?[$A]?[$B]");
    assert_words("for i in a b; do [ $i = a ] && A=1; done\nrun $A", "[run]?[$A]");
    assert_words("I=5\nfor I in 1 2; do run $I; done", "[run]?[$I]");
    assert_words("A=1\nB=\nwhile x; do for i in $B; do A=2; done; B=y; done\nrun $A", "[run]?[$A]");
    assert_words("while [ $# -gt 0 ]; do A=$1; shift; done\nrun $A", "[run]?[$A]");
    assert_words("if [[ ]]; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("if [ ]; then A=1; fi\nrun $A", "[run]?[$A]");
    assert_words("N=1\nwhile x; do if [ $N -gt 1 ]; then A=2; fi; N=2; done\nrun $A", "[run]?[$A]");
    assert_words("case $1 in $X) A=1;; *) A=2;; esac\nrun $A", "[run]?[$A]");
    assert_words("case $UNSET in a) A=1;; *) A=2;; esac\nrun $A", "[run]?[$A]");
}

TEST(shell_conditions, "an assignment behind && or || may not have happened")
{
    assert_words("[ -z \"$A\" ] && A=1\nrun $A", "[run]?[$A]");
    assert_words("[[ -z \"$A\" && b ]] || A=1\nrun $A", "[run]?[$A]");
    assert_words("cd x && A=1 && run $A", "[run][1]");
    assert_words("((A++))\nB=2\nrun $B", "[run][2]");
}

TEST(shell_here, "here-documents that a script writes to files are kept, with their variables")
{
    struct error err = {0};
    ASSERT_OK(read_script(
        "A=3\ncat <<EOF > \"$A.json\"\n{\"a\": $A, \"b\": \"\\$x\"}\nEOF\ncat > q <<'E'\n$A\nE\nrun\n",
        &err));
    ASSERT_INT(script.file_count, 2);
    ASSERT_STR(script.files[0].name, "3.json");
    ASSERT_STR(script.files[0].text, "{\"a\": 3, \"b\": \"$x\"}\n");
    ASSERT_STR(script.files[1].text, "$A\n");
    arena_free(arena);
}

TEST(shell_redirections, "redirections and pipes are no words")
{
    assert_words("run a > x 2>&1 b < y &> z", "[run][a][b]");
    assert_words("run a 2>/dev/null | tee x", "[tee][x]");
}

TEST(shell_inner, "the script of bash -c is read like the rest, behind what starts it")
{
    assert_words("N=4\nsrun -l bash -c \"torchrun --n $N x.py\"", "[srun][-l][torchrun][--n][4][x.py]");
    assert_words("N=4\nsrun bash -lc 'torchrun --n $N x.py'", "[srun][torchrun][--n][4][x.py]");
}

TEST(shell_batch, "#SBATCH lines say what Slurm's variables will be")
{
    assert_words(
        "#SBATCH --nodes=4 --ntasks-per-node=8\n#SBATCH --gres=gpu:a100:8\nrun $SLURM_NNODES $SLURM_NTASKS "
        "$SLURM_GPUS_ON_NODE",
        "[run][4][32][8]");
}

TEST(shell_lines, "each word knows the line that it was written on")
{
    struct error err = {0};
    ASSERT_OK(read_script("A=(\n--x 1\n--y\n)\nrun \"${A[@]}\" z", &err));
    static const int lines[] = {5, 2, 2, 3, 5};
    for (int i = 0; i < 5; i++)
        ASSERT_INT(script.commands[0].words.list[i].line, lines[i]);
    arena_free(arena);
}

TEST(shell_refusals, "what no shell would read is refused with its line")
{
    assert_refused("a\nrun 'b", "run.sh:2: ' is not closed");
    assert_refused("run \"a", "run.sh:1: \" is not closed");
    assert_refused("run ${a", "run.sh:1: $ is not closed");
    assert_refused("A=(a b", "an array's ( is not closed");
    assert_refused("fi", "\"fi\" closes nothing");
    assert_refused("if a; then b", "ends inside a block");
    assert_refused("cat <<EOF > x\na", "a here-document does not end");
}

TEST(shell_growth, "variables that double without end are refused, and not for long")
{
    struct text text = {0};
    struct error err = {0};
    text_add(&text, "A=xxxxxxxx\n");
    for (int i = 0; i < 64; i++)
        text_add(&text, "A=$A$A\n");
    ASSERT_INT(read_script(text.data, &err), -1);
    ASSERT_HAS(err.text, "grow without end");
    arena_free(arena);
    text_free(&text);
}

TEST(shell_functions, "a function that is called is read there, with the arguments of the call")
{
    assert_words("f() { run --a \"$1\" $# \"$@\"; }\nf x 'y z'", "[run][--a][x][2][x][y z]");
    assert_words("function f {\n  run $1\n}\nA=(p q)\nf \"${A[@]}\" && B=1", "[run][p]");
    assert_words("f() { X=2; }\nX=1\nf\nrun $X", "[run][2]");
    assert_words("X=1\nf() { X=2; }\nrun $X", "[run][1]"); /* nobody calls it */
    assert_words("X=1\nY=5\nf() { local X=2 Y; Y=3; run2 $Y; }\nf\nrun $X $Y", "[run][1][5]");
    assert_words("f() { run $1; }\nmain() { f ${1:-8}; }\nmain \"$@\"", "[run][one]");
    assert_words("f() { shift; run $1; }\nf a b", "[run][b]");
    assert_words("f() ( run $1 )\nf a | tee x", "[tee][x]");
    assert_words("f() { run \"$1\"; }\nif x; then f a; fi", "[run][a]");
    assert_words("f() { X=2; }\nX=1\nif x; then f; fi\nrun $X", "[run]?[$X]");
    assert_words("f() { run $1; }\nf $UNSET", "[run]?[$UNSET]");
    assert_words("f() { run $1; }", "[run]?[$1]");
    assert_words("f() { f; run a; }\nf\nrun b", "[run][b]"); /* without end: followed a few times */
}

TEST(shell_function_commands, "what a function starts counts once, and no longer as something inside of it")
{
    struct error err = {0};
    ASSERT_OK(read_script("f() { run a; }\nf\nf\n", &err));
    int runs = 0;
    for (int i = 0; i < script.command_count; i++) {
        runs += script.commands[i].words.count > 0;
        ASSERT(!script.commands[i].inside || !script.commands[i].words.count);
    }
    ASSERT_INT(runs, 2);
    arena_free(arena);
}

TEST(shell_additions, "what a condition adds to a variable leaves the rest of it known")
{
    assert_words("A=\"-x 1\"\nif y; then A=\"$A -z\"; fi\nrun $A", "[run][-x][1]?[$A]");
    assert_words("A=(-x 1)\n[ \"$UNSET\" ] && A+=(-z)\nrun \"${A[@]}\"", "[run][-x][1]?[$A]");
    assert_words("A=1\nif y; then A=\"${AB} 2\"; fi\nrun $A", "[run]?[$A]");
    assert_words("A=1\nif y; then A+=2; fi\nrun ${A}", "[run][1]?[$A]");
}

TEST(shell_eval, "what eval is given is read as a script")
{
    assert_words("C=\"run a\"\neval $C b", "[run][a][b]");
    assert_words("eval \"A=3\"\nrun $A", "[run][3]");
    assert_words("A=1\nif x; then eval A=2; fi\nrun $A", "[run]?[$A]");
}

TEST(shell_assigned_defaults, "${NAME:=value} gives the variable a value")
{
    assert_words(": \"${A:=x y}\"\nrun $A \"$A\"", "[run][x][y][x y]");
    assert_words(": \"${A:=}8\"\nrun \"$A\" b", "[run][][b]");
    assert_words("A=1\n: ${A:=2}\nrun $A ${GIVEN:=2} $GIVEN", "[run][1][16][16]");
}

TEST(shell_empty_values, "a variable without a value is a word without letters, where one word is wanted")
{
    struct error err = {0};
    ASSERT_OK(read_script("PYTORCH_CUDA_ALLOC_CONF= run a\n", &err));
    ASSERT_INT(script.setting_count, 1);
    ASSERT_STR(script.settings[0].name, "PYTORCH_CUDA_ALLOC_CONF");
    ASSERT_STR(script.settings[0].value.text, "");
    arena_free(arena);
}
