#include "cli/job_pace.h"

#include "base/checked.h"

#include <math.h>

/* docs/time-model.md, section 1: 6 N and 6 L C T a token, without a mask 12 L C T; of frozen weights no gradient is made. */
static double flops_of_token(const struct training_job *job, const struct workload *w)
{
    const struct workload_model *m = &w->model;
    double parameters = (double)job_model_active_parameters(&job->model);
    double attention =
        (m->encoder ? 12 : 6) * (double)m->layers * (double)(m->heads * m->head_size) * (double)w->sequence;
    return (w->lora_rank ? 4 : 6) * parameters + attention;
}

struct job_pace job_pace_of(const struct training_job *job, const struct job_verdict *verdict,
                            const struct rank_device *device, const struct machine_speed *speeds,
                            double seconds)
{
    const struct workload *w = &verdict->workload;
    struct job_pace pace = {.seconds = seconds, .tokens_per_second = NAN, .utilization = NAN};
    bool halves = w->compute_bytes < 4;
    if (isnan(seconds) || !speeds)
        return pace;
    const struct machine_speed *speed = &speeds[halves];
    bool measured = speed->matmul_source == SPEED_PRESET && speed->evidence == CARD_STEPS;
    pace.evidence = speed->evidence;
    pace.range = workload_odds_pace(w, seconds, measured ? 0 : machine_speed_doubt(speed));
    pace.tokens_per_second =
        (double)(w->dp * w->micro_batch * w->micro_batches) * (double)w->sequence / seconds;
    if (device->card)
        pace.utilization = flops_of_token(job, w) * pace.tokens_per_second /
                           (double)max_i64(job->launch.ranks, 1) /
                           machine_speed_card_peak(device->card, halves ? PRECISION_BF16 : PRECISION_FP32);
    return pace;
}
