/* Packs what lives from one moment to another into little memory: offsets, so that no two that live at once overlap. Knows
 * neither tensors nor pipelines. (Best placement is NP-hard; Buchsbaum et al. 2003, "OPT versus LOAD in dynamic storage
 * allocation".) The same input gives the same offsets everywhere. */
#ifndef MEMPLAN_MODEL_PACKING_H
#define MEMPLAN_MODEL_PACKING_H

#include <stdint.h>

struct stay {
    int64_t size;        /* at least 1 */
    int64_t from, until; /* moments, both included */
    int kind;            /* those of a kind have one size; all 0 when it says nothing */
    int64_t *place;      /* receives the offset */

    /* While packing: */
    int64_t offset;
    struct stay *also_ends; /* at the same moment */
};

struct packing {
    struct stay *list; /* in the order of `from` */
    int64_t count, moments;
    int kinds;
    int64_t below; /* bytes under all of it, which count when it is judged whether a packing is good enough */
    int orders;    /* of sizes, of which at most so many are tried; 0: only that of time */
};

/* The most that lives at once: no packing is lower. */
int64_t packing_bound(const struct packing *packing);

/* Fills *place of every stay; returns how high they reach. In milliseconds for thousands, and for
 * more than that in a time that hardly grows faster than their number. */
int64_t packing_pack(const struct packing *packing);

#endif
