//! The dissector for Wireshark reads every packet of the extension as `highwire pcap` does, and leaves all
//! others alone.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use highwire_stdx::Instant;
use highwire_wire::{
    Aeth, Ext, Frame, Headers, Ip, Ipv4, IrnEth, IrnFlags, LinkType, NEGOTIATION_PORT, NakCode, Opcode, Psn,
    Qpn, SackEth, Syndrome, UDP_PORT, Udp, pcap,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wireshark/highwire.lua");
/// The messages of a negotiation, as hosts send them: a line of text, a line of bytes.
const NEGOTIATION: &str = include_str!("../../../vectors/highwire/negotiation.txt");

/// A frame to `port` around `packet`, which is any payload of UDP.
fn frame_around(port: u16, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Ipv4::LEN + Udp::LEN];
    let length = (Udp::LEN + packet.len()) as u16;
    let ip =
        Ipv4 { payload_len: length, ..Ipv4::new(Ipv4Addr::new(127, 1, 2, 3), Ipv4Addr::new(127, 3, 2, 1)) };
    ip.emit(bytes.first_chunk_mut().expect("a header fits"));
    let udp = Udp { source_port: 0xC001, destination_port: port, length, checksum: 0 };
    udp.emit(bytes.last_chunk_mut().expect("a header fits"));
    bytes.extend(packet);
    bytes
}

fn roce_frame(headers: Headers, payload: &[u8]) -> Vec<u8> {
    let frame = Frame {
        ethernet: None,
        ip: Ip::V4(Ipv4::new(Ipv4Addr::new(127, 1, 2, 3), Ipv4Addr::new(127, 3, 2, 1))),
        udp: Udp { source_port: 0xC001, destination_port: UDP_PORT, length: 0, checksum: 0 },
        headers,
        payload: &[],
        padding: &[],
        icrc: 0,
        trailer: &[],
    };
    let mut bytes = Vec::new();
    frame.sealed(payload).emit(&mut bytes);
    bytes
}

/// Frames and tshark's expected output for them.
#[derive(Default)]
struct Expected {
    file: Vec<u8>,
    lines: Vec<String>,
}

impl Expected {
    fn add(&mut self, bytes: &[u8], line: &str) {
        if self.file.is_empty() {
            self.file.extend(pcap::file_header(LinkType::RawIp));
        }
        self.file.extend(pcap::record_header(Instant::ZERO, bytes.len() as u32));
        self.file.extend(bytes);
        self.lines.push(line.to_owned());
    }

    /// Adds a packet for which Wireshark and this crate print the same.
    fn packet(&mut self, mut headers: Headers, payload: &[u8]) {
        headers.bth.pad_count = highwire_wire::pad_count(payload.len());
        let mut line = headers.to_string();
        if headers.bth.opcode.info().has_payload {
            line += &format!(" len {}", payload.len());
        }
        self.add(&roce_frame(headers, payload), &line);
    }
}

/// One packet of each opcode, from the golden bytes; then cases that they lack.
fn expected() -> Expected {
    let mut expected = Expected::default();
    for line in include_str!("golden/headers.txt").lines().filter(|line| line.starts_with(' ')) {
        let bytes = from_hex(line);
        let (headers, _) = Headers::parse(&bytes).expect("the golden bytes are headers");
        if headers.bth.opcode.is_irn() {
            let payload: &[u8] = if headers.bth.opcode.info().has_payload { b"hello" } else { &[] };
            expected.packet(headers, payload);
        }
    }
    assert_eq!(expected.lines.len(), 16);
    let headers = |opcode, ext| Headers::new(opcode, Qpn::new(0x0A_0B0C), Psn::new(0xFF_FFFF), ext);
    let mut flagged = headers(Opcode::IrnSend, Ext::IrnSend(IrnEth::new(0, 0, IrnFlags::NONE)));
    let bth = &mut flagged.bth;
    (bth.solicited, bth.mig_req, bth.fecn, bth.becn, bth.ack_request) = (true, true, true, true, true);
    expected.packet(flagged, &[1; 1021]);
    let syndromes = (0..32)
        .flat_map(|code| [Syndrome::Ack { credits: code }, Syndrome::Rnr { timer: code }])
        .chain([0, 1, 2, 3, 4].map(|code| {
            Syndrome::Nak(match code {
                0 => NakCode::PsnSequence,
                1 => NakCode::InvalidRequest,
                2 => NakCode::RemoteAccess,
                3 => NakCode::RemoteOperational,
                _ => NakCode::InvalidRd,
            })
        }));
    for syndrome in syndromes {
        expected.packet(headers(Opcode::IrnAck, Ext::IrnAck(Aeth { syndrome, msn: 1 })), &[]);
    }
    let one = SackEth::one(Psn::new(7));
    expected.packet(headers(Opcode::IrnReadNack, Ext::IrnReadNack(one)), &[]);
    for pair in NEGOTIATION.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().chunks(2) {
        expected.add(&frame_around(NEGOTIATION_PORT, &from_hex(pair[1])), pair[0]);
    }
    expected
}

/// Errors in the extension's headers, and their places.
fn malformed() -> Expected {
    let mut expected = Expected::default();
    let send = Headers::new(
        Opcode::IrnSend,
        Qpn::new(1),
        Psn::new(2),
        Ext::IrnSend(IrnEth::new(0, 0, IrnFlags::LAST)),
    );
    let sack = Headers::new(
        Opcode::IrnReadNack,
        Qpn::new(1),
        Psn::new(2),
        Ext::IrnReadNack(SackEth::one(Psn::new(7))),
    );
    const HEADERS_AT: usize = Ipv4::LEN + Udp::LEN + 12;
    let cases: [(Headers, usize, u8, &str); 4] = [
        (send, HEADERS_AT, 0x11, "IRN version 1"),
        (send, HEADERS_AT, 0x25, "reserved bits of the IrnETH are set"),
        (send, HEADERS_AT + 4, 0x01, "reserved bits of the IrnETH are set"),
        (sack, HEADERS_AT + 3, 0x00, "a run of no packets"),
    ];
    for (headers, at, value, wrong) in cases {
        let mut bytes = roce_frame(headers, &[]);
        bytes[at] = value;
        assert!(Frame::parse(LinkType::RawIp, &bytes).is_err(), "{wrong}");
        expected.add(&bytes, wrong);
    }
    let mut packet = [0; 64];
    let length = send.emit(&mut packet);
    expected.add(&frame_around(UDP_PORT, &packet[..length]), "the packet ends within its headers");
    expected
}

fn from_hex(line: &str) -> Vec<u8> {
    let digits: Vec<u8> = line.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits")).collect()
}

/// The values of `fields` that tshark prints for each frame of `file`; `None` if there is no tshark with Lua.
fn tshark(name: &str, file: &[u8], fields: &[&str]) -> Option<Vec<String>> {
    let version = Command::new("tshark").arg("--version").output();
    let knows_lua = version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("with Lua"));
    if !knows_lua {
        println!("skipped: needs a tshark that knows Lua: apt-get install tshark");
        return None;
    }
    let path = std::env::temp_dir().join(format!("highwire-dissector-{name}-{}.pcap", std::process::id()));
    std::fs::write(&path, file).expect("a file for tshark");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&path).args(["-X", &format!("lua_script:{SCRIPT}"), "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts");
    std::fs::remove_file(&path).expect("nothing is left behind");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[test]
fn every_packet_of_ours_reads_in_wireshark_as_it_does_here() {
    assert!(Path::new(SCRIPT).exists());
    let expected = expected();
    let Some(lines) = tshark("right", &expected.file, &["_ws.col.Info", "highwire.malformed"]) else {
        return;
    };
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    assert_eq!(lines, expected.lines);
}

#[test]
fn what_this_version_does_not_define_is_marked_in_wireshark() {
    let expected = malformed();
    let Some(lines) = tshark("wrong", &expected.file, &["_ws.expert.message"]) else { return };
    assert_eq!(lines, expected.lines);
}

#[test]
fn packets_of_the_standard_remain_wiresharks_own() {
    let capture = include_bytes!("../../../vectors/roce/rc_atomic_cas.pcap");
    let fields = ["_ws.col.Protocol", "infiniband.bth.opcode", "highwire.text"];
    let Some(lines) = tshark("standard", capture, &fields) else { return };
    assert!(!lines.is_empty());
    for line in lines {
        let parts: Vec<&str> = line.split('\t').collect();
        assert!(parts[0] == "RRoCE" && !parts[1].is_empty() && parts[2].is_empty(), "{line}");
    }
}
