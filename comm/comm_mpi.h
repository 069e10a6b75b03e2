/* What the library of the MPI transport holds: one function, found by name. The program itself does not link with MPI, so
 * that it runs where there is none. */
#ifndef MEMPLAN_COMM_COMM_MPI_H
#define MEMPLAN_COMM_COMM_MPI_H

#include "comm/comm.h"

#define COMM_MPI_LIBRARY "libmemplan_mpi.so"
#define COMM_MPI_SYMBOL  "comm_mpi_open"

typedef int comm_mpi_open_function(struct comm **out, struct error *err);

/* Starts MPI; *out is this process's rank among all that were launched with it. Once in a process. */
__attribute__((visibility("default"))) comm_mpi_open_function comm_mpi_open;

#endif
