// A product of matrices of doubles, one dot product at a time: chains in the floating-point unit.
#include "benchmark.h"

#define SIDE 20

static double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];

int main(void) {
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) a[i][j] = i * 2 + j, b[i][j] = i - j * 3;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            double sum = 0;
            for (int k = 0; k < SIDE; k++) sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
    return (int)c[3][4];
}
