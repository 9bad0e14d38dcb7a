"""JSON files with a checksum: what is read is what was written, or an error.

A sealed file is still JSON::

    {"sha256": "9f86d0...",
    "content": {...}}

The checksum is that of the bytes of the content, so that it is verified before they are parsed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_BEGIN, _MIDDLE, _END = b'{"sha256": "', b'",\n"content": ', b"}\n"
_DIGITS = 64


def seal(content: Any) -> bytes:
    """Return the bytes of a sealed file; equal content gives equal bytes."""
    body = json.dumps(content, sort_keys=True, indent=1, allow_nan=False).encode()
    return _BEGIN + sha256_of(body).encode() + _MIDDLE + body + _END


def unseal(data: bytes) -> Any:
    """Return the content of a sealed file; raise ValueError if the bytes are not those that were written."""
    start = len(_BEGIN) + _DIGITS
    body = data[start + len(_MIDDLE) : -len(_END)]
    if data != _BEGIN + data[len(_BEGIN) : start] + _MIDDLE + body + _END:
        raise ValueError("it is not a file with a checksum, or is cut short")
    if sha256_of(body).encode() != data[len(_BEGIN) : start]:
        raise ValueError("its checksum does not match its content")
    return json.loads(body)


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
