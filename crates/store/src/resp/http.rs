//! HTTP at the Redis door. A web page can make a browser send a `POST` to any port, with a body of the page's choice; its lines
//! would be commands. Redis ends a connection that says `POST` or `Host:`, as every browser does before the body.

/// The methods of HTTP, which stand before a path and a version.
const METHODS: [&[u8]; 10] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"PRI"];

/// Whether these words are a line of HTTP and not a command. A request line ends the connection whatever its method is; no
/// command of this store has this form.
pub(super) fn is_http(words: &[Vec<u8>]) -> bool {
    match words {
        [name, ..] if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") => true,
        [method, _, version] => METHODS.contains(&&method[..]) && version.starts_with(b"HTTP/"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_of_http_are_told_from_commands() {
        let check = |line: &str, expected| {
            let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(super::is_http(&words), expected, "{line}");
        };
        for line in
            ["POST / HTTP/1.1", "post", "Host: evil", "HOST: evil", "GET / HTTP/1.1", "PUT /x HTTP/1.1"]
        {
            check(line, true);
        }
        for line in ["OPTIONS * HTTP/1.1", "PRI * HTTP/2.0", "DELETE /a HTTP/1.1"] {
            check(line, true);
        }
        for line in ["GET k", "SET k HTTP/1.1", "GET HTTP/1.1", "DEL / HTTP/1.1", "Hosts: x"] {
            check(line, false);
        }
    }
}
