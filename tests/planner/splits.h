/* Every way in which the chunks of a stage may share its layers, listed from the words of docs/time-model.md section 9 and not from
 * the planner: all have as many, or where that is asked for its last chunks one more, or its first ones; but the first chunk of the
 * pipeline and the last may have one or two fewer than the least of the others of their stage, or none; and with one chunk a stage they
 * may have none. */
#ifndef MEMPLAN_TESTS_PLANNER_SPLITS_H
#define MEMPLAN_TESTS_PLANNER_SPLITS_H

#include "model/layout.h"

#include <stdbool.h>

enum split_kind { SPLITS_ALIKE, SPLITS_LAST, SPLITS_FIRST, SPLIT_KINDS };

struct stage_splits {
    const struct layout *layout;
    enum split_kind kind;
    int64_t stage, layers;
    int64_t end, most; /* layers of the end that come next, and at last; -1: the stage has no end apart */
    bool alike;        /* all chunks must have as many layers */
    bool bare;         /* its only chunk may have none */
};

static inline void splits_begin(struct stage_splits *s, const struct model *model, const struct layout *layout,
                                enum split_kind kind, int64_t stage, int64_t layers)
{
    bool outer = layout->pp > 1 && (stage == 0 || stage == layout->pp - 1);
    bool end = layout->virtual_stages > 1 && outer, encoder = model->family == MODEL_ENCODER;
    *s = (struct stage_splits){layout, kind, stage, layers, end ? 0 : -1, end ? layers : -1,
                               layout->virtual_stages > 1 && encoder,
                               layout->virtual_stages == 1 && outer && !encoder};
}

/* One more layer for each chunk in turn, from the last one back or from the first one on, until none is left: *least and *largest of the
 * others. */
static inline void splits_share(const struct stage_splits *s, int64_t skipped, int64_t left, int64_t *chunk_layers,
                                int64_t *least, int64_t *largest)
{
    int64_t v = s->layout->virtual_stages, pp = s->layout->pp;
    for (int64_t i = 0; i < v; i++)
        if (i != skipped)
            chunk_layers[i * pp + s->stage] = 0;
    while (left > 0)
        for (int64_t k = 0; k < v && left > 0; k++) {
            int64_t i = s->kind == SPLITS_FIRST ? k : v - 1 - k;
            if (i != skipped) {
                chunk_layers[i * pp + s->stage]++;
                left--;
            }
        }
    *least = INT64_MAX;
    *largest = 0;
    for (int64_t i = 0; i < v; i++)
        if (i != skipped) {
            int64_t n = chunk_layers[i * pp + s->stage];
            *least = n < *least ? n : *least;
            *largest = n > *largest ? n : *largest;
        }
}

/* Fills the stage's chunks of chunk_layers; false: there is no further way. */
static inline bool splits_next(struct stage_splits *s, int64_t *chunk_layers)
{
    int64_t v = s->layout->virtual_stages, pp = s->layout->pp, skipped = s->stage ? v - 1 : 0, least, largest;
    while (s->end <= s->most) {
        int64_t end = s->end++;
        bool apart = s->most >= 0;
        if (apart)
            chunk_layers[skipped * pp + s->stage] = end;
        splits_share(s, apart ? skipped : -1, s->layers - (apart ? end : 0), chunk_layers, &least, &largest);
        bool shorter = apart && end < least && (end == 0 || end + 2 >= least);
        bool fits = (least >= 1 || s->bare) && (least == largest || s->kind != SPLITS_ALIKE);
        fits = fits && (!apart || end == least || end == largest || shorter);
        if (s->alike)
            fits = fits && least == largest && (!apart || end == least);
        if (fits)
            return true;
    }
    return false;
}

/* Is a whole pipeline's split of its kind? With larger chunks there is one at least, and stages but the ends differ by a layer at most. */
static inline bool splits_are_of_kind(enum split_kind kind, const struct layout *layout, const int64_t *chunk_layers)
{
    int64_t pp = layout->pp, last = layout_chunks(layout) - 1, least = INT64_MAX, most = 0;
    bool larger = false;
    if (kind == SPLITS_ALIKE)
        return true;
    for (int64_t stage = 0; stage < pp; stage++) {
        int64_t layers = 0, fewest = INT64_MAX;
        for (int64_t i = stage; i <= last; i += pp) {
            layers += chunk_layers[i];
            if (i != 0 && i != last && chunk_layers[i] < fewest)
                fewest = chunk_layers[i];
        }
        for (int64_t i = stage; i <= last; i += pp)
            larger = larger || (i != 0 && i != last && chunk_layers[i] > fewest);
        if (stage > 0 && stage < pp - 1) {
            least = layers < least ? layers : least;
            most = layers > most ? layers : most;
        }
    }
    return larger && (most == 0 || most - least <= 1);
}

/* Which layer of a chunk drops what: the same sets by height in all chunks that are as high as the lower of those without an end, and
 * above the lowest layer of those that are one higher; everywhere else the odd set. Returns the height; -1: odd. */
static inline int64_t splits_height(const struct layout *layout, const int64_t *chunk_layers, int64_t chunk, int64_t layer)
{
    int64_t pp = layout->pp, stage = chunk % pp, last = layout_chunks(layout) - 1, even = INT64_MAX;
    int64_t end = layout->virtual_stages == 1 ? -1 : stage == 0 ? 0 : stage == pp - 1 ? last : -1;
    bool higher = false;
    for (int64_t i = stage; i <= last; i += pp)
        if (i != end && chunk_layers[i] < even)
            even = chunk_layers[i];
    for (int64_t i = stage; i <= last; i += pp)
        higher = higher || (i != end && chunk_layers[i] == even + 1);
    if (chunk_layers[chunk] == even)
        return layer;
    return chunk_layers[chunk] == even + 1 && higher ? layer - 1 : -1;
}

/* The odd set is one that no other, nor a mixture of two others, beats in bytes kept and seconds. */
static inline bool splits_is_corner(const double *saved, const double *seconds, int count, int at)
{
    for (int a = 0; a < count; a++)
        for (int b = 0; b < count; b++) {
            double between = saved[a] - saved[b], share = (saved[a] - saved[at]) / (between > 0 ? between : 1);
            bool beats = saved[a] <= saved[at] && seconds[a] < seconds[at];
            beats = beats || (saved[a] < saved[at] && seconds[a] <= seconds[at]);
            bool mixed = a != at && b != at && between > 0 && share > 0 && share < 1 &&
                         seconds[a] + share * (seconds[b] - seconds[a]) <= seconds[at];
            if (beats || mixed)
                return false;
        }
    return true;
}

#endif
