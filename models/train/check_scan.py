"""Compares values and gradients of scan.c with plain loops in double precision.

    python check_scan.py
"""

import torch
import torch.nn.functional as F

from layers import ConvSiLU, DeltaRule, SelectiveScan, SLSTM

LIMIT = 2e-5


def delta_rule(q, k, v, beta, g, factors):
    q, k = (x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    B, T, H, K = q.shape
    S, out = q.new_zeros(B, H, K, v.shape[-1]), []
    for t in range(T):
        if g is not None:
            S = S * g[:, t].exp()[..., None, None]
        for i in range(t * factors, (t + 1) * factors):
            error = v[:, i] - torch.einsum("bhkp,bhk->bhp", S, k[:, i])
            S = S + torch.einsum("bhk,bhp->bhkp", k[:, i], beta[:, i, :, None] * error)
        out.append(torch.einsum("bhkp,bhk->bhp", S, q[:, t]) / K**0.5)
    return torch.stack(out, 1)


def selective_scan(x, dt, A, B, C, signed):
    h, out = x.new_zeros(x.shape[0], x.shape[2], A.shape[1]), []
    for t in range(x.shape[1]):
        a = torch.exp(dt[:, t, :, None] * A)
        h = (2 * a - 1 if signed else a) * h + (dt[:, t] * x[:, t])[..., None] * B[:, t, None]
        out.append((h * C[:, t, None]).sum(-1))
    return torch.stack(out, 1)


def slstm(x, R):
    """m and all its gradients included."""
    B, T, _, H, d = x.shape
    y = c = n = m = x.new_zeros(B, H, d)
    out = []
    for t in range(T):
        i, f, z, o = (x[:, t] + torch.einsum("bhi,higo->bgho", y, R)).unbind(1)
        log_f = F.logsigmoid(f) + m
        m = i if t == 0 else torch.maximum(i, log_f)
        c = torch.exp(log_f - m) * c + torch.exp(i - m) * torch.tanh(z)
        n = torch.exp(log_f - m) * n + torch.exp(i - m)
        y = torch.sigmoid(o) * c / n
        out.append(y)
    return torch.stack(out, 1)


def conv_silu(x, weight, bias):
    padded = F.pad(x.transpose(1, 2), (weight.shape[-1] - 1, 0))
    return F.silu(F.conv1d(padded, weight, bias, groups=x.shape[-1])).transpose(1, 2)


def compare(name: str, fast, slow, tensors, *options) -> None:
    a = [None if x is None else x.clone().requires_grad_() for x in tensors]
    b = [None if x is None else x.double().requires_grad_() for x in tensors]
    y, z = fast(*a, *options), slow(*b, *options)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (z * weight.double()).sum().backward()
    pairs = [(y, z)] + [(p.grad, r.grad) for p, r in zip(a, b) if p is not None]
    worst = max(((p - r).abs().max() / r.abs().max()).item() for p, r in pairs)
    print(f"{name:<40} {worst:.1e} of the largest value")
    assert worst < LIMIT, name


def main() -> None:
    torch.manual_seed(0)
    R = torch.randn
    # 37 steps: two whole strides of saved states and a part of one
    for K, P, n, gated in ((8, 8, 1, False), (16, 16, 2, True), (32, 32, 2, True),
                           (12, 20, 3, True)):
        B, T, H = 2, 37, 3
        g = -torch.rand(B, T, H) if gated else None
        tensors = (R(B, T, H, K), R(B, T * n, H, K), R(B, T * n, H, P),
                   2 * torch.rand(B, T * n, H), g)
        compare(f"delta rule K {K} P {P} factors {n} gate {gated}", DeltaRule.apply, delta_rule,
                tensors, n)
    for signed in (False, True):
        tensors = (R(2, 19, 5), torch.rand(2, 19, 5), -3 * torch.rand(5, 16), R(2, 19, 16),
                   R(2, 19, 16))
        compare(f"selective scan signed {signed}", SelectiveScan.apply, selective_scan, tensors,
                signed)
    for H, d in ((4, 16), (3, 5)):
        compare(f"sLSTM heads {H} of {d}", SLSTM.apply, slstm,
                (3 * R(2, 37, 4, H, d), R(H, d, 4, d) / d**0.5))
    for width in (1, 4):
        compare(f"convolution width {width}", ConvSiLU.apply, conv_silu,
                (R(2, 11, 6), R(6, 1, width), R(6)))
    compare("convolution without bias", ConvSiLU.apply, conv_silu,
            (R(2, 11, 6), R(6, 1, 4), None))


if __name__ == "__main__":
    main()
