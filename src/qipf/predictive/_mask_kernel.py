"""The masks of `randomness.keep_mask` in one CUDA kernel: as tensor operations they cost more than the network."""

from __future__ import annotations

import torch
from torch import Tensor

from qipf.fields._gpu import compiled

THREADS = 256
SOURCE = r"""
__device__ __forceinline__ unsigned int mix(unsigned int bits) {
    bits ^= bits >> 16; bits *= 0x7FEB352Du;
    bits ^= bits >> 15; bits *= 0x846CA68Bu;
    return bits ^ (bits >> 16);
}

extern "C" __global__ void keep_mask(unsigned char* mask, int rows, int features, int channels, int start,
                                     int row_key, int column_key, int threshold) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= features) return;
    // channels last: position (pixel, channel) in memory is column (channel, pixel) of the mask
    int feature = channels ? (column % channels) * (features / channels) + column / channels : column;
    unsigned int low = mix((unsigned int)(feature ^ column_key));
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        unsigned int high = mix((unsigned int)((start + row) ^ row_key));
        mask[(long long)row * features + column] = (int)mix(high ^ low) >= threshold;
    }
}
"""


def keep_mask_on_gpu(
    rows: int, features: int, channels: int, start: int, keys: tuple[int, int], threshold: int, device: torch.device
) -> Tensor | None:
    """The mask (rows, features), or None where this torch or this GPU compiles no kernels."""
    kernel = compiled(SOURCE, "keep_mask", 0, torch.cuda.current_device() if device.index is None else device.index)
    if kernel is None or rows * features == 0:
        return None
    mask = torch.empty((rows, features), dtype=torch.bool, device=device)
    with torch.cuda.device(device):
        kernel(
            grid=(-(-features // THREADS), min(rows, 4096), 1),
            block=(THREADS, 1, 1),
            args=[mask, rows, features, channels, start, *keys, threshold],
        )
    return mask
