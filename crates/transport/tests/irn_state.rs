//! The bits that IRN adds to a queue pair, counted from the fields of the state machines, as lines for `cargo xtask rtl --state`; the page
//! of measurements has the same numbers.

use highwire_transport::irn::{
    Field, IrnConfig, Origin, RECEIVE_WQE_AND_COMPLETION, ReceiverState, ReceiverWindow, SEND_WQE,
    SenderState, SenderWindow,
};
use highwire_wire::Psn;

const PAGE: &str = include_str!("../../../docs/measurements/irn-hardware.md");

/// The bits of one bitmap for the paper's default scenario: a card's is the cap, up to the next power of two.
fn bitmap_bits() -> u32 {
    IrnConfig::default().cap.next_power_of_two()
}

fn bits(fields: &[Field], origin: Origin) -> u32 {
    fields.iter().filter(|field| field.origin == origin).map(|field| field.bits).sum()
}

/// What, here, and in the paper where it is known.
fn rows() -> Vec<(&'static str, u32, &'static str)> {
    let config = IrnConfig::default();
    let sender = SenderWindow::new(Psn::new(0), config).state().fields().map(|(field, _)| field);
    let receiver = ReceiverWindow::new(Psn::new(0), &config).state().fields().map(|(field, _)| field);
    // Requests and answers have a PSN space each: each end of a queue pair has two senders and two receivers.
    let bitmaps = 2 * SenderState::BITMAPS + 2 * ReceiverState::BITMAPS;
    vec![
        ("sender of a direction, already in RoCE", bits(&sender, Origin::Roce), "48"),
        ("sender of a direction, added by IRN", bits(&sender, Origin::Irn), "52"),
        (
            "sender of a direction, added for evident partial acknowledgements",
            bits(&sender, Origin::Evident),
            "0",
        ),
        ("receiver of a direction, already in RoCE", bits(&receiver, Origin::Roce), "48"),
        ("receiver of a direction, added by IRN", bits(&receiver, Origin::Irn), "0"),
        ("bitmaps of a queue pair", bitmaps, "5"),
        ("bits of these bitmaps", bitmaps * bitmap_bits(), "640"),
        ("entry of the send queue, added by IRN", SEND_WQE.iter().map(|field| field.bits).sum(), "–"),
        (
            "entry of a receive queue or completion queue, added by IRN",
            RECEIVE_WQE_AND_COMPLETION.iter().map(|field: &Field| field.bits).sum(),
            "–",
        ),
    ]
}

#[test]
fn the_page_has_the_bits_that_the_code_has() {
    for (what, here, paper) in rows() {
        println!("state: {what} | {here} | {paper}");
        let row = format!("| {what} | {here} | {paper} |");
        assert!(PAGE.contains(&row), "docs/measurements/irn-hardware.md lacks: {row}");
    }
}
