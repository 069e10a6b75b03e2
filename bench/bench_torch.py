#!/usr/bin/python3
"""How long does PyTorch take for the step that memplan runs, and how much memory?

    /usr/bin/python3 bench/bench_torch.py [STEPS]
    python3 bench/bench_torch.py --device cuda --model gpt2-124m --batch 8 --seq-len 1024 [--compile] [--json]

GPT-2: forward, cross-entropy, backward, clipping and AdamW on random tokens. On the CPU in plain eager PyTorch, fp32, B=4,
T=64 and T=256, beside bench_train. On a GPU one setting as PyTorch's own advice has it: bf16 autocast, fused AdamW, flash
attention, and torch.compile when asked. Prints the median step, tokens/s and GFLOP/s, and the rate of 2048-sided matrix
products measured in the same run or, on a GPU, the most memory that PyTorch held. Flops are counted as bench_train counts them.
"""
import argparse
import contextlib
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F

VOCAB, POSITIONS = 50257, 1024
MODELS = {  # layers, hidden, heads
    "gpt2-tiny": (2, 64, 4),
    "gpt2-124m": (12, 768, 12),
    "gpt2-355m": (24, 1024, 16),
    "gpt2-774m": (36, 1280, 20),
    "gpt2-1558m": (48, 1600, 25),
}
WARM_STEPS_CUDA = 5  # compiling and choosing algorithms


def layer_shapes(hidden):
    return {
        "norm1": (hidden,), "norm1_bias": (hidden,), "qkv": (3 * hidden, hidden), "qkv_bias": (3 * hidden,),
        "proj": (hidden, hidden), "proj_bias": (hidden,), "norm2": (hidden,), "norm2_bias": (hidden,),
        "up": (4 * hidden, hidden), "up_bias": (4 * hidden,), "down": (hidden, 4 * hidden), "down_bias": (hidden,),
    }


def make_parameters(layers, hidden, device):
    def parameter(shape):
        start = 0.02 * torch.randn(shape, device=device) if len(shape) > 1 else torch.ones(shape, device=device)
        return torch.nn.Parameter(start)

    blocks = [{name: parameter(shape) for name, shape in layer_shapes(hidden).items()} for _ in range(layers)]
    top = {"wte": parameter((VOCAB, hidden)), "wpe": parameter((POSITIONS, hidden)),
           "norm": parameter((hidden,)), "norm_bias": parameter((hidden,))}
    return blocks, top


def plain_attention(q, k, v):
    t = q.shape[2]
    mask = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(-2, -1)) * q.shape[3] ** -0.5
    return torch.softmax(scores.masked_fill(mask, float("-inf")), -1) @ v


def flash_attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention(x, p, heads, mix):
    b, t, c = x.shape
    q, k, v = F.linear(x, p["qkv"], p["qkv_bias"]).view(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
    return F.linear(mix(q, k, v).transpose(1, 2).reshape(b, t, c), p["proj"], p["proj_bias"])


def loss_of(blocks, top, heads, mix, tokens, targets):
    x = top["wte"][tokens] + top["wpe"][: tokens.shape[1]]
    width = (x.shape[-1],)
    for p in blocks:
        x = x + attention(F.layer_norm(x, width, p["norm1"], p["norm1_bias"]), p, heads, mix)
        y = F.layer_norm(x, width, p["norm2"], p["norm2_bias"])
        x = x + F.linear(F.gelu(F.linear(y, p["up"], p["up_bias"]), approximate="tanh"), p["down"], p["down_bias"])
    logits = F.linear(F.layer_norm(x, width, top["norm"], top["norm_bias"]), top["wte"])
    return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def matmul_rate():
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    times = []
    for _ in range(6):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2 * 2048**3 / statistics.median(times[1:])


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def step_times(model, b, t, steps, device, compiled):
    """Seconds of each step after the first ones, and the flops of one."""
    cuda = device == "cuda"
    layers, hidden, heads = MODELS[model]
    torch.manual_seed(1)
    blocks, top = make_parameters(layers, hidden, device)
    everything = [p for block in blocks for p in block.values()] + list(top.values())
    optimizer = torch.optim.AdamW(everything, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  **({"fused": True} if cuda else {}))
    mix = flash_attention if cuda else plain_attention

    def forward(tokens, targets):
        return loss_of(blocks, top, heads, mix, tokens, targets)

    if compiled:
        forward = torch.compile(forward)
    warm, times = WARM_STEPS_CUDA if cuda else 1, []
    for _ in range(steps + warm):
        tokens = torch.randint(VOCAB, (b, t + 1), device=device)
        wait(device)
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16) if cuda else contextlib.nullcontext():
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(everything, 1.0)
        optimizer.step()
        wait(device)
        times.append(time.perf_counter() - start)
    flops = (6 * sum(p.numel() for p in everything) + 6 * layers * hidden * t) * b * t
    return times[warm:], flops


def bench_cpu(t, steps):
    b, before = 4, matmul_rate()
    times, flops = step_times("gpt2-124m", b, t, steps, "cpu", False)
    median, rate = statistics.median(times), (before + matmul_rate()) / 2
    print(f"pytorch {torch.__version__}  gpt2-124m  B={b} T={t}  fp32  {torch.get_num_threads()} threads, {steps} steps")
    print(f"  step           {median:.3f} s median ({min(times):.3f} to {max(times):.3f})")
    print(f"  tokens/s       {b * t / median:.1f}")
    print(f"  GFLOP/s        {flops / median * 1e-9:.1f}")
    print(f"  matmul GFLOP/s {rate * 1e-9:.1f}   (2048^3, its own)")
    print(f"  ratio          {flops / median / rate:.3f}")


def bench_cuda(o):
    torch.set_float32_matmul_precision("high")  # TF32 where autocast leaves fp32, as PyTorch advises
    torch.cuda.reset_peak_memory_stats()
    times, flops = step_times(o.model, o.batch, o.seq_len, o.steps, "cuda", o.compile)
    median = statistics.median(times)
    result = {
        "torch": torch.__version__, "model": o.model, "batch": o.batch, "seq_len": o.seq_len, "compiled": o.compile,
        "median_s": median, "least_s": min(times), "most_s": max(times), "steps": len(times),
        "tokens_per_s": o.batch * o.seq_len / median, "flops_per_s": flops / median,
        "peak_bytes": torch.cuda.max_memory_allocated(), "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
    }
    if o.json:
        print(json.dumps(result))
        return
    print(f"pytorch {torch.__version__}  {o.model}  B={o.batch} T={o.seq_len}  bf16 autocast"
          f"{', compiled' if o.compile else ''}, {len(times)} steps")
    print(f"  step           {1e3 * median:.2f} ms median ({1e3 * min(times):.2f} to {1e3 * max(times):.2f})")
    print(f"  tokens/s       {result['tokens_per_s']:.1f}")
    print(f"  TFLOP/s        {flops / median * 1e-12:.1f}")
    print(f"  peak memory    {result['peak_bytes'] / 2**30:.2f} GiB, {result['reserved_peak_bytes'] / 2**30:.2f} held")


def main():
    parser = argparse.ArgumentParser(description="How long does PyTorch take for the step that memplan runs?")
    parser.add_argument("steps_given", metavar="STEPS", nargs="?", type=int)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", choices=sorted(MODELS), default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    o.steps = o.steps_given or o.steps
    if o.device == "cuda":
        bench_cuda(o)
        return
    torch.set_num_threads(os.cpu_count())
    bench_cpu(64, o.steps)
    bench_cpu(256, max(2, o.steps // 2))


if __name__ == "__main__":
    main()
