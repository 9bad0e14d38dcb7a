"""Reading the maps of segmented images from the store of a study."""

from __future__ import annotations

from qipf.study.run.maps import SUFFIX, KeptMaps
from qipf.study.run.read import Bench


def read_maps(bench: Bench, dataset: str, net: str, seed: int, shift: str, method: str) -> tuple[int, KeptMaps] | None:
    """The place in the grid of a shift whose images were kept, and their maps; None where there are none.

    Args:
        bench: an opened store.
        dataset: its name in the tables.
        net: the name of the network.
        seed: of the network.
        shift: "clean" or the name of a shift.
        method: whose uncertainty the maps have.
    """
    for entry in bench._places.get((dataset, net, seed, shift), []):
        if entry["kind"] == "score" and entry["method"] == method:
            content = bench.store.content("score", entry["key"], SUFFIX)
            if content is not None:
                place = bench.store.record("score", entry["key"])["maps_place"]
                return place, KeptMaps.from_bytes(content)
    return None
