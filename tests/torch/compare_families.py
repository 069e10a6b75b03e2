"""What a layer of each family of models keeps for backward, against the table of families.csv, to the byte.

Each family's arithmetic is written here in plain PyTorch, and runs wherever PyTorch is; where transformers is installed too, its
own layers are asked for the same bytes. Counted as in compare_saved.py; cosines and sines, which all layers share, are not.
"""
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

from compare_saved import ACTIVATIONS, B, D, FFN, H, HEADS, T, V, Rms, Unavailable, saved_bytes

COS, SIN = torch.ones(T, D), torch.zeros(T, D)


class GemmaNorm(nn.Module):
    def __init__(self, width, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, dtype=dtype))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (1.0 + self.weight.float())).type_as(x)


class HeadNorm(Rms):
    def __init__(self, width, dtype):
        super().__init__(dtype)
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype))


def rotate(x, cos, sin):
    half = torch.cat((-x[..., D // 2 :], x[..., : D // 2]), dim=-1)
    return x * cos + half * sin


class Layer(nn.Module):
    """One layer, by the words of families.csv."""

    def __init__(self, dtype, words):
        super().__init__()
        self.words, self.dtype = words, dtype
        self.kv = 1 if "mqa" in words else 2 if "gqa" in words else HEADS
        ffn, norms = 128 if "wide" in words else FFN, 4 if "post" in words else 1 if "one" in words else 2
        self.qkv = nn.Linear(H, (HEADS + 2 * self.kv) * D, bias=False)
        self.o, self.up, self.down = nn.Linear(H, H, bias=False), nn.Linear(H, ffn), nn.Linear(ffn, H)
        self.separate = nn.ModuleList(nn.Linear(H, n * D, bias=False) for n in (HEADS, self.kv, self.kv))
        self.gate = nn.Linear(H, ffn, bias=False)
        self.to(dtype)
        self.norms = nn.ModuleList(self.norm(H) for _ in range(norms))
        self.head_norms = nn.ModuleList(self.norm(D) for _ in range(2))
        self.cos, self.sin = COS.to(dtype), SIN.to(dtype)
        self.mask = torch.full((T, T), -1e9, dtype=dtype).triu(1)

    def norm(self, width):
        if "gemma" in self.words:
            return GemmaNorm(width, self.dtype)
        return HeadNorm(width, self.dtype) if "rms" in self.words else nn.LayerNorm(width).to(self.dtype)

    def projected(self, x):
        if "joint" in self.words:
            parts = self.qkv(x).view(B, T, HEADS + 2 * self.kv, D).split((HEADS, self.kv, self.kv), dim=2)
        else:
            parts = (m(x).view(B, T, -1, D) for m in self.separate)
        q, k, v = (t.transpose(1, 2) for t in parts)
        if "qknorm" in self.words:
            q, k = self.head_norms[0](q), self.head_norms[1](k)
        if "rotary" in self.words:
            q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        if self.kv != HEADS:
            k, v = (t.repeat_interleave(HEADS // self.kv, dim=1) for t in (k, v))
        return q, k, v

    def attention(self, x):
        q, k, v = self.projected(x)
        if "eager" not in self.words:
            if not hasattr(F, "scaled_dot_product_attention"):
                raise Unavailable("no fused attention on a CPU in PyTorch " + torch.__version__)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            if "scores32" in self.words:
                q, k = q.float(), k.float()
            scores = q @ k.transpose(-2, -1) / D**0.5
            if "capped" in self.words:
                scores = torch.tanh(scores / 50) * 50
            scores = scores + self.mask.to(scores.dtype)
            in_type = scores.dtype if "asis" in self.words else torch.float32
            out = F.softmax(scores, dim=-1, dtype=in_type).to(v.dtype) @ v
        return self.o(out.transpose(1, 2).reshape(B, T, H))

    def mlp(self, x):
        named = [w for w in self.words if w in ACTIVATIONS]
        act = ACTIVATIONS[named[0]] if named else F.gelu
        return self.down(act(self.gate(x)) * self.up(x) if "gated" in self.words else act(self.up(x)))

    def forward(self, x):
        if "encoder" in self.words:
            x = self.norms[0](x + self.attention(x))
            return self.norms[1](x + self.mlp(x))
        first = self.norms[0](x)
        if "beside" in self.words or "one" in self.words:
            return self.mlp(first if "one" in self.words else self.norms[1](x)) + self.attention(first) + x
        if "post" in self.words:
            x = x + self.norms[2](self.attention(first))
            return x + self.norms[3](self.mlp(self.norms[1](x)))
        x = x + self.attention(first)
        return x + self.mlp(self.norms[1](x))


# ---- transformers' own layers ----

SIZES = {"hidden_size": H, "num_hidden_layers": 1, "num_attention_heads": HEADS, "vocab_size": V}
GATED = {**SIZES, "intermediate_size": FFN, "num_key_value_heads": 2}
CONFIGS = {
    "llama": ("Llama", GATED),
    "qwen3": ("Qwen3", {**GATED, "head_dim": D}),
    "gemma": ("Gemma", {**GATED, "head_dim": D}),
    "gemma2": ("Gemma2", {**GATED, "head_dim": D}),
    "gemma3": ("Gemma3Text", {**GATED, "head_dim": D}),
    "phi3": ("Phi3", {**GATED, "num_key_value_heads": HEADS, "pad_token_id": 0, "eos_token_id": 1}),
    "phi": ("Phi", {**SIZES, "intermediate_size": FFN}),
    "gpt_neox": ("GPTNeoX", {**SIZES, "intermediate_size": FFN}),
    "falcon_mqa": ("Falcon", {**SIZES, "ffn_hidden_size": FFN}),
    "falcon_gqa": ("Falcon", {**SIZES, "ffn_hidden_size": FFN, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "opt": ("OPT", {**SIZES, "ffn_dim": FFN, "word_embed_proj_dim": H, "dropout": 0.0}),
    "bloom": ("Bloom", {"hidden_size": H, "n_layer": 1, "n_head": HEADS, "vocab_size": V}),
    "gpt2": ("GPT2", {"n_embd": H, "n_layer": 1, "n_head": HEADS, "vocab_size": V, "n_inner": FFN,
                      "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}),
    "bert": ("Bert", {**SIZES, "intermediate_size": FFN, "hidden_dropout_prob": 0.0,
                      "attention_probs_dropout_prob": 0.0}),
    "gptj": ("GPTJ", {"n_embd": H, "n_layer": 1, "n_head": HEADS, "vocab_size": V, "n_inner": FFN, "rotary_dim": 4}),
}  # fmt: skip
# GPT-J's layers lay out sines of their own: two for queries and two for keys, of the four positions of a head that are rotated.
OWN_SINES = {"gptj": 4 * T * 4 * 2}


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)


def theirs(transformers, family, fused, dtype):
    """Bytes that the family's own layer keeps; what it is given besides its input is shared by all layers, and not counted."""
    name, sizes = CONFIGS[family]
    config = getattr(transformers, name + "Config")(**sizes)
    model = transformers.AutoModel.from_config(config, attn_implementation="sdpa" if fused else "eager")
    model = model.to(dtype).train()
    (layers,) = (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == 1)
    inner, kept = layers[0].forward, []

    def forward(*args, **kwargs):
        x, given = (args[0], args[1:]) if args else (kwargs.pop("hidden_states"), ())
        shared = [*tensors_in(given), *tensors_in(kwargs), *model.buffers()]
        x, out = x.detach().requires_grad_(), []
        run = lambda t: out.append(inner(t, *given, **kwargs))
        kept.append(saved_bytes(run, x, list(model.parameters()), shared))
        return out[0]

    layers[0].forward = forward
    model(input_ids=torch.ones(B, T, dtype=torch.int64), use_cache=False)
    return kept[0] - OWN_SINES.get(family, 0)


def find_transformers():
    try:
        import transformers

        getattr(transformers, "GPTNeoXConfig")
        return transformers if transformers.utils.is_torch_available() else None
    except Exception:  # whatever an import can raise: it is not usable here
        return None


def check(name, who, ask, want, counts):
    torch.manual_seed(1)
    try:
        got = ask()
    except Unavailable as reason:
        print(f"skip  families: {name}: {reason}")
        counts["skipped"] += 1
        return
    verdict = "ok   " if got == want else f"FAIL  (not {want})"
    print(f"{verdict} families: {name}, {who}, keeps {got} bytes")
    counts["passed" if got == want else "failed"] += 1


def main(path):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    transformers = find_transformers()
    old = int(torch.__version__.split(".")[0]) < 2
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("|") for line in f if not line.startswith("#")]
    for name, flags, size in lines:
        words, want = flags.split(), int(size)
        dtype = torch.bfloat16 if "bf16" in words else torch.float32
        if old and ("rms" in words or "gemma" in words):
            print(f"skip  families: {name}: mean() of PyTorch {torch.__version__} keeps its input")
            counts["skipped"] += 1
        else:
            layer = Layer(dtype, words)
            x = torch.randn(B, T, H).to(dtype).requires_grad_()
            shared = [layer.cos, layer.sin]
            check(name, "as written here", lambda: saved_bytes(layer, x, list(layer.parameters()), shared), want, counts)
        if transformers:
            family, kernel = name.rsplit("_", 1)
            ask = lambda: theirs(transformers, family, kernel == "fused", dtype)
            check(name, f"of transformers {transformers.__version__}", ask, want, counts)
    if not transformers:
        print(f"skip  families: {sys.executable} has no transformers that runs on PyTorch {torch.__version__}")
        counts["skipped"] += 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return counts["failed"] > 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    sys.exit(main(sys.argv[1]))
