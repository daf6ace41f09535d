# Storage at Alibaba, 2019 (published with HPCC, Li et al., SIGCOMM 2019).
0       0
4000    22.93
8000    69.21
16000   80.61
32000   90.47
64000   93.53
128000  96.77
256000  97.53
2000000 100
