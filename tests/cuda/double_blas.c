/* Stands in for cuBLASLt in tests: a plain reference product that honours layouts, epilogues and factors, and refuses what the
 * real one would refuse, or leaves undefined: an algorithm made for another product, another alignment, more workspace than
 * there is; matrices that do not fit each other or their memory; types that do not go together.
 *
 *     DOUBLE_CUBLAS_NO_BIAS_GRADIENT=unsupported   has no algorithm with CUBLASLT_EPILOGUE_BGRADB
 *     DOUBLE_CUBLAS_NO_BIAS_GRADIENT=invalid       and says that nobody can have one
 *     DOUBLE_CUBLAS_NO_BIAS_GRADIENT=late          has one, and refuses it when it is to run
 *     DOUBLE_CUBLAS_NO_BIAS=...                    the same three, of CUBLASLT_EPILOGUE_BIAS
 *     DOUBLE_CUBLAS_NO_GELU=1                      has no algorithm with GELU or its slope
 *
 * Long sums it adds in two parts, which are rounded to the type of the result where the preference allows that. */
#include "tests/cuda/double_runtime.h"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLE_MARK = 0x17aeb1a5, NEEDED_WORKSPACE = 4096, LEAST_WORKSPACE_ALIGNMENT = 16 };

struct cublasLtContext {
    int mark;
};

struct operation {
    cublasComputeType_t compute;
    cudaDataType_t scale, bias_type;
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
};

struct layout {
    cudaDataType_t type;
    int64_t rows, columns, ld;
};

struct preference {
    uint64_t workspace_bytes;
    uint32_t alignment[4], reductions;
};

/* In the bytes of a cublasLtMatmulAlgo_t. */
struct algorithm {
    uint64_t problem; /* a sum over what it was chosen for */
    uint64_t workspace_bytes;
    uint32_t alignment[4];
    bool rounds_parts;
};

_Static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm fits its type");

struct problem {
    struct operation operation;
    struct layout a, b, c, d;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    if (double_injected(__func__) != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    struct cublasLtContext *handle = calloc(1, sizeof *handle);
    handle->mark = HANDLE_MARK;
    *out = handle;
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_handle(cublasLtHandle_t handle, const char *call)
{
    if (handle && handle->mark == HANDLE_MARK)
        return true;
    double_complain("%s: a cuBLASLt handle that is none, or was destroyed", call);
    return false;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!is_handle(handle, __func__))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->mark = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality requested is not supported";
    default:
        return "unknown";
    }
}

/* --------------------------------------------------------------------------------------------------------- descriptors */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct operation *operation = calloc(1, sizeof *operation);
    *operation = (struct operation){.compute = compute,
                                    .scale = scale,
                                    .bias_type = (cudaDataType_t)-1,
                                    .transpose_a = CUBLAS_OP_N,
                                    .transpose_b = CUBLAS_OP_N,
                                    .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    *out = (cublasLtMatmulDesc_t)operation;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

/* Of the attribute's own size, or refused. */
static cublasStatus_t set(void *field, size_t field_bytes, const void *value, size_t bytes)
{
    if (bytes != field_bytes || !value)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes)
{
    struct operation *o = (struct operation *)desc;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&o->transpose_a, sizeof o->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&o->transpose_b, sizeof o->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&o->epilogue, sizeof o->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&o->bias, sizeof o->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&o->aux, sizeof o->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&o->aux_ld, sizeof o->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(&o->bias_type, sizeof o->bias_type, value, bytes);
    default:
        double_complain("%s: attribute %d is not known to the double", __func__, (int)attribute);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    struct layout *layout = calloc(1, sizeof *layout);
    *layout = (struct layout){type, (int64_t)rows, (int64_t)columns, ld};
    *out = (cublasLtMatrixLayout_t)layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

/* Alignments are 256 bytes unless one says otherwise, as those of the real one. */
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *preference = calloc(1, sizeof *preference);
    for (int i = 0; i < 4; i++)
        preference->alignment[i] = 256;
    preference->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    *out = (cublasLtMatmulPreference_t)preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    struct preference *p = (struct preference *)preference;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace_bytes, sizeof p->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->reductions, sizeof p->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(&p->alignment[0], sizeof p->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(&p->alignment[1], sizeof p->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(&p->alignment[2], sizeof p->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->alignment[3], sizeof p->alignment[3], value, bytes);
    default:
        double_complain("%s: attribute %d is not known to the double", __func__, (int)attribute);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* ------------------------------------------------------------------------------------------------------- what is allowed */

static int64_t type_bytes(cudaDataType_t type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

static bool is_whole(const struct layout *l)
{
    return l->rows > 0 && l->columns > 0 && l->ld >= l->rows &&
           (l->type == CUDA_R_16BF || l->type == CUDA_R_32F);
}

static int64_t inner(const struct problem *p)
{
    return p->operation.transpose_a == CUBLAS_OP_T ? p->a.rows : p->a.columns;
}

static bool sizes_agree(const struct problem *p)
{
    bool ta = p->operation.transpose_a == CUBLAS_OP_T, tb = p->operation.transpose_b == CUBLAS_OP_T;
    int64_t m = ta ? p->a.columns : p->a.rows, n = tb ? p->b.rows : p->b.columns;
    return is_whole(&p->a) && is_whole(&p->b) && is_whole(&p->c) && is_whole(&p->d) && p->d.rows == m &&
           p->d.columns == n && inner(p) == (tb ? p->b.columns : p->b.rows) && p->c.rows == m &&
           p->c.columns == n;
}

/* The rows of the table in cuBLASLt's manual that are in use: BF16 to BF16 or F32, F32 to F32; all with CUBLAS_COMPUTE_32F. */
static bool types_agree(const struct problem *p)
{
    const struct operation *o = &p->operation;
    bool matrices = p->a.type == p->b.type && p->c.type == p->d.type &&
                    (p->d.type == p->a.type || (p->a.type == CUDA_R_16BF && p->d.type == CUDA_R_32F));
    bool bias = o->bias_type == (cudaDataType_t)-1 || o->bias_type == p->d.type;
    return matrices && bias && o->compute == CUBLAS_COMPUTE_32F && o->scale == CUDA_R_32F;
}

static bool writes_aux(const struct operation *o)
{
    return o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX || o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool reads_bias(const struct operation *o)
{
    return o->epilogue == CUBLASLT_EPILOGUE_BIAS || o->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* By the manual: rows of whole packs of 8, and 16 bytes of alignment. */
static cublasStatus_t check_aux(const struct problem *p)
{
    const struct operation *o = &p->operation;
    if (getenv("DOUBLE_CUBLAS_NO_GELU"))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o->aux_ld % 8 || o->aux_ld < p->d.rows || !o->aux || (uintptr_t)o->aux % 16) {
        double_complain("cublasLtMatmul: an auxiliary matrix at %p with rows of %lld", o->aux,
                        (long long)o->aux_ld);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* What a test has asked for. */
static cublasStatus_t refusal_of(cublasLtEpilogue_t epilogue, bool running)
{
    const char *without = epilogue == CUBLASLT_EPILOGUE_BGRADB ? getenv("DOUBLE_CUBLAS_NO_BIAS_GRADIENT")
                          : epilogue == CUBLASLT_EPILOGUE_BIAS ? getenv("DOUBLE_CUBLAS_NO_BIAS")
                                                               : NULL;
    if (!without || (!running && !strcmp(without, "late")))
        return CUBLAS_STATUS_SUCCESS;
    return strcmp(without, "invalid") ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t check_problem(const struct problem *p, bool running)
{
    if (!sizes_agree(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasLtEpilogue_t e = p->operation.epilogue;
    cublasStatus_t refusal = refusal_of(e, running);
    if (refusal != CUBLAS_STATUS_SUCCESS)
        return refusal;
    bool gelu = writes_aux(&p->operation) || e == CUBLASLT_EPILOGUE_DGELU;
    cublasStatus_t aux = gelu ? check_aux(p) : CUBLAS_STATUS_SUCCESS;
    if (aux != CUBLAS_STATUS_SUCCESS)
        return aux;
    bool known = gelu || e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_BIAS ||
                 e == CUBLASLT_EPILOGUE_BGRADB;
    return types_agree(p) && known ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static uint64_t add_to_sum(uint64_t sum, const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ ((const unsigned char *)memory)[i]) * 0x100000001b3u;
    return sum;
}

static uint64_t sum_of_problem(const struct problem *p)
{
    const struct layout *layouts[] = {&p->a, &p->b, &p->c, &p->d};
    int32_t words[] = {(int32_t)p->operation.transpose_a, (int32_t)p->operation.transpose_b,
                       (int32_t)p->operation.epilogue};
    uint64_t sum = add_to_sum(0xcbf29ce484222325u, words, sizeof words);
    for (int i = 0; i < 4; i++) {
        int64_t fields[] = {(int64_t)layouts[i]->type, layouts[i]->rows, layouts[i]->columns, layouts[i]->ld};
        sum = add_to_sum(sum, fields, sizeof fields);
    }
    return sum;
}

static struct problem problem_of(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    return (struct problem){*(struct operation *)operation, *(struct layout *)a, *(struct layout *)b,
                            *(struct layout *)c, *(struct layout *)d};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    *found = 0;
    if (!is_handle(handle, __func__) || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    struct problem problem = problem_of(operation, a, b, c, d);
    const struct preference *p = (const struct preference *)preference;
    cublasStatus_t status = check_problem(&problem, false);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    struct algorithm algorithm = {.problem = sum_of_problem(&problem),
                                  .workspace_bytes =
                                      p->workspace_bytes >= NEEDED_WORKSPACE ? NEEDED_WORKSPACE : 0};
    memcpy(algorithm.alignment, p->alignment, sizeof algorithm.alignment);
    algorithm.rounds_parts =
        p->reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
    memset(&results[0], 0, sizeof results[0]);
    memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = algorithm.workspace_bytes;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* -------------------------------------------------------------------------------------------------------- the product */

struct product {
    struct problem problem;
    float alpha, beta;
    const void *a, *b, *c;
    void *d, *workspace;
    size_t workspace_bytes;
    bool rounds_parts;
};

static float load(const struct layout *l, const void *memory, int64_t row, int64_t column)
{
    int64_t at = column * l->ld + row;
    if (l->type == CUDA_R_32F)
        return ((const float *)memory)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)memory)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounded to nearest, ties to even. */
static void store(cudaDataType_t type, void *memory, int64_t at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (type == CUDA_R_32F)
        ((float *)memory)[at] = value;
    else if ((bits & 0x7fffffff) > 0x7f800000)
        ((uint16_t *)memory)[at] = (uint16_t)(bits >> 16 | 0x40);
    else
        ((uint16_t *)memory)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* One matrix as rows of `inner` floats each, whatever its layout: row i of op(a), column j of op(b). */
static float *pack(const struct layout *l, const void *memory, bool rows_are_columns, int64_t count,
                   int64_t k)
{
    float *out = malloc((size_t)(count * k) * sizeof *out);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < k; j++)
            out[i * k + j] = rows_are_columns ? load(l, memory, j, i) : load(l, memory, i, j);
    return out;
}

static float dot(const float *a, const float *b, int64_t count)
{
    enum { LANES = 16 };
    float lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += a[i + lane] * b[i + lane];
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    for (; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* In two parts where it is long. */
static float long_dot(const struct product *p, const float *a, const float *b, int64_t count)
{
    enum { LONG = 128 };
    int64_t half = count / 2;
    float first = dot(a, b, half);
    if (count < LONG)
        return dot(a, b, count);
    if (p->rounds_parts && p->problem.d.type == CUDA_R_16BF) {
        uint16_t rounded;
        store(CUDA_R_16BF, &rounded, 0, first);
        first = load(&(struct layout){CUDA_R_16BF, 1, 1, 1}, &rounded, 0, 0);
    }
    return first + dot(a + half, b + half, count - half);
}

/* Sums over the inner dimension of op(b)'s columns. */
static void write_bias_gradient(const struct product *p, const float *b)
{
    int64_t n = p->problem.d.columns, k = inner(&p->problem);
    for (int64_t j = 0; j < n; j++) {
        float sum = 0;
        for (int64_t i = 0; i < k; i++)
            sum += b[j * k + i];
        store(p->problem.operation.bias_type, p->problem.operation.bias, j, sum);
    }
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = tanh(inner);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* What becomes of an element before it is stored. */
static float finish(const struct product *p, int64_t row, int64_t column, float value)
{
    const struct operation *o = &p->problem.operation;
    const struct layout aux = {p->problem.d.type, p->problem.d.rows, p->problem.d.columns, o->aux_ld};
    const struct layout bias = {o->bias_type, p->problem.d.rows, 1, p->problem.d.rows};
    if (reads_bias(o))
        value += load(&bias, o->bias, row, 0);
    if (o->epilogue == CUBLASLT_EPILOGUE_DGELU)
        return value * (float)gelu_slope((double)load(&aux, o->aux, row, column));
    if (!writes_aux(o))
        return value;
    store(aux.type, o->aux, column * aux.ld + row, value);
    return (float)gelu((double)value);
}

static void run_product(void *work)
{
    const struct product *p = work;
    const struct operation *o = &p->problem.operation;
    const struct layout *d = &p->problem.d, *c = &p->problem.c;
    int64_t k = inner(&p->problem);
    memset(p->workspace, 0xff, p->workspace_bytes);
    float *a = pack(&p->problem.a, p->a, o->transpose_a == CUBLAS_OP_T, d->rows, k);
    float *b = pack(&p->problem.b, p->b, o->transpose_b == CUBLAS_OP_N, d->columns, k);
    for (int64_t column = 0; column < d->columns; column++)
        for (int64_t row = 0; row < d->rows; row++) {
            float value = p->alpha * long_dot(p, a + row * k, b + column * k, k);
            if (p->beta != 0)
                value += p->beta * load(c, p->c, row, column);
            store(d->type, p->d, column * d->ld + row, finish(p, row, column, value));
        }
    if (o->epilogue == CUBLASLT_EPILOGUE_BGRADB)
        write_bias_gradient(p, b);
    free(a);
    free(b);
}

static bool holds(const struct layout *l, const void *memory)
{
    int64_t bytes = ((l->columns - 1) * l->ld + l->rows) * type_bytes(l->type);
    return double_holds(memory, (size_t)bytes);
}

static bool memory_is_there(const struct product *p)
{
    const struct operation *o = &p->problem.operation;
    struct layout aux = {p->problem.d.type, p->problem.d.rows, p->problem.d.columns, o->aux_ld};
    bool has_aux = writes_aux(o) || o->epilogue == CUBLASLT_EPILOGUE_DGELU;
    int64_t bias_count = reads_bias(o)                             ? p->problem.d.rows
                         : o->epilogue == CUBLASLT_EPILOGUE_BGRADB ? p->problem.d.columns
                                                                   : 0;
    return holds(&p->problem.a, p->a) && holds(&p->problem.b, p->b) && holds(&p->problem.d, p->d) &&
           (p->beta == 0 || holds(&p->problem.c, p->c)) && (!has_aux || holds(&aux, o->aux)) &&
           (!p->workspace_bytes || double_holds(p->workspace, p->workspace_bytes)) &&
           (!bias_count || double_holds(o->bias, (size_t)(bias_count * type_bytes(o->bias_type))));
}

static bool is_aligned(const struct product *p, const struct algorithm *algorithm)
{
    const void *operands[] = {p->a, p->b, p->c, p->d};
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)operands[i] % algorithm->alignment[i])
            return false;
    return (uintptr_t)p->workspace % LEAST_WORKSPACE_ALIGNMENT == 0;
}

static cublasStatus_t submit(cudaStream_t stream, const struct product *product)
{
    const struct operation *o = &product->problem.operation;
    bool writes_bias = o->epilogue == CUBLASLT_EPILOGUE_BGRADB, aux = o->epilogue == CUBLASLT_EPILOGUE_DGELU;
    const char *what = "cublasLtMatmul";
    struct order_access accesses[] = {
        {product->a, 0, false, what},
        {product->b, 0, false, what},
        {product->beta != 0 ? product->c : product->d, 0, product->beta == 0, what},
        {product->d, 0, true, what},
        {product->workspace, product->workspace_bytes, true, what},
        {writes_bias || reads_bias(o) ? o->bias : product->d, 0, writes_bias, what},
        {writes_aux(o) || aux ? o->aux : product->d, 0, writes_aux(o), what},
    };
    struct product *copy = malloc(sizeof *copy);
    *copy = *product;
    return double_submit(stream, accesses, o->epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 5 : 7, run_product,
                         free, copy) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    if (double_injected(__func__) != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!is_handle(handle, __func__))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    struct product product = {problem_of(operation, a_layout, b_layout, c_layout, d_layout),
                              *(const float *)alpha,
                              *(const float *)beta,
                              a,
                              b,
                              c,
                              d,
                              workspace,
                              0,
                              false};
    struct algorithm algorithm;
    cublasStatus_t status = check_problem(&product.problem, true);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!algo) {
        double_complain("%s: no algorithm, so that one would be sought for each call", __func__);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(&algorithm, algo, sizeof algorithm);
    product.workspace_bytes = algorithm.workspace_bytes;
    product.rounds_parts = algorithm.rounds_parts;
    if (algorithm.problem != sum_of_problem(&product.problem) || algorithm.workspace_bytes > workspace_bytes)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!is_aligned(&product, &algorithm)) {
        double_complain("%s: an operand is less aligned than the algorithm was promised", __func__);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!memory_is_there(&product)) {
        double_complain("%s: a matrix, bias or workspace is not in device memory, or reaches out of it",
                        __func__);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return submit(stream, &product);
}
