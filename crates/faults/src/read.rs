//! From the file to a [`Scenario`]. Every word is checked; the first wrong one is the error.

use crate::error::ScenarioError;
use crate::rules::{
    Announcement, CallRule, CompletionRule, Device, End, Event, EventRule, Misfortune, PathRule, Pattern,
    Port, RegistrationRule, Scenario, Start,
};
use crate::table::Table;
use crate::trigger::{Times, Trigger};
use crate::words;
use highwire_stdx::Duration;
use toml::de::DeTable;

/// Devices of a scenario at most: as many as programs look at.
const DEVICES_MAX: usize = 32;
/// Rules of each kind at most.
const RULES_MAX: usize = 1024;
/// Repetitions of an event in time at most.
const REPEATS_MAX: u64 = 10_000;

const TRIGGER: [&str; 4] = ["nth", "every", "times", "probability"];

impl Scenario {
    /// Reads a scenario. `file` is what errors call it.
    ///
    /// # Errors
    /// The first thing that is wrong: file, line, key, and what would be right.
    pub fn read(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::read_for(file, text, &[])
    }

    /// Reads rules for a scenario that is played, with these devices.
    ///
    /// # Errors
    /// As for [`read`](Self::read); and a file that has devices of its own.
    pub fn read_more(file: &str, text: &str, playing: &Scenario) -> Result<Scenario, ScenarioError> {
        let more = Scenario::read_for(file, text, &playing.devices)?;
        match more.devices.len() == playing.devices.len() {
            true => Ok(more),
            false => Err(ScenarioError::new(
                (file, text),
                None,
                "device",
                "the devices of a running program stay as they are",
            )),
        }
    }

    fn read_for(file: &str, text: &str, devices: &[Device]) -> Result<Scenario, ScenarioError> {
        let document = DeTable::parse(text)
            .map_err(|error| ScenarioError::new((file, text), error.span(), "", error.message()))?;
        let table = Table { source: (file, text), inner: document.get_ref(), span: 0..0 };
        table.only(&[
            "seed",
            "control",
            "programs",
            "device",
            "call",
            "registration",
            "completion",
            "event",
            "path",
        ])?;
        let mut scenario = Scenario {
            seed: table.whole("seed", 0..=u64::MAX)?.unwrap_or(1),
            control: table.flag("control")?,
            programs: table.texts("programs")?.into_iter().map(String::from).collect(),
            devices: devices.to_vec(),
            ..Scenario::default()
        };
        let tables = |key: &str| {
            let tables = table.tables(key)?;
            if tables.len() > RULES_MAX {
                return Err(table.error(key, format!("there are at most {RULES_MAX} of them")));
            }
            Ok(tables)
        };
        for one in tables("device")? {
            let device = device(&one, &scenario.devices)?;
            scenario.devices.push(device);
        }
        let devices = scenario.devices.as_slice();
        scenario.calls = tables("call")?.iter().map(|one| call(one, devices)).collect::<Result<_, _>>()?;
        scenario.registrations =
            tables("registration")?.iter().map(|one| registration(one, devices)).collect::<Result<_, _>>()?;
        scenario.completions =
            tables("completion")?.iter().map(|one| completion(one, devices)).collect::<Result<_, _>>()?;
        for one in tables("event")? {
            scenario.events.extend(events(&one, devices)?);
        }
        scenario.paths = tables("path")?.iter().map(|one| path(one, devices)).collect::<Result<_, _>>()?;
        Ok(scenario)
    }
}

fn device(table: &Table<'_>, before: &[Device]) -> Result<Device, ScenarioError> {
    table.only(&["name", "address", "numa", "pci", "rate", "mtu", "ports", "port"])?;
    let name = table.text("name")?.map_or_else(|| format!("hw{}", before.len()), String::from);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
    if name.is_empty() || name.len() > 63 || name.starts_with('.') || !name.chars().all(is_name) {
        return Err(table.error("name", "a device's name has 1 to 63 letters, digits, `_`, `-` and `.`"));
    }
    if before.iter().any(|device| device.name == name) {
        return Err(table.error("name", format!("there is a device `{name}` already")));
    }
    if before.len() == DEVICES_MAX {
        return Err(table.error("name", format!("there are at most {DEVICES_MAX} devices")));
    }
    let address = table.text("address")?.map(|text| {
        let fits = text.parse().map_err(|_| table.error("address", format!("`{text}` is no IP address")));
        fits.and_then(|address| match before.iter().any(|device| device.address == Some(address)) {
            true => Err(table.error("address", "another device has it")),
            false => Ok(address),
        })
    });
    let pci = table.text("pci")?;
    if let Some(pci) = pci.filter(|pci| !is_pci(pci)) {
        return Err(table.error("pci", format!("`{pci}` is no PCI address: write one like \"0000:81:00.0\"")));
    }
    if before.iter().any(|device| pci.is_some() && device.pci.as_deref() == pci) {
        return Err(table.error("pci", "another device has it"));
    }
    let gigabits = table.bandwidth("rate")?.map(|bits| bits / 1_000_000_000);
    if gigabits.is_some_and(|gigabits| !RATES.contains(&gigabits)) {
        return Err(table.error("rate", format!("links have one of {RATES:?} Gbps")));
    }
    let mtu = table.whole("mtu", 256..=4096)?.map(|mtu| mtu as u32);
    if mtu.is_some_and(|mtu| !mtu.is_power_of_two()) {
        return Err(table.error("mtu", "it is 256, 512, 1024, 2048 or 4096"));
    }
    Ok(Device {
        name,
        address: address.transpose()?,
        numa: table.whole("numa", 0..=1023)?.map(|node| node as i32),
        pci: pci.map(String::from),
        gigabits: gigabits.map(|gigabits| gigabits as u32),
        mtu,
        ports: ports(table)?,
    })
}

/// The states of a device's ports: of one or all by a word, or of each by a list of words.
fn ports(table: &Table<'_>) -> Result<Vec<Port>, ScenarioError> {
    let count = table.whole("ports", 1..=PORTS_MAX)?;
    let Some(words) = table.words("port", &PORTS, "state of a port")? else {
        return Ok(vec![Port::Active; count.unwrap_or(1) as usize]);
    };
    match (words.as_slice(), count.map(|count| count as usize)) {
        ([all], count) => Ok(vec![*all; count.unwrap_or(1)]),
        (each, Some(count)) if each.len() == count => Ok(words),
        (each, count) => {
            let (each, count) = (each.len(), count.unwrap_or(1));
            Err(table.error("port", format!("it has {each} states, and `ports` is {count}")))
        }
    }
}

/// Ports of a device at most, as cards have them.
const PORTS_MAX: u64 = 2;
/// Speeds that programs know: a lane's times the lanes.
const RATES: [u64; 8] = [10, 25, 40, 50, 100, 200, 400, 800];
const PORTS: [(&str, Port); 3] = [("down", Port::Down), ("init", Port::Init), ("active", Port::Active)];

/// Domain, bus, device, function.
fn is_pci(text: &str) -> bool {
    let digits =
        |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((rest, function)) = text.split_once('.') else { return false };
    let parts: Vec<&str> = rest.split(':').collect();
    matches!(parts.as_slice(), [domain, bus, device]
        if digits(domain, 4) && digits(bus, 2) && digits(device, 2) && digits(function, 1))
}

fn trigger(table: &Table<'_>, default: Trigger) -> Result<Trigger, ScenarioError> {
    let times = match table.text("times") {
        Ok(None) => default.times,
        Ok(Some("forever")) => Times::Forever,
        _ => match table.whole("times", 1..=u64::MAX) {
            Ok(Some(times)) => Times::Count(times),
            _ => return Err(table.error("times", "it is a whole number from 1, or \"forever\"")),
        },
    };
    Ok(Trigger {
        nth: table.whole("nth", 1..=u64::MAX)?.unwrap_or(default.nth),
        every: table.whole("every", 1..=u64::MAX)?.unwrap_or(default.every),
        times,
        probability: table.share("probability")?.unwrap_or(default.probability),
    })
}

/// The device that a rule names.
fn named(table: &Table<'_>, devices: &[Device]) -> Result<Option<usize>, ScenarioError> {
    let Some(name) = table.text("device")? else { return Ok(None) };
    find(table, "device", name, devices).map(Some)
}

fn find(table: &Table<'_>, key: &str, name: &str, devices: &[Device]) -> Result<usize, ScenarioError> {
    // Without any there is the usual one.
    if devices.is_empty() && name == "hw0" {
        return Ok(0);
    }
    let names = devices.iter().map(|device| device.name.as_str());
    let problem = || match devices.is_empty() {
        true => format!("`{name}` is no device: the file has no [[device]], so there is `hw0` alone"),
        false => crate::error::unknown(name, names.clone(), "device of this file"),
    };
    names.clone().position(|known| known == name).ok_or_else(|| table.error(key, problem()))
}

fn number(table: &Table<'_>, key: &str) -> Result<Option<u64>, ScenarioError> {
    table.whole(key, 1..=u64::MAX)
}

fn function(table: &Table<'_>, key: &str) -> Result<&'static str, ScenarioError> {
    table.required(key)?;
    Ok(table.word(key, words::FUNCTIONS, "function that a scenario knows")?.expect("it is there").0)
}

fn errno(table: &Table<'_>, default: Option<i32>) -> Result<i32, ScenarioError> {
    match (table.word("errno", words::ERRNOS, "errno")?, default) {
        (Some((_, errno)), _) | (None, Some(errno)) => Ok(errno),
        (None, None) => Err(table.error("errno", "is missing: add `errno = \"ENOMEM\"`, or another")),
    }
}

fn call(table: &Table<'_>, devices: &[Device]) -> Result<CallRule, ScenarioError> {
    table.only(&[&["function", "errno", "device", "queue_pair", "thread"][..], &TRIGGER].concat())?;
    Ok(CallRule {
        function: function(table, "function")?,
        errno: errno(table, None)?,
        device: named(table, devices)?,
        queue_pair: number(table, "queue_pair")?,
        thread: number(table, "thread")?,
        trigger: trigger(table, Trigger::default())?,
    })
}

fn registration(table: &Table<'_>, devices: &[Device]) -> Result<RegistrationRule, ScenarioError> {
    table.only(&["bytes", "regions", "errno", "device"])?;
    if !table.has("bytes") && !table.has("regions") {
        return Err(table.error("bytes", "a limit has `bytes` or `regions`, or both"));
    }
    Ok(RegistrationRule {
        bytes: table.bytes("bytes")?,
        regions: table.whole("regions", 0..=u64::MAX)?,
        errno: errno(table, Some(12))?,
        device: named(table, devices)?,
    })
}

fn completion(table: &Table<'_>, devices: &[Device]) -> Result<CompletionRule, ScenarioError> {
    let own = ["queue_pair", "device", "operation", "status", "late", "missing"];
    table.only(&[&own[..], &TRIGGER].concat())?;
    let status = table.word("status", words::STATUSES, "status of a failed completion")?;
    let misfortune = match (status, table.duration("late")?, table.flag("missing")?) {
        (Some((_, status)), None, false) => Misfortune::Status(status),
        (None, Some(late), false) => Misfortune::Late(late),
        (None, None, true) => Misfortune::Missing,
        _ => {
            return Err(
                table.error("status", "a completion has one of `status`, `late` and `missing = true`")
            );
        }
    };
    Ok(CompletionRule {
        queue_pair: number(table, "queue_pair")?,
        device: named(table, devices)?,
        operations: table.word("operation", words::OPERATIONS, "operation")?.map_or(&[], |(_, ops)| ops),
        misfortune,
        trigger: trigger(table, Trigger::default())?,
    })
}

const EVENTS: [&str; 9] = [
    "port-down",
    "port-init",
    "port-up",
    "device-fatal",
    "device-removal",
    "device-return",
    "gid-change",
    "queue-pair-error",
    "silence",
];

/// The port that an event is about: the first, if it names none.
fn port(table: &Table<'_>, device: Option<&Device>) -> Result<u8, ScenarioError> {
    let count = device.map_or(1, Device::port_count);
    Ok(table.whole("port", 1..=u64::from(count))?.unwrap_or(1) as u8)
}

fn events(table: &Table<'_>, devices: &[Device]) -> Result<Vec<EventRule>, ScenarioError> {
    let own = ["do", "device", "port", "queue_pair", "after", "period", "call", "lasts", "announced", "late"];
    table.only(&[&own[..], &TRIGGER].concat())?;
    let name = table.required("do")?;
    let device = named(table, devices)?.unwrap_or(0);
    let port = port(table, devices.get(device))?;
    let event = match name {
        "port-down" => Event::Port(port, Port::Down),
        "port-init" => Event::Port(port, Port::Init),
        "port-up" => Event::Port(port, Port::Active),
        "device-fatal" => Event::Fatal,
        "device-removal" => Event::Removal,
        "device-return" => Event::Return,
        "gid-change" => Event::GidChange(port),
        "silence" => Event::Silence,
        "queue-pair-error" => match number(table, "queue_pair")? {
            Some(queue_pair) => Event::QueuePairError(queue_pair),
            None => {
                return Err(table.error("queue_pair", "is missing: the first that the process makes is 1"));
            }
        },
        name => return Err(table.error("do", crate::error::unknown(name, EVENTS.into_iter(), "event"))),
    };
    if table.has("queue_pair") && !matches!(event, Event::QueuePairError(_)) {
        return Err(table.error("queue_pair", format!("`{name}` is about a device")));
    }
    if table.has("port") && !matches!(event, Event::Port(..) | Event::GidChange(_)) {
        return Err(table.error("port", format!("`{name}` is about no port")));
    }
    let lasts = table.duration("lasts")?;
    let ends = matches!(event, Event::Port(_, Port::Down | Port::Init) | Event::Silence | Event::Removal);
    if lasts.is_some() && !ends {
        return Err(table.error("lasts", format!("`{name}` is not undone")));
    }
    let words = [("never", 0), ("once", 1), ("twice", 2)];
    let announcement = Announcement {
        times: table.word("announced", &words, "number of times")?.map_or(1, |(_, times)| times),
        late: table.duration("late")?.unwrap_or(Duration::ZERO),
    };
    let rule = |start| EventRule { start, lasts, device, event, announcement };
    let trigger = trigger(table, Trigger::default())?;
    match (table.duration("after")?, table.has("call")) {
        (Some(after), false) => {
            if let Some(key) = ["nth", "every", "probability"].into_iter().find(|key| table.has(key)) {
                return Err(
                    table.error(key, "it goes with `call`; `period` and `times` repeat an event in time")
                );
            }
            let period = table.duration("period")?;
            let count = match (period, trigger.times) {
                (None, Times::Count(1)) => 1,
                (Some(_), Times::Count(count)) if count <= REPEATS_MAX => count,
                (None, _) => {
                    return Err(table.error("times", "an event that repeats has a `period`, like \"2s\""));
                }
                _ => return Err(table.error("times", format!("it is at most {REPEATS_MAX}"))),
            };
            let period = period.unwrap_or_default().as_nanos();
            let at =
                |nth: u64| Duration::from_nanos(after.as_nanos().saturating_add(nth.saturating_mul(period)));
            Ok((0..count).map(|nth| rule(Start::After(at(nth)))).collect())
        }
        (None, true) if table.has("period") => Err(table.error("period", "it goes with `after`")),
        (None, true) => Ok(vec![rule(Start::Call(function(table, "call")?, trigger))]),
        _ => Err(table.error("after", "an event has either `after = \"5ms\"` or `call = \"ibv_…\"`")),
    }
}

fn path(table: &Table<'_>, devices: &[Device]) -> Result<PathRule, ScenarioError> {
    let own = ["from", "to", "pattern", "loss", "burst", "recovery", "burst_loss", "delay", "bandwidth"];
    table.only(&[&own[..], &TRIGGER].concat())?;
    let end = |key: &str| {
        let Some(text) = table.text(key)? else { return Ok(None) };
        match text.parse() {
            Ok(address) => Ok(Some(End::Address(address))),
            Err(_) => find(table, key, text, devices).map(|device| Some(End::Device(device))),
        }
    };
    let patterns = [
        ("all", Pattern::All),
        ("acknowledgement", Pattern::Acknowledgement),
        ("last", Pattern::Last),
        ("request", Pattern::Request),
        ("response", Pattern::Response),
    ];
    let bursts = match (table.share("burst")?, table.share("recovery")?) {
        (Some(burst), Some(recovery)) => Some((burst, recovery, table.share("burst_loss")?.unwrap_or(1.0))),
        (None, None) if !table.has("burst_loss") => None,
        _ => {
            return Err(table
                .error("burst", "bursts have `burst` and `recovery`: the chances to begin and to end one"));
        }
    };
    let always = Trigger { times: Times::Forever, ..Trigger::default() };
    let rule = PathRule {
        from: end("from")?,
        to: end("to")?,
        pattern: table.word("pattern", &patterns, "pattern")?.map_or(Pattern::All, |(_, pattern)| pattern),
        trigger: trigger(table, always)?,
        loss: table.share("loss")?.unwrap_or(0.0),
        bursts,
        delay: table.duration("delay")?.unwrap_or(Duration::ZERO),
        bandwidth: table.bandwidth("bandwidth")?,
    };
    if rule.loss == 0.0 && bursts.is_none() && rule.delay == Duration::ZERO && rule.bandwidth.is_none() {
        let problem = "a path has `loss`, `burst`, `delay` or `bandwidth`; `loss = \"100%\"` cuts it";
        return Err(table.error("loss", problem));
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, line: usize, part: &str) {
        let error = Scenario::read("f.toml", text).expect_err(text);
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }

    #[test]
    fn the_line_of_what_is_wrong_is_named() {
        check("seed = 1\nsede = 2", 2, "is it `seed`?");
        check("seed = -1", 1, "whole number");
        check("[[call]]\nfunction = \"ibv_create_qc\"\nerrno = \"ENOMEM\"", 2, "is it `ibv_create_cq`?");
        check("[[call]]\nfunction = \"ibv_create_cq\"", 1, "`errno`: is missing");
        check("[[call]]\nfunction = \"ibv_create_cq\"\nerrno = \"ENOMEN\"", 3, "is it `ENOMEM`?");
        check("[[call]]\nfunction = \"ibv_create_cq\"\nerrno = \"EIO\"\nnth = 0", 4, "at least 1");
        check("[[call]]\nfunction = \"ibv_create_cq\"\nerrno = \"EIO\"\ntimes = \"often\"", 4, "forever");
        check("[[call]]\nfunction = \"ibv_create_cq\"\nerrno = \"EIO\"\ndevice = \"hw1\"", 4, "`hw0` alone");
        check("[[device]]\n[[device]]\nname = \"hw0\"", 3, "already");
        check("[[device]]\nname = \"a/b\"", 2, "letters");
        check("[[device]]\npci = \"81:00.0\"", 2, "0000:81:00.0");
        check("[[device]]\nmtu = 1500", 2, "256, 512");
        check("[[device]]\nrate = \"3Gbps\"", 2, "links have one of");
        check("[[completion]]\nstatus = \"IBV_WC_SUCCESS\"", 2, "no status");
        check("[[completion]]\nlate = \"5\"", 2, "like \"5ms\"");
        check("[[completion]]\nlate = \"5ms\"\nmissing = true", 1, "one of `status`, `late`");
        check("[[event]]\ndo = \"port-down\"", 1, "either `after");
        check("[[device]]\nports = 3", 2, "from 1 to 2");
        check("[[device]]\nports = 2\nport = [\"up\", \"down\"]", 3, "state of a port");
        check("[[device]]\nport = [\"active\", \"down\"]", 2, "it has 2 states, and `ports` is 1");
        check("[[event]]\ndo = \"port-down\"\nport = 2\nafter = \"1s\"", 3, "from 1 to 1");
        check("[[event]]\ndo = \"device-fatal\"\nport = 1\nafter = \"1s\"", 3, "about no port");
        check("[[event]]\ndo = \"port-dwon\"\nafter = \"1s\"", 2, "is it `port-down`?");
        check("[[event]]\ndo = \"device-fatal\"\nafter = \"1s\"\nlasts = \"1s\"", 4, "not undone");
        check("[[event]]\ndo = \"port-down\"\nafter = \"1s\"\nnth = 2", 4, "goes with `call`");
        check("[[event]]\ndo = \"queue-pair-error\"\nafter = \"1s\"", 1, "is missing");
        check("[[path]]\nloss = \"101%\"", 2, "no share");
        check("[[path]]\nto = \"nowhere\"\nloss = \"1%\"", 2, "no device");
        check("[[path]]\nburst = \"1%\"", 2, "`recovery`");
        check("[[path]]\npattern = \"last\"", 1, "cuts it");
        check("[[registration]]\nerrno = \"ENOMEM\"", 1, "`regions`");
        check("seed = 1\n[[call]", 2, "");
        check("call = 3", 1, "[[call]]");
    }

    #[test]
    fn a_scenario_in_full() {
        let text = "
            seed = 7
            programs = [\"ib_write_bw\"]
            [[device]]
            name = \"mlx5_0\"
            rate = \"400Gbps\"
            port = \"down\"
            [[device]]
            name = \"mlx5_1\"
            pci = \"0000:c1:00.0\"
            numa = 1
            [[call]]
            function = \"ibv_create_cq\"
            nth = 2
            times = \"forever\"
            errno = \"ENOMEM\"
            device = \"mlx5_1\"
            [[event]]
            do = \"port-down\"
            after = \"10ms\"
            period = \"1s\"
            times = 3
            lasts = \"100ms\"
            [[path]]
            from = \"mlx5_0\"
            to = \"127.0.0.9\"
            loss = \"1%\"
        ";
        let scenario = Scenario::read("f.toml", text).expect("right");
        assert_eq!((scenario.seed, scenario.devices.len(), scenario.events.len()), (7, 2, 3));
        assert_eq!((scenario.devices[0].port(1), scenario.devices[0].gigabits), (Port::Down, Some(400)));
        assert_eq!((scenario.calls[0].device, scenario.calls[0].trigger.nth), (Some(1), 2));
        assert_eq!(scenario.events[2].start, Start::After(Duration::from_millis(2010)));
        assert_eq!(scenario.paths[0].from, Some(End::Device(0)));
    }

    #[test]
    fn ports_have_a_state_each_or_one_for_all() {
        let check = |text: &str, expected: &[Port]| {
            let scenario = Scenario::read("f", &format!("[[device]]\n{text}")).expect(text);
            assert_eq!(scenario.devices[0].ports, expected, "{text}");
        };
        check("", &[Port::Active]);
        check("port = \"down\"", &[Port::Down]);
        check("ports = 2", &[Port::Active; 2]);
        check("ports = 2\nport = \"init\"", &[Port::Init; 2]);
        check("ports = 2\nport = [\"active\", \"down\"]", &[Port::Active, Port::Down]);
    }

    #[test]
    fn no_text_is_too_strange() {
        let words = [
            "[[call]]\n",
            "nth",
            "=",
            "\"",
            "[",
            "]]",
            "1e9",
            "\n",
            "ü",
            "[[event]]\n",
            "do=\"port-down\"\n",
        ];
        let mut rng = highwire_stdx::Rng::new(3);
        for _ in 0..5_000 {
            let text: String = (0..rng.below(12)).map(|_| *rng.pick(&words)).collect();
            if let Err(error) = Scenario::read("f", &text) {
                assert!(error.line >= 1 && !error.to_string().is_empty());
            }
        }
    }
}
