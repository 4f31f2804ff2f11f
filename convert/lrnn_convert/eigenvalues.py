"""The range of the state transition's eigenvalues. It leaves no trace in the tensors, so it is never guessed."""

from .errors import ModelError
from .model import Model

UNSIGNED, SIGNED, OWN = "[0,1]", "[-1,1]", "family"

# The public form of these families has no switch; --eigenvalues signed is how a researcher says that it was trained signed.
WITHOUT_SWITCH = ("mamba", "mamba2", "gla")
# No signed form exists: the gate is a sigmoid or an exponential, or there is none.
NEVER_SIGNED = ("retnet", "hgrn2", "rwkv6", "mlstm")
# The range is the family's own: RWKV-7's transition is diag(w) - kk (kk a)^T; a Transformer has none.
OWN_RANGE = ("rwkv7", "transformer")

DELTANET_LIE = ("fla's DeltaNet ignored allow_neg_eigval in config.json until 2026-04: a model trained before may say true and have been "
                "trained in [0,1], or say nothing and have been trained in [-1,1]; --eigenvalues signed or unsigned overrides")


def decide(m: Model, option: str, key: str | None = None, default: bool = False, stated: tuple[str, bool] | None = None) -> None:
    """key: the configuration's switch; stated: (where, value) for a switch that is not at the top of config.json."""
    family = m.family
    if family in OWN_RANGE:
        if option != "auto":
            raise ModelError(f"--eigenvalues {option}: {family} has no such form, its range is its own (use auto)")
        m.eigenvalues = (OWN, "the family's own range")
        return
    if family in NEVER_SIGNED:
        if option == "signed":
            raise ModelError(f"--eigenvalues signed: {family} has no signed form, its eigenvalues are in [0,1]")
        m.eigenvalues = (UNSIGNED, f"{family} has no signed form")
        return

    if key is not None and m.config.get(key) is not None:
        if not isinstance(m.config[key], bool):
            raise ModelError(f"config.json: {key} is {m.config[key]!r}, expected true or false")
        stated = (f"config: {key} = {str(m.config[key]).lower()}", m.config[key])
    elif key is not None:
        stated = (f"config: {key} absent, its default is {str(default).lower()}", default)
    elif stated is None:
        stated = (f"{family} in its public form has no switch", False)

    where, signed = stated
    if option != "auto":
        if key is not None and signed != (option == "signed"):
            m.notes.append(f"{where}, overridden by --eigenvalues {option}")
        where, signed = f"--eigenvalues {option}", option == "signed"
    elif family == "delta_net":
        m.notes.append(DELTANET_LIE)
    m.eigenvalues = (SIGNED if signed else UNSIGNED, where)
