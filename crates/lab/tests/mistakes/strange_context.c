/* Makes context 0 known on core 0 alone. */
#include "nanopu.h"

int nanopu_main(uint64_t core) {
    if (core != 0) nanopu_park();
    nanopu_add_context(0, 0);
    for (;;) nanopu_wait();
}
