// A product of matrices of doubles in blocks that stay in registers: sixteen sums at a time.
#include "benchmark.h"

#define SIDE 24
#define BLOCK 4

static double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];

static void multiply_block(int row, int column) {
    double sums[BLOCK][BLOCK];
    for (int i = 0; i < BLOCK; i++)
        for (int j = 0; j < BLOCK; j++) sums[i][j] = 0;
    for (int k = 0; k < SIDE; k++)
        for (int i = 0; i < BLOCK; i++)
            for (int j = 0; j < BLOCK; j++) sums[i][j] += a[row + i][k] * b[k][column + j];
    for (int i = 0; i < BLOCK; i++)
        for (int j = 0; j < BLOCK; j++) c[row + i][column + j] = sums[i][j];
}

int main(void) {
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) a[i][j] = i + j, b[i][j] = i - j;
    for (int row = 0; row < SIDE; row += BLOCK)
        for (int column = 0; column < SIDE; column += BLOCK) multiply_block(row, column);
    return (int)c[5][7];
}
