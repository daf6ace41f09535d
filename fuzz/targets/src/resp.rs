//! The parser of the store's Redis door: it never panics, holds a bounded number of bytes, and finds the same requests however the
//! bytes are cut. Lines of words and patterns are tried with the same bytes.

pub(crate) fn resp(input: &[u8]) {
    highwire_store::try_parser(input);
}

/// A piece's length, then requests of every kind.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let requests: [&[u8]; 8] = [
        b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nb\0\r\nPING  x\r\n*1\r\n$0\r\n\r\n*0\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9999999\r\nabc",
        b"*-1\r\n*2147483647\r\n$1\r\na\r\n",
        b"SET k \"a\\x41\\n\\\"\" 'b\\'c'\r\nECHO \"open\r\n",
        b"*1\r\n$-1\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"[a-z]*[^\\]]?\\**[c-a][a-",
        b"*2\rX$4\rXPING\r\n*1\r\n",
    ];
    [0u8, 1, 6, 255].iter().flat_map(|&step| requests.map(|bytes| [&[step], bytes].concat())).collect()
}
