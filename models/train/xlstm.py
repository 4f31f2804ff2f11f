"""The original xLSTM (NX-AI's package xlstm) for training on a CPU: mLSTM and sLSTM blocks.

Modules have the names of that package with backend `vanilla`, so it can read a saved model. Its
LayerNorms multiply by 1 + weight.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from layers import SLSTM, ShortConv, linear

EPS = 1e-5
CELL_EPS = 1e-6
QKV_BLOCK = 4
QUERIES = 64                               # of mLSTM, at a time: bounds the memory


def small(*shape: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * math.sqrt(2 / (5 * width)))


class Norm(nn.Module):
    """LayerNorm of each of `groups` equal parts."""

    def __init__(self, size: int, groups: int = 1):
        super().__init__()
        self.weight, self.groups = nn.Parameter(torch.zeros(size)), groups

    def forward(self, x):
        parts = x.unflatten(-1, (self.groups, -1))
        return F.layer_norm(parts, parts.shape[-1:], eps=EPS).flatten(-2) * (1 + self.weight)


class Headwise(nn.Module):
    """A block-diagonal matrix."""

    def __init__(self, width: int, blocks: int, scale: int):
        super().__init__()
        self.weight = small(blocks, width // blocks, width // blocks, width=scale)

    def forward(self, x):
        n, o, i = self.weight.shape
        # one product with the whole matrix is faster than many small ones
        whole = self.weight.new_zeros(n, o, n, i)
        at = torch.arange(n)
        whole[at, :, at, :] = self.weight
        return F.linear(x, whole.view(n * o, n * i))


class Conv(nn.Module):
    def __init__(self, channels: int, width: int):
        super().__init__()
        self.conv = ShortConv(channels, width, bias=True)

    def forward(self, x):
        return self.conv(x)


class MLSTMCell(nn.Module):
    """C = F C + I k vᵀ, n = F n + I k, F = σ(f), I = exp(i);  y = Cᵀ q / max(|nᵀ q|, 1).

    As in the package, all scaled by exp(-m), m the largest log weight of a query, plus CELL_EPS in
    the denominator."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.igate, self.fgate = nn.Linear(3 * width, heads), nn.Linear(3 * width, heads)
        self.outnorm = Norm(width, heads)
        with torch.no_grad():
            self.igate.weight.zero_()
            self.fgate.weight.zero_()
            self.igate.bias.normal_(std=0.1)
            self.fgate.bias.copy_(torch.linspace(3, 6, heads))

    def forward(self, q, k, v):
        T = q.shape[1]
        x = torch.cat((q, k, v), -1)
        # [B,H,T]: log weight of key s for query t is total[t] - total[s] + i[s]
        i = self.igate(x).transpose(1, 2)
        total = F.logsigmoid(self.fgate(x)).transpose(1, 2).cumsum(-1)
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))
        k = k / math.sqrt(k.shape[-1])
        out = []
        for at in range(0, T, QUERIES):
            end = min(at + QUERIES, T)
            log = total[:, :, at:end, None] - total[:, :, None, :end] + i[:, :, None, :end]
            later = torch.ones(end - at, end, dtype=torch.bool).triu(at + 1)
            log = log.masked_fill(later, -torch.inf)
            m = log.amax(-1, keepdim=True)
            w = torch.exp(log - m) * (q[:, :, at:end] @ k[:, :, :end].transpose(-1, -2))
            size = torch.maximum(w.sum(-1, keepdim=True).abs(), torch.exp(-m)) + CELL_EPS
            out.append((w / size) @ v[:, :, :end])
        return self.outnorm(torch.cat(out, 2).transpose(1, 2).flatten(2))


class MLSTMLayer(nn.Module):
    def __init__(self, D: int, blocks: int, c: dict):
        super().__init__()
        E = 2 * D
        self.proj_up, self.proj_down = linear(D, 2 * E), linear(E, D)
        self.q_proj, self.k_proj, self.v_proj = (Headwise(E, E // c["qkv_proj_blocksize"], D)
                                                 for _ in range(3))
        self.conv1d = Conv(E, c["conv1d_kernel_size"])
        self.mlstm_cell = MLSTMCell(E, c["num_heads"])
        self.learnable_skip = nn.Parameter(torch.ones(E))
        nn.init.normal_(self.proj_up.weight, std=math.sqrt(2 / (5 * D)))
        nn.init.normal_(self.proj_down.weight, std=2 / blocks / math.sqrt(D))

    def forward(self, x):
        x, z = self.proj_up(x).chunk(2, dim=-1)
        c = self.conv1d(x)
        y = self.mlstm_cell(self.q_proj(c), self.k_proj(c), self.v_proj(x))
        return self.proj_down((y + self.learnable_skip * c) * F.silu(z))


class SLSTMCell(nn.Module):
    """scan.c has the equations."""

    def __init__(self, D: int, heads: int, depth: float):
        """depth: of the block, 0 to 1; forget gates are initially slower in deep blocks."""
        super().__init__()
        d = D // heads
        self._recurrent_kernel_ = nn.Parameter(torch.zeros(heads, 4 * d, d))
        bias = torch.zeros(4, heads, d)
        bias[1] = 5 - 12 * (torch.arange(d) / (d - 1)) ** (0.3 + 1.3 * depth)
        self._bias_ = nn.Parameter(bias.flatten())

    def forward(self, x):
        """x [B,T,4 D], gates i, f, z, o -> [B,T,D]"""
        H, _, d = self._recurrent_kernel_.shape
        R = self._recurrent_kernel_.transpose(1, 2).unflatten(-1, (4, d))
        return SLSTM.apply((x + self._bias_).unflatten(-1, (4, H, d)), R).flatten(2)


class SLSTMLayer(nn.Module):
    def __init__(self, D: int, depth: float, c: dict):
        super().__init__()
        H = c["num_heads"]
        if c["conv1d_kernel_size"] > 0:
            self.conv1d = Conv(D, c["conv1d_kernel_size"])
        self.fgate, self.igate, self.zgate, self.ogate = (Headwise(D, H, D) for _ in range(4))
        self.slstm_cell, self.group_norm = SLSTMCell(D, H, depth), Norm(D, H)

    def forward(self, x):
        c = self.conv1d(x) if hasattr(self, "conv1d") else x
        # the matrix with the name of f feeds i, and the other way round
        gates = (self.fgate(c), self.igate(c), self.zgate(x), self.ogate(x))
        return self.group_norm(self.slstm_cell(torch.cat(gates, -1)))


class GatedMLP(nn.Module):
    def __init__(self, D: int, blocks: int, c: dict):
        super().__init__()
        inner = math.ceil(int(c["proj_factor"] * D) / 64) * 64
        self.proj_up, self.proj_down = linear(D, 2 * inner), linear(inner, D)
        nn.init.normal_(self.proj_up.weight, std=math.sqrt(2 / (5 * D)))
        nn.init.normal_(self.proj_down.weight, std=2 / blocks / math.sqrt(D))

    def forward(self, x):
        gate, up = self.proj_up(x).chunk(2, dim=-1)
        return self.proj_down(F.gelu(gate) * up)


class Block(nn.Module):
    def __init__(self, c: dict, index: int):
        super().__init__()
        D, n = c["embedding_dim"], c["num_blocks"]
        self.xlstm_norm = Norm(D)
        if c["slstm_at"] == "all" or index in c["slstm_at"]:
            depth = index / (n - 1) if n > 1 else 0.0
            self.xlstm = SLSTMLayer(D, depth, c["slstm_block"]["slstm"])
            self.ffn_norm = Norm(D)
            self.ffn = GatedMLP(D, n, c["slstm_block"]["feedforward"])
        else:
            self.xlstm = MLSTMLayer(D, n, c["mlstm_block"]["mlstm"])

    def forward(self, x):
        x = x + self.xlstm(self.xlstm_norm(x))
        return x + self.ffn(self.ffn_norm(x)) if hasattr(self, "ffn") else x


class BlockStack(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        self.blocks = nn.ModuleList(Block(c, i) for i in range(c["num_blocks"]))
        self.post_blocks_norm = Norm(c["embedding_dim"])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.post_blocks_norm(x)


class XLSTM(nn.Module):
    """ids [B,T] -> logits [B,T,V]; config is the part `model` of config.yaml."""

    def __init__(self, config: dict):
        super().__init__()
        self.config = config
        D, V = config["embedding_dim"], config["vocab_size"]
        self.token_embedding = nn.Embedding(V, D)
        self.xlstm_block_stack, self.lm_head = BlockStack(config), linear(D, V)
        for module in (self.token_embedding, self.lm_head):
            nn.init.normal_(module.weight, std=math.sqrt(2 / (5 * D)))

    def forward(self, ids):
        return self.lm_head(self.xlstm_block_stack(self.token_embedding(ids)))


def xlstm_config(vocab: int, width: int, blocks: int, heads: int, slstm: bool) -> dict:
    """Blocks of one kind: sLSTM without convolution, or mLSTM."""
    c = dict(vocab_size=vocab, embedding_dim=width, num_blocks=blocks, context_length=256,
             tie_weights=False, weight_decay_on_embedding=False, add_embedding_dropout=False)
    if slstm:
        cell = dict(backend="vanilla", num_heads=heads, conv1d_kernel_size=0,
                    bias_init="powerlaw_blockdependent")
        mlp = dict(proj_factor=1.3, act_fn="gelu")
        return c | dict(slstm_at="all", slstm_block=dict(slstm=cell, feedforward=mlp))
    cell = dict(conv1d_kernel_size=4, qkv_proj_blocksize=QKV_BLOCK, num_heads=heads)
    return c | dict(slstm_at=[], mlstm_block=dict(mlstm=cell))
