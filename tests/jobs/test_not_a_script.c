/* Files of other kinds that are given as scripts: each is called what it is, with the command that reads it. */
#include "tests/test.h"

#include "base/text.h"
#include "jobs/job_model.h"
#include "jobs/not_a_script.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

TEST(names_other_files, "a file of another kind is called what it is, with the command that reads it")
{
    static const struct {
        const char *file, *text, *what, *way;
    } files[] = {
        {"l7.json", "{\"memplan_plan\": 1, \"model\": {}}", "a plan of memplan's",
         "memplan predict l7.json --device D"},
        {"l7.json", "\n {\"memplan_plan\": 1}", "a plan of memplan's", "memplan train l7.json runs it"},
        {"c.json", "{\"memplan_calibration\": 2}", "a calibration", "--calibration c.json"},
        {"m/config.json", "{\"hidden_size\": 8, \"num_hidden_layers\": 2}", "the description of a model",
         "--model m/config.json -- LAUNCH"},
        {"own.json", "{\"family\": \"llama\"}", "the description of a model", "memplan predict own.json"},
        {"ds.json", "{\"zero_optimization\": {\"stage\": 3}}", "DeepSpeed's", "--deepspeed ds.json"},
        {"plan", "{\"memplan_plan\": 1}", "a plan of memplan's", "memplan predict plan"},
        {"other.json", "{\"a\": 1}", "JSON", "LAUNCH COMMAND"},
        {"lf.yaml", "# how\nbf16: true\nfinetuning_type: full\n", "LLaMA-Factory's", "train lf.yaml"},
        {"c.yml", "base_model: x\n", "Axolotl's", "axolotl train c.yml"},
        {"acc.yml", "distributed_type: FSDP\n", "accelerate's", "--config_file acc.yml train.py"},
        {"x.yaml", "a: 1\n  num_processes: 2\n", "YAML", "LAUNCH COMMAND"},
        {"train.py", "import torch\n", "a Python program", "torchrun --nproc-per-node 8 train.py"},
        {"llama.toml", "[job]\n", "a configuration", "--job.config_file llama.toml"},
        {"w.safetensors", "x", "weights", "--model FOLDER"},
        {"run.db", "SQLite format 3", "a recording", "memplan report run.db"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct error err = {0};
        ASSERT_INT(not_a_script_refuse(files[i].file, files[i].text, strlen(files[i].text), &err), -1);
        ASSERT(strstr(err.text, files[i].file) == err.text);
        ASSERT(strstr(err.text, files[i].what));
        ASSERT(strstr(err.text, files[i].way));
    }
}

TEST(refuses_bytes, "bytes that are no text are no script")
{
    struct error err = {0};
    ASSERT_INT(not_a_script_refuse("job",
                                   "\x7f"
                                   "ELF\0\0",
                                   6, &err),
               -1);
    ASSERT(strstr(err.text, "job: this is no text"));
}

TEST(lets_scripts_pass, "scripts are taken for scripts, every example among them")
{
    static const char *const texts[] = {
        "",   "{ echo a; torchrun train.py; }", "{\"a\": 1", "torchrun train.py --a '{}'", "memplan_plan: 1",
        "[1]"};
    struct error err = {0};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ASSERT_INT(not_a_script_refuse("run.sh", texts[i], strlen(texts[i]), &err), 0);
    glob_t scripts;
    ASSERT_INT(glob("examples/launch/*.sh", 0, NULL, &scripts), 0);
    ASSERT(scripts.gl_pathc > 10);
    for (size_t i = 0; i < scripts.gl_pathc; i++) {
        char *text;
        size_t length;
        ASSERT_INT(text_read_file(scripts.gl_pathv[i], 1 << 20, &text, &length, &err), 0);
        ASSERT_INT(not_a_script_refuse(scripts.gl_pathv[i], text, length, &err), 0);
        free(text);
    }
    globfree(&scripts);
}

TEST(names_typeless, "a model's file without model_type says what it is, or what to add")
{
    static const struct {
        const char *text, *says;
    } files[] = {{"{\"memplan_plan\": 1}", "a plan of memplan's"},
                 {"{\"family\": \"gpt2\"}", "a model of memplan's own"},
                 {"{\"hidden_size\": 64}", "add \"model_type\": \"llama\""}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct error err = {0};
        struct job_model model;
        json_t *object = json_loads(files[i].text, 0, NULL);
        ASSERT_INT(job_model_from_config(object, "x.json", &model, &err), -1);
        ASSERT(strstr(err.text, files[i].says));
        json_decref(object);
    }
}
