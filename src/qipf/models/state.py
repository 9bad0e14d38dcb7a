"""Re-exports, until the last caller has moved."""

from qipf.runners.recorder import named_modules as named_modules
from qipf.runners.recorder import untouched as untouched
from qipf.runners.torch import as_device as as_device
from qipf.runners.torch import input_device as input_device
from qipf.runners.torch import original as original
from qipf.runners.torch import unwrap as unwrap
