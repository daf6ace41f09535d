//! Ideal servers behind the NIC's selector: exact tails, and those of a recorded simulation with its own requests.

use highwire_nanopu::nic::Selection;
use highwire_nanopu::queueing::{
    RECORDED_REQUESTS, RECORDED_SEED, Reference, Request, SHARE, Service, Source, percentile, references,
    requests, response_times,
};
use highwire_stdx::Rng;
use rand_mt::Mt64;

fn own_requests(reference: &Reference, count: usize) -> Vec<Request> {
    let (mut rng, mut hashes) = (Rng::new(1), Rng::new(2));
    requests(reference.service, reference.servers, reference.load, count, || rng.unit(), || hashes.next_u64())
}

fn recorded_requests(reference: &Reference) -> Vec<Request> {
    let mut twister = Mt64::new(RECORDED_SEED);
    let unit = || (twister.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    requests(reference.service, reference.servers, reference.load, RECORDED_REQUESTS, unit, || 0)
}

/// What is off by more than `percent`.
fn wrong(
    references: &[Reference],
    percent: f64,
    requests: impl Fn(&Reference) -> Vec<Request>,
) -> Vec<String> {
    let off = |reference: &Reference| {
        let found =
            percentile(&response_times(reference.selection, reference.servers, &requests(reference)), SHARE);
        let tail = reference.tail();
        ((found / tail - 1.0).abs() > percent / 100.0)
            .then(|| format!("{reference:?}: {found:.3} instead of {tail:.3}"))
    };
    references.iter().filter_map(off).collect()
}

#[test]
fn the_recorded_requests_have_the_recorded_tails() {
    let recorded: Vec<_> = references()
        .into_iter()
        .filter(|reference| matches!(reference.source, Source::Recorded(_)))
        .collect();
    assert!(recorded.len() > 50);
    // What remains is the rounding of the recorded numbers.
    let wrong = wrong(&recorded, 0.5, recorded_requests);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn exact_tails_are_reached_by_any_requests() {
    // At higher loads two million requests are too few: two runs differ by some per cent.
    let is_exact = |reference: &Reference| !matches!(reference.source, Source::Recorded(_));
    let exact: Vec<_> =
        references().into_iter().filter(|reference| is_exact(reference) && reference.load <= 0.8).collect();
    assert!(exact.len() > 12);
    let wrong = wrong(&exact, 2.0, |reference| own_requests(reference, 2_000_000));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn responses_are_never_shorter_than_service() {
    let load = Reference {
        service: Service::Bimodal,
        servers: 4,
        selection: Selection::Rss,
        load: 0.9,
        source: Source::SingleServers,
    };
    let requests = own_requests(&load, 200_000);
    for selection in [Selection::Rss, Selection::Jbsq(1), Selection::Jbsq(3)] {
        let responses = response_times(selection, 4, &requests);
        assert!(
            responses
                .iter()
                .zip(&requests)
                .all(|(response, request)| *response >= request.service * 0.999_999)
        );
    }
    assert!(response_times(Selection::Jbsq(2), 0, &[]).is_empty());
    assert_eq!(percentile(&[], 0.99), 0.0);
}
