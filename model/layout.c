#include "model/layout.h"

#include "base/checked.h"

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
    if (l->tp > 1 && model->qk_norm_whole)
        return error_set(
            err,
            "--tp %lld shares heads among ranks, and %s norms all queries of a position together, "
            "and all keys; use --tp 1",
            (long long)l->tp, model->name);
    if (l->sequence_parallel && l->tp == 1)
        return error_set(err, "--sequence-parallel splits the work between tensor-parallel ranks; give --tp "
                              "2 or more, or leave it out");
    if (l->tp > model->vocab)
        return error_set(err, "--tp %lld is more than the vocabulary %lld; use fewer ranks", (long long)l->tp,
                         (long long)model->vocab);
    if (l->sequence_parallel && l->seq_len % l->tp)
        return error_set(err,
                         "--sequence-parallel shares the sequence among --tp %lld, which does not divide "
                         "--seq-len %lld; try --seq-len %lld, or leave it out",
                         (long long)l->tp, (long long)l->seq_len,
                         (long long)max_i64(l->seq_len / l->tp, 1) * l->tp);
    return 0;
}

/* Megatron-LM's order needs whole groups of micro-batches, one for each stage. */
static int check_groups(const struct layout *l, struct error *err)
{
    int64_t group = l->dp * l->micro_batch * l->pp;
    if (l->schedule != SCHEDULE_INTERLEAVED || l->virtual_stages == 1 || l->global_batch % group == 0)
        return 0;
    return error_set(err,
                     "--virtual-stages %lld runs micro-batches in groups of --pp %lld, which the %lld of "
                     "--global-batch %lld do not fill; try --global-batch %lld, or --virtual-stages 1",
                     (long long)l->virtual_stages, (long long)l->pp, (long long)layout_micro_batches(l),
                     (long long)l->global_batch, (long long)((l->global_batch / group + 1) * group));
}

/* How many chunks may have no layers. */
static int64_t empty_ends(const struct layout *l, const struct model *model)
{
    return 2 - layout_least_layers(l, model, 0) - layout_least_layers(l, model, layout_chunks(l) - 1);
}

static int complete_pipeline(struct layout *l, const struct model *model, struct error *err)
{
    if (l->schedule == SCHEDULE_1F1B && l->virtual_stages > 1)
        l->schedule = SCHEDULE_INTERLEAVED;
    if (l->pp == 1 && l->virtual_stages > 1)
        return error_set(err,
                         "--virtual-stages %lld divides the layers of a pipeline's stages, and --pp is "
                         "1; give --pp 2 or more, or leave it out",
                         (long long)l->virtual_stages);
    if (l->pp == 1)
        l->schedule = SCHEDULE_1F1B;
    else if (layout_chunks(l) > model->layers + empty_ends(l, model))
        return error_set(
            err,
            "--pp %lld with --virtual-stages %lld cuts the layers into %lld chunks, and %s has %lld layers: "
            "%s; use fewer",
            (long long)l->pp, (long long)l->virtual_stages, (long long)layout_chunks(l), model->name,
            (long long)model->layers,
            empty_ends(l, model) ? "only the first and the last may have none" : "some would have none");
    struct schedule_shape shape = layout_schedule(l);
    return check_groups(l, err) || schedule_shape_check(&shape, err) ? -1 : 0;
}

int64_t layout_chunks(const struct layout *l)
{
    return l->pp * l->virtual_stages;
}

int64_t layout_least_layers(const struct layout *l, const struct model *model, int64_t chunk)
{
    bool end = chunk == 0 || chunk == layout_chunks(l) - 1;
    return end && l->pp > 1 && model->family != MODEL_ENCODER ? 0 : 1;
}

void layout_spread_layers(const struct layout *l, int64_t layers, int64_t *out)
{
    int64_t chunks = layout_chunks(l), rest = layers % chunks;
    for (int64_t i = 0; i < chunks; i++)
        out[i] = layers / chunks + (i < chunks - 1 && i >= chunks - 1 - rest);
}

void layout_print_layers(const int64_t *layers, int64_t chunks, struct text *out)
{
    for (int64_t i = 0, next; i < chunks; i = next) {
        for (next = i + 1; next < chunks && layers[next] == layers[i];)
            next++;
        text_printf(out, "%s%lld", i ? "," : "", (long long)layers[i]);
        if (next > i + 1)
            text_printf(out, "*%lld", (long long)(next - i));
    }
}

struct schedule_shape layout_schedule(const struct layout *l)
{
    return (struct schedule_shape){l->schedule, l->pp, l->virtual_stages, layout_micro_batches(l)};
}

int layout_complete(struct layout *layout, const struct model *model, struct error *err)
{
    struct layout l = *layout;
    if (!l.dp)
        l.dp = 1;
    if (!l.tp)
        l.tp = 1;
    if (!l.pp)
        l.pp = 1;
    if (!l.virtual_stages)
        l.virtual_stages = 1;
    if (check_positive("dp", l.dp, LAYOUT_DP_MAX, err) || check_positive("tp", l.tp, LAYOUT_TP_MAX, err) ||
        check_positive("pp", l.pp, LAYOUT_PP_MAX, err) ||
        check_positive("virtual-stages", l.virtual_stages, LAYOUT_PP_MAX, err))
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
        l.global_batch = l.dp * l.micro_batch * l.pp;
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
    if (check_tensor_parallel(&l, model, err) || complete_pipeline(&l, model, err))
        return -1;
    if (l.zero < 0 || l.zero > 1)
        return error_set(
            err,
            "--zero %d is not there; use 1 to shard the optimizer states over the data-parallel ranks, or 0",
            l.zero);
    *layout = l;
    return 0;
}

int64_t layout_ranks(const struct layout *layout)
{
    return layout->dp * layout->tp * layout->pp;
}

struct layout_place layout_place_of(const struct layout *layout, int64_t rank)
{
    return (struct layout_place){
        .stage = rank / layout->tp / layout->dp,
        .replica = rank / layout->tp % layout->dp,
        .part = rank % layout->tp,
    };
}

int64_t layout_micro_batches(const struct layout *layout)
{
    return layout->global_batch / (layout->dp * layout->micro_batch);
}

json_t *layout_to_json(const struct layout *l)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:s, s:i, s:b, s:I, s:I, s:I, s:I, s:s}", "dp", (json_int_t)l->dp,
                     "tp", (json_int_t)l->tp, "pp", (json_int_t)l->pp, "virtual_stages",
                     (json_int_t)l->virtual_stages, "schedule", schedule_name(l->schedule), "zero", l->zero,
                     "sequence_parallel", l->sequence_parallel, "micro_batch", (json_int_t)l->micro_batch,
                     "global_batch", (json_int_t)l->global_batch, "seq_len", (json_int_t)l->seq_len,
                     "bucket_bytes", (json_int_t)l->bucket_bytes, "precision", precision_name(l->precision));
}

int layout_from_json(const json_t *object, const char *where, struct layout *out, struct error *err)
{
    struct layout l = {0};
    int64_t zero = 0;
    const char *precision = "fp32", *schedule = "1f1b";
    if (jsonfile_int(object, "dp", where, &l.dp, err) ||
        jsonfile_int_optional(object, "tp", where, &l.tp, err) ||
        jsonfile_bool_optional(object, "sequence_parallel", where, &l.sequence_parallel, err) ||
        jsonfile_int_optional(object, "pp", where, &l.pp, err) ||
        jsonfile_int_optional(object, "virtual_stages", where, &l.virtual_stages, err) ||
        jsonfile_text_optional(object, "schedule", where, &schedule, err) ||
        jsonfile_int_optional(object, "zero", where, &zero, err) ||
        jsonfile_int(object, "micro_batch", where, &l.micro_batch, err) ||
        jsonfile_int(object, "global_batch", where, &l.global_batch, err) ||
        jsonfile_int(object, "seq_len", where, &l.seq_len, err) ||
        jsonfile_int_optional(object, "bucket_bytes", where, &l.bucket_bytes, err) ||
        jsonfile_text_optional(object, "precision", where, &precision, err))
        return -1;
    if (zero < 0 || zero > 1)
        return error_set(err, "%s: zero is %lld; optimizer states are sharded (1) or not (0)", where,
                         (long long)zero);
    l.zero = (int)zero;
    if (precision_find(precision, &l.precision, err) || schedule_find(schedule, &l.schedule, err))
        return error_prefix(err, "%s", where);
    *out = l;
    return 0;
}
