# IRN §4.1: half of the flows are single packets of 32 bytes to 1 KB, 15 % have 200 KB to 3 MB and carry most of the bytes.
# The paper leaves the middle open. Here it is straight on a logarithmic scale, one line per doubling.
32      0
1024    50
2048    54.60
4096    59.20
8192    63.80
16384   68.40
32768   73.00
65536   77.60
131072  82.20
200000  85
3000000 100
