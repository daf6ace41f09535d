//! Decoder and disassembler against binutils: the same text for every word that both know.

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use highwire_riscv::{Instruction, Located, Op};
use highwire_stdx::Rng;
use support::scratch;

/// objdump's output for consecutive words at address 0: the bits, and the text in one spelling.
fn objdump(bytes: &[u8], name: &str) -> Option<Vec<(u64, u32, String)>> {
    let path = scratch(name, bytes);
    let command = Command::new("riscv64-unknown-elf-objdump")
        .args(["-D", "-z", "-b", "binary", "-m", "riscv:rv64", "-M", "no-aliases", "-M", "priv-spec=1.12"])
        .arg(path)
        .output();
    let Ok(output) = command else {
        println!("skipped: no riscv64-unknown-elf-objdump, from Debian's binutils-riscv64-unknown-elf");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().filter_map(parse_line).collect())
}

/// A line has the address, the bits, the name and the operands, with tabs between the last three.
fn parse_line(line: &str) -> Option<(u64, u32, String)> {
    let (address, rest) = line.split_once(":\t")?;
    let mut columns = rest.split('\t');
    let bits = u32::from_str_radix(columns.next()?.trim(), 16).ok()?;
    let words: Vec<&str> = columns.collect();
    let text = words.join(" ");
    let text = text.split([';', '#']).next()?.trim();
    let text = text.split(" <").next()?.trim();
    Some((u64::from_str_radix(address.trim(), 16).ok()?, bits, text.replace(", ", ",")))
}

fn ours(address: u64, bits: u32) -> Option<String> {
    let instruction = Instruction::decode(bits).ok()?;
    Some(Located { pc: address, instruction }.to_string().replace(", ", ","))
}

#[test]
fn every_long_word_reads_the_same() {
    let mut rng = Rng::new(3);
    let mut words = Vec::new();
    for op in Op::all() {
        for _ in 0..200 {
            let instruction = Instruction {
                op,
                rd: rng.below(32) as u8,
                rs1: rng.below(32) as u8,
                rs2: rng.below(32) as u8,
                rs3: rng.below(32) as u8,
                mode: *rng.pick(&[0, 1, 2, 3, 4, 7]) & if op.access_bytes().is_some() { 3 } else { 7 },
                length: 4,
                immediate: (rng.next_u32() as i32 >> rng.below(32)) & !1,
                bits: 0,
            };
            words.extend(instruction.encode());
        }
    }
    // And words with a major opcode that exists but anything in the other fields.
    words.extend((0..60_000).map(|_| rng.next_u32() | 3).filter(|word| word & 0x1f != 0x1f));
    words.extend([0x0ff0_000f, 0x0310_000f, 0x8330_000f, 0x0000_100f]);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let Some(theirs) = objdump(&bytes, "words.bin") else { return };
    assert_eq!(theirs.len(), words.len());
    let names: BTreeSet<&str> = Op::all().map(Op::name).collect();
    let mut compared = BTreeSet::new();
    for (address, bits, text) in theirs {
        let name = text
            .split(' ')
            .next()
            .unwrap_or("")
            .trim_end_matches(".aqrl")
            .trim_end_matches(".aq")
            .trim_end_matches(".rl");
        let Some(own) = ours(address, bits) else {
            // Words to which binutils gives a name that this crate knows have a reserved rounding mode.
            assert!(!names.contains(name) || text.ends_with("unknown"), "{bits:08x}: {text}");
            continue;
        };
        let op = own.split(' ').next().unwrap_or("").to_owned();
        if is_comparable(&own, &text) {
            assert_eq!(own, text, "{bits:08x}");
            compared.insert(
                op.trim_end_matches(".aqrl").trim_end_matches(".aq").trim_end_matches(".rl").to_owned(),
            );
        }
    }
    let missing: Vec<_> = names.iter().filter(|name| !compared.contains(**name)).collect();
    assert!(missing.is_empty(), "never compared: {missing:?}");
}

/// Whether the texts can be compared: binutils knows more than this crate (hints, the names of foreign CSRs)
/// and prints a fence's ignored fields.
fn is_comparable(own: &str, text: &str) -> bool {
    let own_csr = own.starts_with("csr");
    let is_hint = !own_csr && own.split(' ').next() != text.split(' ').next();
    let foreign_csr = own_csr && own.contains(",0x");
    let fence = own.starts_with("fence") && own != text;
    !is_hint && !foreign_csr && !fence
}

#[test]
fn every_short_word_reads_the_same() {
    let words: Vec<u16> = (0..=u16::MAX).filter(|word| word & 3 != 3).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let Some(theirs) = objdump(&bytes, "halves.bin") else { return };
    assert_eq!(theirs.len(), words.len());
    for ((_, bits, text), word) in theirs.iter().zip(&words) {
        assert_eq!(*bits, u32::from(*word));
        // The specification reserves c.addi16sp of zero.
        let known = text.starts_with("c.") && text != "c.unimp" && text != "c.addi16sp sp,0";
        assert_eq!(Instruction::decode(*bits).is_ok(), known, "{word:04x}: {text}");
        if known {
            compare_operands(*word, text);
        }
    }
}

/// Registers and immediates must be found in binutils' text, which names only those that are not implied.
fn compare_operands(word: u16, text: &str) {
    let own = Instruction::decode(word.into()).expect("it was decoded before").to_string().replace(", ", ",");
    let operands = |line: &str| -> Vec<String> {
        let list = line.split_once(' ').map_or("", |(_, list)| list);
        list.split([',', '(', ')']).filter(|operand| !operand.is_empty()).map(str::to_owned).collect()
    };
    let own = operands(&own);
    for operand in operands(text).iter().filter(|operand| {
        operand.parse::<i64>().is_ok() || operand.chars().next().is_some_and(char::is_alphabetic)
    }) {
        assert!(own.contains(operand), "{word:04x}: {operand} of {text} is not in {own:?}");
    }
}
