/*
 * A token goes round all ranks until the time given in milliseconds is over, and every rank checks that it
 * has come in order. Prints the time of a hop.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double seconds = argc > 1 ? atof(argv[1]) / 1e3 : 0.3;
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), now = start;
    long rounds = 0;
    for (int is_last = 0; !is_last;) {
        /* The round, and whether it is the last. */
        long token[2] = {rounds + 1, now - start >= seconds};
        if (rank == 0)
            MPI_Send(token, 2, MPI_LONG, next, 0, MPI_COMM_WORLD);
        MPI_Recv(token, 2, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (token[0] != ++rounds) {
            fprintf(stderr, "ring: rank %d has token %ld in round %ld\n", rank, token[0], rounds);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        is_last = (int)token[1];
        if (rank != 0)
            MPI_Send(token, 2, MPI_LONG, next, 0, MPI_COMM_WORLD);
        now = MPI_Wtime();
    }
    if (rank == 0)
        printf("ring: %.2f us a hop, %ld hops\n", (now - start) * 1e6 / (double)(rounds * ranks), rounds * ranks);
    MPI_Finalize();
    return 0;
}
