// One vector added to another.
#include "benchmark.h"

#define COUNT 1000

static int a[COUNT], b[COUNT], sums[COUNT];

int main(void) {
    for (int i = 0; i < COUNT; i++) a[i] = i * 3, b[i] = i ^ 5;
    for (int i = 0; i < COUNT; i++) sums[i] = a[i] + b[i];
    return sum_of(sums, COUNT);
}
