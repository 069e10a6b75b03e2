/* Token and position embeddings: rows of two tables, added. Backward scatters each row's gradient to the rows it came
 * from, in row order, so that repeated tokens always add up in the same order. Of a table split over ranks both know only
 * their own rows. */
#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

#include <inttypes.h>

/* Looks at all tokens before anything is written. */
static int check_tokens(const char *operation, const int32_t *tokens, int64_t rows, int64_t vocabulary,
                        struct error *err)
{
    for (int64_t r = 0; r < rows; r++)
        if (tokens[r] < 0 || tokens[r] >= vocabulary)
            return error_set(err,
                             "%s: token %" PRId32 " at position %" PRId64
                             " of the batch is outside [0, %" PRId64
                             "); use data made with this model's tokenizer, or raise the vocabulary",
                             operation, tokens[r], r, vocabulary);
    return 0;
}

/* Whether this is a row of wte, and not of another rank's. */
static bool is_held(int64_t row, int64_t V)
{
    return row >= 0 && row < V;
}

static double scale_of(double scale)
{
    return scale != 0 ? scale : 1;
}

/* x[r] = scale wte[tokens[r] - first_token] + wpe[r % T] */
int reference_embed(const struct kernel_context *context, const struct embed_args *args, struct error *err)
{
    (void)context;
    const int64_t rows = args->B * args->T, C = args->C;
    if (reference_check_dtype("embed", args->dtype, err) ||
        check_tokens("embed", args->tokens, rows, args->vocabulary, err))
        return -1;
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = args->tokens[r] - args->first_token;
        for (int64_t c = 0; c < C; c++) {
            double x = is_held(row, args->V) ? element_get(args->dtype, args->wte, row * C + c) : 0;
            x *= scale_of(args->scale);
            if (args->wpe)
                x += element_get(args->dtype, args->wpe, r % args->T * C + c);
            element_set(args->dtype, args->x, r * C + c, x);
        }
    }
    return 0;
}

/* dwte[v] = scale times the sum of d[r] over the rows with tokens[r] = first_token + v */
static void token_grad(const struct embed_grad_args *args)
{
    const enum dtype wide = element_wide(args->dtype);
    const int64_t C = args->C;
    if (!args->add_wte)
        for (int64_t i = 0; i < args->V * C; i++)
            element_set(wide, args->dwte, i, 0);
    for (int64_t r = 0; r < args->B * args->T; r++) {
        int64_t row = args->tokens[r] - args->first_token;
        for (int64_t c = 0; c < C && is_held(row, args->V); c++)
            element_put(wide, args->dwte, row * C + c,
                        scale_of(args->scale) * element_get(args->dtype, args->d, r * C + c), true);
    }
}

/* dwpe[t] = sum over b of d[b, t]; positions that no sequence reaches get zero. */
static void position_grad(const struct embed_grad_args *args)
{
    const int64_t C = args->C;
    for (int64_t t = 0; t < args->positions; t++)
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;
            for (int64_t b = 0; b < args->B && t < args->T; b++)
                sum += element_get(args->dtype, args->d, (b * args->T + t) * C + c);
            element_put(element_wide(args->dtype), args->dwpe, t * C + c, sum, args->add_wpe);
        }
}

int reference_embed_grad(const struct kernel_context *context, const struct embed_grad_args *args,
                         struct error *err)
{
    (void)context;
    if (reference_check_dtype("embed_grad", args->dtype, err) ||
        check_tokens("embed_grad", args->tokens, args->B * args->T, args->vocabulary, err))
        return -1;
    if (args->dwpe && args->positions < args->T)
        return error_set(err,
                         "embed_grad: %" PRId64 " position embeddings are too few for sequences of %" PRId64
                         " tokens; use shorter ones",
                         args->positions, args->T);
    token_grad(args);
    if (args->dwpe)
        position_grad(args);
    return 0;
}
