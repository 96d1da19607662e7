"""Self-supervised methods, one a file, with their augmentation and the client's local training.

A method of your own derives from these: `SSL` has its options and builds an `SSLMethod`, its state
in training, around a network, by `TrainingData`. Methods of two views derive from `TwoViewSSL` and
`TwoView`, with a momentum encoder from `KeyedTwoView`; `BankedSSL` adds the option of a bank of
negatives. To add a term to the loss of a method that is there, derive from its options and define
`extra_losses`.
"""

from fedmia.ssl._twoview import BankedSSL, KeyedTwoView, TwoView, TwoViewSSL
from fedmia.ssl.augment import Augment
from fedmia.ssl.base import SSL, Encoder, SSLMethod, TrainingData

__all__ = [
    "SSL",
    "Augment",
    "BankedSSL",
    "Encoder",
    "KeyedTwoView",
    "TrainingData",
    "SSLMethod",
    "TwoView",
    "TwoViewSSL",
]
