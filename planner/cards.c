/* Memory: `usable` is the total that programs see, as PyTorch's out-of-memory messages report it, read in public issue
 * threads: V100 31.75 GiB (hiyouga/LlamaFactory#182), A100-80 79.25 (levihsu/OOTDiffusion#235), H100 79.11
 * (vllm-project/vllm#27508), L40S 44.40 (an L40 of the same size: QwenLM/Qwen3-VL#2097), RTX 4090 23.52
 * (pytorch/torchchat#1341), T4 14.56 (Zheng-Chong/CatVTON#133), RTX 3090 23.50 (XChenZ/havatar#6), RTX 5090 31.36
 * (TrajectoryCrafter/TrajectoryCrafter#20). The H800 and the A800 have the H100's and the A100's. Without such a reading it is the size that NVML gives (A100-40 40,960 MiB, H200 143,771 MiB, L4
 * 23,034 MiB, V100-16 16,160 MiB, A10 and A10G 23,028 MiB, RTX A6000 and RTX 6000 Ada 49,140 MiB, H20 97,871 MiB, GB200 189,471 MiB) or the
 * data sheet (B200 180 GB, MI300X 192 GiB), less the hundredth that drivers keep in the readings above.
 *
 * Rates: NVIDIA's data sheets of V100 SXM2 (2020), A100 SXM (2021), H100 SXM (2023), H200 SXM (2024), HGX B200 (2024), L4
 * (2023), L40S (2023) and the Ada architecture paper for the RTX 4090 (2022); AMD's data sheet of the MI300X (2023).
 * Those of the T4 (2019), the A10 (2021), the RTX A6000 (2020), the RTX 6000 Ada (2022), the GB200 NVL72 (2024; a 72th of the rack), and
 * the papers on the architectures of GA102 for the RTX 3090 (2020) and of RTX Blackwell for the RTX 5090 (2025), with sums in fp32. A10G: AWS' page on
 * the G5 instances (2021). H20: NVIDIA's sheet for it (2023). A800 and H800 are an A100 and an H100 with eight links of NVLink, 200 GB/s a direction,
 * and the H800 with 1 TFLOP/s in fp64.
 * Volta and Turing have no bf16 units: bf16 runs at their fp32 rate at best. Links: NVLink 2, 3, 4, 5 (150, 300, 450, 900 GB/s a direction),
 * PCIe 3.0 x16 (16 GB/s), 4.0 (32), 5.0 (64), Infinity Fabric (7 x 64 GB/s).
 *
 * Shares of large bf16 products (docs/time-model.md, section 3, has the measurements): 0.92 of what the best shape was measured to
 * sustain. A100: the 0.80 that measured steps want, of 0.87 that products reach in a burst, and hence 0.92. H100, H200: 0.76, the median of
 * an H200's eight cards at 685 W, all at work; B200: 0.64, likewise; MI300X: 0.50 (stas00/ml-engineering, compute/accelerator, 0359db8).
 * L40S 0.70, RTX 4090 1.08, whose clock is above the data sheet's: in a burst (mag-/gpu_benchmark). The L4's 0.50 is assumed, since 72 W
 * are far below what its burst of 0.76 draws; the V100's 0.80 too, and so are those of cards that nobody measured for it: 0.50 for the T4, the A10 and
 * the A10G, likewise of little power; 0.80 for the RTX 3090, the RTX A6000, the RTX 5090 and the H20; and of the RTX 6000 Ada, the A800, the H800 and the
 * GB200 what the L40S, the A100, the H100 and the B200, of the same chips, have.
 *
 * cuBLAS's own workspace: 32 MiB from Hopper on, 8 MiB + 128 KiB before (cuBLAS manual, CUBLAS_WORKSPACE_CONFIG).
 *
 * Networks: the ports for computing of the node that the vendor sells or describes, storage and management left out. DGX-1: four of
 * 100 Gb/s for eight cards (NVIDIA DGX-1 With Tesla V100 System Architecture, white paper WP-08437, 2017). DGX A100: eight of 200 (DGX A100
 * System User Guide, DU-09821, 2020). DGX H100, H200, B200: eight of 400 (DGX BasePOD reference architecture, core components,
 * 2025). MI300X: eight of 400, a port to a card (ROCm documentation, vLLM distributed inference with MoRI, 2026; so are Azure's ND
 * MI300X v5). H800: eight of 400, the node that DeepSeek-V3 was trained on (arXiv 2505.09343, 2025). GB200: four of 400 for the four cards of a tray (DGX
 * GB200 data sheet, 2024). The others have no such node: cloud nodes with L4 have 100 Gb/s at most (Google Compute Engine, G2, 2025), which is
 * taken for all of them. */
#include "planner/cards.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define GIB(x)     ((int64_t)((x)*1024) << 20)
#define OLD_CUBLAS 8519680
#define NEW_CUBLAS (32 << 20)

/* Of a whole node, in bytes a second. */
#define PORTS(count, gigabits) ((count)*1e9 * (gigabits) / 8)
#define DGX_1                  "DGX-1", 8, PORTS(4, 100)
#define DGX(name, gigabits)    "DGX " name, 8, PORTS(8, gigabits)
#define NO_NODE                NULL, 0, 0

static const struct card cards[] = {
    {"v100-32g", GIB(31.75), 15.7e12, 15.7e12, 7.8e12, 900e9, 150e9, OLD_CUBLAS, 80, 0.80, CARD_SHEET, true,
     DGX_1},
    {"a100-40g", GIB(39.60), 19.5e12, 312e12, 9.7e12, 1555e9, 300e9, OLD_CUBLAS, 108, 0.80, CARD_STEPS, true,
     DGX("A100", 200)},
    {"a100-80g", GIB(79.25), 19.5e12, 312e12, 9.7e12, 2039e9, 300e9, OLD_CUBLAS, 108, 0.80, CARD_STEPS, true,
     DGX("A100", 200)},
    {"h100-80g", GIB(79.11), 67e12, 989e12, 34e12, 3350e9, 450e9, NEW_CUBLAS, 132, 0.70, CARD_FEW_STEPS, true,
     DGX("H100", 400)},
    {"h200", GIB(139.0), 67e12, 989e12, 34e12, 4800e9, 450e9, NEW_CUBLAS, 132, 0.70, CARD_PRODUCTS, true,
     DGX("H200", 400)},
    {"b200", GIB(165.9), 75e12, 2250e12, 37e12, 8000e9, 900e9, NEW_CUBLAS, 148, 0.59, CARD_PRODUCTS, true,
     DGX("B200", 400)},
    {"l4", GIB(22.2), 30.3e12, 121e12, 0.49e12, 300e9, 32e9, OLD_CUBLAS, 58, 0.50, CARD_SHEET, true, NO_NODE},
    {"l40s", GIB(44.40), 91.6e12, 362e12, 1.4e12, 864e9, 32e9, OLD_CUBLAS, 142, 0.64, CARD_PRODUCTS, true,
     NO_NODE},
    {"rtx4090", GIB(23.52), 82.6e12, 165.2e12, 1.3e12, 1008e9, 32e9, OLD_CUBLAS, 128, 0.99, CARD_PRODUCTS,
     true, NO_NODE},
    {"mi300x", GIB(190.0), 163.4e12, 1307e12, 81.7e12, 5300e9, 448e9, NEW_CUBLAS, 304, 0.46, CARD_PRODUCTS,
     false, "MI300X platform", 8, PORTS(8, 400)},
    {"v100-16g", GIB(15.6), 15.7e12, 15.7e12, 7.8e12, 900e9, 150e9, OLD_CUBLAS, 80, 0.80, CARD_SHEET, true,
     DGX_1},
    {"t4", GIB(14.56), 8.1e12, 8.1e12, 0.25e12, 320e9, 16e9, OLD_CUBLAS, 40, 0.50, CARD_SHEET, true, NO_NODE},
    {"a10", GIB(22.2), 31.2e12, 125e12, 0.49e12, 600e9, 32e9, OLD_CUBLAS, 72, 0.50, CARD_SHEET, true,
     NO_NODE},
    {"a10g", GIB(22.2), 35e12, 70e12, 0.55e12, 600e9, 32e9, OLD_CUBLAS, 80, 0.50, CARD_SHEET, true, NO_NODE},
    {"a6000", GIB(47.5), 38.7e12, 154.8e12, 0.6e12, 768e9, 32e9, OLD_CUBLAS, 84, 0.80, CARD_SHEET, true,
     NO_NODE},
    {"rtx6000ada", GIB(47.5), 91.1e12, 364.2e12, 1.4e12, 960e9, 32e9, OLD_CUBLAS, 142, 0.64, CARD_SHEET, true,
     NO_NODE},
    {"rtx3090", GIB(23.50), 35.6e12, 71e12, 0.56e12, 936e9, 32e9, OLD_CUBLAS, 82, 0.80, CARD_SHEET, true,
     NO_NODE},
    {"rtx5090", GIB(31.36), 104.8e12, 209.5e12, 1.6e12, 1792e9, 64e9, NEW_CUBLAS, 170, 0.80, CARD_SHEET, true,
     NO_NODE},
    {"a800-80g", GIB(79.25), 19.5e12, 312e12, 9.7e12, 2039e9, 200e9, OLD_CUBLAS, 108, 0.80, CARD_SHEET, true,
     NO_NODE},
    {"h800", GIB(79.11), 67e12, 989e12, 1e12, 3350e9, 200e9, NEW_CUBLAS, 132, 0.70, CARD_SHEET, true,
     "node of H800", 8, PORTS(8, 400)},
    {"h20", GIB(94.6), 44e12, 148e12, 1e12, 4000e9, 450e9, NEW_CUBLAS, 78, 0.80, CARD_SHEET, true, NO_NODE},
    {"gb200", GIB(183.2), 80e12, 2500e12, 40e12, 8000e9, 900e9, NEW_CUBLAS, 152, 0.59, CARD_SHEET, true,
     "DGX GB200", 4, PORTS(4, 400)},
};

enum { CARDS = sizeof cards / sizeof cards[0] };

const struct card *cards_find(const char *name)
{
    for (int i = 0; i < CARDS; i++)
        if (!strcasecmp(cards[i].name, name))
            return &cards[i];
    return NULL;
}

/* "h100" of "h100-80g", "rtx 6000 ada" of "rtx6000ada". */
static bool names_model(const char *driver_name, const char *card_name)
{
    char model[32];
    if (!strncmp(card_name, "rtx", 3)) {
        const char *number = card_name + 3, *edition = number + strspn(number, "0123456789");
        snprintf(model, sizeof model, "rtx %.*s%s%s", (int)(edition - number), number, *edition ? " " : "",
                 edition);
    } else
        snprintf(model, sizeof model, "%.*s", (int)strcspn(card_name, "-"), card_name);
    const char *found = strcasestr(driver_name, model);
    /* An L40S is no L4, and a GB200 no B200. */
    return found && !isalnum((unsigned char)found[strlen(model)]) &&
           (found == driver_name || !isalnum((unsigned char)found[-1]));
}

const char *cards_evidence_text(enum card_evidence evidence)
{
    static const char *const texts[] = {
        "by its data sheet alone: no step of training, nor a product, was held against it",
        "by products that others measured: no step of training was held against it",
        "by products that others measured, and held against a few published steps",
        "held against hundreds of measured steps",
    };
    return texts[evidence];
}

const char *cards_rates_text(enum card_evidence evidence, bool several)
{
    static const char *const texts[2][2] = {
        {"the card's data sheet", "the cards' data sheets"},
        {"measured products and the card's data sheet", "measured products and the cards' data sheets"},
    };
    return texts[evidence != CARD_SHEET][several];
}

const struct card *cards_match(const char *name, int64_t total_bytes)
{
    const struct card *best = NULL;
    for (int i = 0; i < CARDS; i++)
        if (names_model(name, cards[i].name) &&
            (!best || llabs(cards[i].usable_bytes - total_bytes) < llabs(best->usable_bytes - total_bytes)))
            best = &cards[i];
    return best;
}

const char *const *cards_names(void)
{
    static const char *names[CARDS + 1];
    for (int i = 0; i < CARDS; i++)
        names[i] = cards[i].name;
    return names;
}
