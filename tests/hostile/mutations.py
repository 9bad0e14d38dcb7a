"""Random changes of the bytes of a file."""

from __future__ import annotations

import random

NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**62, 2**63 - 1, 2**64 - 1)
WORDS = [
    b"nan", b"inf", b"-1", b"1e999", b"9" * 400, b"\x1b[31m", b"\0", b"[", b"]", b"{", b"}", b'"', b"'", b",", b"\n",
    b"\xff\xfe", b"[red]", b"../../x", b"true", b"null", b"=", b"(" * 200, "\u202e".encode(),
]  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four random changes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed) + 1)
        end = min(len(changed), place + rng.choice((1, 2, 4, 8, 30, 200)))
        kind = rng.randrange(8)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and place < len(changed):
            changed[place] = rng.randrange(256)
        elif kind == 2:
            del changed[place:end]
        elif kind == 3:
            changed[place:place] = changed[place:end]
        elif kind == 4:
            changed = changed[: max(1, place)]
        elif kind == 5:
            number, size = rng.choice(NUMBERS), rng.choice((1, 2, 4, 8))
            changed[place : place + size] = (number % 256**size).to_bytes(size, rng.choice(("little", "big")))
        elif kind == 6:
            changed[place:place] = rng.choice(WORDS)
        else:
            other = rng.randrange(len(changed) + 1)
            changed[place:end] = changed[other : other + end - place]
    return bytes(changed)
