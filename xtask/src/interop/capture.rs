//! The packets on the wire, judged twice: by Highwire's own reader, ICRC and all, and by tshark, which does
//! not know Highwire.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::namespace::{HOST_ADDRESS, HOST_ADDRESS_V6};
use super::peer;
use crate::shell::Line;

/// One RoCEv2 packet as Highwire's reader sees it.
struct Packet {
    frame: u64,
    ours: bool,
    opcode: String,
    sound: bool,
    text: String,
}

impl Packet {
    /// The opcode; for a refusal, its reason.
    fn kind(&self) -> String {
        let refusal = NAKS.iter().find(|nak| self.text.contains(&format!(" {nak} ")));
        refusal.map_or_else(|| self.opcode.clone(), |nak| format!("{} {nak}", self.opcode))
    }
}

/// Every refusal of a responder, in the words of Highwire's reader (IBTA Tables 44 and 46).
const NAKS: &[&str] =
    &["rnr", "nak psn-sequence", "nak invalid-request", "nak remote-access", "nak remote-operational"];

/// tshark's view of a frame.
struct Decoded {
    protocols: String,
    opcode: String,
    malformed: bool,
}

/// A capture's contents and faults.
pub(super) struct Judgement {
    /// Packets by kind: sent by Highwire, sent by the kernel.
    counts: BTreeMap<String, (usize, usize)>,
    /// Packets whose ICRC or headers are wrong, in words.
    pub(super) unsound: Vec<String>,
    /// Packets of Highwire's that tshark decodes in another way than Highwire's reader, in words.
    pub(super) misread: Vec<String>,
}

/// Reads the capture in `file` with both.
///
/// # Errors
/// One of the readers cannot read it.
pub(super) fn judge(file: &Path) -> Result<Judgement> {
    let packets = own_reading(file)?;
    let decoded = tshark_reading(file)?;
    let mut judgement = Judgement { counts: BTreeMap::new(), unsound: Vec::new(), misread: Vec::new() };
    for packet in &packets {
        let count = judgement.counts.entry(packet.kind()).or_default();
        *(if packet.ours { &mut count.0 } else { &mut count.1 }) += 1;
        if !packet.sound {
            judgement.unsound.push(format!("frame {}: {}", packet.frame, packet.text));
        }
        if packet.ours {
            judgement.misread.extend(difference(packet, decoded.get(&packet.frame)));
        }
    }
    Ok(judgement)
}

impl Judgement {
    /// The refusals that were not seen from each side; only the kernel ever reports a remote operational
    /// error.
    pub(super) fn unseen_naks(&self) -> Vec<String> {
        let seen = |nak: &str| self.counts.get(&format!("RC_ACK {nak}")).copied().unwrap_or_default();
        let from_us = NAKS.iter().filter(|nak| !nak.ends_with("operational") && seen(nak).0 == 0);
        let from_kernel = NAKS.iter().filter(|nak| seen(nak).1 == 0);
        let named = |side: &'static str| move |nak: &&str| format!("no {nak} from {side}");
        from_us.map(named("highwire")).chain(from_kernel.map(named("the kernel"))).collect()
    }

    /// Prints the packets by kind.
    pub(super) fn print(&self) {
        println!("{:<26} {:>9} {:>9}", "on the wire", "highwire", "kernel");
        for (opcode, (ours, theirs)) in &self.counts {
            println!("{opcode:<26} {ours:>9} {theirs:>9}");
        }
    }

    /// The number of Highwire's packets.
    pub(super) fn ours(&self) -> usize {
        self.counts.values().map(|(ours, _)| ours).sum()
    }

    pub(super) fn all(&self) -> usize {
        self.counts.values().map(|(ours, theirs)| ours + theirs).sum()
    }
}

fn difference(packet: &Packet, decoded: Option<&Decoded>) -> Option<String> {
    let Some(decoded) = decoded else {
        return Some(format!("frame {}: tshark does not take it for RoCE: {}", packet.frame, packet.text));
    };
    let is_roce = decoded.protocols.split(':').any(|protocol| protocol == "infiniband");
    if is_roce && !decoded.malformed && decoded.opcode == packet.opcode {
        return None;
    }
    // Programs send any bytes, and some of them look to tshark like a protocol, which it then prints instead.
    let tells =
        ["RC_", "UC_", "UD_", "CNP", "UNKNOWN"].iter().any(|prefix| decoded.opcode.starts_with(prefix));
    if is_roce && !tells {
        return None;
    }
    let malformed = if decoded.malformed { ", malformed" } else { "" };
    let Decoded { protocols, opcode, .. } = decoded;
    Some(format!("frame {}: tshark: {protocols} {opcode}{malformed}; ours: {}", packet.frame, packet.text))
}

/// One line per packet: frame number, source, opcode, ok or bad, the packet in words.
fn own_reading(file: &Path) -> Result<Vec<Packet>> {
    let output = Line::new(&peer::program().to_string_lossy()).arg("capture").arg(file).capture()?;
    if !output.success {
        bail!("{}", output.stderr.trim());
    }
    let packet = |line: &str| -> Option<Packet> {
        let [frame, source, opcode, verdict, text] = line.splitn(5, ' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Packet {
            frame: frame.parse().ok()?,
            ours: source == HOST_ADDRESS || source == HOST_ADDRESS_V6,
            opcode: opcode.into(),
            sound: verdict == "ok",
            text: text.into(),
        })
    };
    output
        .stdout
        .lines()
        .map(|line| packet(line).with_context(|| format!("unexpected line: {line}")))
        .collect()
}

fn tshark_reading(file: &Path) -> Result<BTreeMap<u64, Decoded>> {
    let line = Line::new("tshark").arg("-r").arg(file).words("-Y infiniband -T fields");
    let line = payload_guessers()?.iter().fold(line, |line, name| line.arg("--disable-protocol").arg(name));
    let fields = ["frame.number", "frame.protocols", "_ws.col.Info", "_ws.malformed"];
    let output = fields.iter().fold(line, |line, field| line.arg("-e").arg(field)).capture()?;
    if !output.success {
        bail!("tshark: {}", output.stderr.trim());
    }
    let mut decoded = BTreeMap::new();
    for line in output.stdout.lines() {
        let [frame, protocols, info, malformed] = line.splitn(4, '\t').collect::<Vec<_>>()[..] else {
            bail!("an unexpected line from tshark: {line}");
        };
        let opcode = our_name(info);
        let malformed = !malformed.trim().is_empty() || info.contains("alformed");
        decoded.insert(frame.parse()?, Decoded { protocols: protocols.into(), opcode, malformed });
    }
    Ok(decoded)
}

/// tshark's protocols that claim a payload by its looks. The payloads here are test patterns, or empty, and
/// some of these protocols call that malformed.
fn payload_guessers() -> Result<Vec<String>> {
    let output = Line::new("tshark").words("-G heuristic-decodes").capture()?;
    let names = output
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("infiniband.payload\t")?.split('\t').next());
    // This one does not guess: the whole wire depends on it.
    Ok(names.filter(|name| *name != "ethertype").map(str::to_owned).collect())
}

/// tshark's "RC RDMA Write Last Immediate QP=0x000017 …" in Highwire's spelling, `RC_WRITE_LAST_IMM`.
fn our_name(info: &str) -> String {
    // A management datagram has its message's name.
    if info.starts_with("CM: ") {
        return "UD_SEND_ONLY".into();
    }
    let name = info.split("QP=").next().unwrap_or_default().trim().to_uppercase();
    let name = name.replace("RDMA ", "").replace("ACKNOWLEDGE", "ACK").replace("READ REQUEST", "READ");
    name.replace("IMMEDIATE", "IMM").replace("INVALIDATE", "INV").replace(' ', "_")
}

#[cfg(test)]
mod tests {
    use super::our_name;

    #[test]
    fn tsharks_names_become_ours() {
        for (theirs, ours) in [
            ("RC Send Only QP=0x000032 ", "RC_SEND_ONLY"),
            ("RC RDMA Write Last Immediate QP=0x000017 ", "RC_WRITE_LAST_IMM"),
            ("UC RDMA Write FirstQP=0x000065 ", "UC_WRITE_FIRST"),
            ("RC RDMA Read Request QP=0x000019 ", "RC_READ"),
            ("RC Acknowledge QP=0x00002e [Remote Access Error]", "RC_ACK"),
            ("RC Atomic Acknowledge QP=0x00001b ", "RC_ATOMIC_ACK"),
            ("CM: ConnectRequest", "UD_SEND_ONLY"),
            ("RC Send Only Invalidate QP=0x00001b ", "RC_SEND_ONLY_INV"),
        ] {
            assert_eq!(our_name(theirs), ours);
        }
    }
}
