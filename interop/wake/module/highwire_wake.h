/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * /dev/highwire-wake: a dispatcher gives its core to the thread that it wakes, in one system call.
 *
 * An open file is a group: a dispatcher and the threads that wait for it, each at a slot of its own. All arguments travel in the
 * ioctl's own argument, so that no call but HWW_COUNTS touches user memory.
 *
 *   HWW_SLOTS   slots                   once per group, 1 to HWW_SLOTS_MAX; EBUSY the second time
 *   HWW_WAIT    slot                    sleeps until the slot is posted to; returns how often it was (at most INT_MAX).
 *                                       EBUSY: another thread waits there. EINTR: a signal. ESHUTDOWN: the group is closed
 *   HWW_SWITCH  slot | patience << 32   posts; if a thread sleeps there, wakes it and sleeps itself, until a thread of the group
 *                                       waits again, or `patience` microseconds are over. Returns HWW_NOBODY, HWW_RETURNED or HWW_LATE
 *   HWW_POST    slot                    posts and wakes, and goes on; for other cores. Returns 1 if a thread slept there, else 0
 *   HWW_CLOSE   0                       ends every wait, of now and of later, with ESHUTDOWN
 *   HWW_COUNTS  struct hww_counts *     what has happened in the group
 *
 * EINVAL: a slot that is not there, a patience above HWW_PATIENCE_US_MAX, bits that mean nothing. ENXIO: no slots yet. ENOTTY: another request.
 */
#ifndef HIGHWIRE_WAKE_H
#define HIGHWIRE_WAKE_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define HWW_SLOTS_MAX 4096
#define HWW_PATIENCE_US_MAX 1000000

/* No thread slept at the slot: the post stays there, and the dispatcher has kept its core. */
#define HWW_NOBODY 0
/* A thread has waited again and given the core back. */
#define HWW_RETURNED 1
/* The patience was over, or a signal came, before a thread waited again. */
#define HWW_LATE 2

struct hww_counts {
	__u64 posts;    /* by HWW_SWITCH and HWW_POST */
	__u64 taken;    /* posts that a HWW_WAIT has returned */
	__u64 sleeps;   /* times that a HWW_WAIT slept */
	__u64 switches; /* times that a dispatcher gave its core away */
	__u64 late;     /* of these, how often no thread gave it back in time */
};

#define HWW_SLOTS _IO('H', 0x81)
#define HWW_WAIT _IO('H', 0x82)
#define HWW_SWITCH _IO('H', 0x83)
#define HWW_POST _IO('H', 0x84)
#define HWW_CLOSE _IO('H', 0x85)
#define HWW_COUNTS _IOR('H', 0x86, struct hww_counts)

#endif
