// The towers of Hanoi: recursion with little work in between.
#include "benchmark.h"

#define DISCS 8

static int pegs[3][16], height[3], moves;

static void __attribute__((noinline)) move(int count, int from, int to, int over) {
    if (count == 0) return;
    move(count - 1, from, over, to);
    pegs[to][height[to]++] = pegs[from][--height[from]];
    moves++;
    move(count - 1, over, to, from);
}

int main(void) {
    for (int disc = DISCS; disc > 0; disc--) pegs[0][height[0]++] = disc;
    move(DISCS, 0, 2, 1);
    return moves + sum_of(pegs[2], DISCS);
}
