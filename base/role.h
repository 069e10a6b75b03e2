/* Who a byte belongs to. One list, used in the program, the device's ledger, tables, JSON and colours. */
#ifndef MEMPLAN_BASE_ROLE_H
#define MEMPLAN_BASE_ROLE_H

enum role {
    ROLE_PARAMETER,
    ROLE_GRADIENT,      /* of parameters; gradients of activations are ROLE_ACTIVATION */
    ROLE_OPTIMIZER,     /* Adam moments and fp32 master weights */
    ROLE_ACTIVATION,    /* what forward keeps for backward, and the gradients that flow back through it */
    ROLE_WORKSPACE,     /* scratch of one operation */
    ROLE_COMMUNICATION, /* message and bucket buffers */
    ROLE_INPUT,         /* tokens, targets, feature vectors */
    ROLE_RUNTIME,       /* context, libraries, allocator slack: whatever no tensor owns */
    ROLE_COUNT,
};

/* "parameter", "gradient", ...: used as JSON keys and database values. */
const char *role_name(enum role role);
/* -1 when no role has that name. */
int role_find(const char *name);

#endif
