"""Mamba (transformers, state-spaces, fla, the authors' toy models), and FalconMamba, which
normalizes dt, B and C.

    Δ = softplus(dt + bias),  S[e][n] = exp(Δ A) S + Δ B x      signed: 2 exp(Δ A) - 1 for exp(Δ A)
"""

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model
from ..transforms import CONV, FLAT, NEG_EXP, conv_width
from .layer_parts import DIAGONAL, SWISH, backbone_embedding, write_embedding, write_sizes
from .llama_cpp import explain, reasons_against, write_common

FAMILY = Family("mamba", Range.BY_OPTION)

# transformers, then state-spaces, then fla; initialization and kernels do not affect inference
KEYS = """
    state_size layer_norm_epsilon expand conv_kernel use_bias use_conv_bias hidden_act
    time_step_rank time_step_scale time_step_min time_step_max time_step_init_scheme
    time_step_floor rescale_prenorm_residual residual_in_fp32 use_mambapy use_associative_scan
    d_model n_layer d_intermediate ssm_cfg attn_layer_idx attn_cfg rms_norm fused_add_norm
    pad_vocab_size_multiple tie_embeddings norm_eps norm_epsilon d_inner d_state d_conv num_heads
    head_dim n_groups rmsnorm chunk_size dt_rank dt_scale dt_min dt_max dt_init_scheme dt_init_floor
    conv_init
"""
FALCON_KEYS = KEYS + " mixer_rms_eps use_falcon_mambapy"

# keys of state-spaces' ssm_cfg that give sizes, which the tensors give too, or select initial
# values and kernels
SSM_CFG_KEYS = frozenset("""
    layer d_state d_conv expand dt_rank dt_min dt_max dt_init dt_scale dt_init_floor conv_bias bias
    use_fast_path headdim ngroups chunk_size use_mem_eff_path A_init_range rmsnorm norm_before_gate
    dt_limit D_has_hdim
""".split())
SIGNED_FLAGS = ("positive_and_negative", "positive_and_negative_associative_scan")


def state_spaces_layer(c: Checkpoint) -> str | None:
    """ssm_cfg.layer of a state-spaces configuration, which has no model_type."""
    if c.config.get("model_type") is not None or "ssm_cfg" not in c.config:
        return None
    cfg = c.config["ssm_cfg"]
    layer = cfg.get("layer", "Mamba1") if isinstance(cfg, dict) else "Mamba1"
    if layer not in ("Mamba1", "Mamba2"):
        raise ModelError(f"config.json: ssm_cfg.layer is {shown(layer)}; expected Mamba1 or Mamba2")
    return layer


def recognize(c: Checkpoint):
    layer = state_spaces_layer(c)
    toy = c.config.get("model_type") is None and "layers.0.mixer.x_proj.weight" in c.tensors
    return convert if layer == "Mamba1" or layer is None and toy else None


def read_outer(m: Model) -> tuple[str, str, str | None]:
    """(layer prefix, embedding, final norm or None) in the naming of the checkpoint."""
    if m.has("token_embedding.weight"):
        # the authors' toy models have no norm before the output
        return "layers.", "token_embedding.weight", None
    return "backbone.layers.", backbone_embedding(m), "backbone.norm_f"


def read_ssm_cfg(m: Model) -> tuple[str, bool] | None:
    """Checks state-spaces' options; returns (key, signed) if they give the eigenvalue range."""
    if m.get("d_intermediate", 0) or m.get("attn_layer_idx"):
        raise ModelError("config.json: d_intermediate or attn_layer_idx is set, but MLP and "
                         "attention layers are not supported; expected 0 and []")
    m.choice("hidden_act", "silu", SWISH)
    cfg = m.get("ssm_cfg", {})
    if not isinstance(cfg, dict):
        raise ModelError(f"config.json: ssm_cfg is {shown(cfg)}; expected an object")
    for key, value in cfg.items():
        if key not in SSM_CFG_KEYS and key not in SIGNED_FLAGS and value is not None:
            raise ModelError(f"config.json: unknown key ssm_cfg.{key} = {shown(value)}; it may "
                             "change what the model computes")
    for key in SIGNED_FLAGS:
        if cfg.get(key) is not None:
            if not isinstance(cfg[key], bool):
                raise ModelError(f"config.json: ssm_cfg.{key} is {shown(cfg[key])}; expected true "
                                 "or false")
            return f"config: ssm_cfg.{key} = {str(cfg[key]).lower()}", cfg[key]
    return None


def read_eps(m: Model) -> float:
    return m.positive("layer_norm_epsilon", m.get("norm_eps", m.get("norm_epsilon", 1e-5)))


def convert_falcon(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, FALCON_KEYS)
    return _convert(m, option, m.positive("mixer_rms_eps", 1e-6))


def convert(checkpoint, option: str) -> Model:
    return _convert(Model(checkpoint, FAMILY, KEYS), option, None)


def _convert(m: Model, option: str, inner_eps: float | None) -> Model:
    """inner_eps: epsilon of the norms of dt, B and C; None: there are none."""
    eigenvalues.decide(m, option, stated=read_ssm_cfg(m))
    prefix, embedding, final_norm = read_outer(m)
    layers = m.count_layers(prefix)
    D, V = write_embedding(m, embedding, tied_default=None)
    E, N = m.shape(prefix + "0.mixer.A_log", 2)
    R = m.shape(prefix + "0.mixer.dt_proj.weight", 2)[1]
    W = m.shape(prefix + "0.mixer.conv1d.weight", 3)[2]
    eps = read_eps(m)

    layer_norm = write_norms(m, prefix, layers, D, final_norm)
    for i in range(layers):
        dst, src = f"blk.{i}.", f"{prefix}{i}."
        write_mixer(m, dst, src + "mixer.", D, E, N, R, W)
        biased = write_biases(m, dst, src, 2 * E, E, D)

    reasons = reasons_against(
        ("signed eigenvalues, which it would compute wrongly",
         m.eigenvalues[0] == eigenvalues.SIGNED),
        (f"inner size {E} is not twice {D}", E != 2 * D),
        ("no final norm", final_norm is None),
        ("LayerNorm", layer_norm),
        ("biases in the projections", biased),
        ("dt, B and C are normalised with another eps than the blocks",
         inner_eps not in (None, eps)),
    )
    if reasons:
        write_sizes(m, layers, D, V, eps, None)
        m.set_u32("lrnn.state_length", N)
        m.set_u32("lrnn.conv_width", conv_width(W))
        m.set_bool("lrnn.final_norm", final_norm is not None)
        if inner_eps is not None:
            m.set_f32("lrnn.dt_b_c_norm_epsilon", inner_eps)
        explain(m, "mamba", reasons)
    else:
        write_common(m, "mamba", layers, D, V, 0)
        m.set_u32("mamba.ssm.conv_kernel", conv_width(W))
        m.set_u32("mamba.ssm.inner_size", E)
        m.set_u32("mamba.ssm.state_size", N)
        m.set_u32("mamba.ssm.time_step_rank", R)
        m.set_bool("mamba.ssm.dt_b_c_rms", inner_eps is not None)
        m.set_f32("mamba.attention.layer_norm_rms_epsilon", eps)
    m.fact("factors", DIAGONAL)
    m.fact("channels", f"{E}, state {N}")
    m.fact("gate", "one per state entry")
    m.fact("conv", f"width {W}")
    if inner_eps is not None:
        m.fact("norms", f"dt, B and C, eps {inner_eps:g}")
    return m


def write_mixer(m: Model, dst: str, src: str, D: int, E: int, N: int, R: int, W: int) -> None:
    """A layer of Mamba without its input norm and the optional biases."""
    m.rows(dst, src, [
        ("ssm_in.weight",     "in_proj.weight",  (2 * E, D)),              # rows x, z
        ("ssm_conv1d.weight", "conv1d.weight",   (E, 1, W), CONV),
        ("ssm_x.weight",      "x_proj.weight",   (R + 2 * N, E)),          # rows dt, B, C
        ("ssm_dt.weight",     "dt_proj.weight",  (E, R)),
        ("ssm_dt.bias",       "dt_proj.bias",    (E,)),
        ("ssm_a",             "A_log",           (E, N), NEG_EXP),
        ("ssm_d",             "D",               (E,), FLAT),
        ("ssm_out.weight",    "out_proj.weight", (D, E)),
    ])


def write_norms(m: Model, prefix: str, layers: int, D: int, final_norm: str | None) -> bool:
    """Writes the norms of layers and output; returns whether they are LayerNorms. A bias marks a
    LayerNorm, and rms_norm must agree."""
    names = [(f"blk.{i}.attn_norm", f"{prefix}{i}.norm") for i in range(layers)]
    if final_norm is not None:
        names.append(("output_norm", final_norm))
    layer_norm = m.has(names[0][1] + ".bias")
    if m.truth("rms_norm", not layer_norm) == layer_norm:
        state = "present" if layer_norm else "missing"
        raise ModelError(f"config.json: rms_norm is {m.config['rms_norm']}, but tensor "
                         f"{names[0][1]}.bias is {state}")
    for dst, src in names:
        m.put(dst + ".weight", src + ".weight", (D,))
        if layer_norm:
            m.put(dst + ".bias", src + ".bias", (D,))
    return layer_norm


def write_biases(m: Model, dst: str, src: str, n_in: int, n_conv: int, n_out: int) -> bool:
    """Writes the biases of projections (use_bias) and convolution (use_conv_bias); returns whether
    the projections have any."""
    if m.has(src + "mixer.conv1d.bias"):
        m.put(dst + "ssm_conv1d.bias", src + "mixer.conv1d.bias", (n_conv,))
    else:
        m.constant(dst + "ssm_conv1d.bias", (n_conv,), 0.0)    # llama.cpp requires the tensor
    m.put_optional(dst + "ssm_in.bias", src + "mixer.in_proj.bias", (n_in,))
    m.put_optional(dst + "ssm_out.bias", src + "mixer.out_proj.bias", (n_out,))
    return m.has(src + "mixer.in_proj.bias") or m.has(src + "mixer.out_proj.bias")


MODEL_TYPES = {"mamba": convert, "falcon_mamba": convert_falcon}
