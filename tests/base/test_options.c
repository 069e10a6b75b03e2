/* Command lines: what fills the struct, what is refused with which sentence, the help page, and nearest
 * names. */
#include "tests/test.h"

#include "base/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct train_options {
    bool quiet;
    int64_t steps, ranks, memory_bytes, room_bytes;
    double rate;
    const char *output, *precision, *device;
};

static const struct option_spec train_table[] = {
    {.kind = OPTION_HEADING, .help = "training"},
    {.name = "steps",
     .letter = 'n',
     .kind = OPTION_COUNT,
     .argument = "N",
     .help = "optimizer steps to run (100)",
     .offset = offsetof(struct train_options, steps)},
    {.name = "lr",
     .kind = OPTION_REAL,
     .argument = "X",
     .help = "learning rate, warmed up over the first steps and "
             "then lowered along a cosine (3e-4)",
     .offset = offsetof(struct train_options, rate)},
    {.name = "precision",
     .kind = OPTION_CHOICE,
     .choices = "fp32|bf16",
     .help = "type of parameters and activations",
     .offset = offsetof(struct train_options, precision)},
    {.kind = OPTION_HEADING, .help = "machine and output"},
    {.name = "device",
     .kind = OPTION_CHOICE,
     .argument = "DEVICE",
     .choices = "cpu|cuda|h100-80g|a100-80g|a100-40g",
     .help = "where to run",
     .offset = offsetof(struct train_options, device)},
    {.name = "memory",
     .letter = 0,
     .kind = OPTION_BYTES,
     .argument = "BYTES",
     .help = "capacity instead of the card's",
     .offset = offsetof(struct train_options, memory_bytes)},
    {.name = "output",
     .letter = 'o',
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "where to write; - is stdout",
     .offset = offsetof(struct train_options, output)},
    {.name = "quiet",
     .letter = 'q',
     .kind = OPTION_FLAG,
     .help = "no notes, no progress bar",
     .offset = offsetof(struct train_options, quiet)},
    {0},
};

static const struct command_spec train = {
    .name = "train",
    .summary = "run a plan",
    .usage = "train MODEL|PLAN --data FILE [options]",
    .about = "Trains the model as the plan says. All device memory of a step is one arena, taken at the "
             "start, so it runs "
             "out of memory at launch or never.",
    .examples = {"memplan train plan.json --data corpus.txt",
                 "memplan train gpt2 --data corpus.txt --steps 1000 --lr 3e-4 --precision bf16 --memory "
                 "80GiB -o run.db"},
    .options = train_table,
    .min_operands = 1,
    .max_operands = 1,
};

enum { MAX_WORDS = 16 };

/* One command line, parsed. */
struct parsed {
    struct train_options options;
    const char *operands[MAX_WORDS];
    bool help;
    int count;
    struct error err;
};

/* `words` end with NULL; argv[0] is put before them. */
static struct parsed parse(const struct command_spec *command, const char *const *words)
{
    struct parsed parsed = {.options = {.steps = 100, .rate = 3e-4}};
    char *argv[MAX_WORDS] = {(char *)"train"};
    int argc = 1;
    for (; *words; words++)
        argv[argc++] = (char *)*words;
    parsed.count =
        options_parse(command, argc, argv, &parsed.options, parsed.operands, &parsed.help, &parsed.err);
    return parsed;
}

#define PARSE(...) parse(&train, (const char *const[]){__VA_ARGS__, NULL})

#define ASSERT_REFUSED(message, ...)                                                                         \
    do {                                                                                                     \
        struct parsed refused = PARSE(__VA_ARGS__);                                                          \
        ASSERT_INT(refused.count, -1);                                                                       \
        ASSERT_INT(refused.err.kind, ERROR_INPUT);                                                           \
        ASSERT_STR(refused.err.text, message);                                                               \
    } while (0)

TEST(options_defaults, "fields that are not named stay as they are")
{
    struct parsed got = PARSE("gpt2");
    ASSERT_INT(got.count, 1);
    ASSERT_STR(got.operands[0], "gpt2");
    ASSERT_INT(got.options.steps, 100);
    ASSERT(got.options.rate == 3e-4);
    ASSERT(!got.options.quiet && !got.options.output && !got.help);
}

TEST(options_every_kind, "every kind of option fills its field, before or behind the operand")
{
    struct parsed got = PARSE("--steps", "12", "--lr=1e-3", "gpt2", "--precision", "bf16", "--memory",
                              "300 MiB", "-o", "run.db", "--quiet");
    ASSERT_INT(got.count, 1);
    ASSERT_STR(got.operands[0], "gpt2");
    ASSERT_INT(got.options.steps, 12);
    ASSERT(got.options.rate == 1e-3);
    ASSERT_STR(got.options.precision, "bf16");
    ASSERT_INT(got.options.memory_bytes, 314572800); /* 300 * 2^20 */
    ASSERT_STR(got.options.output, "run.db");
    ASSERT(got.options.quiet);
}

TEST(options_forms, "letters, =, empty values, a lone dash, and values that start with a dash")
{
    struct parsed got = PARSE("-q", "-n", "0", "--output=", "-");
    ASSERT_INT(got.count, 1);
    ASSERT_STR(got.operands[0], "-");
    ASSERT_INT(got.options.steps, 0);
    ASSERT_STR(got.options.output, "");
    ASSERT(got.options.quiet);
    got = PARSE("gpt2", "-o", "-", "--lr", "-0.5");
    ASSERT_STR(got.options.output, "-");
    ASSERT(got.options.rate == -0.5);
    got = PARSE("gpt2", "--output=--x=y");
    ASSERT_STR(got.options.output, "--x=y");
    got = PARSE("gpt2", "--steps", "1", "--steps", "2");
    ASSERT_INT(got.options.steps, 2); /* the last one counts */
}

TEST(options_end, "what stands behind -- is an operand, whatever it looks like")
{
    struct parsed got = PARSE("--quiet", "--", "--steps");
    ASSERT_INT(got.count, 1);
    ASSERT_STR(got.operands[0], "--steps");
    static const struct option_spec none[] = {{0}};
    static const struct command_spec check = {.name = "check",
                                              .usage = "check -- COMMAND",
                                              .about = "",
                                              .options = none,
                                              .min_operands = 1,
                                              .max_operands = -1};
    got = parse(&check, (const char *const[]){"--", "torchrun", "--help", "--", "-n", NULL});
    ASSERT_INT(got.count, 4);
    ASSERT(!got.help);
    ASSERT_STR(got.operands[0], "torchrun");
    ASSERT_STR(got.operands[1], "--help");
    ASSERT_STR(got.operands[2], "--");
    ASSERT_STR(got.operands[3], "-n");
}

TEST(options_asks_help, "--help and -h stop the parsing, also where operands are missing")
{
    struct parsed got = PARSE("--help", "--bogus");
    ASSERT(got.help && got.count >= 0);
    got = PARSE("gpt2", "-h");
    ASSERT(got.help && got.count >= 0);
}

TEST(options_unknown, "an unknown option names the nearest one, or the help page")
{
    ASSERT_REFUSED("unknown option --presicion; did you mean --precision?", "--presicion", "bf16");
    ASSERT_REFUSED("unknown option --step=5; did you mean --steps?", "--step=5");
    ASSERT_REFUSED("unknown option -steps; did you mean --steps?", "-steps", "5");
    ASSERT_REFUSED("unknown option --hlep; did you mean --help?", "--hlep");
    ASSERT_REFUSED("unknown option --tensor-paralysis; \"memplan train --help\" lists them",
                   "--tensor-paralysis", "2");
    ASSERT_REFUSED("unknown option -x; \"memplan train --help\" lists them", "-x");
    ASSERT_REFUSED("unknown option -n5; write -n 5", "-n5");
}

TEST(options_long_word, "a word of any length is refused without harm")
{
    char word[4000] = "--";
    memset(word + 2, 'x', sizeof word - 3);
    struct parsed got = PARSE(word);
    ASSERT_INT(got.count, -1);
    ASSERT_HAS(got.err.text, "unknown option --xxx");
}

TEST(options_value_missing, "a missing value says what belongs there")
{
    ASSERT_REFUSED("--steps needs a value; write --steps N", "gpt2", "--steps");
    ASSERT_REFUSED("-o needs a value; write -o FILE", "gpt2", "-o");
    ASSERT_REFUSED("--output needs a value; write --output FILE", "--output", "--quiet");
    ASSERT_REFUSED("--precision needs a value; write --precision fp32|bf16", "--precision");
    ASSERT_REFUSED("--quiet takes no value; write --quiet alone", "--quiet=yes");
}

TEST(options_bad_count,
     "counts refuse words, fractions, trailing letters, negatives and what no int64_t holds")
{
    ASSERT_REFUSED("--steps: \"many\" is not a whole number; write digits only, like 128", "--steps", "many");
    ASSERT_REFUSED("--steps: \"\" is not a whole number; write digits only, like 128", "--steps=");
    ASSERT_REFUSED("--steps: \"12x\" is not a whole number; write digits only, like 128", "--steps=12x");
    ASSERT_REFUSED("--steps: \"1.5\" is not a whole number; write digits only, like 128", "--steps=1.5");
    ASSERT_REFUSED("--steps: \" 5\" is not a whole number; write digits only, like 128", "--steps", " 5");
    ASSERT_REFUSED("-n: -3 is negative; write 0 or more", "-n", "-3");
    ASSERT_REFUSED("--steps: 9223372036854775808 is too large; the most is 9223372036854775807", "--steps",
                   "9223372036854775808");
    struct parsed got = PARSE("gpt2", "--steps", "9223372036854775807");
    ASSERT_INT(got.options.steps, INT64_MAX);
}

TEST(options_bad_real, "reals refuse words, trailing letters, hexadecimal, nan and infinity")
{
    static const char *const values[] = {"--lr=",    "--lr=x",   "--lr=1e-3x", "--lr=0x10", "--lr=nan",
                                         "--lr=inf", "--lr=1,5", "--lr=1e5e",  "--lr=-",    "--lr= 1"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct parsed got = PARSE(values[i]);
        ASSERT_INT(got.count, -1);
        ASSERT_HAS(got.err.text, "is not a number; write one like 0.5 or 3e-4");
        ASSERT_HAS(got.err.text, values[i] + strlen("--lr="));
    }
    ASSERT_REFUSED("--lr: 1e999 is too large; write a smaller number", "--lr", "1e999");
}

/* Where 0 says nothing, it passes for a number that was not given. */
TEST(options_positive, "counts and sizes that must be 1 or more refuse 0, and take 1")
{
    static const struct option_spec table[] = {{.name = "ranks",
                                                .kind = OPTION_POSITIVE,
                                                .argument = "N",
                                                .offset = offsetof(struct train_options, ranks)},
                                               {.name = "room",
                                                .kind = OPTION_POSITIVE_BYTES,
                                                .argument = "BYTES",
                                                .offset = offsetof(struct train_options, room_bytes)},
                                               {0}};
    static const struct command_spec command = {.name = "x", .usage = "x", .options = table};
    struct parsed got = parse(&command, (const char *const[]){"--ranks", "1", "--room", "1KiB", NULL});
    ASSERT_INT(got.count, 0);
    ASSERT_INT(got.options.ranks, 1);
    ASSERT_INT(got.options.room_bytes, 1024);
    got = parse(&command, (const char *const[]){"--ranks=0", NULL});
    ASSERT_STR(got.err.text, "--ranks: 0 is too few; write 1 or more, or leave it out");
    got = parse(&command, (const char *const[]){"--ranks=-2", NULL});
    ASSERT_STR(got.err.text, "--ranks: -2 is negative; write 1 or more");
    got = parse(&command, (const char *const[]){"--room", "0MiB", NULL});
    ASSERT_STR(got.err.text, "--room: 0 is too few; write 1 or more, or leave it out");
}

TEST(options_bad_bytes, "sizes speak of the option that was typed")
{
    ASSERT_REFUSED("--memory: \"80Gx\" has an unknown unit; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB",
                   "--memory=80Gx");
    ASSERT_REFUSED(
        "--memory: \"-1\" is not a size; write a number of bytes or add a unit, like 80GiB or 300MB",
        "--memory", "-1");
}

TEST(options_bad_choice, "a value that is no choice lists the choices; parts and the bar itself are none")
{
    ASSERT_REFUSED("--precision: \"fp64\" is not a choice; use one of fp32, bf16", "--precision", "fp64");
    ASSERT_REFUSED("--precision: \"fp\" is not a choice; use one of fp32, bf16", "--precision", "fp");
    ASSERT_REFUSED("--precision: \"\" is not a choice; use one of fp32, bf16", "--precision=");
    ASSERT_REFUSED("--precision: \"fp32|bf16\" is not a choice; use one of fp32, bf16", "--precision",
                   "fp32|bf16");
}

TEST(options_choice_case, "a choice in another case is that choice, as it is written in the table")
{
    char typed[] = "--precision=BF16", device[] = "A100-80G";
    struct parsed got = PARSE(typed, "--device", device, "gpt2");
    ASSERT_INT(got.count, 1);
    ASSERT_STR(got.options.precision, "bf16");
    ASSERT_STR(got.options.device, "a100-80g");
    ASSERT_REFUSED(
        "--precision: \"fp16\" is not a choice; use one of fp32, bf16; memplan computes in fp32 or bf16 "
        "(--precision); `memplan check` judges launches with fp16 and fp8",
        "--precision", "fp16");
}

TEST(options_count_suffix, "thousands or 1,024s: a count with a letter is answered with both")
{
    ASSERT_REFUSED("--steps: \"2k\" is not a whole number; write 2048, or 2000 if that is meant", "--steps",
                   "2k");
    ASSERT_REFUSED("--steps: \"8M\" is not a whole number; write 8388608, or 8000000 if that is meant",
                   "--steps=8M");
    ASSERT_REFUSED("--steps: \"2kk\" is not a whole number; write digits only, like 128", "--steps=2kk");
}

/* Of a command that has what is meant, or that has layouts and so might be thought to have what memplan has not. */
TEST(options_foreign, "words of other programs are answered with memplan's, or with what memplan has not")
{
    static const struct option_spec table[] = {
        {.name = "micro-batch", .kind = OPTION_COUNT, .offset = offsetof(struct train_options, steps)},
        {.name = "tp", .kind = OPTION_COUNT, .offset = offsetof(struct train_options, steps)},
        {.name = "precision",
         .kind = OPTION_CHOICE,
         .choices = "fp32|bf16",
         .offset = offsetof(struct train_options, precision)},
        {.name = "zero",
         .kind = OPTION_CHOICE,
         .choices = "0|1",
         .offset = offsetof(struct train_options, device)},
        {0}};
    static const struct command_spec command = {.name = "x", .usage = "x", .options = table};
    static const char *const cases[][2] = {
        {"--mbs=4", "unknown option --mbs=4; memplan's word is --micro-batch"},
        {"--Tensor_Model_Parallel_Size", "memplan's word is --tp"},
        {"--bf16", "memplan's word is --precision bf16"},
        {"--cp",
         "unknown option --cp: memplan trains and plans without context parallelism; `memplan check` judges "
         "launches with it"},
        {"--fsdp", "memplan shards optimizer states (--zero 1), and not gradients or weights"},
        {"--zero=3",
         "--zero: \"3\" is not a choice; use one of 0, 1; memplan shards optimizer states (--zero 1)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed got = parse(&command, (const char *const[]){cases[i][0], NULL});
        ASSERT_INT(got.count, -1);
        ASSERT_HAS(got.err.text, cases[i][1]);
    }
    /* A command without layouts has none of this; nor one without that option. */
    ASSERT_REFUSED("unknown option --cp; \"memplan train --help\" lists them", "--cp");
    ASSERT_REFUSED("unknown option --mbs; \"memplan train --help\" lists them", "--mbs");
}

TEST(options_operands, "too few operands show the usage, one too many is named")
{
    ASSERT_REFUSED("0 operands given, at least 1 needed; usage: memplan train MODEL|PLAN --data FILE "
                   "[options]",
                   "--quiet");
    ASSERT_REFUSED("\"surplus\" is one word too many; usage: memplan train MODEL|PLAN --data FILE "
                   "[options]",
                   "gpt2", "surplus", "more");
}

TEST(options_help_page,
     "the help page lists every option under its heading, in 80 columns, and ends with two examples")
{
    struct text page = {0};
    options_help(&train, &page);
    ASSERT_STR(page.data,
               "usage: memplan train MODEL|PLAN --data FILE [options]\n"
               "\n"
               "Trains the model as the plan says. All device memory of a step is one arena,\n"
               "taken at the start, so it runs out of memory at launch or never.\n"
               "\n"
               "options\n"
               "  -h, --help              show this page\n"
               "\n"
               "training\n"
               "  -n, --steps N           optimizer steps to run (100)\n"
               "      --lr X              learning rate, warmed up over the first steps and then\n"
               "                          lowered along a cosine (3e-4)\n"
               "      --precision fp32|bf16\n"
               "                          type of parameters and activations\n"
               "\n"
               "machine and output\n"
               "      --device DEVICE     where to run; one of cpu, cuda, h100-80g, a100-80g,\n"
               "                          a100-40g\n"
               "      --memory BYTES      capacity instead of the card's\n"
               "  -o, --output FILE       where to write; - is stdout\n"
               "  -q, --quiet             no notes, no progress bar\n"
               "\n"
               "examples\n"
               "  memplan train plan.json --data corpus.txt\n"
               "  memplan train gpt2 --data corpus.txt --steps 1000 --lr 3e-4 --precision bf16 \\\n"
               "      --memory 80GiB -o run.db\n");
    for (const char *line = page.data; *line; line += strcspn(line, "\n") + 1)
        ASSERT(strcspn(line, "\n") <= 80);
    text_free(&page);
}

TEST(options_help_plain, "a table without headings gets one, and wide letters count once")
{
    static const struct option_spec table[] = {{.name = "size",
                                                .kind = OPTION_TEXT,
                                                .argument = "\xc3\xa9\xc3\xa9",
                                                .help = "two letters of two bytes"},
                                               {0}};
    static const struct command_spec command = {
        .usage = "x", .about = "About.", .options = table, .examples = {"one", "two"}};
    struct text page = {0};
    options_help(&command, &page);
    ASSERT_STR(page.data, "usage: memplan x\n"
                          "\n"
                          "About.\n"
                          "\n"
                          "options\n"
                          "  -h, --help              show this page\n"
                          "      --size \xc3\xa9\xc3\xa9           two letters of two bytes\n"
                          "\n"
                          "examples\n"
                          "  one\n"
                          "  two\n");
    text_free(&page);
}

TEST(options_help_values, "an option and its value stay on one line of an example")
{
    static const struct option_spec table[] = {{0}};
    static const struct command_spec command = {
        .usage = "x [-o FILE]",
        .about = "About.",
        .options = table,
        /* "--precision" would end in column 78, its value in column 83. */
        .examples = {"memplan train gpt2 --data corpus.txt --steps 1000 --lr 3e-4 --quiet --precision bf16",
                     "two"}};
    struct text page = {0};
    options_help(&command, &page);
    ASSERT_HAS(page.data, " --quiet \\\n      --precision bf16\n");
    text_free(&page);
}

static const char *near(const char *word)
{
    static const char *const names[] = {"plan",    "profile", "predict", "train",
                                        "compare", "check",   "env",     NULL};
    const char *found = options_nearest(word, names);
    return found ? found : "none";
}

TEST(options_nearest_name, "the nearest name by edit distance, and none when nothing is near")
{
    ASSERT_STR(near("plan"), "plan");
    ASSERT_STR(near("plna"), "plan");       /* one swap */
    ASSERT_STR(near("pln"), "plan");        /* one letter missing */
    ASSERT_STR(near("plans"), "plan");      /* one too many */
    ASSERT_STR(near("trein"), "train");     /* one replaced */
    ASSERT_STR(near("prfoil"), "profile");  /* a swap and one missing: 2 of at most 1 + 7/4 */
    ASSERT_STR(near("perdict"), "predict"); /* a swap */
    ASSERT_STR(near("xlxn"), "plan");       /* two replaced, of at most 1 + 4/4 */
    ASSERT_STR(near("xlxx"), "none");       /* three */
    ASSERT_STR(near("x"), "none");
    ASSERT_STR(near(""), "none");
    ASSERT_STR(near("completely-different"), "none");
}

TEST(options_nearest_ties, "of equally near names the first is taken; an empty list and long words have none")
{
    static const char *const names[] = {"dp", "tp", "pp", NULL}, *const none[] = {NULL};
    ASSERT_STR(options_nearest("sp", names), "dp");
    ASSERT(options_nearest("sp", none) == NULL);
    char word[100];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    ASSERT(options_nearest(word, names) == NULL);
    const char *const itself[] = {word, NULL};
    ASSERT(options_nearest("aaaa", itself) == NULL);
}
