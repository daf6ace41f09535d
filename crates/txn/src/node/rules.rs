//! Rules that hold of a node between any two calls. The simulator checks them after every event.
//!
//! [`Node::read_at_home`] rests on both: it asks only whether the node is open and has its leases.

use super::Node;

impl Node {
    /// A rule that does not hold, or `None`.
    pub(crate) fn broken_rule(&self) -> Option<&'static str> {
        if self.is_open() && self.is_restarted {
            // Only a manager opens a node, and a restarted node answers no manager before it has adopted.
            return Some("it is open in a configuration that it has not adopted in this life");
        }
        if self.is_open() && self.after(false) > 0 {
            // A configuration opens when the disks of all its members have it: the answer to `Adopt` waits for the disk, and the
            // manager waits for its own.
            return Some("it is open, and its disk does not have its life or configuration");
        }
        None
    }
}
