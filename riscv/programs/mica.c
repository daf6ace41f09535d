/* The key-value store of mica.h, any request on any core: the NIC's core selection spreads them. */
#include "mica.h"

int nanopu_main(uint64_t core) {
    (void)core;
    mica_run(0);
}
