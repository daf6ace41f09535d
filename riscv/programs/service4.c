/* Every core serves requests to work of context 0. */
#include "serve.h"

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    serve(0);
    return 0;
}
