"""The eigenvalue range of the transition. The tensors do not show it, so it is never guessed."""

from .errors import ModelError
from .family import Range
from .model import Model

UNSIGNED, SIGNED, OWN = "[0,1]", "[-1,1]", "family"


def decide(m: Model, option: str, key: str | None = None, default: bool = False,
           stated: tuple[str, bool] | None = None) -> None:
    """Sets m.eigenvalues from --eigenvalues and the configuration.

    key: the switch in config.json and `default`, its value where it is absent; stated: (where,
    value) of a switch that is not at the top level of config.json. All texts go into the file.
    """
    name = m.family.name
    m.eigenvalue_key = key
    if m.family.range is Range.OWN:
        if option != "auto":
            raise ModelError(f"--eigenvalues is {option}; expected auto: {name} has a range of its "
                             "own and no signed form")
        m.eigenvalues = (OWN, "the family's own range")
        return
    if m.family.range is Range.UNSIGNED:
        if option == "signed":
            raise ModelError(f"--eigenvalues is signed; expected auto or unsigned: {name} has no "
                             "signed form")
        m.eigenvalues = (UNSIGNED, f"{name} has no signed form")
        return

    if key is not None and m.config.get(key) is not None:
        signed = m.truth(key, default)
        stated = (f"config: {key} = {str(signed).lower()}", signed)
    elif key is not None:
        stated = (f"config: {key} absent, its default is {str(default).lower()}", default)
    elif stated is None:
        stated = (f"{name} in its public form has no switch", False)

    where, signed = stated
    if option != "auto":
        if key is not None and signed != (option == "signed"):
            m.notes.append(f"{where}, overridden by --eigenvalues {option}")
        where, signed = f"--eigenvalues {option}", option == "signed"
    m.eigenvalues = (SIGNED if signed else UNSIGNED, where)
