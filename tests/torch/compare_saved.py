"""What PyTorch keeps for backward of plain modules, against the table of saved.csv, to the byte.

Autograd's saved-tensor hooks see every tensor that a node keeps. Counted is each storage once; parameters are not, nor their
casts, nor integers (targets), nor single numbers. Dropout is torch.native_dropout, which is what CUDA runs; on a CPU nn.Dropout
would keep its noise in full.
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

B, T, H, HEADS, D, FFN, V = 2, 20, 32, 4, 8, 48, 64


class Unavailable(Exception):
    pass


def saved_bytes(run, x, parameters, shared=()):
    known = {p.data_ptr() for p in (*parameters, *shared)}
    sizes = {t.shape for t in parameters} | {t.t().shape for t in parameters if t.dim() == 2}
    storages, keep = {}, []

    def pack(t):
        keep.append(t)  # or its memory would be used again, and counted once
        scalar = t.numel() <= 1
        cast = t.dtype != x.dtype and t.shape in sizes
        if t.data_ptr() not in known and t.dtype != torch.int64 and not scalar and not cast:
            # a CPU's layer_norm keeps its statistics in the input's type, CUDA's in fp32
            statistics = t.dtype == torch.bfloat16 and t.shape[-1] == 1
            storages[t.storage().data_ptr()] = t.storage().nbytes() * (2 if statistics else 1)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = run(x)
    del out
    return sum(storages.values())


def linear(inner, outer, dtype):
    return nn.Linear(inner, outer, bias=False).to(dtype)


class Rms(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(H, dtype=dtype))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return y.to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, dtype, kv_heads, dropout, fused):
        super().__init__()
        self.q, self.o = linear(H, H, dtype), linear(H, H, dtype)
        self.k, self.v = linear(H, kv_heads * D, dtype), linear(H, kv_heads * D, dtype)
        self.kv_heads, self.dropout, self.fused = kv_heads, dropout, fused

    def heads(self, x, count):
        x = x.view(B, T, count, D).transpose(1, 2)
        return x if count == HEADS else x.repeat_interleave(HEADS // count, dim=1)

    def forward(self, x):
        q = self.heads(self.q(x), HEADS)
        k, v = self.heads(self.k(x), self.kv_heads), self.heads(self.v(x), self.kv_heads)
        if self.fused:
            if not hasattr(F, "scaled_dot_product_attention"):
                raise Unavailable("no fused attention on a CPU in PyTorch " + torch.__version__)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / D**0.5
            scores = scores + torch.full((T, T), -1e9, dtype=x.dtype).triu(1)
            p = F.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype)
            if self.dropout:
                p = torch.native_dropout(p, 0.5, True)[0]
            out = p @ v
        return self.o(out.transpose(1, 2).reshape(B, T, H))


def cubed(x):
    """pow, which CUDA's autocast runs in fp32 (aten/src/ATen/autocast_mode.h, AT_FORALL_FP32) and a CPU's does not."""
    return torch.pow(x.float() if torch.is_autocast_cpu_enabled() else x, 3.0)


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * cubed(x))))


def gelu_fast(x):
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


# What transformers' activations.py computes under each name, and Megatron-LM without bias_activation_fusion.
ACTIVATIONS = {
    "gelu_new": gelu_new,
    "gelu_fast": gelu_fast,
    "gelu_python": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu_10": lambda x: torch.clip(F.gelu(x), -10, 10),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "relu6": F.relu6,
    "gelu_bias_apart": lambda x: F.gelu(x + torch.zeros(FFN, dtype=x.dtype)),
}


class Activated(nn.Module):
    def __init__(self, dtype, activation):
        super().__init__()
        self.up, self.down = linear(H, FFN, dtype), linear(FFN, H, dtype)
        self.activation = activation

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class Swiglu(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.gate, self.up, self.down = linear(H, FFN, dtype), linear(H, FFN, dtype), linear(FFN, H, dtype)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def cross_entropy(x):
    return F.cross_entropy(x.float().view(-1, V), torch.zeros(B * T, dtype=torch.int64))


def autocast(module):
    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(x)

    return run


def cases():
    fp32, bf16 = torch.float32, torch.bfloat16
    old = int(torch.__version__.split(".")[0]) < 2

    def then_linear(module, dtype):
        return nn.Sequential(module, linear(H, H, dtype))

    wide = {"cross_entropy": V, "cross_entropy_bf16": V}
    modules = {
        "layer_norm": (fp32, then_linear(nn.LayerNorm(H), fp32)),
        "rms_norm_written" + "_before_2.0" * old: (fp32, then_linear(Rms(fp32), fp32)),
        "rms_norm_written_bf16" + "_before_2.0" * old: (bf16, then_linear(Rms(bf16), bf16)),
        "swiglu": (fp32, Swiglu(fp32)),
        "swiglu_bf16": (bf16, Swiglu(bf16)),
        "attention_eager": (fp32, Attention(fp32, HEADS, False, False)),
        "attention_eager_dropout": (fp32, Attention(fp32, HEADS, True, False)),
        "attention_eager_gqa_bf16": (bf16, Attention(bf16, HEADS // 2, False, False)),
        "attention_fused_gqa_bf16": (bf16, Attention(bf16, HEADS // 2, False, True)),
    }
    for name, activation in {"gelu": F.gelu, **ACTIVATIONS}.items():
        modules[name] = fp32, Activated(fp32, activation)
        modules[name + "_bf16"] = bf16, Activated(bf16, activation)
        modules[name + "_autocast"] = fp32, Activated(fp32, activation)
    for name, (dtype, module) in modules.items():
        run = autocast(module) if name.endswith("autocast") else module
        yield name, dtype, H, run, list(module.parameters())
    layer = nn.Sequential(nn.LayerNorm(H), Activated(fp32, F.gelu))
    yield "checkpoint", fp32, H, lambda x: checkpoint(layer, x), list(layer.parameters())
    yield "residual_dropout", fp32, H, lambda x: x + torch.native_dropout(x, 0.5, True)[0], []
    for name, dtype in (("cross_entropy", fp32), ("cross_entropy_bf16", bf16)):
        yield name, dtype, wide[name], cross_entropy, []


def main(path):
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("|") for line in f if not line.startswith("#")]
    expected = {line[0]: int(line[3]) for line in lines}
    failed = skipped = 0
    for name, dtype, width, run, parameters in cases():
        torch.manual_seed(1)
        x = torch.randn(B, T, width).to(dtype).requires_grad_()
        try:
            got = saved_bytes(run, x, parameters)
        except Unavailable as reason:
            print(f"skip  saved: {name}: {reason}")
            skipped += 1
            expected.pop(name)
            continue
        want = expected.pop(name)
        failed += got != want
        verdict = "ok   " if got == want else f"FAIL  (not {want})"
        print(f"{verdict} saved: {name} keeps {got} bytes")
    for name in expected:
        print(f"skip  saved: {name}: this is PyTorch {torch.__version__}")
        skipped += 1
    print(f"{len(lines) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
