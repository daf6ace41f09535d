//! The opcode table as text, as `docs/wire.md` shows it.

use std::fmt::Write as _;

use highwire_wire::Opcode;

#[test]
fn the_table_reads_as_expected() {
    let mut text = String::new();
    for opcode in Opcode::ALL {
        let info = opcode.info();
        let service = info.service.map_or("-".into(), |service| format!("{service:?}"));
        let payload = if info.has_payload { "payload" } else { "-" };
        let (operation, position) = (format!("{:?}", info.operation), format!("{:?}", info.position));
        writeln!(
            text,
            "{:#04x}  {:24} {service:3} {operation:25} {position:7} {:8} {:?} {}",
            opcode.to_u8(),
            info.name,
            payload,
            info.layout,
            info.layout.len(),
        )
        .expect("writing to a string succeeds");
    }
    let expected = include_str!("golden/opcodes.txt");
    assert!(text == expected, "tests/golden/opcodes.txt should read:\n{text}");
}
