/* One function for each parser of jobs/, which takes any bytes: the libFuzzer targets of check_fuzz.sh, and what test_fuzz.c
 * feeds mutated examples to. Whatever comes, it must come back. */
#ifndef MEMPLAN_TESTS_JOBS_FUZZ_TARGETS_H
#define MEMPLAN_TESTS_JOBS_FUZZ_TARGETS_H

#include <stddef.h>
#include <stdint.h>

int fuzz_script(const uint8_t *bytes, size_t count);    /* a launch script, to a training job */
int fuzz_launch(const uint8_t *bytes, size_t count);    /* words of a launch line, one a line */
int fuzz_deepspeed(const uint8_t *bytes, size_t count); /* DeepSpeed's JSON */
int fuzz_toml(const uint8_t *bytes, size_t count);      /* torchtitan's TOML */
int fuzz_yaml(const uint8_t *bytes, size_t count);      /* YAML of accelerate, of a program's options, of frameworks */
int fuzz_config(const uint8_t *bytes, size_t count);    /* config.json */
int fuzz_weights(const uint8_t *bytes, size_t count);   /* the header of a safetensors file */
int fuzz_stages(const uint8_t *bytes, size_t count);    /* options of a pipeline; "d" first: of DeepSpeed's */
int fuzz_overrides(const uint8_t *bytes, size_t count); /* torchtitan's options, a line "---", the TOML below them */
/* A model of the hub: its name, a line each for the revision and what refs/main holds, then config.json and what lies beside
 * it, with lines "---" between. */
int fuzz_hub(const uint8_t *bytes, size_t count);

#endif
