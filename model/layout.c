#include "model/layout.h"

#include <string.h>

static const char *const precision_names[] = {"fp32", "bf16", "fp64"};

const char *precision_name(enum precision precision)
{
    return precision_names[precision];
}

enum dtype precision_dtype(enum precision precision)
{
    return precision == PRECISION_BF16 ? DTYPE_BF16 : precision == PRECISION_FP64 ? DTYPE_F64 : DTYPE_F32;
}

int precision_find(const char *name, enum precision *out, struct error *err)
{
    for (int i = 0; i < 3; i++)
        if (!strcmp(precision_names[i], name)) {
            *out = (enum precision)i;
            return 0;
        }
    return error_set(err, "precision \"%s\" is unknown; use fp32 or bf16", name);
}

static int check_positive(const char *option, int64_t value, int64_t most, struct error *err)
{
    if (value >= 1 && value <= most)
        return 0;
    return error_set(err, "--%s %lld is out of range; it must be between 1 and %lld", option,
                     (long long)value, (long long)most);
}

static int check_divides(const struct layout *l, const char *what, int64_t value, struct error *err)
{
    int64_t fits = l->tp;
    while (value % fits)
        fits--;
    if (fits == l->tp)
        return 0;
    return error_set(err, "--tp %lld does not divide %s %lld; try --tp %lld", (long long)l->tp, what,
                     (long long)value, (long long)fits);
}

/* The vocabulary need not divide: it is padded. */
static int check_tensor_parallel(const struct layout *l, const struct model *model, struct error *err)
{
    if (check_divides(l, "heads", model->heads, err) ||
        check_divides(l, "key/value heads", model->kv_heads, err) ||
        check_divides(l, "the feed-forward size", model->ffn, err))
        return -1;
    if (l->sequence_parallel && l->tp == 1)
        return error_set(err, "--sequence-parallel splits the work between tensor-parallel ranks; give --tp "
                              "2 or more, or leave "
                              "it out");
    if (l->tp > model->vocab)
        return error_set(err, "--tp %lld is more than the vocabulary %lld; use fewer ranks", (long long)l->tp,
                         (long long)model->vocab);
    return l->sequence_parallel ? check_divides(l, "the sequence length", l->seq_len, err) : 0;
}

int layout_complete(struct layout *layout, const struct model *model, struct error *err)
{
    struct layout l = *layout;
    if (!l.dp)
        l.dp = 1;
    if (!l.tp)
        l.tp = 1;
    if (check_positive("dp", l.dp, LAYOUT_DP_MAX, err) || check_positive("tp", l.tp, LAYOUT_TP_MAX, err))
        return -1;
    if (!l.micro_batch)
        l.micro_batch = l.global_batch && l.global_batch < l.dp * model->usual_batch ? 1 : model->usual_batch;
    if (!l.seq_len)
        l.seq_len = model->max_seq_len;
    if (!l.bucket_bytes)
        l.bucket_bytes = LAYOUT_BUCKET_BYTES;
    if (check_positive("micro-batch", l.micro_batch, LAYOUT_MICRO_BATCH_MAX, err) ||
        check_positive("seq-len", l.seq_len, 1LL << 31, err) ||
        check_positive("bucket-bytes", l.bucket_bytes, 1LL << 40, err))
        return -1;
    if (!l.global_batch)
        l.global_batch = l.dp * l.micro_batch;
    if (check_positive("global-batch", l.global_batch, 1LL << 40, err))
        return -1;
    if (l.global_batch % (l.dp * l.micro_batch))
        return error_set(err, "--global-batch %lld is not a multiple of dp %lld x micro-batch %lld; try %lld",
                         (long long)l.global_batch, (long long)l.dp, (long long)l.micro_batch,
                         (long long)((l.global_batch / (l.dp * l.micro_batch) + 1) * l.dp * l.micro_batch));
    if (model->family == MODEL_GPT2 && l.seq_len > model->max_seq_len)
        return error_set(
            err, "--seq-len %lld is longer than the %lld learned positions of %s; use at most %lld",
            (long long)l.seq_len, (long long)model->max_seq_len, model->name, (long long)model->max_seq_len);
    if (check_tensor_parallel(&l, model, err))
        return -1;
    *layout = l;
    return 0;
}

int64_t layout_ranks(const struct layout *layout)
{
    return layout->dp * layout->tp;
}

int64_t layout_micro_batches(const struct layout *layout)
{
    return layout->global_batch / (layout->dp * layout->micro_batch);
}

json_t *layout_to_json(const struct layout *l)
{
    return json_pack("{s:I, s:I, s:i, s:b, s:I, s:I, s:I, s:I, s:s}", "dp", (json_int_t)l->dp, "tp",
                     (json_int_t)l->tp, "pp", 1, "sequence_parallel", l->sequence_parallel, "micro_batch",
                     (json_int_t)l->micro_batch, "global_batch", (json_int_t)l->global_batch, "seq_len",
                     (json_int_t)l->seq_len, "bucket_bytes", (json_int_t)l->bucket_bytes, "precision",
                     precision_name(l->precision));
}

int layout_from_json(const json_t *object, const char *where, struct layout *out, struct error *err)
{
    struct layout l = {0};
    int64_t pp = 1;
    const char *precision = "fp32";
    if (jsonfile_int(object, "dp", where, &l.dp, err) ||
        jsonfile_int_optional(object, "tp", where, &l.tp, err) ||
        jsonfile_bool_optional(object, "sequence_parallel", where, &l.sequence_parallel, err) ||
        jsonfile_int_optional(object, "pp", where, &pp, err) ||
        jsonfile_int(object, "micro_batch", where, &l.micro_batch, err) ||
        jsonfile_int(object, "global_batch", where, &l.global_batch, err) ||
        jsonfile_int(object, "seq_len", where, &l.seq_len, err) ||
        jsonfile_int_optional(object, "bucket_bytes", where, &l.bucket_bytes, err) ||
        jsonfile_text_optional(object, "precision", where, &precision, err))
        return -1;
    if (pp != 1)
        return error_set(err, "%s: pp=%lld; this version trains plans without pipeline stages only (pp=1)",
                         where, (long long)pp);
    if (precision_find(precision, &l.precision, err))
        return error_prefix(err, "%s", where);
    *out = l;
    return 0;
}
