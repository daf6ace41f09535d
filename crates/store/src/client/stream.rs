//! A client's connection to a node: TCP, or TLS over it.

use crate::access::Access;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// A connection to a node.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Sealed(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Over a socket that is connected to the node at `host:port`.
    pub(super) fn new(socket: TcpStream, door: &str, access: &Access) -> io::Result<Stream> {
        Ok(match &access.tls {
            Some(tls) => Stream::Sealed(Box::new(StreamOwned::new(tls.connection(door)?, socket))),
            None => Stream::Plain(socket),
        })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Sealed(stream) => stream.get_ref(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(to),
            Stream::Sealed(stream) => stream.read(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Sealed(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Sealed(stream) => stream.flush(),
        }
    }
}
