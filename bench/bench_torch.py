#!/usr/bin/python3
"""How long does PyTorch take for the step that bench_train measures?

    /usr/bin/python3 bench/bench_torch.py [STEPS]

GPT-2 124M in plain eager PyTorch on the CPU, fp32, B=4, T=64 and T=256: forward, cross-entropy, backward, clipping and
AdamW on random tokens. Prints the median step, tokens/s and GFLOP/s, and the rate of 2048-sided matrix products measured
in the same run. Flops are counted as bench_train counts them.
"""
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, VOCAB, POSITIONS = 12, 768, 12, 50257, 1024


def layer_shapes():
    return {
        "norm1": (HIDDEN,), "norm1_bias": (HIDDEN,), "qkv": (3 * HIDDEN, HIDDEN), "qkv_bias": (3 * HIDDEN,),
        "proj": (HIDDEN, HIDDEN), "proj_bias": (HIDDEN,), "norm2": (HIDDEN,), "norm2_bias": (HIDDEN,),
        "up": (4 * HIDDEN, HIDDEN), "up_bias": (4 * HIDDEN,), "down": (HIDDEN, 4 * HIDDEN), "down_bias": (HIDDEN,),
    }


def make_parameters():
    def parameter(shape):
        return torch.nn.Parameter(0.02 * torch.randn(shape) if len(shape) > 1 else torch.ones(shape))

    layers = [{name: parameter(shape) for name, shape in layer_shapes().items()} for _ in range(LAYERS)]
    top = {"wte": parameter((VOCAB, HIDDEN)), "wpe": parameter((POSITIONS, HIDDEN)),
           "norm": parameter((HIDDEN,)), "norm_bias": parameter((HIDDEN,))}
    return layers, top


def attention(x, p, mask):
    b, t, _ = x.shape
    q, k, v = F.linear(x, p["qkv"], p["qkv_bias"]).view(b, t, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(-2, -1)) * (HIDDEN // HEADS) ** -0.5
    mixed = torch.softmax(scores.masked_fill(mask, float("-inf")), -1) @ v
    return F.linear(mixed.transpose(1, 2).reshape(b, t, HIDDEN), p["proj"], p["proj_bias"])


def loss_of(layers, top, tokens, targets, mask):
    x = top["wte"][tokens] + top["wpe"][: tokens.shape[1]]
    for p in layers:
        x = x + attention(F.layer_norm(x, (HIDDEN,), p["norm1"], p["norm1_bias"]), p, mask)
        y = F.layer_norm(x, (HIDDEN,), p["norm2"], p["norm2_bias"])
        x = x + F.linear(F.gelu(F.linear(y, p["up"], p["up_bias"])), p["down"], p["down_bias"])
    logits = F.layer_norm(x, (HIDDEN,), top["norm"], top["norm_bias"]) @ top["wte"].t()
    return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


def matmul_rate():
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2 * 2048**3 / statistics.median(times[1:])


def bench(t, steps):
    b = 4
    torch.manual_seed(1)
    layers, top = make_parameters()
    everything = [p for layer in layers for p in layer.values()] + list(top.values())
    optimizer = torch.optim.AdamW(everything, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    mask = torch.ones(t, t, dtype=torch.bool).triu(1)
    times, before = [], matmul_rate()
    for _ in range(steps + 1):
        tokens = torch.randint(VOCAB, (b, t + 1))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(layers, top, tokens[:, :-1], tokens[:, 1:].reshape(-1), mask).backward()
        torch.nn.utils.clip_grad_norm_(everything, 1.0)
        optimizer.step()
        times.append(time.perf_counter() - start)
    times = times[1:]
    flops = (6 * sum(p.numel() for p in everything) + 6 * LAYERS * HIDDEN * t) * b * t
    median, rate = statistics.median(times), (before + matmul_rate()) / 2
    print(f"pytorch {torch.__version__}  gpt2-124m  B={b} T={t}  fp32  {torch.get_num_threads()} threads, {steps} steps")
    print(f"  step           {median:.3f} s median ({min(times):.3f} to {max(times):.3f})")
    print(f"  tokens/s       {b * t / median:.1f}")
    print(f"  GFLOP/s        {flops / median * 1e-9:.1f}")
    print(f"  matmul GFLOP/s {rate * 1e-9:.1f}   (2048^3, its own)")
    print(f"  ratio          {flops / median / rate:.3f}")


if __name__ == "__main__":
    torch.set_num_threads(os.cpu_count())
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    bench(64, count)
    bench(256, max(2, count // 2))
