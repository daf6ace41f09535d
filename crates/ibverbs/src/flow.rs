//! Steering rules of raw packet queue pairs, and counters of their matches.

use crate::abi::*;
use crate::boundary::{answer, c_ops, code, input};
use crate::context::Context;
use crate::qp::Qp;
use crate::registry::{self, Object, Use, Used, Users};
use highwire_host::{FlowCounts, SteerError};
use highwire_verbs::{FlowError, FlowKind, FlowRule, FlowSpec, Service};
use highwire_wire::LayerKind;
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A steering rule.
#[repr(C)]
pub(crate) struct Flow {
    c: UnsafeCell<ibv_flow>,
    host: highwire_host::Flow,
    counters: Option<Use<Counters>>,
    _qp: Use<Qp>,
}

// SAFETY: this side only writes `c` when it makes it.
unsafe impl Send for Flow {}
// SAFETY: as above.
unsafe impl Sync for Flow {}

impl Object for Flow {
    type C = ibv_flow;
    fn as_c(&self) -> *mut ibv_flow {
        self.c.get()
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if let Some(counters) = &self.counters {
            counters.keep(self.host.counts());
        }
    }
}

/// The matches of all rules that name this object.
#[repr(C)]
pub(crate) struct Counters {
    c: UnsafeCell<ibv_counters>,
    inside: Mutex<Counted>,
    users: Users,
    _context: Use<Context>,
}

#[derive(Default)]
struct Counted {
    /// The counted figures, and their places in the array that a reader gets.
    points: Vec<(ibv_counter_description, u32)>,
    flows: Vec<Weak<Flow>>,
    /// Matches of rules that have gone.
    before: FlowCounts,
}

// SAFETY: as for `Flow`.
unsafe impl Send for Counters {}
// SAFETY: as for `Flow`.
unsafe impl Sync for Counters {}

impl Object for Counters {
    type C = ibv_counters;
    fn as_c(&self) -> *mut ibv_counters {
        self.c.get()
    }
}

impl Used for Counters {
    fn users(&self) -> &Users {
        &self.users
    }
}

fn sum(one: FlowCounts, other: FlowCounts) -> FlowCounts {
    FlowCounts { packets: one.packets + other.packets, bytes: one.bytes + other.bytes }
}

impl Counters {
    fn lock(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rule ends.
    fn keep(&self, counts: FlowCounts) {
        let mut inside = self.lock();
        inside.before = sum(inside.before, counts);
    }

    fn total(&self) -> FlowCounts {
        let mut inside = self.lock();
        inside.flows.retain(|flow| flow.strong_count() > 0);
        let flows: Vec<_> = inside.flows.iter().filter_map(Weak::upgrade).collect();
        let before = inside.before;
        // Dropping the last holder of a rule adds its counts here, and so needs this lock.
        drop(inside);
        flows.iter().map(|flow| flow.host.counts()).fold(before, sum)
    }
}

/// A specification's layer and size, and the place and length of its value. The mask follows the value.
fn layout_of(kind: ibv_flow_spec_type) -> Result<(LayerKind, usize, usize, usize), c_int> {
    macro_rules! layout {
        ($layer:ident, $spec:ident, $bytes:expr) => {
            (LayerKind::$layer, size_of::<$spec>(), offset_of!($spec, val), $bytes)
        };
    }
    Ok(match kind {
        IBV_FLOW_SPEC_ETH => layout!(Ethernet, ibv_flow_spec_eth, 16),
        IBV_FLOW_SPEC_IPV4 => layout!(Ipv4, ibv_flow_spec_ipv4, 8),
        IBV_FLOW_SPEC_IPV4_EXT => layout!(Ipv4, ibv_flow_spec_ipv4_ext, 12),
        IBV_FLOW_SPEC_IPV6 => layout!(Ipv6, ibv_flow_spec_ipv6, 39),
        IBV_FLOW_SPEC_ESP => layout!(Esp, ibv_flow_spec_esp, 8),
        IBV_FLOW_SPEC_TCP => layout!(Tcp, ibv_flow_spec_tcp_udp, 4),
        IBV_FLOW_SPEC_UDP => layout!(Udp, ibv_flow_spec_tcp_udp, 4),
        IBV_FLOW_SPEC_VXLAN_TUNNEL => layout!(Vxlan, ibv_flow_spec_tunnel, 4),
        IBV_FLOW_SPEC_GRE => layout!(Gre, ibv_flow_spec_gre, 8),
        IBV_FLOW_SPEC_MPLS | IBV_FLOW_SPEC_ACTION_TAG | IBV_FLOW_SPEC_ACTION_HANDLE => {
            return Err(libc::EOPNOTSUPP);
        }
        _ => return Err(libc::EINVAL),
    })
}

/// Reads the specifications behind `attr`.
#[derive(Default)]
struct Wanted {
    specs: Vec<FlowSpec>,
    drops: bool,
    counters: Option<Use<Counters>>,
}

impl Wanted {
    /// # Safety
    /// `attr` points to a rule with as many specifications behind it as it says.
    unsafe fn read(attr: *const ibv_flow_attr) -> Result<Wanted, c_int> {
        let mut wanted = Wanted::default();
        // SAFETY: the caller's promise. The sizes that programs write into `attr` differ, so nothing relies on that one.
        let (count, mut at) = unsafe { ((*attr).num_of_specs, attr.add(1).cast::<u8>()) };
        if usize::from(count) > FlowRule::SPECS_MAX {
            return Err(libc::EINVAL);
        }
        for _ in 0..count {
            // SAFETY: the caller's promise: there is another specification here.
            let header = unsafe { at.cast::<SpecHeader>().read_unaligned() };
            let size = usize::from(header.size);
            if size < size_of::<SpecHeader>() {
                return Err(libc::EINVAL);
            }
            // SAFETY: it is as long as it says.
            wanted.add(header.type_, unsafe { std::slice::from_raw_parts(at, size) })?;
            // SAFETY: as above.
            at = unsafe { at.add(size) };
        }
        Ok(wanted)
    }

    fn add(&mut self, kind: ibv_flow_spec_type, bytes: &[u8]) -> Result<(), c_int> {
        match kind {
            IBV_FLOW_SPEC_ACTION_DROP => self.drops = true,
            IBV_FLOW_SPEC_ACTION_COUNT => {
                if bytes.len() != size_of::<ibv_flow_spec_counter_action>() || self.counters.is_some() {
                    return Err(libc::EINVAL);
                }
                let at = offset_of!(ibv_flow_spec_counter_action, counters);
                let pointer = *bytes[at..].first_chunk().ok_or(libc::EINVAL)?;
                let pointer = usize::from_ne_bytes(pointer) as *const ibv_counters;
                self.counters = Some(Use::<Counters>::find(pointer)?);
            }
            _ => {
                let is_inner = kind & IBV_FLOW_SPEC_INNER != 0;
                let (layer, size, at, length) = layout_of(kind & !IBV_FLOW_SPEC_INNER)?;
                if bytes.len() != size {
                    return Err(libc::EINVAL);
                }
                if is_inner && matches!(layer, LayerKind::Vxlan | LayerKind::Gre) {
                    return Err(libc::EOPNOTSUPP);
                }
                let (value, mask) = bytes[at..].split_at((size - at) / 2);
                self.specs.push(FlowSpec::new(layer, is_inner, &value[..length], &mask[..length]));
            }
        }
        Ok(())
    }
}

fn kind_of(kind: ibv_flow_attr_type) -> Result<FlowKind, c_int> {
    Ok(match kind {
        IBV_FLOW_ATTR_NORMAL => FlowKind::Normal,
        IBV_FLOW_ATTR_ALL_DEFAULT => FlowKind::AllDefault,
        IBV_FLOW_ATTR_MC_DEFAULT => FlowKind::MulticastDefault,
        IBV_FLOW_ATTR_SNIFFER => FlowKind::Sniffer,
        _ => return Err(libc::EINVAL),
    })
}

fn errno_of(error: &SteerError) -> c_int {
    crate::refusal::because(|| format!("not steered: {error}"));
    match error {
        SteerError::Refused(FlowError::NotRaw) => libc::EOPNOTSUPP,
        SteerError::Join(error) => error.raw_os_error().unwrap_or(libc::ENOMEM),
        _ => libc::EINVAL,
    }
}

c_ops! {
    fn create_flow(qp: *mut ibv_qp, attr: *mut ibv_flow_attr) -> *mut ibv_flow {
        let run = || {
            let qp = Use::<Qp>::find(qp)?;
            let asked = unsafe { input(attr)? };
            let kind = kind_of(asked.type_)?;
            let known = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
            crate::faults::check_port(qp.context.index, u32::from(asked.port))?;
            if asked.comp_mask != 0 || asked.flags & !known != 0 {
                return Err(libc::EINVAL);
            }
            // Datagrams are steered by Q_Keys and groups, not by rules.
            if asked.flags & IBV_FLOW_ATTR_FLAGS_EGRESS != 0 || qp.service != Service::Raw {
                return Err(libc::EOPNOTSUPP);
            }
            let Wanted { specs, drops, counters } = unsafe { Wanted::read(attr)? };
            let passes_on = asked.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP != 0;
            let rule = FlowRule { kind, priority: asked.priority, passes_on, drops, specs };
            let host = qp.host()?.steer(rule).map_err(|error| errno_of(&error))?;
            let c = ibv_flow { comp_mask: 0, context: qp.context.as_c(), handle: qp.host()?.qpn().value() };
            let flow = Arc::new(Flow { c: UnsafeCell::new(c), host, counters, _qp: qp });
            if let Some(counters) = &flow.counters {
                counters.lock().flows.push(Arc::downgrade(&flow));
            }
            registry::publish(flow)
        };
        answer(run())
    }

    fn destroy_flow(flow: *mut ibv_flow) -> c_int {
        let run = || {
            registry::find::<Flow>(flow)?;
            registry::withdraw::<Flow>(flow);
            Ok(())
        };
        code(run())
    }

    fn create_counters(context: *mut ibv_context, init: *mut ibv_counters_init_attr) -> *mut ibv_counters {
        let run = || {
            let context = Use::<Context>::find(context)?;
            if unsafe { input(init)? }.comp_mask != 0 {
                return Err(libc::EINVAL);
            }
            let c = UnsafeCell::new(ibv_counters { context: context.as_c() });
            let (inside, users) = (Mutex::default(), Users::default());
            registry::publish(Arc::new(Counters { c, inside, users, _context: context }))
        };
        answer(run())
    }

    fn destroy_counters(counters: *mut ibv_counters) -> c_int {
        let run = || {
            registry::find::<Counters>(counters)?.users.none()?;
            registry::withdraw::<Counters>(counters);
            Ok(())
        };
        code(run())
    }

    /// Sets which figures are counted, for all rules that will name the object, as on cards that have this.
    fn attach_counters_point_flow(
        counters: *mut ibv_counters,
        attr: *mut ibv_counter_attach_attr,
        flow: *mut ibv_flow,
    ) -> c_int {
        let run = || {
            let counters = registry::find::<Counters>(counters)?;
            let asked = unsafe { input(attr)? };
            if asked.comp_mask != 0 || asked.counter_desc > IBV_COUNTER_BYTES {
                return Err(libc::EINVAL);
            }
            if !flow.is_null() {
                return Err(libc::EOPNOTSUPP);
            }
            counters.users.none()?;
            counters.lock().points.push((asked.counter_desc, asked.index));
            Ok(())
        };
        code(run())
    }

    fn read_counters(counters: *mut ibv_counters, values: *mut u64, count: u32, flags: u32) -> c_int {
        let run = || {
            let counters = registry::find::<Counters>(counters)?;
            let points = counters.lock().points.clone();
            let is_within = points.iter().all(|(_, index)| *index < count);
            if values.is_null() || !is_within || flags & !IBV_READ_COUNTERS_ATTR_PREFER_CACHED != 0 {
                return Err(libc::EINVAL);
            }
            let total = counters.total();
            for (what, index) in points {
                let value = if what == IBV_COUNTER_BYTES { total.bytes } else { total.packets };
                unsafe { values.add(index as usize).write(value) };
            }
            Ok(())
        };
        code(run())
    }
}
