"""A plan of seconds whose names try to break out of the page."""

from typing import Any

HOSTILE = "<img src=x onerror=window.attacked=2>"
PLAN: dict[str, Any] = {
    "name": "small & <b>bold<b>",
    "description": 'A "small" plan for </script><script>window.attacked = 1</script> tests.',
    "seeds": [0],
    "pool": 2,
    "shifts": ["rotation", "brightness"],
    "severities": [2, 5, 8],
    "test_size": 200,
    "multi_pass_size": 150,
    "reference_size": 300,
    "calibration_size": 200,
    "bootstrap": 20,
    "pairs": [{"dataset": "digits", "net": "small-cnn", "train": {"epochs": 4}}],
    "methods": {
        "qipf": {"factor": 160},
        "softmax-response": {},
        "entropy": {},
        "max-logit": {},
        "ensemble": {"members": 2},
        HOSTILE: {"kind": "margin"},
    },
}
