/* Published weights arrive where they belong: files as Hugging Face writes them are made of values that are known for every
 * element of every parameter, and read back. */
#include "trainer/public_weights.h"

#include "base/arena.h"
#include "base/text.h"
#include "tests/model/first_stage.h"
#include "tests/test.h"
#include "tests/trainer/crowd.h"
#include "tests/trainer/runs.h"
#include "trainer/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL = 0 };

/* A public tensor, made of these rows of a parameter. In a name, %d is the layer. A model's tensors are those whose
 * parameters it has. */
struct published {
    enum parameter_id id;
    const char *name;
    bool transposed;
    int64_t first, rows;
};

/* attn.bias, an attention mask, was once part of every file; and some hold the tied embedding twice. */
static const struct published gpt2_tensors[] = {
    {PARAM_WTE, "wte.weight", .rows = ALL},
    {PARAM_WTE, "lm_head.weight", .rows = ALL},
    {PARAM_WPE, "wpe.weight", .rows = ALL},
    {PARAM_NORM1, "h.%d.attn.bias", .rows = ALL},
    {PARAM_NORM1, "h.%d.ln_1.weight", .rows = ALL},
    {PARAM_NORM1_BIAS, "h.%d.ln_1.bias", .rows = ALL},
    {PARAM_QKV, "h.%d.attn.c_attn.weight", .transposed = true},
    {PARAM_QKV_BIAS, "h.%d.attn.c_attn.bias", .rows = ALL},
    {PARAM_PROJ, "h.%d.attn.c_proj.weight", .transposed = true},
    {PARAM_PROJ_BIAS, "h.%d.attn.c_proj.bias", .rows = ALL},
    {PARAM_NORM2, "h.%d.ln_2.weight", .rows = ALL},
    {PARAM_NORM2_BIAS, "h.%d.ln_2.bias", .rows = ALL},
    {PARAM_UP, "h.%d.mlp.c_fc.weight", .transposed = true},
    {PARAM_UP_BIAS, "h.%d.mlp.c_fc.bias", .rows = ALL},
    {PARAM_DOWN, "h.%d.mlp.c_proj.weight", .transposed = true},
    {PARAM_DOWN_BIAS, "h.%d.mlp.c_proj.bias", .rows = ALL},
    {PARAM_FINAL_NORM, "ln_f.weight", .rows = ALL},
    {PARAM_FINAL_NORM_BIAS, "ln_f.bias", .rows = ALL},
    {0},
};

/* llama-tiny has 4 heads of 8 and 2 of keys and values, so 32 rows of queries, then 16 of keys, then 16 of values; and 88
 * in the MLP. */
static const struct published llama_tensors[] = {
    {PARAM_WTE, "model.embed_tokens.weight", .rows = ALL},
    {PARAM_NORM1, "model.layers.%d.input_layernorm.weight", .rows = ALL},
    {PARAM_QKV, "model.layers.%d.self_attn.q_proj.weight", .first = 0, .rows = 32},
    {PARAM_QKV, "model.layers.%d.self_attn.k_proj.weight", .first = 32, .rows = 16},
    {PARAM_QKV, "model.layers.%d.self_attn.v_proj.weight", .first = 48, .rows = 16},
    {PARAM_QKV_BIAS, "model.layers.%d.self_attn.q_proj.bias", .first = 0, .rows = 32},
    {PARAM_QKV_BIAS, "model.layers.%d.self_attn.k_proj.bias", .first = 32, .rows = 16},
    {PARAM_QKV_BIAS, "model.layers.%d.self_attn.v_proj.bias", .first = 48, .rows = 16},
    {PARAM_PROJ, "model.layers.%d.self_attn.o_proj.weight", .rows = ALL},
    {PARAM_NORM2, "model.layers.%d.post_attention_layernorm.weight", .rows = ALL},
    {PARAM_UP, "model.layers.%d.mlp.gate_proj.weight", .first = 0, .rows = 88},
    {PARAM_UP, "model.layers.%d.mlp.up_proj.weight", .first = 88, .rows = 88},
    {PARAM_DOWN, "model.layers.%d.mlp.down_proj.weight", .rows = ALL},
    {PARAM_FINAL_NORM, "model.norm.weight", .rows = ALL},
    {PARAM_HEAD, "lm_head.weight", .rows = ALL},
    {0},
};

/* qwen3-tiny has 4 heads of 16 and 2 of keys and values; its head is the embedding. */
static const struct published qwen3_tensors[] = {
    {PARAM_WTE, "model.embed_tokens.weight", .rows = ALL},
    {PARAM_NORM1, "model.layers.%d.input_layernorm.weight", .rows = ALL},
    {PARAM_QKV, "model.layers.%d.self_attn.q_proj.weight", .first = 0, .rows = 64},
    {PARAM_QKV, "model.layers.%d.self_attn.k_proj.weight", .first = 64, .rows = 32},
    {PARAM_QKV, "model.layers.%d.self_attn.v_proj.weight", .first = 96, .rows = 32},
    {PARAM_Q_NORM, "model.layers.%d.self_attn.q_norm.weight", .rows = ALL},
    {PARAM_K_NORM, "model.layers.%d.self_attn.k_norm.weight", .rows = ALL},
    {PARAM_PROJ, "model.layers.%d.self_attn.o_proj.weight", .rows = ALL},
    {PARAM_NORM2, "model.layers.%d.post_attention_layernorm.weight", .rows = ALL},
    {PARAM_UP, "model.layers.%d.mlp.gate_proj.weight", .first = 0, .rows = 88},
    {PARAM_UP, "model.layers.%d.mlp.up_proj.weight", .first = 88, .rows = 88},
    {PARAM_DOWN, "model.layers.%d.mlp.down_proj.weight", .rows = ALL},
    {PARAM_FINAL_NORM, "model.norm.weight", .rows = ALL},
    {0},
};

/* gemma-tiny has 4 heads of 16 and 2 of keys and values; its head is the embedding. */
static const struct published gemma_tensors[] = {
    {PARAM_WTE, "model.embed_tokens.weight", .rows = ALL},
    {PARAM_NORM1, "model.layers.%d.input_layernorm.weight", .rows = ALL},
    {PARAM_QKV, "model.layers.%d.self_attn.q_proj.weight", .first = 0, .rows = 64},
    {PARAM_QKV, "model.layers.%d.self_attn.k_proj.weight", .first = 64, .rows = 32},
    {PARAM_QKV, "model.layers.%d.self_attn.v_proj.weight", .first = 96, .rows = 32},
    {PARAM_PROJ, "model.layers.%d.self_attn.o_proj.weight", .rows = ALL},
    {PARAM_NORM2, "model.layers.%d.post_attention_layernorm.weight", .rows = ALL},
    {PARAM_UP, "model.layers.%d.mlp.gate_proj.weight", .first = 0, .rows = 88},
    {PARAM_UP, "model.layers.%d.mlp.up_proj.weight", .first = 88, .rows = 88},
    {PARAM_DOWN, "model.layers.%d.mlp.down_proj.weight", .rows = ALL},
    {PARAM_FINAL_NORM, "model.norm.weight", .rows = ALL},
    {0},
};

static const struct published gemma3_tensors[] = {
    {PARAM_WTE, "model.embed_tokens.weight", .rows = ALL},
    {PARAM_NORM1, "model.layers.%d.input_layernorm.weight", .rows = ALL},
    {PARAM_QKV, "model.layers.%d.self_attn.q_proj.weight", .first = 0, .rows = 64},
    {PARAM_QKV, "model.layers.%d.self_attn.k_proj.weight", .first = 64, .rows = 32},
    {PARAM_QKV, "model.layers.%d.self_attn.v_proj.weight", .first = 96, .rows = 32},
    {PARAM_Q_NORM, "model.layers.%d.self_attn.q_norm.weight", .rows = ALL},
    {PARAM_K_NORM, "model.layers.%d.self_attn.k_norm.weight", .rows = ALL},
    {PARAM_PROJ, "model.layers.%d.self_attn.o_proj.weight", .rows = ALL},
    {PARAM_POST_NORM1, "model.layers.%d.post_attention_layernorm.weight", .rows = ALL},
    {PARAM_NORM2, "model.layers.%d.pre_feedforward_layernorm.weight", .rows = ALL},
    {PARAM_UP, "model.layers.%d.mlp.gate_proj.weight", .first = 0, .rows = 88},
    {PARAM_UP, "model.layers.%d.mlp.up_proj.weight", .first = 88, .rows = 88},
    {PARAM_DOWN, "model.layers.%d.mlp.down_proj.weight", .rows = ALL},
    {PARAM_POST_NORM2, "model.layers.%d.post_feedforward_layernorm.weight", .rows = ALL},
    {PARAM_FINAL_NORM, "model.norm.weight", .rows = ALL},
    {0},
};

/* olmo2-tiny has 4 heads of 8 and 2 of keys and values. */
static const struct published olmo2_tensors[] = {
    {PARAM_WTE, "model.embed_tokens.weight", .rows = ALL},
    {PARAM_QKV, "model.layers.%d.self_attn.q_proj.weight", .first = 0, .rows = 32},
    {PARAM_QKV, "model.layers.%d.self_attn.k_proj.weight", .first = 32, .rows = 16},
    {PARAM_QKV, "model.layers.%d.self_attn.v_proj.weight", .first = 48, .rows = 16},
    {PARAM_Q_NORM, "model.layers.%d.self_attn.q_norm.weight", .rows = ALL},
    {PARAM_K_NORM, "model.layers.%d.self_attn.k_norm.weight", .rows = ALL},
    {PARAM_PROJ, "model.layers.%d.self_attn.o_proj.weight", .rows = ALL},
    {PARAM_POST_NORM1, "model.layers.%d.post_attention_layernorm.weight", .rows = ALL},
    {PARAM_UP, "model.layers.%d.mlp.gate_proj.weight", .first = 0, .rows = 88},
    {PARAM_UP, "model.layers.%d.mlp.up_proj.weight", .first = 88, .rows = 88},
    {PARAM_DOWN, "model.layers.%d.mlp.down_proj.weight", .rows = ALL},
    {PARAM_POST_NORM2, "model.layers.%d.post_feedforward_layernorm.weight", .rows = ALL},
    {PARAM_FINAL_NORM, "model.norm.weight", .rows = ALL},
    {PARAM_HEAD, "lm_head.weight", .rows = ALL},
    {0},
};

/* Phi-3 has stacked what ours are, in the same order. */
static const struct published phi3_tensors[] = {
    {PARAM_WTE, "model.embed_tokens.weight", .rows = ALL},
    {PARAM_NORM1, "model.layers.%d.input_layernorm.weight", .rows = ALL},
    {PARAM_QKV, "model.layers.%d.self_attn.qkv_proj.weight", .rows = ALL},
    {PARAM_PROJ, "model.layers.%d.self_attn.o_proj.weight", .rows = ALL},
    {PARAM_NORM2, "model.layers.%d.post_attention_layernorm.weight", .rows = ALL},
    {PARAM_UP, "model.layers.%d.mlp.gate_up_proj.weight", .rows = ALL},
    {PARAM_DOWN, "model.layers.%d.mlp.down_proj.weight", .rows = ALL},
    {PARAM_FINAL_NORM, "model.norm.weight", .rows = ALL},
    {PARAM_HEAD, "lm_head.weight", .rows = ALL},
    {0},
};

/* Whole multiples of 1/64 below 2: exact in every type. No two matrices are alike, and none is symmetric. */
static float value_of(int64_t instance, enum parameter_id id, int64_t element)
{
    struct random_stream stream = random_stream(5, (uint64_t)instance * PARAM_IDS + id);
    return (float)(random_below(stream, (uint64_t)element, 255) - 127) / 64;
}

/* A folder in the making, as it would be downloaded. */
enum { SHARDS_MAX = 2 };
struct publication {
    const char *dtype, *prefix, *left_out;
    const struct published *list; /* NULL: the family's */
    int shards;                   /* 0: one file without an index */
    struct draft {
        struct text header;
        char *data;
        int64_t bytes;
    } drafts[SHARDS_MAX];
    struct text index;
    int tensors;
};

static uint16_t to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 31, exponent = bits >> 23 & 0xff, fraction = bits >> 13 & 0x3ff;
    return value == 0 ? 0 : (uint16_t)(sign << 15 | (exponent - 127 + 15) << 10 | fraction);
}

/* Returns the bytes of an element. I16 stands for all that holds no weights. */
static int64_t encode(const char *dtype, float value, char *out)
{
    double wide = (double)value;
    uint16_t half = !strcmp(dtype, "F16") ? to_f16(value) : f32_to_bf16(value);
    if (!strcmp(dtype, "F64"))
        return memcpy(out, &wide, sizeof wide), sizeof wide;
    if (!strcmp(dtype, "F32"))
        return memcpy(out, &value, sizeof value), sizeof value;
    return memcpy(out, &half, sizeof half), sizeof half;
}

static void add_numbers(struct draft *draft, const char *dtype, int64_t instance, const struct published *t,
                        int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t row = t->transposed ? i % rows : i / columns;
        int64_t column = t->transposed ? i / rows : i % columns;
        float value = value_of(instance, t->id, (t->first + row) * columns + column);
        draft->bytes += encode(dtype, value, draft->data + draft->bytes);
    }
}

static void add_tensor(struct publication *p, int64_t instance, const struct parameter *parameter,
                       const struct published *t)
{
    char name[RUNS_PATH], shape[RUNS_PATH];
    int64_t rows = t->rows ? t->rows : parameter->dims[0], columns = parameter->dims[1];
    int used = snprintf(name, sizeof name, "%s", strncmp(t->name, "lm_head", 7) ? p->prefix : "");
    snprintf(name + used, sizeof name - (size_t)used, t->name, (int)instance - 1);
    if (p->left_out && !strcmp(p->left_out, name))
        return;
    if (columns)
        snprintf(shape, sizeof shape, "%d,%d", (int)(t->transposed ? columns : rows),
                 (int)(t->transposed ? rows : columns));
    else
        snprintf(shape, sizeof shape, "%d", (int)rows);
    int number = p->shards ? p->tensors++ % p->shards : 0;
    struct draft *draft = &p->drafts[number];
    int64_t begin = draft->bytes;
    add_numbers(draft, p->dtype, instance, t, rows, columns ? columns : 1);
    text_printf(&draft->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
                draft->header.length ? "," : "{", name, p->dtype, shape, (int)begin, (int)draft->bytes);
    text_printf(&p->index, "%s\"%s\":\"shard-%d.safetensors\"", p->index.length ? "," : "{\"weight_map\":{",
                name, number);
}

static void write_draft(struct draft *draft, const char *folder, const char *name)
{
    char path[RUNS_PATH];
    text_add(&draft->header, "}");
    uint64_t length = draft->header.length;
    char *whole = host_alloc(8 + length + (size_t)draft->bytes);
    memcpy(whole, &length, 8);
    memcpy(whole + 8, draft->header.data, length);
    memcpy(whole + 8 + length, draft->data, (size_t)draft->bytes);
    runs_write_file(folder, name, whole, 8 + (int64_t)length + draft->bytes, path);
    free(whole);
}

static void write_index(const char *folder, const char *text)
{
    char path[RUNS_PATH];
    runs_write_file(folder, "model.safetensors.index.json", text, (int64_t)strlen(text), path);
}

static void write_files(struct publication *p, const char *folder)
{
    text_add(&p->index, "}}");
    if (p->shards)
        write_index(folder, p->index.data);
    for (int i = 0; i < p->shards || i == 0; i++) {
        char name[RUNS_PATH];
        snprintf(name, sizeof name, "shard-%d.safetensors", i);
        write_draft(&p->drafts[i], folder, p->shards ? name : "model.safetensors");
    }
}

/* Publishes a model in a new folder. Frees the program. */
static void publish(struct publication p, struct program *program, char folder[RUNS_PATH])
{
    const struct published *tensors = p.list                                ? p.list
                                      : program->model.family == MODEL_GPT2 ? gpt2_tensors
                                                                            : llama_tensors;
    for (int i = 0; i < SHARDS_MAX;
         i++) /* each has room for all, at twice what doubles take, for what comes twice */
        p.drafts[i].data = host_alloc((size_t)model_parameters(&program->model) * 2 * sizeof(double));
    for (int64_t instance = 0; instance < program->instances; instance++)
        for (int k = 0; k < program_block(program, instance)->parameter_count; k++)
            for (const struct published *t = tensors; t->name; t++)
                if (t->id == program_block(program, instance)->parameters[k].id)
                    add_tensor(&p, instance, &program_block(program, instance)->parameters[k], t);
    runs_open_folder(folder);
    write_files(&p, folder);
    for (int i = 0; i < SHARDS_MAX; i++) {
        text_free(&p.drafts[i].header);
        free(p.drafts[i].data);
    }
    text_free(&p.index);
    program_free(program);
}

/* A rank to read into. */
struct reader {
    struct device *device;
    struct step_memory *memory;
    struct state_access access;
};

static struct reader reader_open(const struct program *program)
{
    struct error err = {0};
    struct reader r;
    ASSERT_OK(device_open_cpu(0, true, &r.device, &err));
    ASSERT_OK(step_memory_open(program, r.device, MEMORY_ARENA, &r.memory, &err));
    r.access = (struct state_access){.program = program, .device = r.device, .memory = r.memory};
    return r;
}

static void reader_close(struct reader *r)
{
    step_memory_close(r->memory);
    device_close(r->device);
}

static void assert_values(const struct state_access *access, enum state state)
{
    for (int64_t i = 0; i < access->program->instances; i++)
        for (int k = 0; k < program_block(access->program, i)->parameter_count; k++) {
            const struct parameter *p = &program_block(access->program, i)->parameters[k];
            float *values = host_alloc((size_t)p->count * sizeof *values);
            weights_read(access, i, k, state, 0, p->count, values);
            for (int64_t n = 0; n < p->count; n++) {
                float expected = value_of(i, p->id, n);
                if (values[n] != expected)
                    ck_abort_msg("%s %d of instance %d is %g, not %g", p->name, (int)n, (int)i,
                                 (double)values[n], (double)expected);
            }
            free(values);
        }
}

/* Reads the source and looks at every element. Frees the program. */
static void assert_reads(const char *source, struct program *program)
{
    struct error err = {0};
    struct reader r = reader_open(program);
    ASSERT_OK(public_weights_read(source, &r.access, 2, &err));
    assert_values(&r.access, STATE_WEIGHT);
    assert_values(&r.access, weights_exact_state(program));
    reader_close(&r);
    program_free(program);
}

/* The message of a read that must fail. Frees the program. */
static const char *refusal(const char *source, struct program *program)
{
    static struct error err;
    struct reader r = reader_open(program);
    ASSERT_INT(public_weights_read(source, &r.access, 1, &err), -1);
    reader_close(&r);
    program_free(program);
    return err.text;
}

static struct program *model(const char *text)
{
    return runs_program(text, "micro=1 seq=8", "none");
}

/* For what the text of a model cannot say. */
static struct program *changed_model(const char *text, void (*change)(struct model *))
{
    struct error err = {0};
    struct program *program = model(text), *changed;
    struct model description = program->model;
    change(&description);
    ASSERT_OK(program_create(&description, &program->layout, NULL, &changed, &err));
    program_free(program);
    return changed;
}

static void tie(struct model *m)
{
    m->tied = true;
}

static void tie_and_bias(struct model *m)
{
    m->tied = m->qkv_bias = true;
}

static void shorten(struct model *m)
{
    m->max_seq_len = 32;
}

static const struct publication plain = {.dtype = "F32", .prefix = ""};

TEST(public_gpt2, "GPT-2's matrices are transposed and its masks ignored; names may begin with transformer.")
{
    static const char *const dtypes[] = {"F32", "BF16", "F16", "F64"};
    for (int i = 0; i < 4; i++) {
        char folder[RUNS_PATH];
        struct publication p = {.dtype = dtypes[i], .prefix = i % 2 ? "transformer." : ""};
        publish(p, model("gpt2-tiny"), folder);
        assert_reads(folder, model("gpt2-tiny"));
        runs_remove_folder(folder);
    }
}

TEST(public_llama, "a llama's queries, keys and values are stacked, and so are gate and up")
{
    char folder[RUNS_PATH];
    publish((struct publication){.dtype = "BF16", .prefix = ""}, model("llama-tiny"), folder);
    assert_reads(folder, model("llama-tiny"));
    assert_reads(folder, runs_program("llama-tiny", "micro=1 seq=8 bf16", "none"));
    runs_remove_folder(folder);
}

TEST(public_qwen3,
     "Qwen3's norms of queries and keys are read beside what a llama has; without them it is refused")
{
    char folder[RUNS_PATH];
    struct publication p = {.dtype = "BF16", .prefix = "", .list = qwen3_tensors};
    publish(p, model("qwen3-tiny"), folder);
    assert_reads(folder, model("qwen3-tiny"));
    runs_remove_folder(folder);
    p.left_out = "model.layers.1.self_attn.k_norm.weight";
    publish(p, model("qwen3-tiny"), folder);
    ASSERT_HAS(refusal(folder, model("qwen3-tiny")), "layers.1.self_attn.k_norm.weight is missing");
    runs_remove_folder(folder);
}

TEST(public_olmo2, "OLMo 2's norms are read as those that stand behind; a llama's are not in their place")
{
    char folder[RUNS_PATH];
    struct publication p = {.dtype = "BF16", .prefix = "", .list = olmo2_tensors};
    publish(p, model("olmo2-tiny"), folder);
    assert_reads(folder, model("olmo2-tiny"));
    ASSERT_HAS(refusal(folder, model("llama-tiny")), "layers.0.input_layernorm.weight is missing");
    runs_remove_folder(folder);
}

TEST(public_gemma, "Gemma's tensors are a tied llama's, and the weights of its norms stay less one")
{
    char folder[RUNS_PATH];
    struct publication p = {.dtype = "BF16", .prefix = "", .list = gemma_tensors};
    publish(p, model("gemma-tiny"), folder);
    assert_reads(folder, model("gemma-tiny"));
    runs_remove_folder(folder);
}

TEST(public_gemma3, "Gemma 3's four norms have a name each, and a Gemma's three are not they")
{
    char folder[RUNS_PATH];
    struct publication p = {.dtype = "BF16", .prefix = "", .list = gemma3_tensors};
    publish(p, model("gemma3-tiny"), folder);
    assert_reads(folder, model("gemma3-tiny"));
    runs_remove_folder(folder);
    p.list = gemma_tensors;
    publish(p, model("gemma-tiny"), folder);
    ASSERT_HAS(refusal(folder, model("gemma3-tiny")), "self_attn.q_norm.weight is missing");
    runs_remove_folder(folder);
}

TEST(public_phi3, "Phi-3's stacked products are a llama's parameters as they are")
{
    char folder[RUNS_PATH];
    publish((struct publication){.dtype = "F32", .prefix = "", .list = phi3_tensors}, model("llama-tiny"),
            folder);
    assert_reads(folder, model("llama-tiny"));
    runs_remove_folder(folder);
}

static float published_value(const struct catalogue *c, int64_t number, enum state state, int64_t element)
{
    struct parameter_name name = catalogue_name(c, number);
    int64_t instance = name.part == PART_EMBED ? 0 : name.part == PART_LAYER ? 1 + name.layer : 1 + c->layers;
    return state == STATE_MOMENT1 || state == STATE_MOMENT2 ? 0 : value_of(instance, name.id, element);
}

/* Reads the source as every rank of a layout, and looks at every element. */
static void assert_spread(const char *source, const char *model, const char *layout)
{
    struct error err = {0};
    struct crowd crowd;
    crowd_open(&crowd, model, layout);
    for (int i = 0; i < crowd.count; i++) {
        weights_initialize(&crowd.ranks[i], 1, 1);
        ASSERT_OK(public_weights_read(source, &crowd.ranks[i], 1, &err));
    }
    crowd_assert(&crowd, published_value);
    crowd_close(&crowd);
}

/* The vocabulary of 101 is padded; with pp the embedding of gpt2 is there twice; bf16 has a master beside the weight. */
TEST(public_spread,
     "each rank of a layout reads its part: columns of a transposed matrix, heads, stages, shards")
{
    static const char *const layouts[] = {"seq=8 tp=2", "seq=8 pp=2", "seq=8 dp=3 zero=1 bf16",
                                          "seq=8 dp=2 tp=2 pp=2 zero=1 bf16"};
    char gpt2_folder[RUNS_PATH], llama_folder[RUNS_PATH], phi3_folder[RUNS_PATH], qwen3_folder[RUNS_PATH];
    struct publication phi3 = plain, qwen3 = plain;
    phi3.list = phi3_tensors;
    qwen3.list = qwen3_tensors;
    publish(plain, model("gpt2-tiny vocab=101"), gpt2_folder);
    publish(plain, model("llama-tiny vocab=101"), llama_folder);
    publish(phi3, model("llama-tiny vocab=101"), phi3_folder);
    publish(qwen3, model("qwen3-tiny vocab=101"), qwen3_folder);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        assert_spread(gpt2_folder, "gpt2-tiny vocab=101", layouts[i]);
        assert_spread(llama_folder, "llama-tiny vocab=101", layouts[i]);
        assert_spread(phi3_folder, "llama-tiny vocab=101", layouts[i]);
        assert_spread(qwen3_folder, "qwen3-tiny vocab=101", layouts[i]);
    }
    assert_spread(gpt2_folder, "gpt2-tiny vocab=101", "seq=8 tp=4 sp");
    runs_remove_folder(gpt2_folder);
    runs_remove_folder(llama_folder);
    runs_remove_folder(phi3_folder);
    runs_remove_folder(qwen3_folder);
}

/* A layer that another stage has is missing or too many for all of them, so that no rank waits for one that gave up. */
TEST(public_spread_refused,
     "a source that lacks a tensor, or has one too many, is refused by every rank of a pipeline")
{
    char folder[RUNS_PATH];
    struct publication p = plain;
    p.left_out = "h.1.ln_2.bias";
    publish(p, model("gpt2-tiny"), folder);
    for (int round = 0; round < 2; round++) {
        struct crowd crowd;
        crowd_open(&crowd, round ? "gpt2-tiny layers=1" : "gpt2-tiny", round ? "seq=8 tp=2" : "seq=8 pp=2");
        for (int i = 0; i < crowd.count; i++) {
            struct error err = {0};
            ASSERT_INT(public_weights_read(folder, &crowd.ranks[i], 1, &err), -1);
            ASSERT_HAS(err.text,
                       round ? "tensor h.1.ln_1.weight belongs to no parameter" : "h.1.ln_2.bias is missing");
        }
        crowd_close(&crowd);
    }
    runs_remove_folder(folder);
}

TEST(public_shards, "a tied llama with biases is read from two files and their index")
{
    char folder[RUNS_PATH];
    struct publication p = {.dtype = "F16", .prefix = "", .shards = 2};
    publish(p, changed_model("llama-tiny", tie_and_bias), folder);
    assert_reads(folder, changed_model("llama-tiny", tie_and_bias));
    runs_remove_folder(folder);
}

/* The largest matrices have 404 x 1616 = 652,864 elements, more than nine pieces of 2^16, and no piece is full of rows. */
TEST(public_pieces, "a matrix larger than a piece is read whole, straight or transposed")
{
    char folder[RUNS_PATH];
    publish(plain, model("gpt2-tiny layers=1 hidden=404 vocab=1000"), folder);
    assert_reads(folder, model("gpt2-tiny layers=1 hidden=404 vocab=1000"));
    runs_remove_folder(folder);
}

/* With a learning rate of 0 a step changes nothing, so the checkpoint after it holds what the run began with. */
TEST(public_run, "a run on two ranks begins with the published weights; one that cannot names the file")
{
    char folder[RUNS_PATH];
    publish(plain, model("gpt2-tiny"), folder);
    struct pipeline *pipeline = runs_pipeline("gpt2-tiny", "dp=2 micro=1 seq=8", "none");
    const struct program *program = pipeline->stages[0];
    struct train_settings settings = runs_settings(1);
    settings.rate.peak = 0;
    settings.weights_path = folder;
    struct history history = runs_train_weights(pipeline, &settings);
    const float *got = history.weights;
    for (int64_t i = 0; i < program->instances; i++)
        for (int k = 0; k < program_block(program, i)->parameter_count; k++) {
            const struct parameter *p = &program_block(program, i)->parameters[k];
            for (int64_t n = 0; n < p->count; n++)
                ASSERT(*got++ == value_of(i, p->id, n));
        }
    settings.weights_path = "/nonexistent";
    ASSERT_HAS(runs_fail(pipeline, &settings).text, "cannot read /nonexistent");
    runs_clear(&history);
    pipeline_free(pipeline);
    runs_remove_folder(folder);
}

TEST(public_file, "a file is read under its own name; what is no source is refused, and so is an encoder")
{
    char folder[RUNS_PATH], path[RUNS_PATH + 20];
    publish(plain, model("gpt2-tiny"), folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_reads(path, model("gpt2-tiny"));
    ASSERT_HAS(refusal(path, model("block-tiny")), "block-tiny is an encoder, which has no public form");
    ASSERT_INT(unlink(path), 0);
    ASSERT_HAS(refusal(path, model("gpt2-tiny")), path);
    ASSERT_HAS(refusal(folder, model("gpt2-tiny")),
               "neither model.safetensors nor model.safetensors.index.json");
    runs_remove_folder(folder);
}

/* The message of reading a model that was published like this. */
static const char *published_refusal(struct publication p, struct program *published, struct program *read)
{
    char folder[RUNS_PATH];
    publish(p, published, folder);
    const char *text = refusal(folder, read);
    runs_remove_folder(folder);
    return text;
}

TEST(public_unsound, "a missing tensor, a wrong shape and a type of no weights are named")
{
    struct publication p = plain;
    p.left_out = "h.1.ln_2.bias";
    ASSERT_HAS(published_refusal(p, model("gpt2-tiny"), model("gpt2-tiny")),
               "tensor h.1.ln_2.bias is missing, with or without transformer. before it");
    ASSERT_HAS(published_refusal(plain, model("gpt2-tiny"), changed_model("gpt2-tiny", shorten)),
               "tensor wpe.weight has shape (64, 32), and model gpt2-tiny wants (32, 32)");
    ASSERT_HAS(published_refusal(plain, model("gpt2-tiny"), model("gpt2-tiny ffn=96")),
               "tensor h.0.mlp.c_fc.weight has shape (32, 128), and model gpt2-tiny wants (32, 96)");
    p = (struct publication){.dtype = "I16", .prefix = ""};
    ASSERT_HAS(published_refusal(p, model("llama-tiny"), model("llama-tiny")),
               "tensor model.embed_tokens.weight is I16; only F32, BF16, F16 and F64");
}

TEST(public_leftovers, "weights that the model has no place for are refused: it would compute something else")
{
    ASSERT_HAS(published_refusal(plain, model("gpt2-tiny"), model("gpt2-tiny layers=1")),
               "tensor h.1.ln_1.weight belongs to no parameter");
    ASSERT_HAS(
        published_refusal(plain, changed_model("llama-tiny", tie_and_bias), changed_model("llama-tiny", tie)),
        "tensor model.layers.0.self_attn.q_proj.bias belongs to no parameter");
    ASSERT_HAS(published_refusal(plain, model("llama-tiny"), changed_model("llama-tiny", tie)),
               "tensor lm_head.weight belongs to no parameter");
}

static void publish_shards(char folder[RUNS_PATH])
{
    publish((struct publication){.dtype = "F32", .prefix = "", .shards = 2}, model("llama-tiny"), folder);
}

TEST(public_broken_shard, "a shard that is cut short or gone is named")
{
    char folder[RUNS_PATH], path[RUNS_PATH + 20];
    struct stat info;
    publish_shards(folder);
    snprintf(path, sizeof path, "%s/shard-1.safetensors", folder);
    ASSERT_INT(stat(path, &info), 0);
    ASSERT_INT(truncate(path, info.st_size - 1), 0);
    ASSERT_HAS(refusal(folder, model("llama-tiny")), "shard-1.safetensors");
    ASSERT_INT(unlink(path), 0);
    ASSERT_HAS(refusal(folder, model("llama-tiny")), "shard-1.safetensors");
    runs_remove_folder(folder);
}

static const char *index_refusal(const char *folder, const char *index)
{
    write_index(folder, index);
    return refusal(folder, model("llama-tiny"));
}

TEST(public_hostile_index, "an index that leads out of its folder, or nowhere, is refused")
{
    const char *no_name = "entry x is not the name of a file beside it";
    char folder[RUNS_PATH];
    publish_shards(folder);
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":{\"x\":\"../x.safetensors\"}}"), no_name);
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":{\"x\":\"/etc/passwd\"}}"), no_name);
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":{\"x\":\"\"}}"), no_name);
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":{\"x\":7}}"), no_name);
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":{\"x\":\"..\"}}"), "is not a regular file");
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":[]}"), "expected an object");
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":{}}"), "embed_tokens.weight is missing");
    ASSERT_HAS(index_refusal(folder, "{}"), "key \"weight_map\" is missing");
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":"), "ends in the middle");
    ASSERT_HAS(index_refusal(folder, "{\"weight_map\":{\"model.norm.weight\":\"shard-0.safetensors\"}}"),
               "embed_tokens.weight is missing");
    runs_remove_folder(folder);
}
