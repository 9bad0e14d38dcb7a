"""A CUDA kernel that counts 16-bit weights, compiled at run time by torch: one read of the weights, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from qipf._common.optional import require

if TYPE_CHECKING:
    from torch import Tensor

THREADS = 1024
PLAIN_SHARED = 48 * 1024  # bytes of shared memory that a kernel may take on any GPU without a request
EXPONENTS = (36, 248)  # of the 256 of bfloat16, those whose counters fit the shared memory of a large GPU

COUNT = r"""
extern "C" __global__ void __launch_bounds__(1024, 1)
count_patterns(const uint4* data, unsigned long long* counts, int vectors) {
    // Counters of patterns FIRST..LAST-1 of both signs; others (zeros apart) are rare and go to global memory.
    extern __shared__ unsigned int bins[];
    const int FIRST = %d, LAST = %d, SIZE = LAST - FIRST;
    for (int i = threadIdx.x; i < 2 * SIZE; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    unsigned int zeros = 0;
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += 2 * stride) {
        uint4 two[2];
        two[0] = data[i];
        bool more = i + stride < vectors;
        two[1] = more ? data[i + stride] : make_uint4(0, 0, 0, 0);
        zeros -= more ? 0 : 8;
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned int words[4] = {two[half].x, two[half].y, two[half].z, two[half].w};
            #pragma unroll
            for (int j = 0; j < 8; j++) {
                unsigned int pattern = (words[j / 2] >> (16 * (j %% 2))) & 0xffffu;
                int place = (int)(pattern & 0x7fffu) - FIRST;
                if ((unsigned int)place < (unsigned int)SIZE) atomicAdd(&bins[place + (pattern >> 15) * SIZE], 1u);
                else if (pattern == 0) zeros++;
                else atomicAdd(&counts[pattern], 1ull);
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * SIZE; i += blockDim.x)
        if (bins[i]) atomicAdd(&counts[i < SIZE ? i + FIRST : i - SIZE + FIRST + 32768], (unsigned long long)bins[i]);
    if (zeros) atomicAdd(&counts[0], (unsigned long long)(long long)(int)zeros);
}
"""


@cache
def compiled(source: str, name: str, shared: int, device: int) -> Callable[..., None] | None:
    """Return the kernel, or None where this version of torch or this GPU cannot have it."""
    torch = require("torch", extra="torch")
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None or shared > most_shared(_properties(device)):
        return None
    try:
        with torch.cuda.device(device):
            kernel = compile_kernel(source, name)
            if shared >= PLAIN_SHARED:
                kernel.set_shared_memory_config(shared)
    except RuntimeError:  # no compiler, or a driver that refuses: plain operations give the same result, more slowly
        return None
    return kernel


def most_shared(properties: Any) -> int:
    """Return the bytes of shared memory that one block may take on a GPU with these properties."""
    return getattr(properties, "shared_memory_per_block_optin", PLAIN_SHARED)


def _properties(device: Any) -> Any:
    torch = require("torch", extra="torch")
    return torch.cuda.get_device_properties(device)


def count_patterns(patterns: Tensor) -> Tensor:
    """Return how often each of the 65,536 patterns of 16 bits occurs in an int16 tensor on a GPU, as int64."""
    torch = require("torch", extra="torch")
    flat = patterns.reshape(-1)
    counts = torch.zeros(2**16, dtype=torch.int64, device=flat.device)
    first, last = (exponent * 128 for exponent in EXPONENTS)
    shared = 8 * (last - first)
    aligned = flat.data_ptr() % 16 == 0
    kernel = compiled(COUNT % (first, last), "count_patterns", shared, flat.device.index) if aligned else None
    done = 0
    if kernel is not None:
        largest = 2**33  # the number of vectors must fit a C int
        for start in range(0, flat.numel(), largest):
            part = flat[start : start + largest]
            vectors = part.numel() // 8
            if vectors:
                with torch.cuda.device(flat.device):
                    kernel(
                        grid=(_properties(flat.device).multi_processor_count, 1, 1),
                        block=(THREADS, 1, 1),
                        args=[part, counts, vectors],
                        shared_mem=shared,
                    )
            done = start + vectors * 8
    for start in range(done, flat.numel(), 2**26):
        rest = flat[start : start + 2**26].to(torch.int64) & 0xFFFF
        counts += torch.bincount(rest, minlength=2**16)
    return counts
