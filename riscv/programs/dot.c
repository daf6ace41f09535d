/* The dot product, each word multiplied as it comes out of the network. See dot.h. */
#include "dot.h"

/* Half of the words of memory are on their way before the first product needs one. */
static inline __attribute__((always_inline)) uint64_t product(uint64_t weight) {
    uint64_t value;
    __asm__ volatile("mul %0, x30, %1" : "=r"(value) : "r"(weight));
    return value;
}

static void serve(uint64_t header, int64_t words) {
    const uint64_t *weight = dot_weights;
    uint64_t sum = 0;
    for (; words >= 4; words -= 4, weight += 4) {
        uint64_t a = weight[0], b = weight[1], c = weight[2], d = weight[3];
        a = product(a);
        b = product(b);
        c = product(c);
        sum += a;
        d = product(d);
        sum += b + c + d;
    }
    for (; words > 0; words--) sum += product(*weight++);
    dot_answer(header, sum);
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    dot_serve(serve);
}
