"""A family, as the rest of the converter sees it."""

from dataclasses import dataclass
from enum import Enum, auto


class Range(Enum):
    """The eigenvalue range that models of a family may have."""

    BY_KEY = auto()        # [0,1] or [-1,1]; a key of config.json decides
    BY_OPTION = auto()     # [0,1] in the public form; --eigenvalues signed states a signed training
    UNSIGNED = auto()      # [0,1]: the gate is a sigmoid or an exponential, or there is none
    OWN = auto()           # RWKV-7's transition is diag(w) - kk (kk a)ᵀ; a Transformer has none


@dataclass(frozen=True)
class Family:
    name: str              # lrnn.family
    range: Range
