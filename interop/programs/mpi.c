/* Two ranks: a greeting, then messages of growing size there and back, every byte of which is checked, then the bandwidth of
 * large ones, one-sided puts, and a reduction. Prints one line when all was right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20, ROUNDS = 20, STREAM = 100 };

static unsigned char pattern(size_t at, int size, int rank)
{
    return (unsigned char)(at * 31 + (size_t)size * 7 + (size_t)rank);
}

static void fail(const char *what, int size)
{
    fprintf(stderr, "mpi: wrong %s at size %d\n", what, size);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(unsigned char *bytes, int size, int rank)
{
    for (int i = 0; i < size; i++)
        bytes[i] = pattern(i, size, rank);
}

static void check(const unsigned char *bytes, int size, int rank)
{
    for (int i = 0; i < size; i++)
        if (bytes[i] != pattern(i, size, rank))
            fail("byte", size);
}

static void ping_pong(int rank, unsigned char *mine, unsigned char *theirs)
{
    for (int size = 1; size <= LARGEST; size *= 4) {
        fill(mine, size, rank);
        for (int round = 0; round < ROUNDS; round++) {
            memset(theirs, 0, size);
            if (rank == 0)
                MPI_Send(mine, size, MPI_BYTE, 1, round, MPI_COMM_WORLD);
            MPI_Recv(theirs, size, MPI_BYTE, 1 - rank, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(mine, size, MPI_BYTE, 0, round, MPI_COMM_WORLD);
            check(theirs, size, 1 - rank);
        }
    }
}

static double stream(int rank, unsigned char *bytes)
{
    MPI_Request requests[STREAM];
    MPI_Status statuses[STREAM];
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < STREAM; i++)
        if (rank == 0)
            MPI_Isend(bytes, LARGEST, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(bytes, LARGEST, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(STREAM, requests, statuses);
    MPI_Barrier(MPI_COMM_WORLD);
    return (double)STREAM * LARGEST / (MPI_Wtime() - start) / 1e9;
}

static void put(int rank, unsigned char *mine, unsigned char *window)
{
    MPI_Win win;
    int size = 10000;
    MPI_Win_create(window, LARGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    fill(mine, size, rank);
    MPI_Win_fence(0, win);
    MPI_Put(mine, size, MPI_BYTE, 1 - rank, 0, size, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    check(window, size, 1 - rank);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        fail("number of ranks", ranks);
    printf("hello from rank %d of %d\n", rank, ranks);
    unsigned char *mine = malloc(LARGEST), *theirs = malloc(LARGEST);
    ping_pong(rank, mine, theirs);
    double gigabytes = stream(rank, mine);
    put(rank, mine, theirs);
    int sum = 0, one = rank + 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != 3)
        fail("sum", sum);
    if (rank == 0)
        printf("mpi: all right: %.2f GB/s\n", gigabytes);
    MPI_Finalize();
    return 0;
}
