/* The hub's cache, made here as huggingface_hub lays it out, and launches that name a model in it. */
#include "model/hub_cache.h"

#include "jobs/jobs.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER  "fedcba9876543210fedcba9876543210fedcba98"
/* V C + T C + 2 C + L (12 C^2 + 13 C): 2,048 + 64 x 32 + 64 + 2 x 12,704 */
#define SMALL                                                                                                \
    "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":32,\"n_head\":4,\"vocab_size\":64,\"n_positions\":"   \
    "64}"
#define SMALL_PARAMETERS 29568
#define LARGER                                                                                               \
    "{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_embd\":32,\"n_head\":4,\"vocab_size\":64,\"n_positions\":"   \
    "64}"

static char home[] = "/tmp/memplan-hub-XXXXXX";
static struct arena *arena;
static struct training_job job;
static struct error err;

static const char *in_home(const char *name)
{
    return arena_printf(arena, "%s/%s", home, name);
}

/* A file with the folders above it. */
static void write_file(const char *name, const char *text)
{
    char *path = arena_strdup(arena, in_home(name));
    for (char *slash = path + strlen(home) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(path, 0755);
    }
    FILE *out = fopen(path, "w");
    ASSERT_MSG(out, "%s cannot be written", path);
    fputs(text, out);
    fclose(out);
}

/* A file of a snapshot is a link to a blob. */
static void write_snapshot(const char *model, const char *commit, const char *file, const char *text)
{
    const char *blob = arena_printf(arena, "%s-%s", commit, file);
    const char *link = arena_printf(arena, "hub/%s/snapshots/%s/%s", model, commit, file);
    write_file(arena_printf(arena, "hub/%s/blobs/%s", model, blob), text);
    unlink(in_home(link));
    write_file(link, ""); /* for its folders */
    ASSERT(!unlink(in_home(link)));
    ASSERT(!symlink(arena_printf(arena, "../../blobs/%s", blob), in_home(link)));
}

static void make_cache(void)
{
    arena = arena_create();
    ASSERT(mkdtemp(home));
    write_file("hub/models--org--small/refs/main", COMMIT);
    write_snapshot("models--org--small", COMMIT, "config.json", SMALL);
    /* no other cache of whoever runs the tests is looked into */
    setenv("HOME", "/nowhere", 1);
    for (const char *const *name = hub_cache_variable_names(); *name; name++)
        if (strcmp(*name, "HOME"))
            unsetenv(*name);
}

static int read_script(const char *script)
{
    const struct jobs_request request = {0};
    err = (struct error){0};
    return jobs_read_text(&request, "run.sh", script, strlen(script), arena, &job, &err);
}

/* With that model, and options behind it. */
static void read_model(const char *model, const char *options)
{
    ASSERT_MSG(
        !read_script(arena_printf(arena, "export HF_HOME=%s\npython run_clm.py --model_name_or_path %s %s\n",
                                  home, model, options)),
        "%s", err.text);
}

static const struct fact *fact_of(const char *name)
{
    for (int i = 0; i < job.facts.count; i++)
        if (!strcmp(job.facts.list[i].name, name))
            return &job.facts.list[i];
    return NULL;
}

static void assert_missing(const char *model, const char *options, const char *why)
{
    read_model(model, options);
    ASSERT_MSG(!job.model_known, "%s is known", model);
    const struct fact *fact = fact_of("--model_name_or_path");
    ASSERT_INT(fact->kind, FACT_MISSING);
    ASSERT_HAS(fact->origin, why);
}

TEST(hub_cache_model, "a launch that names a model in the hub's cache has its config.json, and says so")
{
    make_cache();
    read_model("org/small", "");
    ASSERT(job.model_known);
    ASSERT_INT(job_model_parameters(&job.model), SMALL_PARAMETERS);
    ASSERT_STR(job.model.name, "small");
    ASSERT_STR(fact_of("model")->origin,
               arena_printf(arena,
                            "%s/hub/models--org--small/snapshots/" COMMIT "/config.json in the hub's cache",
                            home));
}

TEST(hub_cache_before_known, "what was downloaded is believed before what is known")
{
    make_cache();
    read_model("gpt2", "");
    ASSERT_INT(job_model_parameters(&job.model), 124439808);
    ASSERT_HAS(fact_of("model")->origin, "sizes of gpt2 as memplan knows them");
    ASSERT_STR(fact_of("--block_size")->origin, "run_clm.py and TRL: at most 1024");
    read_model("meta-llama/Llama-3.1-8B", "");
    ASSERT_INT(job.batch.sequence, 1024);
    ASSERT_HAS(fact_of("--block_size")->origin, "unless the tokenizer, which is not here, allows more");
    read_model("roberta-base", "");
    ASSERT_INT(job.batch.sequence, 512); /* of 514 positions two are unused */
    write_file("hub/models--gpt2/refs/main", COMMIT "\n");
    write_snapshot("models--gpt2", COMMIT, "config.json", SMALL);
    read_model("gpt2", "");
    ASSERT_INT(job_model_parameters(&job.model), SMALL_PARAMETERS);
    /* and a folder here before both, as transformers does */
    write_file("here/gpt2/config.json", LARGER);
    write_file("here/run.sh",
               arena_printf(arena, "HF_HOME=%s python run_clm.py --model_name_or_path gpt2", home));
    const struct jobs_request request = {.script = in_home("here/run.sh")};
    ASSERT_OK(jobs_read(&request, arena, &job, &err));
    ASSERT_INT(job.model.layers, 3);
}

TEST(hub_cache_neighbours,
     "weights and tokenizer of a snapshot are read, and weights that lack a file are not counted")
{
    make_cache();
    write_snapshot("models--org--small", COMMIT, "tokenizer_config.json", "{\"model_max_length\":48}");
    write_snapshot("models--org--small", COMMIT, "model.safetensors.index.json",
                   "{\"weight_map\":{\"a\":\"model-00001-of-00001.safetensors\"}}");
    read_model("org/small", "");
    ASSERT_INT(job.batch.sequence, 48);
    ASSERT_INT(job.model.counted_parameters, 0);
    write_file("hub/models--org--small/snapshots/" COMMIT "/model-00001-of-00001.safetensors", "");
    FILE *shard =
        fopen(in_home("hub/models--org--small/snapshots/" COMMIT "/model-00001-of-00001.safetensors"), "w");
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[29568],\"data_offsets\":[0,118272]}}";
    uint64_t length = sizeof header - 1;
    fwrite(&length, sizeof length, 1, shard);
    fputs(header, shard);
    fclose(shard);
    ASSERT(!truncate(in_home("hub/models--org--small/snapshots/" COMMIT "/model-00001-of-00001.safetensors"),
                     (long)(sizeof length + length + 118272)));
    read_model("org/small", "");
    ASSERT_INT(job.model.counted_parameters, SMALL_PARAMETERS);
}

TEST(hub_cache_revisions, "a branch, a commit and a request for changes lead to their own snapshots")
{
    make_cache();
    write_file("hub/models--org--small/refs/v2", OTHER);
    write_file("hub/models--org--small/refs/refs/pr/3", OTHER);
    write_snapshot("models--org--small", OTHER, "config.json", LARGER);
    static const char *const three[] = {"--model_revision v2", "--revision " OTHER,
                                        "--model_revision refs/pr/3"};
    for (int i = 0; i < 3; i++) {
        read_model("org/small", three[i]);
        ASSERT_INT(job.model.layers, 3);
    }
    read_model("org/small", "--model_revision " COMMIT);
    ASSERT_INT(job.model.layers, 2);
    assert_missing("org/small", "--model_revision v3", "not usable in the hub's cache");
    assert_missing("org/small", "--model_revision ../../x", "org/small is no folder here");
}

TEST(hub_cache_broken, "what is broken in the cache is named where nothing else is known of the model")
{
    make_cache();
    /* a link to a blob that is gone */
    write_snapshot("models--org--small", COMMIT, "config.json", SMALL);
    ASSERT(!unlink(in_home("hub/models--org--small/blobs/" COMMIT "-config.json")));
    assert_missing("org/small", "", "the config.json of its snapshot " COMMIT " is a link to nothing)");
    ASSERT(!unlink(in_home("hub/models--org--small/snapshots/" COMMIT "/config.json")));
    assert_missing("org/small", "", "its snapshot " COMMIT " has no config.json)");
    ASSERT(!unlink(in_home("hub/models--org--small/refs/main")));
    assert_missing("org/small", "", "(no snapshot of its revision main)");
    write_file("hub/models--org--small/refs/main", "../../../here");
    write_file("here/config.json", SMALL);
    assert_missing("org/small", "", "(no snapshot of its revision main)");
    write_file("hub/models--org--small/refs/main", "");
    assert_missing("org/small", "", "(no snapshot of its revision main)");
    /* of a known model it is no matter */
    write_file("hub/models--gpt2/refs/main", COMMIT);
    read_model("gpt2", "");
    ASSERT_INT(job_model_parameters(&job.model), 124439808);
}

TEST(hub_cache_huge, "a config.json of 5 MB in the cache is refused by name")
{
    make_cache();
    char *text = arena_alloc(arena, 5000001);
    memset(text, ' ', 5000000);
    memcpy(text, SMALL, strlen(SMALL));
    write_snapshot("models--org--small", COMMIT, "config.json", text);
    ASSERT_INT(
        read_script(arena_printf(arena, "HF_HOME=%s python run_clm.py --model_name_or_path org/small", home)),
        -1);
    ASSERT_HAS(err.text, COMMIT "/config.json: it is larger than");
}

TEST(hub_cache_absent,
     "an unknown name is answered with where it was looked for, what is near, and three ways out")
{
    make_cache();
    assert_missing("org/large", "",
                   arena_printf(arena, "org/large is no folder here, not in the hub's cache %s/hub", home));
    const char *sentence = fact_of("--model_name_or_path")->origin;
    ASSERT_HAS(sentence, "--model FOLDER");
    ASSERT_HAS(sentence, "--model NAME");
    ASSERT_HAS(sentence, "hf download org/large config.json");
    assert_missing("somebody/Llama-3.1-8B", "", "(meta-llama/Llama-3.1-8B is)");
    assert_missing("meta-llama/llama-3.1-8b", "", "(meta-llama/Llama-3.1-8B is)");
    assert_missing("./models/x", "", "./models/x: there is no such folder or file here");
}

TEST(hub_cache_variables, "the cache is where the script says, or the launch's line, or an option")
{
    make_cache();
    static const char launch[] = "python run_clm.py --model_name_or_path org/small";
    const char *const scripts[] = {
        arena_printf(arena, "export HF_HUB_CACHE=%s/hub HF_HOME=/nowhere\n%s", home, launch),
        arena_printf(arena, "HUGGINGFACE_HUB_CACHE=%s/hub %s", home, launch),
        arena_printf(arena, "R=%s\nexport HF_HOME=$R\ntorchrun %s", home, launch + strlen("python ")),
        arena_printf(arena, "srun -n 1 --export=ALL,NOT_HF_HOME=/nowhere,HF_HOME=%s,X=1 %s", home, launch),
        arena_printf(arena, "%s --cache_dir %s/hub", launch, home),
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        ASSERT_MSG(!read_script(scripts[i]), "%s: %s", scripts[i], err.text);
        ASSERT_MSG(job.model_known, "%s", scripts[i]);
    }
    ASSERT_OK(read_script(arena_printf(arena, "export HF_HOME=$NOWHERE_SET/x\n%s", launch)));
    ASSERT(!job.model_known);
    setenv("HF_HOME", home, 1);
    ASSERT_OK(read_script(launch));
    ASSERT(job.model_known);
}

TEST(hub_cache_own_commands, "memplan's own commands read the same cache")
{
    struct model model;
    make_cache();
    setenv("HF_HOME", home, 1);
    ASSERT_OK(model_read("org/small", NULL, &model, &err));
    ASSERT_STR(model.name, "small");
    ASSERT_INT(model_parameters(&model), SMALL_PARAMETERS);
    ASSERT_OK(model_read("openai-community/gpt2", NULL, &model, &err));
    ASSERT_INT(model_parameters(&model), 124439808);
    ASSERT_STR(model.note, "sizes of openai-community/gpt2 as memplan knows them");
    ASSERT_INT(model_read("org/large", NULL, &model, &err), -1);
    ASSERT_HAS(err.text, "not in the hub's cache");
    ASSERT_INT(model_read("llama-3.1-8B-instruct", NULL, &model, &err), -1);
    ASSERT_HAS(err.text, "did you mean meta-llama/Llama-3.1-8B-Instruct?");
}

/* Values of the variables in the order of hub_cache_variable_names(). */
static const char *value_of(const void *context, const char *name)
{
    const char *const *values = context, *const *names = hub_cache_variable_names();
    while (strcmp(*names, name))
        names++, values++;
    return *values;
}

TEST(hub_cache_place, "each variable that says where the cache is goes before those that say it less closely")
{
    static const struct {
        const char *values[6], *folder;
    } cases[] = {
        {{"/t", "/c", "/l", "/h", "/x", "/home"}, "/t"},
        {{NULL, "/c", "/l", "/h", "/x", "/home"}, "/c"},
        {{NULL, NULL, "/l", "/h", "/x", "/home"}, "/l"},
        {{NULL, "", NULL, "/h", "/x", "/home"}, "/h/hub"},
        {{NULL, NULL, NULL, "~/h", "/x", "/home"}, "/home/h/hub"},
        {{NULL, NULL, NULL, NULL, "/x", "/home"}, "/x/huggingface/hub"},
        {{NULL, NULL, NULL, NULL, NULL, "/home"}, "/home/.cache/huggingface/hub"},
        {{NULL}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[HUB_CACHE_PATH];
        hub_cache_folder(&(struct hub_cache_variables){value_of, cases[i].values}, folder);
        ASSERT_STR(folder, cases[i].folder);
    }
}

TEST(hub_cache_names, "what can be no name on the hub is not looked for")
{
    static const char *const good[] = {"gpt2", "org/model", "Org_1/Model-2.0_x", "a"};
    static const char *const bad[] = {"",   "/a", "a/",   "a/b/c", "a--b", "a..b",   "-a",
                                      ".a", "a-", "a/.b", "a b",   "../x", "a/../b", "a\n"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ASSERT_MSG(hub_cache_is_name(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ASSERT_MSG(!hub_cache_is_name(bad[i]), "%s", bad[i]);
}
