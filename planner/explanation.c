#include "planner/explanation.h"

#include "base/checked.h"
#include "base/units.h"

#include <string.h>

struct search_bytes explanation_bytes(const struct stages *stages, int64_t stage,
                                      const struct stage_choice *choice)
{
    struct search_bytes bytes = {.stage = stage};
    struct stage_moment moment = {0};
    const struct stage *s = &stages->list[stage];
    const struct stage_form *form = &choice->form;
    int64_t peak = stage_choice_peak(stages, stage, choice, &moment);
    bytes.states = s->state_bytes + form->split.layers * s->layer_state_bytes;
    for (int kind = 0; kind < form->kinds; kind++) {
        int64_t saved = s->costs->piles[s->bottom[kind]].saved + s->costs->piles[s->top[kind]].saved,
                later = 0;
        for (int64_t i = 0; i < form->heights[kind] && form->counts[kind]; i++) {
            int option = stage_choice_option(choice, (enum chunk_kind)kind, i);
            saved += s->costs->options[option].pile.saved;
            later += s->costs->options[option].pile.later;
        }
        bytes.kept_micro_batches += moment.kept[kind] + moment.later[kind];
        bytes.kept += moment.kept[kind] * saved + moment.later[kind] * later;
    }
    bytes.working = peak - bytes.states - bytes.kept;
    const struct pile *top = &s->costs->piles[s->top[moment.kind]];
    if (s->top[moment.kind] == COST_HEAD)
        bytes.head = max_i64(top->forward, top->backward);
    return bytes;
}

/* "stage 3 on a100-80g needs 83.2 GiB of 79.2 GiB: ..."; the device is named where there are several kinds. */
static void print_bytes(const struct search_row *row, const struct cluster *cluster, struct text *out)
{
    const struct search_bytes *b = &row->bytes;
    const struct rank_device *device = &cluster->groups[row->group].device;
    char need[UNITS_TEXT], have[UNITS_TEXT], states[UNITS_TEXT], kept[UNITS_TEXT], working[UNITS_TEXT];
    if (row->layout.pp > 1)
        text_printf(out, "stage %lld", (long long)b->stage);
    else
        text_add(out, "a rank");
    if (cluster->group_count > 1)
        text_printf(out, " on %s", device->name);
    text_printf(out, " needs %s of %s: states %s", units_format_bytes(row->needed_bytes, need),
                units_format_bytes(rank_device_plannable(device), have),
                units_format_bytes(b->states, states));
    if (b->kept)
        text_printf(out, ", activations of %lld %s %s", (long long)b->kept_micro_batches,
                    units_plural(b->kept_micro_batches, "micro-batch", "micro-batches"),
                    units_format_bytes(b->kept, kept));
    text_printf(out, ", the one at work %s", units_format_bytes(b->working, working));
    if (b->head)
        text_printf(out, ", of which logits and the head %s", units_format_bytes(b->head, working));
}

bool explanation_has_recompute(const struct search_row *row)
{
    enum { SHORT = 48 };
    return strlen(row->recompute) <= SHORT;
}

static void print_recompute(const struct search_row *row, struct text *out)
{
    text_printf(out, "recompute %s", explanation_has_recompute(row) ? row->recompute : "layer by layer");
}

/* "dp 8 x tp 4 x pp 8 (interleaved, 12 chunks a stage)" */
static void print_ranks(const struct layout *l, struct text *out)
{
    text_printf(out, "dp %lld x tp %lld x pp %lld", (long long)l->dp, (long long)l->tp, (long long)l->pp);
    if (l->pp > 1)
        text_printf(out, " (%s", schedule_name(l->schedule));
    if (l->virtual_stages > 1)
        text_printf(out, ", %lld chunks a stage", (long long)l->virtual_stages);
    text_add(out, l->pp > 1 ? ")" : "");
}

void explanation_plan(const struct search_row *row, struct text *out)
{
    const struct layout *l = &row->layout;
    print_ranks(l, out);
    text_printf(out, ", micro-batch %lld", (long long)l->micro_batch);
    if (l->zero)
        text_add(out, ", ZeRO");
    if (l->sequence_parallel)
        text_add(out, ", sequence parallel");
    text_add(out, ", ");
    print_recompute(row, out);
}

void explanation_difference(const struct search_row *plan, const struct search_row *row, struct text *out)
{
    const struct layout *a = &plan->layout, *b = &row->layout;
    bool same_ranks = a->dp == b->dp && a->tp == b->tp && a->pp == b->pp && a->schedule == b->schedule &&
                      a->virtual_stages == b->virtual_stages;
    size_t begin = out->length;
    if (!same_ranks)
        print_ranks(b, out);
    if (a->micro_batch != b->micro_batch)
        text_printf(out, "%smicro-batch %lld", out->length > begin ? ", " : "", (long long)b->micro_batch);
    if (a->zero != b->zero)
        text_printf(out, "%s%s ZeRO", out->length > begin ? ", " : "", b->zero ? "with" : "without");
    if (a->sequence_parallel != b->sequence_parallel && a->tp > 1 && b->tp > 1)
        text_printf(out, "%s%s sequence parallelism", out->length > begin ? ", " : "",
                    b->sequence_parallel ? "with" : "without");
    if (!strcmp(plan->recompute, row->recompute))
        return;
    text_add(out, out->length > begin ? ", " : "");
    print_recompute(row, out);
}

const char *explanation_keep(struct arena *arena, struct text *text)
{
    const char *copy = arena_strdup(arena, text->data ? text->data : "");
    text_free(text);
    return copy;
}

struct search_row explanation_copy(struct arena *arena, const struct search_row *row, int64_t layers)
{
    struct search_row copy = *row;
    size_t chunks = (size_t)layout_chunks(&row->layout);
    copy.masks = arena_array(arena, (size_t)layers, sizeof *copy.masks);
    copy.chunk_layers = arena_array(arena, chunks, sizeof *copy.chunk_layers);
    memcpy(copy.masks, row->masks, (size_t)layers * sizeof *copy.masks);
    memcpy(copy.chunk_layers, row->chunk_layers, chunks * sizeof *copy.chunk_layers);
    copy.recompute = arena_strdup(arena, row->recompute);
    return copy;
}

const char *explanation_need(const struct search_request *request, const struct search_row *row,
                             struct arena *arena)
{
    struct text text = {0};
    explanation_plan(row, &text);
    text_add(&text, ": ");
    print_bytes(row, request->cluster, &text);
    return explanation_keep(arena, &text);
}
