/* LayerNorm (Ba, Kiros, Hinton 2016, arXiv:1607.06450) and RMSNorm (Zhang, Sennrich 2019, arXiv:1910.07467), one row at a
 * time. RMSNorm is LayerNorm with the mean taken as zero, so both share the code. */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <math.h>

static double row_mean(const struct norm_args *args, int64_t r)
{
    double sum = 0;
    for (int64_t c = 0; c < args->C; c++)
        sum += element_get(args->dtype, args->x, r * args->C + c);
    return sum / (double)args->C;
}

static double row_variance(const struct norm_args *args, int64_t r, double mean)
{
    double sum = 0;
    for (int64_t c = 0; c < args->C; c++) {
        double centered = element_get(args->dtype, args->x, r * args->C + c) - mean;
        sum += centered * centered;
    }
    return sum / (double)args->C;
}

/* y = (x - mean) * rstd * w + b + residual */
int reference_norm(const struct kernel_context *context, const struct norm_args *args, struct error *err)
{
    (void)context;
    if (reference_check_dtype("norm", args->dtype, err))
        return -1;
    const enum dtype dtype = args->dtype, wide = element_wide(dtype);
    for (int64_t r = 0; r < args->R; r++) {
        double mean = args->rms ? 0 : row_mean(args, r);
        double rstd = 1 / sqrt(row_variance(args, r, mean) + args->eps);
        for (int64_t c = 0; c < args->C; c++) {
            double normal = (element_get(dtype, args->x, r * args->C + c) - mean) * rstd;
            double shift = args->b ? element_get(dtype, args->b, c) : 0;
            if (args->residual)
                shift += element_get(dtype, args->residual, r * args->C + c);
            double weight = element_get(dtype, args->w, c) + args->add_one;
            element_set(dtype, args->y, r * args->C + c, normal * weight + shift);
        }
        if (!args->rms)
            element_set(wide, args->mean, r, mean);
        element_set(wide, args->rstd, r, rstd);
    }
    return 0;
}

/* xhat = (x - mean) * rstd */
static double normal_at(const struct norm_grad_args *args, int64_t r, int64_t c)
{
    const enum dtype wide = element_wide(args->dtype);
    double mean = args->rms ? 0 : element_get(wide, args->mean, r);
    double rstd = element_get(wide, args->rstd, r);
    return (element_get(args->dtype, args->x, r * args->C + c) - mean) * rstd;
}

/* dw = sum over rows of dy * xhat;  db = sum over rows of dy */
static void parameter_grad(const struct norm_grad_args *args)
{
    const enum dtype wide = element_wide(args->dtype);
    for (int64_t c = 0; c < args->C; c++) {
        double dw = 0, db = 0;
        for (int64_t r = 0; r < args->R; r++) {
            double dy = element_get(args->dtype, args->dy, r * args->C + c);
            dw += dy * normal_at(args, r, c);
            db += dy;
        }
        element_put(wide, args->dw, c, dw, args->add_w);
        if (args->db)
            element_put(wide, args->db, c, db, args->add_w);
    }
}

/* With g = dy * w and averages over the row:
 *     LayerNorm  d = rstd * (g - avg(g) - xhat * avg(g * xhat))
 *     RMSNorm    d = rstd * (g          - xhat * avg(g * xhat))
 * The averages are those parts of g that a change of mean and of variance would cancel. */
static void row_grad(const struct norm_grad_args *args, int64_t r)
{
    const enum dtype dtype = args->dtype;
    double g_sum = 0, projection_sum = 0;
    for (int64_t c = 0; c < args->C; c++) {
        double g =
            element_get(dtype, args->dy, r * args->C + c) * (element_get(dtype, args->w, c) + args->add_one);
        g_sum += g;
        projection_sum += g * normal_at(args, r, c);
    }
    double g_average = args->rms ? 0 : g_sum / (double)args->C;
    double projection = projection_sum / (double)args->C;
    double rstd = element_get(element_wide(dtype), args->rstd, r);
    for (int64_t c = 0; c < args->C; c++) {
        double g =
            element_get(dtype, args->dy, r * args->C + c) * (element_get(dtype, args->w, c) + args->add_one);
        double d = rstd * (g - g_average - normal_at(args, r, c) * projection);
        element_put(dtype, args->d, r * args->C + c, d, args->add_d);
    }
}

/* Parameters first: d may take the place of dy. */
int reference_norm_grad(const struct kernel_context *context, const struct norm_grad_args *args,
                        struct error *err)
{
    (void)context;
    if (reference_check_dtype("norm_grad", args->dtype, err))
        return -1;
    parameter_grad(args);
    for (int64_t r = 0; r < args->R; r++)
        row_grad(args, r);
    return 0;
}
