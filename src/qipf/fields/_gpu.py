"""Two CUDA kernels, compiled at run time by torch: counting 16-bit weights, and modes of predictions.

Both are bounded by memory: one read of the weights, and one read of the predictions and one write of their modes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.optional import require

if TYPE_CHECKING:
    from torch import Tensor

    from qipf.fields._mode_table import ModeTable
    from qipf.fields._piecewise import Pieces
    from qipf.fields.compiled import CompiledField

THREADS = 1024
PLAIN_SHARED = 48 * 1024  # bytes of shared memory that a kernel may take on any GPU, without asking
RESERVED = 1024  # bytes that the driver takes for each block
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
    """The kernel, or None where this torch or this GPU cannot have it."""
    torch = require("torch", extra="torch")
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None or shared > most_shared(_properties(device)):
        return None
    try:
        with torch.cuda.device(device):
            kernel = compile_kernel(source, name)
            if shared >= PLAIN_SHARED:
                kernel.set_shared_memory_config(shared)
    except RuntimeError:  # no compiler, or a driver that refuses: the plain operations give the same, slower
        return None
    return kernel


def most_shared(properties: Any) -> int:
    """Bytes of shared memory that one block may take on a GPU with these properties."""
    return getattr(properties, "shared_memory_per_block_optin", PLAIN_SHARED)


def resident_blocks(properties: Any, shared: int) -> int:
    """How many blocks with `shared` bytes, two at most, a multiprocessor of such a GPU holds at once."""
    whole = getattr(properties, "shared_memory_per_multiprocessor", most_shared(properties))
    return max(1, min(2, whole // (shared + RESERVED)))


def _properties(device: Any) -> Any:
    torch = require("torch", extra="torch")
    return torch.cuda.get_device_properties(device)


def count_patterns(patterns: Tensor) -> Tensor:
    """How often each of the 65,536 patterns of 16 bits occurs in an int16 tensor on a GPU, int64."""
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


MODES = r"""
#define K %(orders)d
#define D %(degree)d
#define STRIDE %(stride)d
#define C %(columns)d

struct Field { const float* table; const int* starts; const float* splits; const float* n; };

// n: 0 centre, 1 1/bandwidth, 2 step, 3 low, 4 high, 5 margin, 6 coarse cells, 7 tail cells, 8 1/width, 9 per octave
__device__ __forceinline__ void look_up(const Field& f, float u, float* log_psi, float* first, float* second) {
    const float* n = f.n;
    float position = (fminf(fmaxf(u, n[3]), n[4]) - n[3]) * n[8] + n[7];
    float middle = 0.5f * (n[3] + n[4]), half_width = 0.5f * (n[4] - n[3]);
    float away = fmaxf((fabsf(u - middle) - (half_width - n[5])) / n[5], 1.0f);
    float steps = n[9] * log2f(away);
    position = fminf(fmaxf(position + (u < middle ? -steps : steps), 0.0f), n[6] - 0.5f);
    int coarse = (int)position;
    float splits = f.splits[coarse];
    int cell = f.starts[coarse] + min((int)((position - coarse) * splits), (int)splits - 1);
    const float* row = f.table + (long long)cell * (C + 2);
    float t = (u - row[0]) * row[1];
    float value = row[C + 1], one = 0.0f, two = 0.0f;
    #pragma unroll
    for (int k = C - 2; k >= 0; k--) {
        two = two * t + one;
        one = one * t + value;
        value = value * t + row[2 + k];
    }
    *log_psi = value; *first = one * row[1]; *second = 2.0f * two * row[1] * row[1];
}

__device__ __noinline__ void general(const Field& f, float u, float* modes) {
    const int orders[K] = {%(order_list)s};
    float values[3][K];
    for (int point = 0; point < 3; point++) {
        float log_psi, first, second;
        look_up(f, u + (point - 1) * f.n[2], &log_psi, &first, &second);
        const float power = %(power)sf;
        float square = fmaxf(expf(2.0f * power * log_psi), 1.2e-32f);
        float gradient = power * power * first * first;
        float half_laplacian = 0.5f * (power * second + gradient);
        float product = square * gradient, mixed = half_laplacian + product;
        float ratio = 1.0f;
        for (int j = 0; j < K; j++) if (orders[j] < 2) values[point][j] = half_laplacian;
        for (int k = 2; k <= %(highest)d; k++) {
            ratio = 2.0f * square / (2.0f * square - (k - 1) * ratio);
            for (int j = 0; j < K; j++)
                if (orders[j] == k) values[point][j] = k * (fminf(fmaxf(ratio, -1e18f), 1e18f) * mixed - product);
        }
    }
    for (int j = 0; j < K; j++)
        modes[j] = values[1][j] - fminf(values[1][j], fminf(values[0][j], values[2][j]));
}

extern "C" __global__ void __launch_bounds__(1024)
score(const float* y, float* out, const float* cells, const int* begin, const float* table, const int* starts,
      const float* splits, const float* n, int rows, int coarse, int mean_only, int blocks_low,
      int blocks_high) {
    // cells: rows of 2 K polynomials; begin: for each coarse cell first row * 256 + splits; a row's last entry: general
    extern __shared__ float shared[];
    int* begins = (int*)(shared + rows * STRIDE);
    for (int i = threadIdx.x; i < rows * STRIDE; i += blockDim.x) shared[i] = cells[i];
    for (int i = threadIdx.x; i < coarse; i += blockDim.x) begins[i] = begin[i];
    __syncthreads();
    const Field field = {table, starts, splits, n};
    const float centre = n[0], inverse = n[1], low = n[10], scale = n[8];
    const long long count = (long long)blocks_high * 1048576 + blocks_low;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float u = (y[i] - centre) * inverse;
        u = fminf(fmaxf(u, -4e18f), 4e18f);
        float position = (u - low) * scale;
        float modes[K];
        bool outside = !(position >= 0.0f && position < (float)coarse);
        int cell = outside ? 0 : (int)position;
        int packed = begins[cell];
        float t = (position - cell) * (float)(packed & 255);
        int part = min((int)t, (packed & 255) - 1);
        t -= part;
        const float* row = shared + ((packed >> 8) + (outside ? 0 : part)) * STRIDE;
        if (outside || row[2 * K * (D + 1)] != 0.0f) general(field, u, modes);
        else {
            float values[2 * K];
            #pragma unroll
            for (int j = 0; j < 2 * K; j++) values[j] = row[2 * K * D + j];
            #pragma unroll
            for (int d = D - 1; d >= 0; d--)
                #pragma unroll
                for (int j = 0; j < 2 * K; j++) values[j] = values[j] * t + row[2 * K * d + j];
            #pragma unroll
            for (int j = 0; j < K; j++) modes[j] = fmaxf(0.0f, fmaxf(values[j], values[K + j]));
        }
        if (mean_only) {
            float sum = 0.0f;
            #pragma unroll
            for (int j = 0; j < K; j++) sum += modes[j];
            out[i] = sum * (1.0f / K);
        } else {
            #pragma unroll
            for (int j = 0; j < K; j++) out[i * K + j] = modes[j];
        }
    }
}
"""


class GpuModes:
    """The modes, or their mean, of float32 predictions on a GPU, in one kernel.

    Args:
        pieces: the field's table.
        modes: the table of the modes, of a degree and size that fit shared memory.
        centre: of the field, in the units of the queries.
        bandwidth: of the field.
        device: the GPU.
    """

    def __init__(self, pieces: Pieces, modes: ModeTable, centre: float, bandwidth: float, device: Any) -> None:
        from qipf.fields import _mode_table, _piecewise

        torch = require("torch", extra="torch")
        step, _, orders, root = modes.arguments
        degree = len(modes.differences) - 1
        stride = (degree + 1) * 2 * len(orders) + 4  # rows start in different banks, and have room for a flag
        cells = np.zeros((modes.kind.size, stride), np.float32)
        for power, part in enumerate(modes.differences):
            cells[:, power * part.shape[0] : (power + 1) * part.shape[0]] = part.T
        cells[:, -4] = modes.kind == _mode_table.GENERAL
        begin = modes.starts * 256 + modes.splits.astype(np.int64)
        numbers = [
            centre, 1 / bandwidth, step, pieces.low, pieces.high, _piecewise.MARGIN, pieces.starts.size,
            _piecewise.TAIL + 1, 1 / _mode_table.WIDTH, _piecewise.OCTAVE, modes.low,
        ]  # fmt: skip
        self.source = MODES % {
            "orders": len(orders),
            "degree": degree,
            "stride": stride,
            "columns": pieces.table.shape[1] - 2,
            "order_list": ", ".join(str(order) for order in orders),
            "power": 0.5 if root else 1.0,
            "highest": max(orders),
        }
        arrays = [
            cells.ravel(),
            begin.astype(np.int32),
            pieces.table.astype(np.float32).ravel(),
            pieces.starts.astype(np.int32),
            pieces.splits.astype(np.float32),
            np.asarray(numbers, np.float32),
        ]
        self.tensors = [torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays]
        self.rows, self.coarse, self.orders = modes.kind.size, modes.count, len(orders)
        self.shared = 4 * (cells.size + modes.count)

    def compiled(self, device: Any) -> Callable[..., None] | None:
        """The kernel on a GPU, or None where it cannot be had."""
        torch = require("torch", extra="torch")
        index = torch.device(device).index
        return compiled(self.source, "score", self.shared, torch.cuda.current_device() if index is None else index)

    def __call__(self, y: Tensor, *, mean: bool = False) -> Tensor:
        """(N,) float32 -> the modes (N, K), or their mean (N,)."""
        torch = require("torch", extra="torch")
        kernel = self.compiled(y.device)
        if kernel is None:
            raise RuntimeError("this GPU, or this version of torch, cannot have the kernel; see `mode_kernel`")
        count = y.numel()
        out = torch.empty(count if mean else (count, self.orders), dtype=torch.float32, device=y.device)
        properties = _properties(y.device)
        blocks = properties.multi_processor_count * resident_blocks(properties, self.shared)
        with torch.cuda.device(y.device):
            kernel(
                grid=(blocks, 1, 1),
                block=(THREADS, 1, 1),
                args=[y, out, *self.tensors, self.rows, self.coarse, int(mean), count % 2**20, count // 2**20],
                shared_mem=self.shared,
            )
        return out


def mode_kernel(
    field: CompiledField, orders: tuple[int, ...], root: bool, radius: float, device: Any
) -> GpuModes | None:
    """The kernel for a field, or None where its table exceeds a multiprocessor's memory or torch cannot compile."""
    table = field._mode_table(orders, root, radius, 1e-6)
    if not table.usable or table.splits.max() > 255:
        return None
    kernel = GpuModes(field._pieces, table, field._centre, field.bandwidth, device)
    return None if kernel.compiled(device) is None else kernel
