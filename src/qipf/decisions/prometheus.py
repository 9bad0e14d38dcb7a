"""A monitor's status as Prometheus text metrics."""

from __future__ import annotations

import math

from qipf.decisions.status import Status


def metrics(status: Status) -> str:
    """The status in Prometheus' text format; values that are not known yet are left out."""
    lines: list[str] = []

    def gauge(name: str, about: str, values: dict[str, float], kind: str = "gauge") -> None:
        known = {labels: value for labels, value in values.items() if not math.isnan(value)}
        if known:
            lines.extend([f"# HELP qipf_{name} {about}", f"# TYPE qipf_{name} {kind}"])
            lines.extend(f"qipf_{name}{labels} {value:.10g}" for labels, value in known.items())

    gauge("predictions_total", "Live predictions seen.", {"": status.rows}, "counter")
    gauge("accuracy_estimate", "Estimated accuracy without labels.", {"": status.accuracy})
    every = {f'{{method="{name}"}}': value for name, value in status.estimates.items()}
    gauge("accuracy_estimate_by_method", "Estimated accuracy without labels, by method.", every)
    gauge("accuracy_reference", "Accuracy on the held-out predictions.", {"": status.reference_accuracy})
    gauge("accepted_ratio", "Share of predictions accepted.", {} if status.accepted is None else {"": status.accepted})
    classes = {f'{{class="{number}"}}': share for number, share in enumerate(status.classes)}
    gauge("class_ratio", "Share of predictions in each predicted class.", classes if any(status.classes) else {})
    gauge("labelled_total", "Live predictions whose labels have arrived.", {"": status.labelled}, "counter")
    gauge("labelled_accuracy", "Accuracy among these.", {"": status.labelled_accuracy})
    gauge("evidence", "Largest capital of the sequential test.", {"": status.evidence})
    gauge("alarm", "1 where the scores have changed.", {"": float(status.alarm)})
    return "\n".join(lines) + "\n"
