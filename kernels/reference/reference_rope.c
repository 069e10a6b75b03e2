/* Rotary position embedding (Su et al. 2021, arXiv:2104.09864) in the pairing of the Hugging Face Llama code: element i of
 * a head turns together with element i + D/2. A rotation's gradient is the rotation back. */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <inttypes.h>
#include <math.h>

/* (x, y) -> (x cos - y sin, y cos + x sin), angle t * theta^(-2i/D); `head` is the index of the head's first element. */
static void turn_head(const struct rope_args *args, int64_t head, int64_t t)
{
    const int64_t half = args->D / 2;
    for (int64_t i = 0; i < half; i++) {
        double angle = (double)t * pow(args->theta, -2.0 * (double)i / (double)args->D);
        if (args->inverse)
            angle = -angle;
        double x = element_get(args->dtype, args->qkv, head + i);
        double y = element_get(args->dtype, args->qkv, head + half + i);
        element_set(args->dtype, args->qkv, head + i, x * cos(angle) - y * sin(angle));
        element_set(args->dtype, args->qkv, head + half + i, y * cos(angle) + x * sin(angle));
    }
}

int reference_rope(const struct kernel_context *context, const struct rope_args *args, struct error *err)
{
    (void)context;
    if (reference_check_dtype("rope", args->dtype, err))
        return -1;
    if (args->D % 2)
        return error_set(err, "rope: a head size of %" PRId64 " has no pairs to turn; use an even one",
                         args->D);
    const int64_t turned = args->H + args->K, width = args->H + 2 * args->K;
    for (int64_t r = 0; r < args->B * args->T; r++)
        for (int64_t head = 0; head < turned; head++)
            turn_head(args, (r * width + head) * args->D, r % args->T);
    return 0;
}
