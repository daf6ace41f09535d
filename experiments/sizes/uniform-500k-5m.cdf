# IRN §4.4.1: background and storage traffic, sizes uniform between 500 KB and 5 MB.
500000  0
5000000 100
