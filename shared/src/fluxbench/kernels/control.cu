// A product of small bfloat16 matrices, over and over, in fixed machine code: what is timed beside every variant.
//
// c[t] = repeats * a[t] b[t]^T for t < tiles; a and b are [tiles, 128, 64] row-major bfloat16, c is [tiles, 128, 128]
// float32. Every block of 256 threads copies one pair of tiles to shared memory once and then multiplies it from there
// with WMMA fragments; blocks beyond the first `tiles` do the same work and store nothing. So it lives within the
// multiprocessors, on their clock, their tensor cores and their shared memory, as attention does for the most part: on
// an H200 the ratio of FlashAttention-2's time to its own varied by 0.04 to 0.07% while each varied by 0.2 to 0.3%. A
// product that read its operands through the L2 cache followed attention hardly at all.
//
// control.fatbin is what runs: machine code for compute capability 8.x, 9.0, 10.x and 12.x, which no driver and no
// library compiles again (on other devices the driver compiles its PTX). Made by nvcc 13.0.88:
//   nvcc -O3 -std=c++17 -fatbin -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90,code=sm_90
//     -gencode arch=compute_100,code=sm_100 -gencode arch=compute_120,code=sm_120 -o control.fatbin control.cu
// Never change either file: comparisons with earlier results would lose their fixed point.
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int TILE = 128, DEPTH = 64, PITCH = DEPTH + 8, PIECES = DEPTH / 8;

extern "C" __global__ void __launch_bounds__(256)
fluxbench_sentinel(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b, float* __restrict__ c,
                   int tiles, int repeats) {
  __shared__ __nv_bfloat16 a_tile[TILE * PITCH];
  __shared__ __nv_bfloat16 b_tile[TILE * PITCH];
  const size_t tile = blockIdx.x % tiles;
  for (int piece = threadIdx.x; piece < TILE * PIECES; piece += blockDim.x) {  // 16 bytes each
    const int line = piece / PIECES, place = piece % PIECES * 8;
    const size_t from = (tile * TILE + line) * DEPTH + place;
    *reinterpret_cast<uint4*>(&a_tile[line * PITCH + place]) = *reinterpret_cast<const uint4*>(&a[from]);
    *reinterpret_cast<uint4*>(&b_tile[line * PITCH + place]) = *reinterpret_cast<const uint4*>(&b[from]);
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, row = (warp / 4) * 64, column = (warp % 4) * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4][2];
  for (auto& line : sums)
    for (auto& sum : line) wmma::fill_fragment(sum, 0.0f);
  for (int repeat = 0; repeat < repeats; ++repeat) {
#pragma unroll
    for (int inner = 0; inner < DEPTH; inner += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left[4];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> right[2];
      for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(left[i], &a_tile[(row + 16 * i) * PITCH + inner], PITCH);
      for (int j = 0; j < 2; ++j)
        wmma::load_matrix_sync(right[j], &b_tile[(column + 16 * j) * PITCH + inner], PITCH);
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
    }
    __syncthreads();  // keeps the loads inside the loop
  }
  if (blockIdx.x >= tiles) return;
  float* out = c + tile * TILE * TILE;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(&out[(row + 16 * i) * TILE + column + 16 * j], sums[i][j], TILE, wmma::mem_row_major);
}
