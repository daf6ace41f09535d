//! A client of the Redis door that sends any bytes, and keeps replies as they came.

use super::{PATIENCE, until};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) fn connect(address: &str) -> Wire {
        // A server that has just been started does not listen yet.
        Wire::of(until("the door", || TcpStream::connect(address).ok()))
    }

    fn of(stream: TcpStream) -> Wire {
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_nodelay(true).expect("set");
        Wire(BufReader::new(stream))
    }

    /// Connects from one of the loopback addresses.
    pub(crate) fn connect_from(from: &str, to: &str) -> Wire {
        let (from, to): (SocketAddr, SocketAddr) =
            (from.parse().expect("an address"), to.parse().expect("an address"));
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &from).expect("bound");
        rustix::net::connect(&socket, &to).expect("connected");
        Wire::of(TcpStream::from(socket))
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).expect("written");
    }

    /// One reply, as it came.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        self.try_reply().expect("a reply")
    }

    pub(crate) fn try_reply(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.read_until(b'\n', &mut bytes).ok().filter(|&length| length > 0)?;
        let line = String::from_utf8_lossy(&bytes[1..]).trim().to_string();
        let count = || line.parse::<i64>().expect("a count").max(-1);
        let elements = match bytes[0] {
            b'$' if count() >= 0 => {
                let start = bytes.len();
                bytes.resize(start + count() as usize + 2, 0);
                self.0.read_exact(&mut bytes[start..]).ok()?;
                0
            }
            b'*' | b'~' | b'>' => count(),
            b'%' => 2 * count(),
            _ => 0,
        };
        for _ in 0..elements {
            bytes.extend(self.try_reply()?);
        }
        Some(bytes)
    }

    /// Says a line, and returns the reply.
    pub(crate) fn ask(&mut self, line: &str) -> Vec<u8> {
        self.try_ask(line).expect("a reply")
    }

    pub(crate) fn try_ask(&mut self, line: &str) -> Option<Vec<u8>> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).ok()?;
        self.try_reply()
    }

    /// Says a command as an array, and returns the reply.
    pub(crate) fn command(&mut self, words: &[&str]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.write(array(&words));
        self.reply()
    }

    /// Says all of it, and returns all that comes until the other end says nothing more.
    pub(crate) fn converse(mut self, bytes: &[u8]) -> Vec<u8> {
        // The other end may have ended already.
        let _ = self.0.get_mut().write_all(bytes);
        if !bytes.is_empty() {
            let _ = self.0.get_mut().shutdown(Shutdown::Write);
        }
        let mut said = Vec::new();
        let _ = self.0.read_to_end(&mut said);
        said
    }
}

/// A command as an array.
pub(crate) fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
