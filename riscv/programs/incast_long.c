/* incast_client with a message of sixteen kibibytes. */
#define BYTES 16384
#include "incast_client.c"
