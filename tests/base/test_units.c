/* Sizes, rates, times and counts: what people may type, what is refused, and how each is printed. */
#include "tests/test.h"

#include "base/units.h"

#include <math.h>
#include <string.h>

struct size_case {
    const char *text;
    int64_t bytes;
};

TEST(units_parse_bytes_accepts, "sizes come with or without a unit, in any case, with fractions and a space")
{
    static const struct size_case cases[] = {
        {"0", 0},
        {"512", 512},
        {"512B", 512},
        {"512 b", 512},
        {"1kB", 1000},
        {"1KiB", 1024},
        {"300MB", 300000000},
        {"300 MiB", 314572800}, /* 300 * 2^20 */
        {"80GiB", 80LL << 30},
        {"80gib", 80LL << 30},
        {"80GB", 80000000000},
        {"2TB", 2000000000000},
        {"2TiB", 2LL << 40},
        {"1.5GiB", 1610612736}, /* 3 * 2^29 */
        {".5KiB", 512},
        {"1.5e9", 1500000000},
        {"1e3kB", 1000000},
        {"0.1GB", 100000000},                   /* 0.1 is not exact in binary; the answer is rounded */
        {"0.1GiB", 107374182},                  /* 107,374,182.4 */
        {"9007199254740993", 9007199254740993}, /* 2^53 + 1: lost by a double */
        {"9223372036854775807", INT64_MAX},
    };
    struct error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;
        ASSERT_OK(units_parse_bytes(cases[i].text, "--memory", &bytes, &err));
        ASSERT_MSG(bytes == cases[i].bytes, "\"%s\" gave %lld, not %lld", cases[i].text, (long long)bytes,
                   (long long)cases[i].bytes);
    }
}

TEST(units_parse_bytes_rejects, "what is not a size is refused, and the result is left alone")
{
    static const char *const texts[] = {
        "",        " ",          "GiB",   "-5",   "+5",    "-1GiB", "abc",   "nan",
        "inf",     "0x10",       "1.5",   "1.5B", "1e-3",  "80G",   "80GBx", "80Gi",
        "80 GiB ", "80GiB 5GiB", "5 PiB", "1e",   "1,000", "1_000", " 5",    "80GB/s",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct error err = {0};
        int64_t bytes = 77;
        ASSERT_MSG(units_parse_bytes(texts[i], "--memory", &bytes, &err) == -1, "\"%s\" was accepted",
                   texts[i]);
        ASSERT_INT(bytes, 77);
        ASSERT_INT(err.kind, ERROR_INPUT);
        ASSERT_HAS(err.text, "--memory: \"");
        ASSERT_HAS(err.text, texts[i]);
    }
}

TEST(units_parse_bytes_half, "of a letter alone both units that it may begin are named")
{
    struct error err = {0};
    int64_t bytes;
    ASSERT_INT(units_parse_bytes("80G", "--memory", &bytes, &err), -1);
    ASSERT_STR(err.text, "--memory: \"80G\" has half a unit; did you mean 80GB, or 80GiB?");
    ASSERT_INT(units_parse_bytes("1.5k", "--memory", &bytes, &err), -1);
    ASSERT_HAS(err.text, "did you mean 1.5kB, or 1.5KiB?");
}

TEST(units_parse_bytes_overflow, "sizes of 2^63 bytes and more are refused")
{
    static const char *const texts[] = {"9223372036854775808", "8388608TiB", "1e30", "1e4000", "1e20GiB"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct error err = {0};
        int64_t bytes = 77;
        ASSERT_INT(units_parse_bytes(texts[i], "--memory", &bytes, &err), -1);
        ASSERT_HAS(err.text, "more than this program can count");
        ASSERT_INT(bytes, 77);
    }
}

TEST(units_parse_bytes_messages, "a refused size says what it was, what was typed and what would work")
{
    struct error err = {0};
    int64_t bytes;
    units_parse_bytes("lots", "--memory", &bytes, &err);
    ASSERT_STR(
        err.text,
        "--memory: \"lots\" is not a size; write a number of bytes or add a unit, like 80GiB or 300MB");
    units_parse_bytes("80Gx", "--memory", &bytes, &err);
    ASSERT_STR(err.text,
               "--memory: \"80Gx\" has an unknown unit; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB");
    ASSERT_INT(units_parse_bytes("lots", "--memory", &bytes, NULL), -1);
}

TEST(units_parse_rate_accepts, "a small b counts bits and a large B bytes")
{
    struct error err = {0};
    double rate;
    ASSERT_OK(units_parse_rate("400Gb/s", "net", &rate, &err));
    ASSERT(rate == 50e9); /* 400e9 / 8 */
    ASSERT_OK(units_parse_rate("50GB/s", "net", &rate, &err));
    ASSERT(rate == 50e9);
    ASSERT_OK(units_parse_rate("1.5 TB/s", "net", &rate, &err));
    ASSERT(rate == 1.5e12);
    ASSERT_OK(units_parse_rate("2GiB/s", "net", &rate, &err));
    ASSERT(rate == 2147483648.0);
    ASSERT_OK(units_parse_rate("800 B/s", "net", &rate, &err));
    ASSERT(rate == 800);
    ASSERT_OK(units_parse_rate("800b/s", "net", &rate, &err));
    ASSERT(rate == 100);
}

TEST(units_parse_rate_rejects, "a rate needs a number above zero and a unit per second")
{
    static const char *const texts[] = {"",      "fast",     "400",     "400Gb", "400GB",   "-1GB/s",
                                        "0GB/s", "1e40GB/s", "1GB/sec", "1GB/h", "nanGB/s", "1 G/s"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct error err = {0};
        double rate = 7;
        ASSERT_MSG(units_parse_rate(texts[i], "net", &rate, &err) == -1, "\"%s\" was accepted", texts[i]);
        ASSERT(rate == 7);
        ASSERT_HAS(err.text, "net: \"");
        ASSERT_HAS(err.text, "GB/s");
    }
}

TEST(units_format_bytes_text, "bytes print in powers of 1024 with two decimals")
{
    char out[UNITS_TEXT];
    ASSERT_STR(units_format_bytes(0, out), "0 B");
    ASSERT_STR(units_format_bytes(512, out), "512 B");
    ASSERT_STR(units_format_bytes(1023, out), "1023 B");
    ASSERT_STR(units_format_bytes(1024, out), "1.00 KiB");
    ASSERT_STR(units_format_bytes(1610612736, out), "1.50 GiB");
    ASSERT_STR(units_format_bytes(80LL << 30, out), "80.00 GiB");
    ASSERT_STR(units_format_bytes(1048575, out), "1.00 MiB"); /* not "1024.00 KiB" */
    ASSERT_STR(units_format_bytes(-1536, out), "-1.50 KiB");
    ASSERT_STR(units_format_bytes(3LL << 50, out), "3.00 PiB");
    ASSERT_STR(units_format_bytes(INT64_MAX, out), "8.00 EiB");
    ASSERT_STR(units_format_bytes(INT64_MIN, out), "-8.00 EiB");
}

TEST(units_format_bytes_pair_text, "a part is printed in the unit of its whole, both with three digits")
{
    char part[UNITS_TEXT], whole[UNITS_TEXT];
    units_format_bytes_pair(70464307, 129982464, part, whole);
    ASSERT_STR(part, "67.2");
    ASSERT_STR(whole, "124 MiB");
    units_format_bytes_pair(1, 999, part, whole);
    ASSERT_STR(part, "1");
    ASSERT_STR(whole, "999 B");
    units_format_bytes_pair(512, 1000, part, whole);
    ASSERT_STR(part, "0.50");
    ASSERT_STR(whole, "0.98 KiB");
    units_format_bytes_pair(0, INT64_MAX, part, whole);
    ASSERT_STR(part, "0.00");
    ASSERT_STR(whole, "8.00 EiB");
}

TEST(units_format_seconds_text, "times print with three digits, or in the two largest units from a minute on")
{
    char out[UNITS_TEXT];
    ASSERT_STR(units_format_seconds(0, out), "0 s");
    ASSERT_STR(units_format_seconds(0.0184, out), "18.4 ms");
    ASSERT_STR(units_format_seconds(3.21, out), "3.21 s");
    ASSERT_STR(units_format_seconds(5, out), "5.00 s");
    ASSERT_STR(units_format_seconds(0.9999, out), "1.00 s"); /* not "1000 ms" */
    ASSERT_STR(units_format_seconds(0.25e-6, out), "250 ns");
    ASSERT_STR(units_format_seconds(12.3e-6, out), "12.3 us");
    ASSERT_STR(units_format_seconds(-0.0184, out), "-18.4 ms");
    ASSERT_STR(units_format_seconds(59.9, out), "59.9 s");
    ASSERT_STR(units_format_seconds(59.96, out), "1 min 00 s");
    ASSERT_STR(units_format_seconds(190, out), "3 min 10 s");
    ASSERT_STR(units_format_seconds(3599.7, out), "1 h 00 min");
    ASSERT_STR(units_format_seconds(7500, out), "2 h 05 min");
    ASSERT_STR(units_format_seconds(86399, out), "1 d 00 h");
    ASSERT_STR(units_format_seconds(273600, out), "3 d 04 h"); /* 76 hours */
    ASSERT_STR(units_format_seconds(NAN, out), "unknown");
    ASSERT_STR(units_format_seconds(INFINITY, out), "forever");
}

TEST(units_format_count_text, "counts print with commas")
{
    char out[UNITS_TEXT];
    ASSERT_STR(units_format_count(0, out), "0");
    ASSERT_STR(units_format_count(999, out), "999");
    ASSERT_STR(units_format_count(1000, out), "1,000");
    ASSERT_STR(units_format_count(124439808, out), "124,439,808");
    ASSERT_STR(units_format_count(-100000, out), "-100,000");
    ASSERT_STR(units_format_count(INT64_MAX, out), "9,223,372,036,854,775,807");
    ASSERT_STR(units_format_count(INT64_MIN, out), "-9,223,372,036,854,775,808");
}

TEST(units_format_rate_text, "rates print with three digits in powers of 1000")
{
    char out[UNITS_TEXT];
    ASSERT_STR(units_format_rate(212e9, "FLOP/s", out), "212 GFLOP/s");
    ASSERT_STR(units_format_rate(312e12, "FLOP/s", out), "312 TFLOP/s");
    ASSERT_STR(units_format_rate(50e9, "B/s", out), "50.0 GB/s");
    ASSERT_STR(units_format_rate(1234, "tokens/s", out), "1.23 ktokens/s");
    ASSERT_STR(units_format_rate(0.5, "tokens/s", out), "0.50 tokens/s");
    ASSERT_STR(units_format_rate(0, "B/s", out), "0.00 B/s");
    ASSERT_STR(units_format_rate(999.7, "B/s", out), "1.00 kB/s"); /* not "1000 B/s" */
    ASSERT_STR(units_format_rate(NAN, "B/s", out), "unknown");
}
