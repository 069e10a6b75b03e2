/* The linear layer and its two gradients, each one product by cuBLASLt. That library thinks in columns: a row-major matrix
 * (R, C) is its (C, R) with leading dimension C, so that
 *
 *     y(M,N)  = x(M,K) w(N,K)^T    is    y'(N,M)  = w'(K,N)^T x'(K,M)
 *     dx(M,K) = dy(M,N) w(N,K)     is    dx'(K,M) = w'(K,N) dy'(N,M)
 *     dw(N,K) = dy(M,N)^T x(M,K)   is    dw'(K,N) = x'(K,M) dy'(N,M)^T
 *
 * Bias, residual, accumulation, the bias's gradient, GELU and its slope ride along: as epilogue, or as the matrix that the
 * product is added to. GELU's epilogue keeps its input beside, in a matrix that cuBLASLt calls auxiliary; its GELU is the tanh
 * form, as ours (PyTorch puts that form in its place where the epilogue is missing: _addmm_activation in Blas.cpp). Sums are made in fp32; fp32 products are full fp32, never TF32, whose 10 bits of mantissa a user has to ask for.
 *
 * Which of its algorithms is best cuBLASLt says when asked; asking costs more than a small product, so the answer is kept
 * per shape. */
#include "kernels/cuda/cuda_matmul.h"

#include "base/arena.h"
#include "base/checked.h"
#include "kernels/cuda/cuda_table.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ALIGNMENT = 256 };

/* A product in cuBLASLt's terms: d(m,n) = op(a) op(b) + c. What differs in it may need another algorithm. */
struct shape {
    int64_t m, n, k;
    int64_t rows_a, rows_b; /* before op(): their leading dimensions */
    int64_t alignment;
    int32_t transpose_a, transpose_b;
    int32_t dtype, d_dtype; /* enum dtype */
    int32_t epilogue;
    int32_t adds; /* is there a c? */
};                /* without padding: shapes are compared as bytes */
_Static_assert(sizeof(struct shape) == 6 * sizeof(int64_t) + 6 * sizeof(int32_t), "padding");

struct operands {
    const void *a, *b, *c; /* c: NULL when there is none */
    void *d, *bias, *aux;  /* the latter two: of the epilogue; aux: GELU's input */
};

struct product {
    struct shape shape;
    bool possible; /* cuBLASLt has an algorithm */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
};

struct cuda_products {
    cublasLtHandle_t handle;
    struct product *list; /* some dozens */
    int count, room;
};

static int refuse(const char *call, cublasStatus_t status, struct error *err)
{
    return error_set(err, "%s failed: %s; `memplan env` shows this machine's driver and GPU", call,
                     cublasLtGetStatusString(status));
}

#define TRY(function, ...)                                                                                   \
    do {                                                                                                     \
        cublasStatus_t tried = function(__VA_ARGS__);                                                        \
        if (tried != CUBLAS_STATUS_SUCCESS)                                                                  \
            return refuse(#function, tried, err);                                                            \
    } while (0)

int cuda_products_open(struct cuda_products **out, struct error *err)
{
    cublasLtHandle_t handle;
    TRY(cublasLtCreate, &handle);
    struct cuda_products *products = host_alloc(sizeof *products);
    products->handle = handle;
    *out = products;
    return 0;
}

static void product_clear(struct product *product)
{
    if (product->operation)
        cublasLtMatmulDescDestroy(product->operation);
    cublasLtMatrixLayout_t layouts[] = {product->a, product->b, product->d};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            cublasLtMatrixLayoutDestroy(layouts[i]);
}

void cuda_products_close(struct cuda_products *products)
{
    if (!products)
        return;
    for (int i = 0; i < products->count; i++)
        product_clear(&products->list[i]);
    free(products->list);
    cublasLtDestroy(products->handle);
    free(products);
}

static cudaDataType_t type_of(int32_t dtype)
{
    return dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static bool has_aux(const struct shape *s)
{
    return s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX || s->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           s->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static int describe_operation(struct product *p, struct error *err)
{
    const struct shape *s = &p->shape;
    cublasOperation_t transpose_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t transpose_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)s->epilogue;
    cudaDataType_t bias_type = type_of(s->d_dtype);
    TRY(cublasLtMatmulDescCreate, &p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    TRY(cublasLtMatmulDescSetAttribute, p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a,
        sizeof transpose_a);
    TRY(cublasLtMatmulDescSetAttribute, p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &transpose_b,
        sizeof transpose_b);
    TRY(cublasLtMatmulDescSetAttribute, p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
        sizeof epilogue);
    TRY(cublasLtMatmulDescSetAttribute, p->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
        sizeof bias_type);
    if (has_aux(s))
        TRY(cublasLtMatmulDescSetAttribute, p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->m,
            sizeof s->m);
    return 0;
}

static int describe_matrices(struct product *p, struct error *err)
{
    const struct shape *s = &p->shape;
    int64_t columns_a = s->transpose_a ? s->m : s->k, columns_b = s->transpose_b ? s->k : s->n;
    TRY(cublasLtMatrixLayoutCreate, &p->a, type_of(s->dtype), (uint64_t)s->rows_a, (uint64_t)columns_a,
        s->rows_a);
    TRY(cublasLtMatrixLayoutCreate, &p->b, type_of(s->dtype), (uint64_t)s->rows_b, (uint64_t)columns_b,
        s->rows_b);
    TRY(cublasLtMatrixLayoutCreate, &p->d, type_of(s->d_dtype), (uint64_t)s->m, (uint64_t)s->n, s->m);
    return 0;
}

/* Where an algorithm divides a sum among blocks, what they found is added in fp32; by itself cuBLASLt may round each part to the
 * type of the result first. */
static uint32_t reductions_of(const struct shape *s)
{
    return s->d_dtype == DTYPE_F32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static int set_preference(cublasLtMatmulPreference_t preference, const struct shape *shape,
                          uint64_t workspace_bytes, struct error *err)
{
    const uint32_t alignment = (uint32_t)shape->alignment, reductions = reductions_of(shape);
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    TRY(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        &workspace_bytes, sizeof workspace_bytes);
    TRY(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        &reductions, sizeof reductions);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        TRY(cublasLtMatmulPreferenceSetAttribute, preference, alignments[i], &alignment, sizeof alignment);
    return 0;
}

/* p->possible stays false when there is none. */
static int choose_algorithm(const struct cuda_products *products, struct product *p, uint64_t workspace_bytes,
                            struct error *err)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    TRY(cublasLtMatmulPreferenceCreate, &preference);
    int status = set_preference(preference, &p->shape, workspace_bytes, err);
    cublasStatus_t asked = CUBLAS_STATUS_SUCCESS;
    if (!status)
        asked = cublasLtMatmulAlgoGetHeuristic(products->handle, p->operation, p->a, p->b, p->d, p->d,
                                               preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    /* It calls invalid too what it has for no types and epilogue of this kind. */
    if (asked != CUBLAS_STATUS_SUCCESS && asked != CUBLAS_STATUS_NOT_SUPPORTED &&
        asked != CUBLAS_STATUS_INVALID_VALUE)
        return refuse("cublasLtMatmulAlgoGetHeuristic", asked, err);
    p->possible =
        !status && asked == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
    if (p->possible)
        p->algorithm = found.algo;
    return status;
}

/* Room for the result of the bias's epilogue lies before what cuBLASLt works in. */
static int64_t sums_bytes(const struct shape *shape)
{
    return shape->epilogue == CUBLASLT_EPILOGUE_BGRADB ? round_up(shape->n * 4, MOST_ALIGNMENT) : 0;
}

/* The largest power of two, up to 256, that divides all addresses. */
static int64_t alignment_of(const struct operands *o)
{
    uintptr_t bits = (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c | (uintptr_t)o->d |
                     (uintptr_t)o->bias | (uintptr_t)o->aux;
    bits |= MOST_ALIGNMENT;
    return (int64_t)(bits & -bits);
}

/* How well they are aligned is read off their addresses. */
static int set_pointers(struct product *p, const struct operands *o, struct error *err)
{
    if (o->aux)
        TRY(cublasLtMatmulDescSetAttribute, p->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->aux,
            sizeof o->aux);
    if (o->bias)
        TRY(cublasLtMatmulDescSetAttribute, p->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias,
            sizeof o->bias);
    return 0;
}

/* Kept, or new: for operands as aligned as these. NULL with err. */
static struct product *find_product(const struct cuda_context *context, struct shape *shape,
                                    const struct operands *o, struct error *err)
{
    shape->alignment = alignment_of(o);
    struct cuda_products *products = context->products;
    for (int i = 0; i < products->count; i++)
        if (!memcmp(&products->list[i].shape, shape, sizeof *shape))
            return &products->list[i];
    struct product new = {.shape = *shape};
    int64_t workspace_bytes = context->scratch_bytes - sums_bytes(shape);
    if (describe_operation(&new, err) || describe_matrices(&new, err) || set_pointers(&new, o, err) ||
        choose_algorithm(products, &new, (uint64_t)max_i64(0, workspace_bytes), err)) {
        product_clear(&new);
        return NULL;
    }
    if (products->count == products->room) {
        products->room = products->room ? 2 * products->room : 32;
        products->list = host_resize(products->list, (size_t)products->room * sizeof *products->list);
    }
    products->list[products->count] = new;
    return &products->list[products->count++];
}

/* p->possible becomes false where cuBLASLt refuses what it said it has an algorithm for. */
static int run(const struct cuda_context *context, struct product *p, const struct operands *o,
               struct error *err)
{
    const float one = 1, beta = p->shape.adds ? 1 : 0;
    int64_t sums = sums_bytes(&p->shape);
    if (set_pointers(p, o, err))
        return -1;
    cublasStatus_t status =
        cublasLtMatmul(context->products->handle, p->operation, &one, o->a, p->a, o->b, p->b, &beta,
                       o->c ? o->c : o->d, p->d, o->d, p->d, &p->algorithm, (char *)context->scratch + sums,
                       (size_t)(context->scratch_bytes - sums), context->compute);
    p->possible = status == CUBLAS_STATUS_SUCCESS;
    return p->possible || status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE
               ? 0
               : refuse("cublasLtMatmul", status, err);
}

/* *done: could cuBLASLt? */
static int try_multiply(const struct cuda_context *context, struct shape *shape, const struct operands *o,
                        bool *done, struct error *err)
{
    struct product *p = find_product(context, shape, o, err);
    if (!p || (p->possible && run(context, p, o, err)))
        return -1;
    *done = p->possible;
    return 0;
}

static int refuse_shape(const struct shape *s, struct error *err)
{
    return error_set(
        err,
        "cuBLASLt has no algorithm for a %s product of m %lld, n %lld, k %lld; pad the model's sizes to "
        "multiples of 8",
        dtype_name((enum dtype)s->dtype), (long long)s->m, (long long)s->n, (long long)s->k);
}

static int multiply(const struct cuda_context *context, struct shape *shape, const struct operands *o,
                    struct error *err)
{
    bool done;
    if (try_multiply(context, shape, o, &done, err))
        return -1;
    return done ? 0 : refuse_shape(shape, err);
}

static const struct cuda_context *context_of(const struct kernel_context *ctx)
{
    return ctx->device;
}

/* With GELU, where cuBLASLt can: *done says whether it did. Rows of the auxiliary matrix are whole packs of 8, by the manual. */
static int multiply_with_gelu(const struct cuda_context *context, struct shape *shape,
                              const struct operands *operands, bool *done, struct error *err)
{
    enum { PACK = 8, LEAST_ALIGNMENT = 16 };
    *done = false;
    if (shape->m % PACK || (uintptr_t)operands->aux % LEAST_ALIGNMENT)
        return 0;
    return try_multiply(context, shape, operands, done, err);
}

static struct shape forward_shape(const struct matmul_args *args)
{
    return (struct shape){
        .m = args->N,
        .n = args->M,
        .k = args->K,
        .rows_a = args->K,
        .rows_b = args->K,
        .transpose_a = true,
        .dtype = (int32_t)args->dtype,
        .d_dtype = (int32_t)args->dtype,
        .epilogue = args->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
        .adds = args->residual != NULL,
    };
}

static struct operands forward_operands(const struct matmul_args *args)
{
    return (struct operands){
        .a = args->w, .b = args->x, .c = args->residual, .d = args->y, .bias = (void *)args->bias};
}

/* By a kernel of ours, which adds the residual too: what is stored meanwhile is rounded once. */
static int add_bias_apart(const struct kernel_context *ctx, const struct matmul_args *args, struct error *err)
{
    struct matmul_args bare = *args;
    struct residual_args sum = {.R = args->M, .C = args->N, .dtype = args->dtype, .y = args->y};
    sum.residual = args->residual, sum.bias = args->bias;
    bare.bias = bare.residual = NULL;
    return cuda_matmul(ctx, &bare, err) || cuda_residual(ctx, &sum, err) ? -1 : 0;
}

int cuda_matmul(const struct kernel_context *ctx, const struct matmul_args *args, struct error *err)
{
    if (cuda_check_dtype(args->dtype, "matmul", err))
        return -1;
    struct shape shape = forward_shape(args);
    struct operands operands = forward_operands(args);
    bool done;
    if (!args->bias)
        return multiply(context_of(ctx), &shape, &operands, err);
    if (try_multiply(context_of(ctx), &shape, &operands, &done, err))
        return -1;
    return done ? 0 : add_bias_apart(ctx, args, err);
}

int cuda_matmul_gelu(const struct kernel_context *ctx, const struct matmul_args *args, void *act,
                     struct error *err)
{
    if (cuda_check_dtype(args->dtype, "matmul_gelu", err))
        return -1;
    struct shape shape = forward_shape(args);
    struct operands operands = forward_operands(args);
    struct gelu_args gelu = {args->M * args->N, args->dtype, args->y, act};
    bool done;
    shape.epilogue = args->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    operands.d = act;
    operands.aux = args->y;
    if (multiply_with_gelu(context_of(ctx), &shape, &operands, &done, err))
        return -1;
    return done ? 0 : cuda_matmul(ctx, args, err) || cuda_gelu(ctx, &gelu, err) ? -1 : 0;
}

static struct shape dgrad_shape(const struct matmul_dgrad_args *args)
{
    return (struct shape){
        .m = args->K,
        .n = args->M,
        .k = args->N,
        .rows_a = args->K,
        .rows_b = args->N,
        .dtype = (int32_t)args->dtype,
        .d_dtype = (int32_t)args->dtype,
        .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
        .adds = args->add,
    };
}

int cuda_matmul_dgrad(const struct kernel_context *ctx, const struct matmul_dgrad_args *args,
                      struct error *err)
{
    if (cuda_check_dtype(args->dtype, "matmul_dgrad", err))
        return -1;
    struct shape shape = dgrad_shape(args);
    struct operands operands = {.a = args->w, .b = args->dy, .c = args->add ? args->dx : NULL, .d = args->dx};
    return multiply(context_of(ctx), &shape, &operands, err);
}

int cuda_matmul_dgrad_gelu(const struct kernel_context *ctx, const struct matmul_dgrad_args *args,
                           const void *x, struct error *err)
{
    if (cuda_check_dtype(args->dtype, "matmul_dgrad_gelu", err))
        return -1;
    struct shape shape = dgrad_shape(args);
    struct operands operands = {.a = args->w, .b = args->dy, .d = args->dx, .aux = (void *)x};
    struct gelu_grad_args gelu = {args->M * args->K, args->dtype, x, args->dx};
    bool done;
    shape.epilogue = CUBLASLT_EPILOGUE_DGELU;
    if (multiply_with_gelu(context_of(ctx), &shape, &operands, &done, err))
        return -1;
    return done ? 0 : cuda_matmul_dgrad(ctx, args, err) || cuda_gelu_grad(ctx, &gelu, err) ? -1 : 0;
}

/* One product makes both, where cuBLASLt can: *done says whether it did. The epilogue overwrites; where db is to be added
 * to, it writes beside, and that is added. */
static int multiply_with_bias(const struct cuda_context *context, struct shape shape,
                              struct operands operands, const struct matmul_wgrad_args *args, bool *done,
                              struct error *err)
{
    shape.epilogue = CUBLASLT_EPILOGUE_BGRADB;
    operands.bias = args->add ? context->scratch : args->db;
    if (try_multiply(context, &shape, &operands, done, err))
        return -1;
    if (!*done)
        return 0;
    struct cuda_bias_grad_args sums = {1, args->N, DTYPE_F32, context->scratch, args->db, true};
    return args->add ? cuda_bias_grad(context, &sums, err) : 0;
}

int cuda_matmul_wgrad(const struct kernel_context *ctx, const struct matmul_wgrad_args *args,
                      struct error *err)
{
    const struct cuda_context *context = context_of(ctx);
    if (cuda_check_dtype(args->dtype, "matmul_wgrad", err))
        return -1;
    struct shape shape = {
        .m = args->K,
        .n = args->N,
        .k = args->M,
        .rows_a = args->K,
        .rows_b = args->N,
        .transpose_b = true,
        .dtype = (int32_t)args->dtype,
        .d_dtype = DTYPE_F32,
        .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
        .adds = args->add,
    };
    struct operands operands = {.a = args->x, .b = args->dy, .c = args->add ? args->dw : NULL, .d = args->dw};
    bool done = false;
    if (args->db && multiply_with_bias(context, shape, operands, args, &done, err))
        return -1;
    if (done)
        return 0;
    if (multiply(context, &shape, &operands, err))
        return -1;
    struct cuda_bias_grad_args sums = {args->M, args->N, args->dtype, args->dy, args->db, args->add};
    return args->db ? cuda_bias_grad(context, &sums, err) : 0;
}
