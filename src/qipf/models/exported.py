"""Re-export."""

from qipf.runners.exported import exported_module as exported_module
