# As irn-heavy-tail, but with the middle, which the paper leaves open, uniform from 1 KB to 200 KB.
32      0
1024    50
200000  85
3000000 100
