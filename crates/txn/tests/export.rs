//! Histories in other checkers' words, read back by a reader of EDN that is not ours.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use clojure_reader::edn::{Edn, read_string};
use highwire_txn::check::{Form, History, Outcome};
use highwire_txn::simulation::Plan;

fn history() -> History {
    let plan = Plan { faulty_ns: 60_000_000, has_disks: false, ..Plan::from_seed(4) };
    let (result, history) = plan.run_recorded();
    result.unwrap_or_else(|failure| panic!("{failure}"));
    history
}

struct Operation<'a> {
    kind: String,
    process: i64,
    time: i64,
    steps: Vec<(String, i64, Edn<'a>)>,
}

fn field<'a>(of: &BTreeMap<Edn<'a>, Edn<'a>>, name: &'static str) -> Edn<'a> {
    of.get(&Edn::Key(Cow::Borrowed(name))).unwrap_or_else(|| panic!("no :{name} in {of:?}")).clone()
}

fn number(edn: &Edn) -> i64 {
    match edn {
        Edn::Int(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

fn key(edn: &Edn) -> String {
    match edn {
        Edn::Key(name) => name.to_string(),
        other => panic!("{other:?} is no keyword"),
    }
}

fn vector<'a>(edn: &Edn<'a>) -> Vec<Edn<'a>> {
    match edn {
        Edn::Vector(items) => items.clone(),
        other => panic!("{other:?} is no vector"),
    }
}

fn operations(text: &str) -> Vec<Operation<'_>> {
    let parsed = read_string(text).expect("it is EDN");
    let mut operations = Vec::new();
    for (place, operation) in vector(&parsed).iter().enumerate() {
        let Edn::Map(operation) = operation else { panic!("{operation:?} is no map") };
        assert_eq!(number(&field(operation, "index")), place as i64);
        assert_eq!(key(&field(operation, "f")), "txn");
        let steps = vector(&field(operation, "value")).into_iter().map(|step| {
            let step = vector(&step);
            assert_eq!(step.len(), 3, "{step:?}");
            (key(&step[0]), number(&step[1]), step[2].clone())
        });
        operations.push(Operation {
            kind: key(&field(operation, "type")),
            process: number(&field(operation, "process")),
            time: number(&field(operation, "time")),
            steps: steps.collect(),
        });
    }
    operations
}

/// What Elle and Jepsen expect of any history: time increases, and each process does one operation after the
/// other and none after an unknown outcome.
fn check_processes(operations: &[Operation]) {
    let mut running: BTreeMap<i64, bool> = BTreeMap::new();
    let mut last = 0;
    for operation in operations {
        assert!(operation.time >= last, "time goes back");
        last = operation.time;
        let runs = running.entry(operation.process).or_insert(false);
        assert_eq!(*runs, operation.kind != "invoke", "process {} at {last}", operation.process);
        *runs = matches!(operation.kind.as_str(), "invoke" | "info");
    }
    let kinds: BTreeSet<&str> = operations.iter().map(|operation| operation.kind.as_str()).collect();
    assert!(["invoke", "ok", "fail"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
}

#[test]
fn lists_are_what_elle_calls_list_append() {
    let history = history();
    let text = history.export(Form::ListAppend);
    let operations = operations(&text);
    check_processes(&operations);
    let mut appended = BTreeMap::new();
    for (place, operation) in
        operations.iter().enumerate().filter(|(_, operation)| operation.kind == "invoke")
    {
        for (_, key, element) in operation.steps.iter().filter(|step| step.0 == "append") {
            assert_eq!(appended.insert((*key, number(element)), place), None, "an element twice");
        }
    }
    let mut longest = 0;
    for operation in operations.iter().filter(|operation| operation.kind == "ok") {
        for (kind, key, list) in &operation.steps {
            assert!(["r", "append"].contains(&kind.as_str()));
            if kind == "r" {
                let list = vector(list);
                longest = longest.max(list.len());
                assert!(list.iter().all(|element| appended.contains_key(&(*key, number(element)))));
            }
        }
    }
    assert!(longest > 10, "lists of {longest} elements at most say little");
    let on_lists = |transaction: &&highwire_txn::check::Transaction| {
        let mut seen = transaction.reads.iter().chain(&transaction.writes);
        transaction.outcome == Outcome::Committed && seen.any(|seen| history.lists.contains(&seen.table))
    };
    let committed = history.transactions.iter().filter(on_lists).count();
    assert_eq!(operations.iter().filter(|operation| operation.kind == "ok").count(), committed);
}

#[test]
fn registers_are_what_elle_calls_rw_register() {
    let text = history().export(Form::RwRegister);
    let operations = operations(&text);
    check_processes(&operations);
    let mut written = BTreeSet::new();
    for operation in operations.iter().filter(|operation| operation.kind == "invoke") {
        for (kind, key, value) in &operation.steps {
            match kind.as_str() {
                "w" => assert!(written.insert((*key, number(value))), "{key} was written {value:?} twice"),
                "r" => assert_eq!(*value, Edn::Nil, "nobody knows before what will be read"),
                other => panic!("{other}"),
            }
        }
    }
    for operation in operations.iter().filter(|operation| operation.kind == "ok") {
        for (_, key, value) in operation.steps.iter().filter(|step| step.0 == "r" && step.2 != Edn::Nil) {
            assert!(
                written.contains(&(*key, number(value))),
                "{key} was read as {value:?}, which nobody wrote"
            );
        }
    }
    assert!(written.len() > 100);
}

#[test]
fn single_keys_have_a_line_for_each_transaction_and_key() {
    let history = history();
    let text = history.export(Form::SingleKeys);
    let committed = history.transactions.iter().filter(|one| one.outcome == Outcome::Committed);
    let keys = |one: &highwire_txn::check::Transaction| -> usize {
        one.reads.iter().map(|read| (read.table, read.key)).collect::<BTreeSet<_>>().len()
    };
    let least: usize = committed.map(keys).sum();
    assert!(text.lines().count() >= least && least > 1000, "{least}");
    let distinct: BTreeSet<&str> = text.lines().collect();
    assert_eq!(distinct.len(), text.lines().count(), "a transaction wrote one key twice");
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let names = ["key", "process", "call", "return", "read", "write"];
        assert!(names.iter().all(|name| value.get(name).is_some()), "{line}");
        assert!(!(value["read"].is_null() && value["write"].is_null()), "{line}");
    }
}
