// A sparse matrix times a vector: loads whose addresses come from loads.
#include "benchmark.h"

#define ROWS 256
#define PER_ROW 8

static double values[ROWS * PER_ROW], vector[ROWS], result[ROWS];
static int columns[ROWS * PER_ROW], begins[ROWS + 1];

int main(void) {
    unsigned random = 11;
    int count = 0;
    for (int row = 0; row < ROWS; row++) {
        begins[row] = count;
        vector[row] = row;
        for (int left = (int)(next(&random) >> 16) % PER_ROW; left >= 0; left--, count++) {
            columns[count] = (int)(next(&random) >> 16) % ROWS;
            values[count] = (int)(next(&random) >> 24) - 128;
        }
    }
    begins[ROWS] = count;
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int i = begins[row]; i < begins[row + 1]; i++) sum += values[i] * vector[columns[i]];
        result[row] = sum;
    }
    double sum = 0;
    for (int row = 0; row < ROWS; row++) sum += result[row];
    return (int)sum;
}
