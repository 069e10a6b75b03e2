/* PyTorch's CUDA caching allocator, replayed: the same decisions on the same sequence of requests, without a GPU. Says what
 * torch.cuda.max_memory_allocated() and max_memory_reserved() would, and so how much fragmentation costs.
 *
 * Rules are those of c10/cuda/CUDACachingAllocator.cpp, read at commit 001074d2 (2025); each is cited by the function there
 * that makes it, next to the code here. Streams are small numbers; a block freed on one is only ever reused on that one. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_CACHING_ALLOCATOR_H
#define MEMPLAN_PLANNER_FRAMEWORKS_CACHING_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CACHING_ALLOCATOR_STREAMS = 4,
    CACHING_ALLOCATOR_SIZES = 16, /* powers of two from 1 MiB to 32 GiB; smaller and larger requests count to the ends */
};

/* What PYTORCH_CUDA_ALLOC_CONF says; zeros are its defaults. */
struct caching_allocator_options {
    int64_t capacity_bytes;   /* that cudaMalloc can give; 0: without end */
    int64_t max_split_bytes;  /* max_split_size_mb; 0: any block may be split */
    int64_t max_rounding_bytes; /* max_non_split_rounding_mb: how much too large a block that is not split may be; 0: 20 MiB */
    double memory_fraction; /* per_process_memory_fraction, or torch.cuda.set_per_process_memory_fraction(); 0: not set */
    double gc_threshold; /* garbage_collection_threshold, of the fraction; 0: none, and none where no fraction is set */
    int64_t power2_divisions[CACHING_ALLOCATOR_SIZES]; /* roundup_power2_divisions, by size; 0 or 1: none */
    bool expandable_segments;
};

struct caching_allocator_figures {
    int64_t allocated_bytes, max_allocated_bytes; /* of blocks, rounded as the allocator rounds */
    int64_t requested_bytes, max_requested_bytes; /* as asked for */
    int64_t reserved_bytes, max_reserved_bytes;   /* taken with cudaMalloc */
    int64_t retries; /* how often cudaMalloc failed, and cached blocks were given back: num_alloc_retries */
    bool out_of_memory;
    int64_t refused_bytes; /* the request that failed first */
};

struct caching_allocator;

struct caching_allocator *caching_allocator_create(const struct caching_allocator_options *options);
void caching_allocator_free(struct caching_allocator *allocator); /* NULL is fine */

/* A block's number, for caching_allocator_release(); -1 when memory is out, after which the figures say so. 0 bytes are a
 * block without memory. */
int caching_allocator_take(struct caching_allocator *allocator, int64_t bytes, int stream);
/* Of a block: the request, rounded, and what was too little to be split off. */
int64_t caching_allocator_bytes(const struct caching_allocator *allocator, int block);
void caching_allocator_release(struct caching_allocator *allocator, int block);
/* torch.cuda.empty_cache() */
void caching_allocator_empty(struct caching_allocator *allocator);

struct caching_allocator_figures caching_allocator_figures(const struct caching_allocator *allocator);

/* round_size(): what a request takes of a block. */
int64_t caching_allocator_rounded(const struct caching_allocator_options *options, int64_t bytes);

#endif
