/* Each core serves a context of its own, with its number: what RSS does when the sender picks the context. */
#include "serve.h"

int nanopu_main(uint64_t core) {
    nanopu_add_context(core, 0);
    serve(0);
    return 0;
}
