/* The weights of public models: GPT-2 and the Llama family (Llama, Mistral, Qwen2) as Hugging Face publishes them, in
 * safetensors. Only weights: moments are not published, and a step count neither. */
#ifndef MEMPLAN_TRAINER_PUBLIC_WEIGHTS_H
#define MEMPLAN_TRAINER_PUBLIC_WEIGHTS_H

#include "trainer/weights.h"

/* Fills every parameter of the rank from `source`: a .safetensors file, or a folder with model.safetensors or with
 * model.safetensors.index.json and the files that it names. F32, F16, BF16 and F64 are read, in pieces. The tensors must be
 * exactly those of the model; all are checked before the first is read. Moments and gradients stay as they are. */
int public_weights_read(const char *source, const struct state_access *access, int threads, struct error *err);

#endif
