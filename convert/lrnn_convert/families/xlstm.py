"""The original xLSTM (NX-AI's package `xlstm`): blocks with an mLSTM or an sLSTM. Its configuration
is config.yaml. An sLSTM is not linear: its last output enters its gates.

Norms subtract the mean, multiply by 1 + weight and have no bias; the file has the sum.
"""

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_count
from ..transforms import CONV, SAME, Transform, conv_width, rows
from .layer_parts import divide, mixer_facts, write_sizes

FAMILY = Family("xlstm", Range.OWN)

BLOCKS = "xlstm_block_stack.blocks."
EPS = 1e-5                                 # of all norms
CELL_EPS = 1e-6                            # of mLSTM

# Keys of each section. Those with a value have one meaning that the runtime has; None: any value.
MODEL = dict(vocab_size=None, embedding_dim=None, num_blocks=None, context_length=None,
             tie_weights=None, weight_decay_on_embedding=None, add_embedding_dropout=None,
             slstm_at=None, mlstm_block=None, slstm_block=None, dropout=None,
             add_post_blocks_norm=True, bias=False, _num_blocks=None, _block_map=None)
ANY_CELL = dict(embedding_dim=None, num_heads=None, conv1d_kernel_size=None, dropout=None,
                bias=False, context_length=None, _num_blocks=None, _block_idx=None)
MLSTM = ANY_CELL | dict(qkv_proj_blocksize=None, proj_factor=None, round_proj_up_dim_up=None,
                        round_proj_up_to_multiple_of=None, _proj_up_dim=None,
                        _inner_embedding_dim=None)
SLSTM = ANY_CELL | dict(hidden_size=None, backend=None, function=None, bias_init=None,
                        recurrent_weight_init=None, num_states=None, num_gates=4,
                        group_norm_weight=True, batch_size=None, gradient_recurrent_cut=None,
                        gradient_recurrent_clipval=None, forward_clipval=None, dtype=None,
                        dtype_b=None, dtype_r=None, dtype_w=None, dtype_g=None, dtype_s=None,
                        dtype_a=None, enable_automatic_mixed_precision=None,
                        initial_val=None, constants=None)
FEEDFORWARD = dict(proj_factor=None, act_fn="gelu", ff_type="ffn_gated", embedding_dim=None,
                   dropout=None, bias=False, round_proj_up_dim_up=None, _num_blocks=None,
                   round_proj_up_to_multiple_of=None, _proj_up_dim=None)

PLUS_ONE = Transform(SAME.shape, lambda a: 1 + a[0])


def section(config: dict, path: str, known: dict) -> dict:
    """A section of config.yaml; unknown keys and values are errors."""
    found = config
    for name in filter(None, path.split(".")):
        found = found.get(name) or {}
        if not isinstance(found, dict):
            raise ModelError(f"config.yaml: {path} is {shown(found)}; expected a section")
    for key, value in found.items():
        where = f"{path}.{key}".lstrip(".")
        if key not in known and value is not None:
            raise ModelError(f"config.yaml: unknown key {where} = {shown(value)}; it may change "
                             "what the model computes")
        if known.get(key) is not None and value not in (None, known[key]):
            raise ModelError(f"config.yaml: {where} is {shown(value)}; expected "
                             f"{shown(known[key])}")
    return found


def slstm_layers(config: dict, layers: int) -> list[bool]:
    at = config.get("slstm_at") or []
    if at == "all":
        return [True] * layers
    if not isinstance(at, list) or not all(isinstance(i, int) and 0 <= i < layers for i in at):
        raise ModelError(f"config.yaml: slstm_at is {shown(at)}; expected 'all' or a list of "
                         f"blocks from 0 to {layers - 1}")
    return [i in at for i in range(layers)]


def count(found: dict, key: str, default: int) -> int:
    value = default if found.get(key) is None else found[key]
    if not is_count(value):
        raise ModelError(f"config.yaml: {key} is {shown(value)}; expected a positive integer")
    return value


def put_conv(m: Model, dst: str, src: str, channels: int) -> int:
    """Width of the convolution in the file; 0: none."""
    weight = src + "conv1d.conv.weight"
    if not m.has(weight):
        return 0
    width = m.shape(weight, 3)[2]
    m.put(dst + "ssm_conv1d.weight", weight, (channels, 1, width), CONV)
    m.put(dst + "ssm_conv1d.bias", src + "conv1d.conv.bias", (channels,))
    return conv_width(width)


def write_mlstm(m: Model, dst: str, src: str, D: int, cell: dict) -> None:
    E = m.shape(src + "proj_down.weight", 2)[1]
    H = count(cell, "num_heads", 4)
    n, b, _ = m.shape(src + "q_proj.weight", 3)
    m.set_u32("lrnn.head_count", H)
    m.set_u32("lrnn.key_length", divide(m, src + "proj_down.weight", E, H, "num_heads"))
    m.set_u32("lrnn.qkv_block_length", b)
    m.set_f32("lrnn.mlstm_epsilon", CELL_EPS)
    m.set_u32("lrnn.conv_width", put_conv(m, dst, src, E))
    m.rows(dst, src, [
        ("ssm_in.weight",    "proj_up.weight",            (2 * E, D)),
        ("mlstm_q.weight",   "q_proj.weight",             (n, b, b)),
        ("mlstm_k.weight",   "k_proj.weight",             (n, b, b)),
        ("mlstm_v.weight",   "v_proj.weight",             (n, b, b)),
        ("ssm_igate.weight", "mlstm_cell.igate.weight",   (H, 3 * E)),
        ("ssm_igate.bias",   "mlstm_cell.igate.bias",     (H,)),
        ("ssm_fgate.weight", "mlstm_cell.fgate.weight",   (H, 3 * E)),
        ("ssm_fgate.bias",   "mlstm_cell.fgate.bias",     (H,)),
        ("ssm_norm.weight",  "mlstm_cell.outnorm.weight", (E,), PLUS_ONE),
        ("ssm_skip.weight",  "learnable_skip",            (E,)),
        ("ssm_out.weight",   "proj_down.weight",          (D, E)),
    ])


def write_slstm(m: Model, dst: str, src: str, D: int, cell: dict) -> None:
    H = count(cell, "num_heads", 4)
    d = divide(m, src + "group_norm.weight", D, H, "num_heads")
    function = cell.get("function") or "slstm"
    if function not in ("slstm", "lstm"):
        raise ModelError(f"config.yaml: slstm_block.slstm.function is {shown(function)}; expected "
                         "'slstm' or 'lstm'")
    m.set_u32("lrnn.slstm_head_count", H)
    m.set_str("lrnn.slstm_function", function)
    m.set_u32("lrnn.slstm_conv_width", put_conv(m, dst, src, D))
    blocks = (H, d, d)
    m.rows(dst, src, [
        ("slstm_i.weight",  "fgate.weight", blocks),       # the names are exchanged there
        ("slstm_f.weight",  "igate.weight", blocks),
        ("slstm_z.weight",  "zgate.weight", blocks),
        ("slstm_o.weight",  "ogate.weight", blocks),
        ("ssm_norm.weight", "group_norm.weight", (D,), PLUS_ONE),
    ])
    # The backends of the package save other layouts: `cuda` the matrix [head, input, 4·output] that
    # the file has, with biases by head; `vanilla` [head, 4·output, input], with biases by gate.
    kernel, bias = src + "slstm_cell._recurrent_kernel_", src + "slstm_cell._bias_"
    if m.shape(kernel, 3) == (H, 4 * d, d):
        m.put(dst + "slstm_r.weight", kernel, (H, 4 * d, d), Transform(
            lambda s: (H, d, 4 * d), lambda a: a[0].transpose(0, 2, 1)))
        m.put(dst + "slstm.bias", bias, (4 * D,))
    else:
        m.put(dst + "slstm_r.weight", kernel, (H, d, 4 * d))
        m.put(dst + "slstm.bias", bias, (4 * D,), Transform(
            SAME.shape, lambda a: a[0].reshape(H, 4, d).transpose(1, 0, 2).reshape(-1)))


def write_mlp(m: Model, dst: str, src: str, D: int, F: int) -> None:
    m.put(dst + "ffn_norm.weight", src + "ffn_norm.weight", (D,), PLUS_ONE)
    m.rows(dst, src + "ffn.", [
        ("ffn_gate.weight", "proj_up.weight",   (2 * F, D), rows(0, F)),
        ("ffn_up.weight",   "proj_up.weight",   (2 * F, D), rows(F, 2 * F)),
        ("ffn_down.weight", "proj_down.weight", (D, F)),
    ])


def convert(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, " ".join(MODEL))
    eigenvalues.decide(m, option)
    config = section(checkpoint.config, "", MODEL)
    mlstm = section(config, "mlstm_block.mlstm", MLSTM)
    slstm = section(config, "slstm_block.slstm", SLSTM)
    section(config, "slstm_block.feedforward", FEEDFORWARD)

    layers = m.count_layers(BLOCKS)
    stated = count(config, "num_blocks", layers)
    if stated != layers:
        raise ModelError(f"config.yaml: num_blocks is {stated}; the tensors have {layers}")
    V, D = m.shape("token_embedding.weight", 2)
    m.put("token_embd.weight", "token_embedding.weight", (V, D))
    if config.get("tie_weights"):
        m.drop("lm_head.weight")
    else:
        m.put("output.weight", "lm_head.weight", (V, D))
    m.put("output_norm.weight", "xlstm_block_stack.post_blocks_norm.weight", (D,), PLUS_ONE)

    is_slstm, F = slstm_layers(config, layers), None
    for i in range(layers):
        dst, src = f"blk.{i}.", f"{BLOCKS}{i}."
        m.put(dst + "attn_norm.weight", src + "xlstm_norm.weight", (D,), PLUS_ONE)
        if is_slstm[i]:
            F = m.shape(src + "ffn.proj_down.weight", 2)[1]
            write_slstm(m, dst, src + "xlstm.", D, slstm)
            write_mlp(m, dst, src, D, F)
        else:
            write_mlstm(m, dst, src + "xlstm.", D, mlstm)
    write_sizes(m, layers, D, V, EPS, F)
    m.set_array("lrnn.slstm", "i32", [int(x) for x in is_slstm])
    if config.get("context_length") is not None:
        m.trained_length = count(config, "context_length", 1)
    pattern = "".join("s" if x else "m" for x in is_slstm)
    mixer_facts(m, f"{pattern} (m: mLSTM, diagonal; s: sLSTM, not linear)",
                f"{count(mlstm, 'num_heads', 4)} of mLSTM, {count(slstm, 'num_heads', 4)} of sLSTM",
                "exponential input gate and sigmoid forget gate", "as each block has it")
    return m


def recognize(checkpoint: Checkpoint):
    """config.yaml has no model_type."""
    name = BLOCKS + "0.xlstm_norm.weight"
    return convert if name in checkpoint.tensors else None


MODEL_TYPES: dict = {}
