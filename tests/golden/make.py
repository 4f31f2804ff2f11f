#!/usr/bin/env python3
"""Makes the golden models of this folder and the logits of their libraries.

    python tests/golden/make.py [name...]

Takes about three minutes on a CPU. The following packages are needed here and by no test:

    torch 2.15.0, transformers 5.22.2, flash-linear-attention 0.6.0, einops, safetensors, gguf,
    numpy, xlstm 2.0.5

The library that defines a model builds it from a small configuration and saves it; convert/
converts it. Its weights are random (see `draw`), and so are the tokens. The logits are those of the
library in float32, for all tokens in one call from an empty state.
"""

import contextlib
import functools
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import types
import zlib
from pathlib import Path

# flash-linear-attention is written in Triton, which compiles kernels for a GPU or interprets them
# with numpy. The choice must be made before the import. Compilation by torch would take longer.
os.environ["TRITON_INTERPRET"] = "1"
os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
CONVERTER = HERE.parent.parent / "convert"

VOCAB = 48
TOKENS = 36                                # up to 64, fla selects kernels that can be interpreted


#
# The libraries
#

def without_timing() -> None:
    """Disables the timing of Triton's autotuner, which needs a GPU. All variants of an interpreted
    kernel are equally fast."""
    from triton.runtime.autotuner import Autotuner

    def no_time(self, *args, **kwargs):
        return [0.0, 0.0, 0.0]

    Autotuner._bench = no_time


def plain_attention(q, k, v, causal=True, window_size=(-1, -1), **_):
    """Replaces flash-attn, which needs a GPU. Input and output are [B, T, H, d]; `window_size` is
    the number of tokens (left, right) of the current one."""
    groups = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(groups, dim=2) for x in (k, v))
    i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None, :]
    seen = j <= i if causal else torch.ones(len(i), len(j[0]), dtype=torch.bool)
    if window_size[0] >= 0:
        seen = seen & (j >= i - window_size[0])
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def from_fla(name: str, **config):
    """A model of fla.models, by its prefix: DeltaNet, GLA, …"""
    if "fla" in sys.modules and sys.modules["fla"] is None:
        del sys.modules["fla"]
    without_timing()
    attn = importlib.import_module("fla.layers.attn")
    attn.flash_attn_func = plain_attention
    models = importlib.import_module("fla.models")
    # without fused norms and losses, fewer kernels have to be interpreted
    common = dict(hidden_size=32, num_hidden_layers=2, vocab_size=VOCAB, fuse_norm=False,
                  fuse_swiglu=False, fuse_cross_entropy=False)
    return build(models, name, common | config)


def gdn2_model(**config):
    """fla's language model of KDA with the layer of Gated DeltaNet-2, which has no model there."""
    model = from_fla("KDA", **config)
    layers = importlib.import_module("fla.layers.gdn2")
    names = ("num_heads", "num_v_heads", "head_dim", "expand_v", "allow_neg_eigval", "norm_eps",
             "use_short_conv")
    options = {name: config[name] for name in names if name in config}
    for i, layer in enumerate(model.model.layers):
        layer.attn = layers.GatedDeltaNet2(hidden_size=32, layer_idx=i, **options)
    del model.config.safe_gate, model.config.lower_bound   # of KDA alone
    kind = type(model.config)              # which names the model_type of config.json
    model.config.__class__ = type("GDN2Config", (kind,), {"model_type": "gdn2"})
    return model


def from_transformers(name: str, **config):
    sys.modules["fla"] = None              # or transformers uses fla's GPU kernels where it can
    transformers = importlib.import_module("transformers")
    common = dict(hidden_size=32, num_hidden_layers=2, vocab_size=VOCAB)
    return build(transformers, name, common | config)


def build(library, name: str, config: dict):
    settings = getattr(library, name + "TextConfig", None) or getattr(library, name + "Config")
    return getattr(library, name + "ForCausalLM")(settings(**config))


class DraftBlock(torch.nn.Module):
    """The draft block of Qwen3.5, which transformers ignores: the equations of src/model/
    draft-block.c with the norm and the attention layer of transformers."""

    def __init__(self, model):
        super().__init__()
        config, width = model.config, model.config.hidden_size
        attention = config.layer_types.index("full_attention")
        layer, norm = model.model.layers[attention], model.model.norm

        def new_norm():
            return type(norm)(width, eps=config.rms_norm_eps)

        self.fc = torch.nn.Linear(2*width, width, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = new_norm(), new_norm()
        self.layers = torch.nn.ModuleList([type(layer)(config, attention)])
        self.norm = new_norm()

    def forward(self, model, ids, h):
        """h' of tokens 1, 2, … [T - 1, D]; h [T - 1, D]: of the tokens before them"""
        e = model.model.embed_tokens(ids[1:])
        both = torch.cat([self.pre_fc_norm_embedding(e), self.pre_fc_norm_hidden(h)], -1)
        u = self.fc(both)[None]
        positions = torch.arange(1, len(ids))[None]
        mask = torch.full((1, 1, len(e), len(e)), -math.inf).triu(1)
        turned = model.model.rotary_emb(u, positions)
        u = self.layers[0](u, position_embeddings=turned, attention_mask=mask)
        return self.norm(u[0] if isinstance(u, tuple) else u)[0]


def with_draft_block(model):
    model.mtp = DraftBlock(model)
    return model


class OriginalXlstm(torch.nn.Module):
    """A model of NX-AI's package xlstm, with the calls of a model of transformers."""

    def __init__(self, **config):
        super().__init__()
        xlstm = importlib.import_module("xlstm")
        dacite = importlib.import_module("dacite")
        common = dict(vocab_size=VOCAB, embedding_dim=32, num_blocks=2, context_length=TOKENS)
        self.yaml = common | config
        settings = dacite.from_dict(xlstm.xLSTMLMModelConfig, self.yaml, dacite.Config(strict=True))
        self.model = xlstm.xLSTMLMModel(settings)
        self.config = types.SimpleNamespace(tie_word_embeddings=False, model_type="xlstm")

    def forward(self, ids, use_cache):
        # its mask of mLSTM has the whole context length
        padded = torch.nn.functional.pad(ids, (0, TOKENS - ids.shape[1]))
        return types.SimpleNamespace(logits=self.model(padded)[:, :ids.shape[1]])

    def save_pretrained(self, folder: Path) -> None:
        safetensors = importlib.import_module("safetensors.torch")
        folder.mkdir()
        names = {name for name, _ in self.model.named_parameters()}
        safetensors.save_file({name: x.contiguous() for name, x in self.model.state_dict().items()
                               if name in names}, folder / "model.safetensors")
        text = importlib.import_module("yaml").safe_dump(dict(model=self.yaml))
        (folder / "config.yaml").write_text(text)


class MegatronGdp(torch.nn.Module):
    """The hybrid of Megatron-LM with its Gated DeltaProduct, whose modules need a GPU and parallel
    groups. The formulas are those of megatron/core/ssm/gated_delta_product.py of 2026-08-22; the
    recurrence is the function of fla that it calls, in plain torch. Saved as Megatron does, in
    .distcp files, with one tensor for each part of in_proj and conv1d."""

    G, N, HV, P, n, F, heads, kv, length = 2, 8, 4, 12, 3, 12, 4, 2, 6
    pattern = "M-*M"

    def __init__(self, signed: bool):
        super().__init__()
        self.signed, D, E = signed, 32, self.HV*self.P
        parts = [("z", E), *((f"V{j}", E) for j in range(self.n)),
                 *((f"K{j}", self.G*self.N) for j in range(self.n)), ("Q", self.G*self.N),
                 *((f"b{j}", self.HV) for j in range(self.n)), ("a", self.HV)]
        sizes = {"embedding.word_embeddings.weight": (VOCAB, D), "decoder.final_norm.weight": (D,),
                 "output_layer.weight": (VOCAB, D)}
        for i, kind in enumerate(self.pattern):
            p = f"decoder.layers.{i}."
            if kind == "M":
                p += "mixer."
                sizes |= {f"{p}in_proj.weight.{name}": (n, D) for name, n in parts}
                sizes |= {f"{p}conv1d.weight.{name}": (n, 1, 4) for name, n in parts
                          if name[0] in "VKQ"}
                sizes |= {p + "in_proj.layer_norm_weight": (D,), p + "dt_bias": (self.HV,),
                          p + "A_log": (self.HV,), p + "norm.weight": (E,),
                          p + "out_proj.weight": (D, E)}
            elif kind == "*":
                p += "self_attention."
                rows = (self.heads + 2*self.kv)*self.length
                sizes |= {p + "linear_qkv.layer_norm_weight": (D,),
                          p + "linear_qkv.weight": (rows, D),
                          p + "linear_proj.weight": (D, self.heads*self.length)}
            else:
                p += "mlp."
                sizes |= {p + "linear_fc1.layer_norm_weight": (D,),
                          p + "linear_fc1.weight": (self.F, D),
                          p + "linear_fc2.weight": (D, self.F)}
        self.weights = {name: torch.nn.Parameter(torch.empty(s)) for name, s in sizes.items()}
        self.config = types.SimpleNamespace(tie_word_embeddings=False, model_type="megatron_gdp")

    def named_parameters(self):
        return self.weights.items()

    def mixer(self, w, h):
        def joined(name, letters):
            return torch.cat([x for key, x in w.items() if key.startswith(name)
                              and key.removeprefix(name)[0] in letters])

        split = torch.nn.functional
        E, GN, n, T = self.HV*self.P, self.G*self.N, self.n, len(h)
        z, VKQ, b, a = (h @ joined("in_proj.weight.", "zVKQba").T).split(
            [E, n*E + (n + 1)*GN, n*self.HV, self.HV], -1)
        conv = joined("conv1d.weight.", "VKQ")
        VKQ = split.conv1d(split.pad(VKQ.T, (3, 0))[None], conv, groups=len(conv))[0].T
        v, k, q = split.silu(VKQ).split([n*E, n*GN, GN], -1)
        v, k, q = (v.reshape(1, T*n, self.HV, self.P), k.reshape(1, T*n, self.G, self.N),
                   q.reshape(1, T, self.G, self.N))
        q, k = ((x / torch.sqrt((x*x).sum(-1, keepdim=True) + 1e-6)).repeat_interleave(
            self.HV // self.G, -2) for x in (q, k))
        beta = b.sigmoid()*(2 if self.signed else 1)
        g = -w["A_log"].exp()*split.softplus(a + w["dt_bias"])
        naive = importlib.import_module("fla.ops.gated_delta_product.naive")
        o = naive.naive_recurrent_gated_delta_product(
            q, k, v, g[None], beta.reshape(1, T*n, self.HV), self.N**-0.5, num_householder=n)
        o = o[0] if isinstance(o, tuple) else o
        y = (o.reshape(T, E)*split.silu(z)).reshape(T, self.G, -1)
        y = y*torch.rsqrt((y*y).mean(-1, keepdim=True) + 1e-5)
        return (y.reshape(T, E)*w["norm.weight"]) @ w["out_proj.weight"].T

    def attention(self, w, h):
        per, L = self.heads // self.kv, self.length
        qkv = (h @ w["linear_qkv.weight"].T).reshape(1, len(h), self.kv, per + 2, L)
        q = qkv[..., :per, :].reshape(1, len(h), self.heads, L)
        o = plain_attention(q, qkv[..., per, :], qkv[..., per + 1, :])
        return o.reshape(len(h), -1) @ w["linear_proj.weight"].T

    def forward(self, ids, use_cache):
        def norm(x, weight):
            return x*torch.rsqrt((x*x).mean(-1, keepdim=True) + 1e-2)*weight

        x = self.weights["embedding.word_embeddings.weight"][ids[0]]
        parts = {"M": ("mixer.", "in_proj.layer_norm_weight"),
                 "*": ("self_attention.", "linear_qkv.layer_norm_weight"),
                 "-": ("mlp.", "linear_fc1.layer_norm_weight")}
        for i, kind in enumerate(self.pattern):
            prefix = f"decoder.layers.{i}.{parts[kind][0]}"
            w = {name.removeprefix(prefix): p for name, p in self.weights.items()
                 if name.startswith(prefix)}
            h = norm(x, w[parts[kind][1]])
            if kind == "-":
                x = x + torch.relu(h @ w["linear_fc1.weight"].T)**2 @ w["linear_fc2.weight"].T
            else:
                x = x + (self.mixer if kind == "M" else self.attention)(w, h)
        x = norm(x, self.weights["decoder.final_norm.weight"])
        return types.SimpleNamespace(logits=(x @ self.weights["output_layer.weight"].T)[None])

    def save_pretrained(self, folder: Path) -> None:
        checkpoint = importlib.import_module("torch.distributed.checkpoint")
        checkpoint.save(dict(self.weights), checkpoint_id=folder, no_dist=True)
        (folder / "config.json").write_text(json.dumps(dict(
            model_type="megatron_gdp", hybrid_layer_pattern=self.pattern, normalization="RMSNorm",
            mamba_state_dim=self.N, mamba_num_groups=self.G, gdp_num_householder=self.n,
            num_attention_heads=self.heads, num_query_groups=self.kv, squared_relu=True,
            position_embedding_type="none", layernorm_epsilon=1e-2,
            allow_neg_eigval=self.signed)))


class QwenTimeMix(torch.nn.Module):
    """RWKV in place of the attention of transformers' Qwen2; the names are those of released
    checkpoints, whose own modules are not in a library."""

    def forward(self, hidden_states, **_):
        x = hidden_states
        return self.mix(x, torch.nn.functional.pad(x, (0, 0, 1, -1)) - x), None

    def parameters_of(self, **shapes):
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.empty(shape)))


class Qrwkv6TimeMix(QwenTimeMix):
    """The formulas of the training code of QRWKV-6 (RADLADS), where the state is that of fla's
    GLA. It also limits w to at least exp(−5), which llama.cpp does not; w is above that here."""

    def __init__(self, config, rank=3, rank2=5):
        super().__init__()
        D, self.H, self.HK = (config.hidden_size, config.num_attention_heads,
                              config.num_key_value_heads)
        self.K = D // self.H
        self.parameters_of(time_maa_w1=(D, 5*rank), time_maa_w2=(5, rank, D),
                           time_decay=(1, 1, D), time_decay_w1=(D, rank2),
                           time_decay_w2=(rank2, D),
                           **{f"time_maa_{c}": (1, 1, D) for c in "xrkvwg"})
        for c, rows in (("q", D), ("k", self.HK*self.K), ("v", self.HK*self.K)):
            setattr(self, f"{c}_proj", torch.nn.Linear(D, rows))
        self.gate, self.o_proj = (torch.nn.Linear(D, D, bias=False) for _ in range(2))

    def mix(self, x, d):
        B, T, D = x.shape
        m = torch.tanh((x + d*self.time_maa_x) @ self.time_maa_w1).view(T, 5, -1).transpose(0, 1)
        m = torch.bmm(m, self.time_maa_w2).view(5, B, T, D)
        r, k, v, w, g = (x + d*(getattr(self, f"time_maa_{c}") + m[i])
                         for i, c in enumerate("rkvwg"))
        log_w = -(self.time_decay + torch.tanh(w @ self.time_decay_w1) @ self.time_decay_w2).exp()
        assert log_w.min() > -5
        r, log_w = (y.view(B, T, self.H, self.K) for y in (self.q_proj(r), log_w))
        k, v = (y.view(B, T, self.HK, self.K).repeat_interleave(self.H // self.HK, 2)
                for y in (self.k_proj(k), self.v_proj(v)))
        naive = importlib.import_module("fla.ops.gla.naive")
        y = naive.naive_recurrent_gla(r, k*(1 - log_w.exp()), v, log_w)[0]
        return self.o_proj(y.reshape(B, T, D)*torch.sigmoid(self.gate(g)))


class Arwkv7TimeMix(QwenTimeMix):
    """The formulas of the modules of ARWKV (RWKVInside)."""

    def __init__(self, config, first: list, whole: bool):
        super().__init__()
        D = config.hidden_size
        self.H, self.first, self.whole = config.num_attention_heads, first, whole
        self.time_mixer = torch.nn.Module()
        self.time_mixer.parameters_of = types.MethodType(QwenTimeMix.parameters_of, self.time_mixer)
        ranks = {"w": 3, "a": 5, "v": 2} | ({"g": 4} if whole else {})
        self.time_mixer.parameters_of(
            **{f"x_{c}": (1, 1, D) for c in ("rwkvag" if whole else "rwkva")},
            **{f"{c}1": (D, r) for c, r in ranks.items()},
            **{f"{c}2": (r, D) for c, r in ranks.items()},
            **{f"{c}0": (1, 1, D) for c in "wav"},
            k_k=(1, 1, D), k_a=(1, 1, D), r_k=(self.H, D // self.H))
        for name in ("receptance", "key", "value", "output"):
            setattr(self.time_mixer, name, torch.nn.Linear(D, D, bias=False))
        if whole:
            self.time_mixer.ln_x = torch.nn.GroupNorm(self.H, D, eps=64e-5)

    def mix(self, x, d):
        B, T, D = x.shape
        heads, p = (B, T, self.H, -1), self.time_mixer

        def low_rank(c, x, f=lambda y: y):
            return f(x @ getattr(p, f"{c}1")) @ getattr(p, f"{c}2")

        h = {c: x + d*getattr(p, f"x_{c}") for c in ("rwkvag" if self.whole else "rwkva")}
        r, k, v = p.receptance(h["r"]), p.key(h["k"]), p.value(h["v"])
        w = -torch.nn.functional.softplus(-(p.w0 + low_rank("w", h["w"], torch.tanh))) - 0.5
        a = torch.sigmoid(p.a0 + low_rank("a", h["a"]))
        if not self.first:
            self.first.append(v)           # of layer 0
        else:
            v = v + (self.first[0] - v)*torch.sigmoid(p.v0 + low_rank("v", h["v"]))
        kappa = torch.nn.functional.normalize((k*p.k_k).view(heads), dim=-1)
        k = k*(1 + (a - 1)*p.k_a)
        naive = importlib.import_module("fla.ops.generalized_delta_rule.dplr.naive")
        r, log_w, k, v, a = (y.view(heads) for y in (r, -w.exp(), k, v, a))
        y = naive.dplr_recurrence(*(y.transpose(1, 2) for y in (r/self.scale(r), k, v, -kappa,
                                                                kappa*a, log_w)))[0]
        y = y.transpose(1, 2)
        if self.whole:
            y = p.ln_x(y.reshape(B*T, D)).view(heads)
        y = (y + (r*k*p.r_k).sum(-1, keepdim=True)*v).reshape(B, T, D)
        return p.output(y*low_rank("g", h["g"], torch.sigmoid) if self.whole else y)

    @staticmethod
    def scale(r):
        return r.shape[-1]**-0.5           # by which the function of fla multiplies r


def qwen_with(model_type: str, mix, **config):
    """transformers' Qwen2 with a time mix in each layer, saved under this model_type."""
    model = from_transformers("Qwen2", **config)
    del sys.modules["fla"]                 # the recurrence is fla's
    for layer in model.model.layers:
        layer.self_attn = mix(model.config)
    save = model.save_pretrained

    def save_pretrained(folder: Path) -> None:
        save(folder)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": model_type}))

    model.save_pretrained = save_pretrained
    return model


def arwkv7(whole: bool):
    first = []                             # v of layer 0, in a call

    def forget(*_):
        first.clear()

    model = qwen_with("rwkv_hybrid", lambda config: Arwkv7TimeMix(config, first, whole), **QWEN2)
    model.register_forward_pre_hook(forget)
    return model


def norm_per_group(model, n_groups: int):
    """Replaces the output norm of Mamba-2. In training each group is normalized separately;
    transformers' Mamba-2 normalizes over all channels, but its Zamba-2 does it per group."""
    module = importlib.import_module("transformers.models.zamba2.modeling_zamba2")
    for layer in model.backbone.layers:
        size = layer.mixer.intermediate_size
        layer.mixer.norm = module.Zamba2RMSNormGated(size, size // n_groups,
                                                     layer.mixer.layer_norm_epsilon)
    return model


def with_layer_norms(model, eps: float):
    """Replaces RMSNorms by LayerNorms, for which Mamba's authors have an option and transformers
    has none."""
    for layer in model.backbone.layers:
        layer.norm = torch.nn.LayerNorm(layer.norm.weight.shape[0], eps)
    model.backbone.norm_f = torch.nn.LayerNorm(model.backbone.norm_f.weight.shape[0], eps)
    return model


def with_compressed_q(model, rank: int):
    """Replaces the projection of q of Ling by two with a norm between them, as in its smallest
    release. transformers has this form in Kimi-Linear only."""
    module = importlib.import_module("transformers.models.bailing_hybrid.modeling_bailing_hybrid")
    for layer in model.model.layers:
        a = layer.self_attn
        if hasattr(a, "kv_a_layernorm"):
            rows, width = a.q_proj.weight.shape
            del a.q_proj
            a.q_a_proj = torch.nn.Linear(width, rank, bias=False)
            a.q_a_layernorm = module.BailingHybridRMSNorm(rank)
            a.q_b_proj = torch.nn.Linear(rank, rows, bias=False)
            a.q_proj = lambda x, a=a: a.q_b_proj(a.q_a_layernorm(a.q_a_proj(x)))
    return model


def with_limits(model, experts: float, shared: float):
    """Limits inside SwiGLU of the mixtures of Ling, which the library of its authors and vLLM have
    and transformers has not."""
    silu, linear = torch.nn.functional.silu, torch.nn.functional.linear

    def swiglu(gate, up, limit):
        return silu(gate).clamp(max=limit)*up.clamp(-limit, limit)

    def run_shared(x, mlp):
        return mlp.down_proj(swiglu(mlp.gate_proj(x), mlp.up_proj(x), shared))

    def run_experts(x, chosen, weights, part):
        y = torch.zeros_like(x)
        for t, i in np.ndindex(*chosen.shape):
            gate, up = linear(x[t], part.gate_up_proj[chosen[t, i]]).chunk(2)
            y[t] += weights[t, i]*linear(swiglu(gate, up, experts), part.down_proj[chosen[t, i]])
        return y

    limits = [[], []]
    for layer in model.model.layers:
        mixture = hasattr(layer.mlp, "experts")
        if mixture:
            layer.mlp.experts.forward = functools.partial(run_experts, part=layer.mlp.experts)
            layer.mlp.shared_experts.forward = functools.partial(
                run_shared, mlp=layer.mlp.shared_experts)
        limits[0].append(experts*mixture)
        limits[1].append(shared*mixture)
    model.config.expert_swiglu_limit_list, model.config.share_expert_swiglu_limit_list = limits
    return model


@contextlib.contextmanager
def signed_mamba():
    """Replaces the gate exp(Δ A), the only exp of four dimensions in transformers' Mamba, by its
    signed form 2 exp(Δ A) − 1."""
    module = importlib.import_module("transformers.models.mamba.modeling_mamba")
    seen = types.SimpleNamespace(calls=0)

    class Signed:
        def __getattr__(self, name):
            return getattr(torch, name)

        @staticmethod
        def exp(x):
            seen.calls += x.dim() == 4
            return 2*torch.exp(x) - 1 if x.dim() == 4 else torch.exp(x)

    module.torch = Signed()
    try:
        yield
    finally:
        module.torch = torch
    assert seen.calls == 2, f"{seen.calls} gates were replaced; expected one in each of two layers"


#
# The weights
#

def draw(name: str, shape: tuple[int, ...], tied: bool, normal, uniform) -> torch.Tensor:
    """Values with which every tensor affects the logits, unlike the neutral initial values of the
    libraries."""
    leaf = name.split(".")[-1]
    matrix = len(shape) >= 2

    if leaf == "A_log":                    # gates exp(−exp(A_log) softplus(dt_bias + ·)): 0.1 to 1
        return uniform(math.log(0.1), math.log(2.0))
    if leaf == "dt_bias" or name.endswith("dt_proj.bias"):
        return uniform(-3.0, 0.5)
    if name.endswith("linear_attn.v_proj.weight"):
        # OLMo-Hybrid: small, so that the fixed eps of the norm after it matters
        return 0.05/math.sqrt(shape[-1])*normal()
    if name.endswith("gk_proj.1.bias"):    # GLA: gates σ(·)^(1/16)
        return uniform(-12.0, 2.0)
    if name.endswith(("w_proj.linear.lora.2.bias", "time_decay")):         # RWKV-6: exp(−exp(·))
        return uniform(-4.0, 0.5)
    if name.endswith(("w_lora.lora.2.bias", ".w0")):       # RWKV-7: gates exp(−0.61 σ(·))
        return uniform(-4.0, 2.0)
    if name.endswith("fgate_preact.bias"):
        return uniform(0.0, 5.0)
    if name.endswith("igate_preact.bias"):
        return uniform(-3.0, 3.0)
    if name.endswith("mlstm_cell.fgate.bias"):
        return uniform(0.0, 5.0)
    if name.endswith("mlstm_cell.igate.bias") or leaf == "_bias_":
        return uniform(-2.0, 2.0)
    if leaf == "learnable_skip":
        return normal()
    if name.startswith("model.xlstm_block_stack.") and "norm" in name and leaf == "weight":
        return 0.25*normal()               # the package xlstm multiplies by 1 + w
    if (leaf in ("mu", "x_bias") or leaf.startswith("x_") and leaf[2:] in "rwkvag"
            or leaf.startswith("time_maa_") and len(leaf) == len("time_maa_x")):
        return uniform(0.0, 1.0)           # share of the previous token
    if leaf in ("bonus", "r_k"):
        return 0.5*normal()
    if leaf == "lower_bounds":
        return normal()
    norm = "norm" in name or "ln_x" in name
    if leaf in ("k_k", "k_a", "D") or norm and leaf.endswith("weight"):
        return 1.0 + 0.25*normal()
    if "embed" in name:
        return 1.0/math.sqrt(shape[-1])*normal() if tied else normal()
    if "conv1d" in name or name.endswith("conv.conv.weight"):
        return 0.5*normal()
    if leaf == "bias":
        return 0.3*normal()
    if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "proj_down.weight",
                      "ffn.value.weight", "output_linear.weight", "w2.weight", "linear_proj.weight",
                      "linear_fc2.weight")):
        return 0.5/math.sqrt(shape[-1])*normal()           # a layer must not dominate its input
    if matrix:
        return 1.0/math.sqrt(shape[-1])*normal()
    raise ValueError(f"no rule for {name} of shape {shape}")


def draw_all(model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tied = model.config.tie_word_embeddings    # named_parameters has the shared matrix once
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            shape = tuple(p.shape)
            value = draw(name, shape, tied, lambda: rng.standard_normal(shape),
                         lambda low, high: rng.uniform(low, high, shape))
            if (model.config.model_type in ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
                    and name.endswith("norm.weight") and "linear_attn" not in name):
                value = value - 1.0        # its norms multiply by 1 + w
            p.copy_(torch.from_numpy(np.asarray(value)).to(p.dtype))
        for name, b in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                b.copy_(torch.from_numpy(rng.uniform(-0.25, 0.25, tuple(b.shape))))


#
# The models
#

# eps is far from all defaults, so that an eps that is not read is noticed. It also keeps the norm
# of a head's output from amplifying rounding errors when that output nearly vanishes.
FLA = dict(intermediate_size=12, norm_eps=1e-2, tie_word_embeddings=True)
DELTA = FLA | dict(num_heads=2, expand_k=0.5, expand_v=0.75)           # K 8, P 12
GATED = FLA | dict(num_heads=2, head_dim=8, expand_v=1.5)              # K 8, P 12
UNTIED = dict(tie_word_embeddings=False)
MAMBA = dict(state_size=4, time_step_rank=2, layer_norm_epsilon=1e-2)
MAMBA2 = dict(state_size=8, num_heads=4, layer_norm_epsilon=1e-2, tie_word_embeddings=True)
RWKV6 = FLA | dict(num_heads=2, proj_low_rank_dim=4, gate_low_rank_dim=4)
RWKV7 = FLA | dict(head_dim=16, decay_low_rank_dim=4, gate_low_rank_dim=4, a_low_rank_dim=4,
                   v_low_rank_dim=4)
LLAMA = dict(intermediate_size=24, rms_norm_eps=1e-2, tie_word_embeddings=True,
             num_attention_heads=4, num_key_value_heads=2)
QWEN2 = LLAMA | dict(tie_word_embeddings=False)
OLMO = dict(intermediate_size=8, rms_norm_eps=1e-2, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, linear_num_key_heads=1, linear_num_value_heads=2,
            linear_key_head_dim=8, linear_value_head_dim=10, max_position_embeddings=512,
            bos_token_id=1, eos_token_id=2, pad_token_id=0,
            layer_types=["linear_attention"]*3 + ["full_attention"],
            rope_parameters=dict(rope_theta=10000.0, rope_type="default"))
QWEN35 = dict(intermediate_size=12, rms_norm_eps=1e-2, num_hidden_layers=4, num_attention_heads=2,
              num_key_value_heads=1, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
              linear_key_head_dim=8, linear_value_head_dim=8, max_position_embeddings=512,
              tie_word_embeddings=True, rope_parameters=dict(
                  rope_theta=10000.0, rope_type="default", partial_rotary_factor=0.5,
                  mrope_section=[1, 1, 0], mrope_interleaved=True))
QWEN_EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                    shared_expert_intermediate_size=10)
ATTENTION = dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                 bos_token_id=1, eos_token_id=2, pad_token_id=0)
GRANITE = ATTENTION | dict(
    intermediate_size=8, shared_intermediate_size=12, rms_norm_eps=1e-2, num_hidden_layers=3,
    layer_types=["linear_attention", "full_attention", "linear_attention"], mamba_n_heads=4,
    mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1, embedding_multiplier=1.5,
    logits_scaling=0.8, residual_multiplier=0.4, attention_multiplier=0.7,
    position_embedding_type="nope", tie_word_embeddings=True)
NEMOTRON = ATTENTION | dict(
    intermediate_size=12, layer_norm_epsilon=1e-2, head_dim=6, mamba_num_heads=4, mamba_head_dim=12,
    n_groups=2, ssm_state_size=8, time_step_min=0.1)
# qk_nope_head_dim, qk_rope_head_dim and v_head_dim differ, so that no mix-up is hidden
LATENT = dict(
    intermediate_size=12, num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=10,
    qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8, num_experts=4, num_experts_per_token=2,
    moe_intermediate_size=8, max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
    pad_token_id=0, layer_types=["linear_attention", "full_attention"], tie_word_embeddings=False)
LING = LATENT | dict(head_dim=8, num_experts=6, n_group=3, topk_group=2, first_k_dense_replace=1,
                     num_mtp_layers=0, rms_norm_eps=1e-2)
FALCON_H1 = ATTENTION | dict(
    intermediate_size=12, rms_norm_eps=1e-2, head_dim=6, mamba_d_ssm=48, mamba_n_heads=4,
    mamba_d_head=12, mamba_d_state=8, mamba_n_groups=2, mamba_norm_before_gate=False,
    attention_in_multiplier=1.2, attention_out_multiplier=0.8, key_multiplier=0.7,
    ssm_in_multiplier=1.1, ssm_out_multiplier=0.6, ssm_multipliers=[0.5, 0.7, 1.2, 0.9, 1.1],
    mlp_multipliers=[0.9, 0.7], embedding_multiplier=1.6, lm_head_multiplier=0.9)
LFM2 = ATTENTION | dict(norm_eps=1e-2, layer_types=["conv", "full_attention"],
                        tie_word_embeddings=True)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                   high_freq_factor=4.0, original_max_position_embeddings=16)
HYBRID = dict(layers=[1], num_heads=4, num_kv_heads=2, qkv_bias=True, window_size=11,
              rope_theta=10000.0)
SIGNED = dict(allow_neg_eigval=True)
SIGNED_OPTION = ("--eigenvalues", "signed")

SLSTM = dict(backend="vanilla", num_heads=2)
GELU = dict(proj_factor=1.3, act_fn="gelu")

# name: function that builds the model; those of transformers come first, which must not see fla
MODELS = {
    "mamba": lambda: from_transformers("Mamba", **MAMBA, tie_word_embeddings=True),
    "mamba_neg": lambda: from_transformers("Mamba", **MAMBA, **UNTIED, expand=1),
    "mamba_layer_norm": lambda: with_layer_norms(
        from_transformers("Mamba", **MAMBA, tie_word_embeddings=True, expand=1), 1e-2),
    "falcon_mamba": lambda: from_transformers(
        "FalconMamba", **MAMBA, tie_word_embeddings=True, use_bias=True, mixer_rms_eps=1e-1),
    "mamba2": lambda: from_transformers("Mamba2", **MAMBA2, n_groups=1, head_dim=16, expand=2),
    "mamba2_groups": lambda: norm_per_group(
        from_transformers("Mamba2", **MAMBA2, n_groups=2, head_dim=8, expand=1), 2),
    "mamba2_limit": lambda: from_transformers(
        "Mamba2", **MAMBA2, n_groups=1, head_dim=8, expand=1, use_bias=True,
        time_step_limit=(0.1, 0.4)),
    "xlstm": lambda: from_transformers(
        "xLSTM", num_heads=2, norm_eps=1e-2, eps=1e-2, num_blocks=2, ffn_proj_factor=0.25,
        ffn_round_up_to_multiple_of=8),
    "xlstm_both": lambda: OriginalXlstm(
        slstm_at=[1], mlstm_block=dict(mlstm=dict(num_heads=2)),
        slstm_block=dict(slstm=SLSTM, feedforward=GELU)),
    "xlstm_lstm": lambda: OriginalXlstm(
        slstm_at="all", slstm_block=dict(
            slstm=SLSTM | dict(function="lstm", conv1d_kernel_size=0, num_heads=4),
            feedforward=GELU)),
    "olmo_hybrid": lambda: from_transformers("OlmoHybrid", **OLMO, **UNTIED),
    "qwen35": lambda: from_transformers("Qwen3_5", **QWEN35),
    "granite_h": lambda: from_transformers(
        "GraniteMoeHybrid", **GRANITE, num_local_experts=0, num_experts_per_tok=0),
    "bamba": lambda: from_transformers(
        "Bamba", **(ATTENTION | UNTIED), intermediate_size=12, rms_norm_eps=1e-2,
        num_hidden_layers=3, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=16,
        mamba_d_state=8, mamba_n_groups=1, rope_parameters=dict(
            rope_theta=100.0, rope_type="default", partial_rotary_factor=0.5)),
    "granite_h_rope": lambda: from_transformers(
        "GraniteMoeHybrid", **(GRANITE | dict(
            num_hidden_layers=2, layer_types=["linear_attention", "full_attention"],
            position_embedding_type="rope", rope_parameters=dict(
                rope_theta=100.0, rope_type="default"))),
        num_local_experts=0, num_experts_per_tok=0),
    "granite_h_moe": lambda: from_transformers(
        "GraniteMoeHybrid", **(GRANITE | dict(
            num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])),
        num_local_experts=4, num_experts_per_tok=2),
    "nemotron_h": lambda: from_transformers(
        "NemotronH", **NEMOTRON, **UNTIED,
        layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"]),
    "nemotron_h_moe": lambda: from_transformers(
        "NemotronH", **NEMOTRON, **UNTIED, n_routed_experts=6, num_experts_per_tok=3,
        n_group=3, topk_group=2, moe_intermediate_size=8, moe_shared_expert_intermediate_size=10,
        routed_scaling_factor=2.5,
        layers_block_type=["linear_attention", "moe", "full_attention", "mlp"]),
    "nemotron_h_latent": lambda: from_transformers(
        "NemotronH", **(NEMOTRON | UNTIED), n_routed_experts=6, num_experts_per_tok=3,
        moe_intermediate_size=8, moe_shared_expert_intermediate_size=10, moe_latent_size=12,
        layers_block_type=["linear_attention", "moe", "full_attention"]),
    "qwen35moe": lambda: from_transformers(
        "Qwen3_5Moe", **(QWEN35 | dict(num_hidden_layers=2)), **QWEN_EXPERTS,
        layer_types=["linear_attention", "full_attention"]),
    "qwen3next": lambda: from_transformers(
        "Qwen3Next", **(QWEN35 | dict(num_hidden_layers=2, rope_parameters=dict(
            rope_theta=10000.0, rope_type="default", partial_rotary_factor=0.5))),
        **QWEN_EXPERTS, layer_types=["linear_attention", "full_attention"]),
    "kimi_linear": lambda: from_transformers(
        "KimiLinear", **LATENT, linear_head_dim=8, linear_num_heads=2, rms_norm_eps=1e-2),
    "bailingmoe3": lambda: from_transformers("BailingHybrid", **LING),
    "bailingmoe3_q": lambda: with_compressed_q(from_transformers("BailingHybrid", **LING), 6),
    "bailingmoe3_limit": lambda: with_limits(
        from_transformers("BailingHybrid", **LING), experts=0.4, shared=0.6),
    "lfm2": lambda: from_transformers("Lfm2", **LFM2, intermediate_size=12,
                                      block_auto_adjust_ff_dim=False),
    "lfm2moe": lambda: from_transformers(
        "Lfm2Moe", **LFM2, intermediate_size=12, num_dense_layers=1, num_experts=6,
        num_experts_per_tok=3, moe_intermediate_size=8, routed_scaling_factor=1.5),
    "jamba": lambda: from_transformers(
        "Jamba", **ATTENTION, **UNTIED, rms_norm_eps=1e-2, intermediate_size=8, num_experts=4,
        num_experts_per_tok=2, expert_layer_period=2, expert_layer_offset=1, attn_layer_period=2,
        attn_layer_offset=1, mamba_d_state=4, mamba_dt_rank=3),
    "falcon_h1": lambda: from_transformers(
        "FalconH1", **FALCON_H1, mamba_rms_norm=False, tie_word_embeddings=True),
    "falcon_h1_norm": lambda: from_transformers(
        "FalconH1", **FALCON_H1, **UNTIED, mamba_rms_norm=True),
    "transformer": lambda: from_transformers("Llama", **LLAMA),
    "transformer_llama3": lambda: from_transformers(
        "Llama", **(LLAMA | dict(num_attention_heads=2)), attention_bias=True, mlp_bias=True,
        rope_parameters=LLAMA3_ROPE),
    "transformer_qk_norm": lambda: from_transformers("Qwen3", **LLAMA, head_dim=6),
    "delta_net_pos": lambda: from_fla("DeltaNet", **DELTA, allow_neg_eigval=False),
    "delta_net_neg": lambda: from_fla("DeltaNet", **(DELTA | UNTIED), **SIGNED),
    "delta_net_neg_sum_elu": lambda: from_fla(
        "DeltaNet", **DELTA, **SIGNED, qk_norm="sum", qk_activation="elu"),
    "delta_net_neg_noconv_gate": lambda: from_fla(
        "DeltaNet", **DELTA, **SIGNED, use_short_conv=False, use_gate=True),
    "delta_net_hybrid": lambda: from_fla("DeltaNet", **DELTA, **SIGNED, attn=HYBRID),
    "gated_deltanet_neg": lambda: from_fla("GatedDeltaNet", **GATED, **SIGNED),
    "gated_deltanet_gqa": lambda: from_fla(
        "GatedDeltaNet", **(GATED | dict(expand_v=1.0)), num_v_heads=4),
    "gated_deltaproduct2_neg": lambda: from_fla(
        "GatedDeltaProduct", **GATED, **SIGNED, num_householder=2, use_forget_gate=True),
    "megatron_gdp": lambda: MegatronGdp(signed=False),
    "megatron_gdp_neg": lambda: MegatronGdp(signed=True),
    "deltaproduct3_neg": lambda: from_fla(
        "GatedDeltaProduct", **(FLA | dict(num_heads=1, head_dim=8, expand_v=2.0)), **SIGNED,
        num_householder=3, use_forget_gate=False),
    "kda": lambda: from_fla("KDA", **GATED),
    "kda_neg": lambda: from_fla("KDA", **(GATED | dict(expand_v=1.0)), **SIGNED),
    "kda_bound": lambda: from_fla(
        "KDA", **(GATED | dict(expand_v=1.0)), num_v_heads=4, lower_bound=-5.0, safe_gate=True,
        use_short_conv=False),
    "gated_deltanet2_neg": lambda: gdn2_model(**GATED, **SIGNED),
    "gated_deltanet2_gqa": lambda: gdn2_model(**(GATED | dict(expand_v=1.0)), num_v_heads=4),
    "gla": lambda: from_fla("GLA", **FLA, num_heads=2, expand_k=0.5, expand_v=0.75),
    "gla_gqa": lambda: from_fla(
        "GLA", **FLA, num_heads=4, num_kv_heads=2, expand_k=0.5, expand_v=1.0),
    "gla_conv": lambda: from_fla(
        "GLA", **FLA, num_heads=2, expand_k=0.5, expand_v=1.0, use_short_conv=True,
        feature_map="relu", clamp_min=-0.3, use_output_gate=False),
    "hgrn2": lambda: from_fla("HGRN2", **FLA, num_heads=4, expand_ratio=8),
    "hgrn2_conv": lambda: from_fla(
        "HGRN2", **FLA, num_heads=2, expand_ratio=16, use_short_conv=True, use_lower_bound=False),
    "retnet": lambda: from_fla("RetNet", **FLA, num_heads=2, expand_k=0.5, expand_v=1.0),
    "rwkv6": lambda: from_fla("RWKV6", **RWKV6, expand_k=0.5),
    "rwkv7": lambda: from_fla("RWKV7", **RWKV7),
    "rwkv6qwen2": lambda: qwen_with("rwkv6qwen2", Qrwkv6TimeMix, **QWEN2),
    "arwkv7": lambda: arwkv7(whole=True),
    "arwkv7_bare": lambda: arwkv7(whole=False),
    # with the eps of the official models: llama.cpp's architectures
    "rwkv6_llama": lambda: from_fla(
        "RWKV6", **(RWKV6 | UNTIED | dict(norm_eps=64e-5)), expand_k=1.0),
    "rwkv7_llama": lambda: from_fla(
        "RWKV7", **(RWKV7 | UNTIED | dict(hidden_size=64, head_dim=64, norm_eps=64e-5/64))),
}

# options of the converter
OPTIONS = {"mamba_neg": SIGNED_OPTION}

# Offsets of seeds. Without them, the key or output of a head nearly vanishes for some token, and
# rounding alone moves the logits or an input of a matrix by more than 1e-5, or matrices in BF16 the
# logits by an NMSE of 5e-4.
REDRAWN = {"bailingmoe3": 10, "delta_net_neg_noconv_gate": 1, "lfm2moe": 4, "nemotron_h_latent": 1,
           "nemotron_h_moe": 20, "qwen35": 1}

# Drawn again until no choice of an expert is close: quantized weights must be an approximation of
# the model. The other mixtures are so with their first seed, or with that of REDRAWN.
CLEAR_CHOICES = ("nemotron_h_moe", "nemotron_h_latent", "qwen3next", "kimi_linear", "bailingmoe3",
                 "bailingmoe3_q", "bailingmoe3_limit", "jamba")
CLOSE_NMSE = 1e-3

# those that are also made with a draft block, in the folder draft
DRAFTS = ("qwen35", "qwen35moe", "qwen3next")
CHAIN = 4


#
# The files
#

def logits_of(model, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        ids = torch.from_numpy(tokens.astype(np.int64))[None]
        return model(ids, use_cache=False).logits[0].float().numpy()


def write_golden(path: Path, tokens: np.ndarray, logits: np.ndarray) -> None:
    assert logits.shape == (TOKENS, VOCAB) and np.isfinite(logits).all()
    with open(path, "wb") as f:
        f.write(b"golden01")
        f.write(np.array([TOKENS, VOCAB], "<i4").tobytes())
        f.write(tokens.astype("<i4").tobytes())
        f.write(logits.astype("<f4").tobytes())


def convert(model, name: str, path: Path, *options: str) -> None:
    """Saves the model and converts it to `path`."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        model.save_pretrained(folder)
        command = [sys.executable, "-m", "lrnn_convert", str(folder), "-o", str(path), "--quiet"]
        environment = {"PYTHONPATH": str(CONVERTER), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([*command, *options], check=True, env=os.environ | environment)


def make_draft(name: str) -> None:
    """A model with a draft block, and the logits of its guesses. Row p: of the token after tokens
    0 … p. The last CHAIN tokens are guesses, made one from the other; row 0 is not used."""
    seed = zlib.crc32(name.encode()) + REDRAWN.get(name, 0)
    torch.manual_seed(0)
    model = with_draft_block(MODELS[name]().float().eval())
    draw_all(model, seed)
    tokens = np.random.default_rng(seed + 1).integers(0, VOCAB, TOKENS).astype(np.int32)
    ids = torch.from_numpy(tokens.astype(np.int64))
    with torch.no_grad():
        h = model.model(ids[None], use_cache=False).last_hidden_state[0]
        for p in range(TOKENS - CHAIN, TOKENS):            # h[p - 1] is that of the guess before
            drafted = model.mtp(model, ids[:p], h[:p - 1])
            ids[p] = model.lm_head(drafted[-1]).argmax()
            h[p - 1] = drafted[-1]
        drafted = model.mtp(model, ids, h[:-1])
        logits = model.lm_head(drafted).numpy()
    (HERE / "draft").mkdir(exist_ok=True)
    write_golden(HERE / f"draft/{name}.golden", ids.numpy().astype(np.int32),
                 np.concatenate([np.zeros((1, VOCAB), np.float32), logits]))
    convert(model, name, HERE / f"draft/{name}.gguf")
    print(f"draft/{name:<22}logits ± {logits.std():.2f}", flush=True)


def has_close_choice(model, tokens: np.ndarray) -> bool:
    """True if rounding errors as large as those of 8-bit weights change the experts of a token. A
    changed choice moves its logits by a multiple of what the errors themselves do."""
    rng = np.random.default_rng(0)
    exact, matrices = logits_of(model, tokens), [p for p in model.parameters() if p.dim() >= 2]
    kept = [p.detach().clone() for p in matrices]
    worst = 0.0
    for _ in range(8):
        with torch.no_grad():
            for p, old in zip(matrices, kept):
                error = rng.uniform(-1/256, 1/256, tuple(p.shape)).astype(np.float32)
                p.copy_(old + torch.from_numpy(error)*old.abs().amax(-1, keepdim=True))
        worst = max(worst, ((logits_of(model, tokens) - exact)**2).mean()/exact.var())
    with torch.no_grad():
        for p, old in zip(matrices, kept):
            p.copy_(old)
    return worst > CLOSE_NMSE


def make(name: str) -> None:
    seed = zlib.crc32(name.encode()) + REDRAWN.get(name, 0)
    torch.manual_seed(0)
    model = MODELS[name]().float().eval()
    draw_all(model, seed)
    tokens = np.random.default_rng(seed + 1).integers(0, VOCAB, TOKENS).astype(np.int32)
    while name in CLEAR_CHOICES and has_close_choice(model, tokens):
        seed += 1
        draw_all(model, seed)
    with signed_mamba() if name == "mamba_neg" else contextlib.nullcontext():
        logits = logits_of(model, tokens)
    short = logits_of(model, tokens[-8:])[-1]
    write_golden(HERE / f"{name}.golden", tokens, logits)
    convert(model, name, HERE / f"{name}.gguf", *OPTIONS.get(name, ()))
    size = sum((HERE / f"{name}.{end}").stat().st_size for end in ("gguf", "golden"))
    print(f"{name:<28}{size:>8} bytes   logits ± {logits.std():.2f}   tokens before the last eight "
          f"move them by {abs(logits[-1] - short).max():.2f}", flush=True)


def chosen(names: list[str], models: dict) -> list[str]:
    """The named models, or all, in the order of `models`."""
    unknown = [name for name in names if name not in models]
    if unknown:
        sys.exit(f"{sys.argv[0]}: unknown model {unknown[0]}; expected {', '.join(models)}")
    return [name for name in models if name in names or not names]


def main() -> None:
    for name in chosen(sys.argv[1:], MODELS):
        make(name)
        if name in DRAFTS:
            make_draft(name)


if __name__ == "__main__":
    main()
