/* DeepSpeed-Chat, of DeepSpeed's examples. */
#ifndef MEMPLAN_JOBS_DEEPSPEED_CHAT_H
#define MEMPLAN_JOBS_DEEPSPEED_CHAT_H

#include "jobs/frameworks.h"

extern const struct framework deepspeed_chat_framework;

#endif
