// Quicksort of pseudo-random numbers: recursion, and loops of unknown length.
#include "benchmark.h"

#define COUNT 600

static int numbers[COUNT];

static void sort(int *part, int count) {
    if (count < 2) return;
    int pivot = part[count / 2], low = 0, high = count - 1;
    for (;; low++, high--) {
        while (part[low] < pivot) low++;
        while (part[high] > pivot) high--;
        if (low >= high) break;
        int kept = part[low];
        part[low] = part[high];
        part[high] = kept;
    }
    sort(part, low);
    sort(part + low, count - low);
}

int main(void) {
    unsigned random = 1;
    for (int i = 0; i < COUNT; i++) numbers[i] = (int)(next(&random) >> 16);
    sort(numbers, COUNT);
    return sum_of(numbers, COUNT);
}
