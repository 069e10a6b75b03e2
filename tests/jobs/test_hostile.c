/* Files that mean no good: the examples with bytes changed, cut, doubled and swapped, fed to every parser; and 100 MB of what
 * looks right for a while. Under the sanitizers (`make asan`) a bad access anywhere fails these. */
#include "tests/jobs/fuzz_targets.h"

#include "base/text.h"
#include "jobs/jobs.h"
#include "jobs/weights_header.h"
#include "tests/test.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 60, MOST_BYTES = 20000, LARGE_BYTES = 100000000 };

static uint64_t state = 88172645463325252u;

/* xorshift64: the same mutants every time. */
static size_t below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (size_t)(state % limit) : 0;
}

static const char *const pieces[] = {
    "\"", "'",     "$(",   "${", "}",  "((", "))",      "\n",
    "\\", "=",     "--",   "[",  "]",  "{",  "<<EOF\n", "9223372036854775807",
    "-1", "1e308", "null", "#",  "&&", "$A", "A=(",     "\xff",
    ":",  "- "};

/* One change of `text`, whose room is MOST_BYTES. */
static size_t mutate(char *text, size_t count)
{
    const char *piece = pieces[below(sizeof pieces / sizeof pieces[0])];
    size_t at = below(count), length = below(count - at) % 64, size = strlen(piece);
    switch (below(5)) {
    case 0:
        text[at] = (char)below(256);
        return count;
    case 1: /* cut */
        memmove(text + at, text + at + length, count - at - length);
        return count - length;
    case 2: /* doubled */
        if (count + length > MOST_BYTES)
            return count;
        memmove(text + at + length, text + at, count - at);
        return count + length;
    case 3:
        if (count + size > MOST_BYTES)
            return count;
        memmove(text + at + size, text + at, count - at);
        memcpy(text + at, piece, size);
        return count + size;
    default: /* the end is missing */
        return below(8) ? count : at;
    }
}

static void feed(int (*target)(const uint8_t *, size_t), const char *pattern)
{
    glob_t found;
    ASSERT_INT(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *text, *mutant = malloc(MOST_BYTES);
        size_t length;
        struct error err = {0};
        ASSERT_OK(text_read_file(found.gl_pathv[i], MOST_BYTES, &text, &length, &err));
        for (int round = 0; round < ROUNDS; round++) {
            size_t count = length, changes = 1 + below(6);
            memcpy(mutant, text, length);
            while (changes-- && count > 1)
                count = mutate(mutant, count);
            /* In a block of its own size, so that reading behind it shows. */
            uint8_t *exact = malloc(count ? count : 1);
            memcpy(exact, mutant, count);
            target(exact, count);
            free(exact);
        }
        free(mutant);
        free(text);
    }
    globfree(&found);
}

TEST(hostile_scripts, "mutated launch scripts are read or refused")
{
    feed(fuzz_script, "examples/launch/*.sh");
    feed(fuzz_launch, "examples/launch/*.sh");
    feed(fuzz_script, "tests/jobs/scripts/*.sh");
    feed(fuzz_script, "tests/jobs/seeds/*.sh");
}

TEST(hostile_files, "mutated DeepSpeed JSON, TOML, YAML and config.json are read or refused")
{
    feed(fuzz_deepspeed, "examples/launch/*.json");
    feed(fuzz_toml, "examples/launch/*.toml");
    feed(fuzz_yaml, "examples/launch/*.yaml");
    feed(fuzz_yaml, "tests/jobs/seeds/*.yaml");
    feed(fuzz_config, "examples/launch/models/*/config.json");
    feed(fuzz_weights, "tests/jobs/weights_seed.json");
}

TEST(hostile_options,
     "mutated layouts of pipelines, torchtitan's options and models of the hub are read or refused")
{
    feed(fuzz_stages, "tests/jobs/seeds/stages_*.txt");
    feed(fuzz_overrides, "tests/jobs/seeds/overrides_*.txt");
    feed(fuzz_hub, "tests/jobs/seeds/hub_*.txt");
}

/* ---- 100 MB ---- */

/* Of processor time: others work on the machine too. Sanitizers are slow. */
#ifdef __SANITIZE_ADDRESS__
#define AT_ONCE_NS 10000000000
#else
#define AT_ONCE_NS 1000000000
#endif

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static char path[] = "/tmp/memplan-hostile-XXXXXX";

static void make_large(const char *start, const char *again)
{
    int file = mkstemp(path);
    ASSERT(file >= 0);
    FILE *out = fdopen(file, "w");
    size_t length = strlen(again);
    fputs(start, out);
    for (size_t written = 0; written < LARGE_BYTES; written += length)
        fputs(again, out);
    fclose(out);
}

/* Refused, with a message that names the file, within a second of processor time. */
static void assert_refused_quickly(int (*read)(struct error *err))
{
    struct error err = {0};
    int64_t before = cpu_ns();
    ASSERT_INT(read(&err), -1);
    ASSERT(cpu_ns() - before < AT_ONCE_NS);
    ASSERT_HAS(err.text, path);
    unlink(path);
}

static int read_as_script(struct error *err)
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct jobs_request request = {.script = path};
    int status = jobs_read(&request, arena, &job, err);
    arena_free(arena);
    return status;
}

static int read_launch(const char *const *words, int count, struct error *err)
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct jobs_request request = {.command = words, .command_count = count};
    int status = jobs_read(&request, arena, &job, err);
    arena_free(arena);
    return status;
}

static int read_as_deepspeed(struct error *err)
{
    const char *const words[] = {"deepspeed", "run_clm.py",  "--model_name_or_path",
                                 "gpt2-124m", "--deepspeed", path};
    return read_launch(words, 6, err);
}

static int read_as_toml(struct error *err)
{
    const char *const words[] = {"torchrun", "-m", "torchtitan.train", "--job.config_file", path};
    return read_launch(words, 5, err);
}

static int read_as_yaml(struct error *err)
{
    const char *const words[] = {"accelerate",           "launch",   "--config_file", path, "run_clm.py",
                                 "--model_name_or_path", "gpt2-124m"};
    return read_launch(words, 7, err);
}

static int read_as_config(struct error *err)
{
    const char *const words[] = {"torchrun", "run_clm.py", "--config_name", path};
    return read_launch(words, 4, err);
}

static int read_as_weights(struct error *err)
{
    struct weights_count count;
    return weights_header_count(path, &count, err);
}

TEST(hostile_large_script, "100 MB of a script are refused within a second")
{
    make_large("A=1\n", "A=$A$A\n");
    assert_refused_quickly(read_as_script);
}

TEST(hostile_large_deepspeed, "100 MB of JSON are refused within a second")
{
    make_large("{\"a\": ", "[[[[[[[[[[");
    assert_refused_quickly(read_as_deepspeed);
}

TEST(hostile_large_toml, "100 MB of TOML are refused within a second")
{
    make_large("", "a = 1\n");
    assert_refused_quickly(read_as_toml);
}

TEST(hostile_large_yaml, "100 MB of YAML are refused within a second")
{
    make_large("", "a: 1\n");
    assert_refused_quickly(read_as_yaml);
}

TEST(hostile_large_config, "100 MB of a config.json are refused within a second")
{
    make_large("{\"model_type\": \"llama\", \"a\": \"", "xxxxxxxxxx");
    assert_refused_quickly(read_as_config);
}

TEST(hostile_large_weights, "100 MB that begin like a safetensors file are refused within a second")
{
    make_large("\xff\xff\xff\x05", "{{{{{{{{{{");
    assert_refused_quickly(read_as_weights);
}

/* ---- just below the limit on sizes, where parsing itself must be quick ---- */

static void assert_read_quickly(const char *text, size_t length)
{
    struct error err = {0};
    struct arena *arena = arena_create();
    struct training_job job;
    struct jobs_request request = {0};
    int64_t before = cpu_ns();
    ASSERT_INT(jobs_read_text(&request, "run.sh", text, length, arena, &job, &err), -1);
    ASSERT_MSG(cpu_ns() - before < AT_ONCE_NS, "%.40s...: %.1f s", text, (double)(cpu_ns() - before) * 1e-9);
    arena_free(arena);
}

TEST(hostile_four_megabytes, "4 MB of a script with a variable on each line are refused within a second")
{
    struct text text = {0};
    for (int i = 0; text.length < JOBS_FILE_BYTES - 64; i++)
        text_printf(&text, "VARIABLE_%d=$VARIABLE_%d\n", i, i / 2);
    assert_read_quickly(text.data, text.length);
    text_free(&text);
}

static const struct {
    const char *start, *again, *end;
} repeated[] = {
    {"", "A+=(b)\n", ""},
    {"", "A+=b\n", ""},
    {"A=(1)\n", "[ x ] && A+=(b)\n", ""},
    {"A=1\n", "[ x ] && A=\"$A b\"\n", ""},
    {"f() { A=1; }\n", "f\n", ""},
    {"f() { local a b c; }\n", "f\n", ""},
    {"f() {\n", "#\n", "}\nf\nf\nf\nf\nf\nf\nf\nf\n"},
    {"f() { f; f; }\n", "f\n", ""},
    {"", "f() { :; }\n", ""},
    {"", "eval a\n", ""},
    {"eval ", "eval ", ""},
    {"run ", "\"$@\" ", ""},
    {"cat <<E > x\n", "$A\n", "E\n"},
    {"", ": ${A:=b}\n", ""},
};

TEST_LOOP(hostile_repeated, "4 MB of the same few words are refused within a second",
          sizeof repeated / sizeof repeated[0])
{
    struct text text = {0};
    text_add(&text, repeated[_i].start);
    while (text.length < JOBS_FILE_BYTES - 64)
        text_add(&text, repeated[_i].again);
    text_add(&text, repeated[_i].end);
    assert_read_quickly(text.data, text.length);
    text_free(&text);
}

TEST(hostile_index, "a list of millions of weights is refused within a second")
{
    struct text text = {0};
    struct error err = {0};
    struct weights_count count;
    char index[] = "/tmp/memplan-hostile-XXXXXX.json";
    ASSERT(mkstemps(index, 5) >= 0);
    text_add(&text, "{\"weight_map\": {\"a\": \"b\"");
    for (int i = 0; text.length < 30 << 20; i++)
        text_printf(&text, ",\"%d\":\"b\"", i);
    text_add(&text, "}}");
    ASSERT_OK(text_write(&text, index, &err));
    int64_t before = cpu_ns();
    ASSERT_INT(weights_header_count(index, &count, &err), -1);
    ASSERT(cpu_ns() - before < AT_ONCE_NS);
    ASSERT_HAS(err.text, "no JSON that lists files of weights");
    unlink(index);
    text_free(&text);
}
