/* Quantities as people type and read them: "80GiB", "300 MiB", "1.5e9", 312 TFLOP/s, 18.4 ms. */
#ifndef MEMPLAN_BASE_UNITS_H
#define MEMPLAN_BASE_UNITS_H

#include "base/error.h"

#include <stdint.h>

enum { UNITS_TEXT = 32 }; /* room that every units_format_*() needs */

/* Accepts a number with an optional unit: B, kB/MB/GB/TB (powers of 1000), KiB/MiB/GiB/TiB (powers of 1024), any case,
 * optional space, optional fraction ("1.5GiB"). `what` names the quantity in the message ("--memory"). */
int units_parse_bytes(const char *text, const char *what, int64_t *bytes, struct error *err);

/* "400Gb/s" or "50GB/s" -> bytes per second. */
int units_parse_rate(const char *text, const char *what, double *bytes_per_s, struct error *err);

/* Write into `out[UNITS_TEXT]` and return it. Bytes: "1.50 GiB", below 1 KiB "512 B". */
const char *units_format_bytes(int64_t bytes, char *out);
/* A part and the whole, >= it, in the whole's unit and three digits, for narrow lines: "67.2" and "124 MiB". */
void units_format_bytes_pair(int64_t part, int64_t whole, char *part_out, char *whole_out);
/* "18.4 ms", "3.21 s", "2 h 05 min". */
const char *units_format_seconds(double seconds, char *out);
/* One of two words, by the count before it: "1 micro-batch", "2 micro-batches". */
const char *units_plural(int64_t count, const char *one, const char *many);
/* "124,439,808". */
const char *units_format_count(int64_t count, char *out);
/* "212 GFLOP/s" from a rate per second and its unit ("FLOP/s", "tokens/s", "B/s"): powers of 1000. */
const char *units_format_rate(double per_second, const char *unit, char *out);

#endif
