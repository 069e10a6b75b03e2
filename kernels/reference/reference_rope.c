/* Rotary position embedding (Su et al. 2021, arXiv:2104.09864) in the pairing of the Hugging Face Llama code: element i of
 * a head turns together with element i + D/2, or half of what turns of it. A rotation's gradient is the rotation back. */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <inttypes.h>
#include <math.h>

/* (x, y) -> (x cos - y sin, y cos + x sin), angle t * theta^(-2i/D) */
void reference_turn(double theta, int64_t D, int64_t i, int64_t t, bool inverse, double *x, double *y)
{
    double angle = (double)t * pow(theta, -2.0 * (double)i / (double)D) * (inverse ? -1 : 1);
    double turned = *x * cos(angle) - *y * sin(angle);
    *y = *y * cos(angle) + *x * sin(angle);
    *x = turned;
}

int reference_check_pairs(const char *operation, int64_t D, struct error *err)
{
    if (D % 2 == 0)
        return 0;
    return error_set(err, "%s: a head size of %" PRId64 " has no pairs to turn; use an even one", operation,
                     D);
}

/* `head` is the index of the head's first element. */
static void turn_head(const struct rope_args *args, int64_t head, int64_t t)
{
    const int64_t size = args->D - args->unturned, half = size / 2;
    for (int64_t i = 0; i < half; i++) {
        double x = element_get(args->dtype, args->qkv, head + i);
        double y = element_get(args->dtype, args->qkv, head + half + i);
        reference_turn(args->theta, size, i, t, args->inverse, &x, &y);
        element_set(args->dtype, args->qkv, head + i, x);
        element_set(args->dtype, args->qkv, head + half + i, y);
    }
}

int reference_rope(const struct kernel_context *context, const struct rope_args *args, struct error *err)
{
    (void)context;
    if (reference_check_dtype("rope", args->dtype, err) ||
        reference_check_pairs("rope", args->D - args->unturned, err))
        return -1;
    const int64_t turned = args->H + args->K, width = args->H + 2 * args->K;
    for (int64_t r = 0; r < args->B * args->T; r++)
        for (int64_t head = 0; head < turned; head++)
            turn_head(args, (r * width + head) * args->D, r % args->T);
    return 0;
}
