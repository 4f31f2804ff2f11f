"""DeltaNet, (Gated) DeltaProduct, Mamba and Transformer language models for training on a CPU.

Modules have the names of the checkpoints of their libraries (flash-linear-attention, transformers),
so those libraries and lrnn-convert can read a saved model. The recurrences are in scan.c, which is
compiled on first use.
"""

import ctypes
import hashlib
import math
import os
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

# ---- scan.c


def compile_scan() -> ctypes.CDLL:
    source = Path(__file__).with_name("scan.c")
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O3", "-march=native", "-ffast-math",
               "-shared", "-fPIC"]
    tag = hashlib.sha256(source.read_bytes() + " ".join(command).encode()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"lrnn-train-{os.getuid()}-{tag}.so"
    if not library.exists():
        fresh = library.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, "-o", str(fresh), str(source), "-lm"], check=True)
        fresh.rename(library)
    return ctypes.CDLL(str(library))


SCAN = compile_scan()


def shape_of(*sizes: int) -> ctypes.Array:
    """A struct of ints."""
    return (ctypes.c_int * len(sizes))(*sizes)


def call(function, shape: ctypes.Array, *tensors: torch.Tensor | None) -> None:
    for x in tensors:
        assert x is None or (x.dtype == torch.float32 and x.is_contiguous()), \
            "scan.c takes dense float32"
    pointers = (ctypes.c_void_p(None if x is None else x.data_ptr()) for x in tensors)
    status = function(shape, *pointers)
    if function.restype is ctypes.c_int and status != 0:
        raise MemoryError(function.__name__)


for name in ("delta_forward", "ssm_forward", "slstm_forward", "slstm_backward", "conv_forward",
             "conv_backward"):
    getattr(SCAN, name).restype = None


class DeltaRule(torch.autograd.Function):
    """q [B,T,H,K], k [B,T·n,H,K], v [B,T·n,H,P], beta [B,T·n,H], g [B,T,H] or None -> o [B,T,H,P].
    Normalizes q and k (L2)."""

    @staticmethod
    def forward(ctx, q, k, v, beta, g, factors):
        q, k, v, beta = (x.contiguous() for x in (q, k, v, beta))
        g = None if g is None else g.contiguous()
        B, T, H, K = q.shape
        P = v.shape[-1]
        shape = shape_of(B, T, H, factors, K, P)
        o, u = v.new_empty(B, T, H, P), torch.empty_like(v)
        kept = v.new_empty(B, H, SCAN.delta_kept_states(T), K, P)
        call(SCAN.delta_forward, shape, q, k, v, beta, g, o, u, kept)
        ctx.save_for_backward(q, k, v, beta, g, u, kept)
        ctx.shape = shape
        return o

    @staticmethod
    def backward(ctx, d_o):
        q, k, v, beta, g, u, kept = ctx.saved_tensors
        dq, dk, dv, dbeta = (torch.empty_like(x) for x in (q, k, v, beta))
        dg = None if g is None else torch.empty_like(g)
        call(SCAN.delta_backward, ctx.shape, q, k, v, beta, g, u, kept, d_o.contiguous(),
             dq, dk, dv, dbeta, dg)
        return dq, dk, dv, dbeta, dg, None


class SelectiveScan(torch.autograd.Function):
    """x, dt [B,T,E], A [E,N], B, C [B,T,N] -> y [B,T,E]."""

    @staticmethod
    def forward(ctx, x, dt, A, B, C, signed):
        tensors = tuple(t.contiguous() for t in (x, dt, A, B, C))
        n_seq, T, E = x.shape
        ctx.shape = shape_of(n_seq, T, E, A.shape[1], int(signed))
        ctx.save_for_backward(*tensors)
        y = x.new_empty(x.shape)
        call(SCAN.ssm_forward, ctx.shape, *tensors, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        tensors = ctx.saved_tensors
        grads = tuple(torch.zeros_like(t) for t in tensors)
        call(SCAN.ssm_backward, ctx.shape, *tensors, dy.contiguous(), *grads)
        return *grads, None


class SLSTM(torch.autograd.Function):
    """x [B,T,4,H,d], the sums of gates i, f, z, o without the recurrent part; R [H,d,4,d], input
    first -> y [B,T,H,d]."""

    @staticmethod
    def forward(ctx, x, R):
        x, R = x.contiguous(), R.contiguous()
        B, T, _, H, d = x.shape
        ctx.shape = shape_of(B, T, H, d)
        y, c, n = (x.new_empty(B, T, H, d) for _ in range(3))
        kept = x.new_empty(B, T, 5, H, d)
        call(SCAN.slstm_forward, ctx.shape, x, R, y, c, n, kept)
        ctx.save_for_backward(R, y, c, n, kept)
        return y

    @staticmethod
    def backward(ctx, dy):
        R, y, c, n, kept = ctx.saved_tensors
        B, T, H, d = y.shape
        dx, dR = y.new_empty(B, T, 4, H, d), torch.zeros_like(R)
        call(SCAN.slstm_backward, ctx.shape, R, y, c, n, kept, dy.contiguous(), dx, dR)
        return dx, dR


class ConvSiLU(torch.autograd.Function):
    """x [B,T,C], weight [C,1,W], bias [C] or None -> silu of the causal convolution."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        x, w = x.contiguous(), weight[:, 0].t().contiguous()
        ctx.shape = shape_of(*x.shape, weight.shape[-1])
        ctx.save_for_backward(x, w, bias)
        y = torch.empty_like(x)
        call(SCAN.conv_forward, ctx.shape, x, w, bias, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, bias = ctx.saved_tensors
        dx, dw = torch.zeros_like(x), torch.zeros_like(w)
        db = None if bias is None else torch.zeros_like(bias)
        call(SCAN.conv_backward, ctx.shape, x, w, bias, dy.contiguous(), dx, dw, db)
        return dx, dw.t().unsqueeze(1).contiguous(), db


# ---- modules


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class ShortConv(nn.Module):
    def __init__(self, channels: int, width: int, bias: bool = False):
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(channels, 1, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x):
        return ConvSiLU.apply(x, self.weight, self.bias)


class Mixer(nn.Module):
    """DeltaNet (n = 1) and (Gated) DeltaProduct:

    S = exp(g) S;  n times: S = (I - β k kᵀ) S + β k vᵀ;  o = Sᵀ q / √K;  β = σ(·), signed 2 σ(·)
    """

    def __init__(self, c: dict):
        super().__init__()
        D, H = c["hidden_size"], c["num_heads"]
        self.heads, self.factors = H, c.get("num_householder", 1)
        self.signed = c["allow_neg_eigval"]
        n, inner = self.factors, H * c["head_dim"] if "head_dim" in c else D
        self.q_proj = linear(D, inner)
        self.k_proj, self.v_proj = linear(D, n * inner), linear(D, n * inner)
        self.b_proj, self.o_proj = linear(D, n * H), linear(inner, D)
        self.conv = c["use_short_conv"]
        if self.conv:
            W = c["conv_size"]
            self.q_conv1d = ShortConv(inner, W)
            self.k_conv1d, self.v_conv1d = ShortConv(n * inner, W), ShortConv(n * inner, W)
        self.forget = c.get("use_forget_gate", False)
        if self.forget:
            # as in fla: rates of 0 to 16, time steps of 0.001 to 0.1
            self.a_proj = linear(D, H)
            self.A_log = nn.Parameter(torch.empty(H).uniform_(0, 16).log())
            dt = torch.exp(torch.rand(H) * math.log(100) + math.log(0.001))
            self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.gate = c.get("use_output_gate", c.get("use_gate", False))
        if self.gate:
            self.g_proj = linear(D, inner)
        self.o_norm = RMSNorm(inner // H, c["norm_eps"])

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.conv:
            q, k, v = self.q_conv1d(q), self.k_conv1d(k), self.v_conv1d(v)
        else:
            q, k, v = F.silu(q), F.silu(k), F.silu(v)
        # rows of k, v and β are (factor, head, dimension): the factors of a token are adjacent
        q = q.view(B, T, self.heads, -1)
        k, v = (x.view(B, T * self.factors, self.heads, -1) for x in (k, v))
        beta = self.b_proj(x).sigmoid().view(B, T * self.factors, self.heads)
        if self.signed:
            beta = 2 * beta
        g = -self.A_log.exp() * F.softplus(self.a_proj(x) + self.dt_bias) if self.forget else None
        o = self.o_norm(DeltaRule.apply(q, k, v, beta, g, self.factors)).flatten(2)
        if self.gate:
            o = o * F.silu(self.g_proj(x))
        return self.o_proj(o)


class SwiGLU(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate_proj, self.up_proj = linear(width, inner), linear(width, inner)
        self.down_proj = linear(inner, width)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        D, eps = c["hidden_size"], c["norm_eps"]
        self.attn_norm, self.attn = RMSNorm(D, eps), Mixer(c)
        self.mlp_norm, self.mlp = RMSNorm(D, eps), SwiGLU(D, c["intermediate_size"])

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class MambaMixer(nn.Module):
    """h = a h + Δ B x,  a = exp(Δ A), signed: 2 exp(Δ A) - 1;  y = C·h + D x;  out = W (y silu(z)).
    """

    def __init__(self, c: dict):
        super().__init__()
        D, E, N, R = c["hidden_size"], c["intermediate_size"], c["state_size"], c["time_step_rank"]
        self.split, self.signed = (R, N, N), c["signed"]
        self.in_proj, self.out_proj = linear(D, 2 * E), linear(E, D)
        self.conv1d = ShortConv(E, c["conv_kernel"], bias=True)
        self.x_proj, self.dt_proj = linear(E, R + 2 * N), nn.Linear(R, E)
        self.A_log = nn.Parameter(torch.arange(1, N + 1, dtype=torch.float32).repeat(E, 1).log())
        self.D = nn.Parameter(torch.ones(E))
        low, high = c["time_step_min"], c["time_step_max"]
        dt = torch.exp(torch.rand(E) * math.log(high / low) + math.log(low))
        self.dt_proj.bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))

    def forward(self, x):
        x, z = self.in_proj(x).chunk(2, dim=-1)
        x = self.conv1d(x)
        dt, B, C = self.x_proj(x).split(self.split, dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        y = SelectiveScan.apply(x, dt, -self.A_log.exp(), B, C, self.signed)
        return self.out_proj((y + self.D * x) * F.silu(z))


class MambaLayer(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        self.norm, self.mixer = RMSNorm(c["hidden_size"], c["layer_norm_epsilon"]), MambaMixer(c)

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Attention(nn.Module):
    """Causal softmax attention with rotary positions (halves of a head are the pairs)."""

    def __init__(self, c: dict):
        super().__init__()
        D, self.heads = c["hidden_size"], c["num_attention_heads"]
        self.groups = self.heads // c["num_key_value_heads"]
        self.theta, head = c["rope_parameters"]["rope_theta"], c["head_dim"]
        self.q_proj, self.o_proj = linear(D, self.heads * head), linear(self.heads * head, D)
        self.k_proj, self.v_proj = (linear(D, self.heads // self.groups * head) for _ in range(2))
        self.head = head

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        rate = self.theta ** (-torch.arange(0, self.head, 2) / self.head)
        angle = torch.outer(torch.arange(x.shape[1]), rate)
        cos, sin = angle.cos(), angle.sin()

        def rotate(x):
            a, b = x.chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        k, v = (x.repeat_interleave(self.groups, 1) for x in (k, v))
        o = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return self.o_proj(o.transpose(1, 2).flatten(2))


class LlamaLayer(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        D, eps = c["hidden_size"], c["rms_norm_eps"]
        self.input_layernorm, self.self_attn = RMSNorm(D, eps), Attention(c)
        self.post_attention_layernorm, self.mlp = RMSNorm(D, eps), SwiGLU(D, c["intermediate_size"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


# model_type: class of the layers, key of the norms' epsilon, and the library's names of the stack,
# the embedding and the last norm
STACKS = {
    "delta_net":          (Layer, "norm_eps", "model", "embeddings", "norm"),
    "gated_deltaproduct": (Layer, "norm_eps", "model", "embeddings", "norm"),
    "mamba":              (MambaLayer, "layer_norm_epsilon", "backbone", "embeddings", "norm_f"),
    "llama":              (LlamaLayer, "rms_norm_eps", "model", "embed_tokens", "norm"),
}


class Stack(nn.Module):
    """Embedding, layers and last norm."""

    def __init__(self, c: dict):
        super().__init__()
        layer, eps, _, *self.names = STACKS[c["model_type"]]
        embedding, norm = self.names
        setattr(self, embedding, nn.Embedding(c["vocab_size"], c["hidden_size"]))
        self.layers = nn.ModuleList(layer(c) for _ in range(c["num_hidden_layers"]))
        setattr(self, norm, RMSNorm(c["hidden_size"], c[eps]))

    def embedding(self) -> nn.Embedding:
        return getattr(self, self.names[0])

    def forward(self, ids):
        x = self.embedding()(ids)
        for layer in self.layers:
            x = layer(x)
        return getattr(self, self.names[1])(x)


class LanguageModel(nn.Module):
    """ids [B,T] -> logits [B,T,V]; config as in config.json."""

    def __init__(self, config: dict):
        super().__init__()
        self.config = config
        self.stack = STACKS[config["model_type"]][2]
        setattr(self, self.stack, Stack(config))
        if not config["tie_word_embeddings"]:
            self.lm_head = linear(config["hidden_size"], config["vocab_size"])
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and not name.endswith(("A_log", "dt_proj.weight")):
                nn.init.normal_(parameter, std=config["initializer_range"])

    def forward(self, ids):
        stack = getattr(self, self.stack)
        x = stack(ids)
        if self.config["tie_word_embeddings"]:
            return F.linear(x, stack.embedding().weight)
        return self.lm_head(x)


# ---- configurations, as the libraries write them


def delta_config(vocab: int, width: int, layers: int, heads: int, inner: int, signed: bool,
                 conv: bool = True, factors: int = 0, forget: bool = False, gate: bool = False,
                 init: float = 0.02, tied: bool = False, end: int | None = None) -> dict:
    """factors = 0: DeltaNet; n > 0: DeltaProduct with n factors. end: the token around texts."""
    c = dict(vocab_size=vocab, hidden_size=width, num_hidden_layers=layers, num_heads=heads,
             intermediate_size=inner, hidden_act="swish", expand_v=1, use_short_conv=conv,
             conv_size=4, allow_neg_eigval=signed, norm_eps=1e-6, tie_word_embeddings=tied,
             initializer_range=init, bos_token_id=end, eos_token_id=end)
    if factors == 0:
        return c | dict(architectures=["DeltaNetForCausalLM"], model_type="delta_net", expand_k=1,
                        use_beta=True, use_gate=gate, qk_activation="silu", qk_norm="l2")
    return c | dict(architectures=["GatedDeltaProductForCausalLM"],
                    model_type="gated_deltaproduct", head_dim=width // heads,
                    num_householder=factors, use_forget_gate=forget, use_output_gate=gate)


def mamba_config(vocab: int, width: int, layers: int, signed: bool, conv: int = 4, state: int = 16,
                 init: float = 0.02) -> dict:
    return dict(architectures=["MambaForCausalLM"], model_type="mamba", vocab_size=vocab,
                hidden_size=width, num_hidden_layers=layers, intermediate_size=2 * width, expand=2,
                state_size=state, conv_kernel=conv, use_bias=False, use_conv_bias=True,
                hidden_act="silu", time_step_rank=math.ceil(width / 16), time_step_min=0.001,
                time_step_max=0.1, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
                initializer_range=init, bos_token_id=None, eos_token_id=None, signed=signed)


def llama_config(vocab: int, width: int, layers: int, heads: int, inner: int,
                 init: float = 0.02) -> dict:
    return dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=vocab,
                hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=heads, head_dim=width // heads, intermediate_size=inner,
                hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False, mlp_bias=False,
                rope_parameters=dict(rope_theta=10000.0, rope_type="default"),
                tie_word_embeddings=False, initializer_range=init, bos_token_id=None,
                eos_token_id=None)
