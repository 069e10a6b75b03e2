/* The accelerators known by name: what the vendor's data sheet says of each, and what a program can really have of its
 * memory. Names are compared without regard to case. */
#ifndef MEMPLAN_PLANNER_CARDS_H
#define MEMPLAN_PLANNER_CARDS_H

#include <stdbool.h>
#include <stdint.h>

/* What its predicted seconds rest on, besides its data sheet. The doubt of a prediction goes by it (machine_speed.h). */
enum card_evidence {
    CARD_SHEET,     /* nothing else */
    CARD_PRODUCTS,  /* large bf16 products that others measured */
    CARD_FEW_STEPS, /* likewise, and a few published training runs (docs/time-model.md, section 10) */
    CARD_STEPS,     /* the steps that `make score` reads */
};

/* Rates are those of the data sheet: dense, without sparsity, and never reached in full (machine_speed.h). */
struct card {
    const char *name;               /* "h100-80g" */
    int64_t usable_bytes;           /* what the driver lets programs have, before they open a context */
    double fp32_flops_per_s;        /* plain fp32, not TF32 */
    double bf16_flops_per_s;
    double fp64_flops_per_s;
    double memory_bytes_per_s;
    double link_bytes_per_s;        /* to the other cards of its machine, one direction */
    int64_t cublas_workspace_bytes; /* of one handle */
    int multiprocessors;            /* which the tiles of a matrix product are shared out to */
    double product_share;           /* of bf16's rate, that large matrix products reach for long */
    enum card_evidence evidence;
    bool cuda;
    /* The vendor's own node with these cards. NULL: there is none. */
    const char *node; /* "DGX H100" */
    int node_cards;
    double node_net_bytes_per_s; /* of all its ports to other nodes, one direction */
};

/* Of a CUDA context with its kernels loaded lazily, whatever the card, give or take the second. Readings: 256 MiB (RTX 3090:
 * invoke-ai/InvokeAI#9413), 426 MiB (RTX 6000 Ada, CUDA 13.0: unslothai/unsloth-zoo#1053), 616 MiB (data-centre node:
 * LMCache#4019). */
#define CARD_CONTEXT_BYTES (440LL << 20)
#define CARD_CONTEXT_ERROR_BYTES (180LL << 20)

/* NULL when no card has that name. */
const struct card *cards_find(const char *name);
/* The card that a driver calls `name`, such as "NVIDIA H100 80GB HBM3", with about so much memory; NULL when it is not among
 * those known. */
const struct card *cards_match(const char *name, int64_t total_bytes);
/* "by products that others measured: ...", to be said of how fast it is. */
const char *cards_evidence_text(enum card_evidence evidence);
/* Where its rates are from: "the card's data sheet", or "measured products and the card's data sheet"; `several`: "the cards' data sheets". */
const char *cards_rates_text(enum card_evidence evidence, bool several);
/* NULL-terminated. */
const char *const *cards_names(void);

#endif
