// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The kernel's own completion channels, for programs over stock libibverbs: a thread that is about to sleep in a read of such a channel polls it
 * first, for a bounded time. An event that comes meanwhile takes no sleep, no wake-up and no interrupt of another core.
 *
 * The poll is a probe at the entry of ib_uverbs' own read, which then does what it always did: it finds the event that the poll has seen, or
 * sleeps. So nothing of this module is left on the stack of a thread that sleeps, and the module can be unloaded at any time.
 *
 * A probe runs with preemption off. Therefore the poll ends as soon as the scheduler wants the core, or another thread is runnable on it: where
 * both ends of a conversation share a core, neither polls.
 */
#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>

#include "channels.h"

#define POLL_US_MAX 1000
#define READ_OF_CHANNELS "ib_uverbs:ib_uverbs_comp_event_read"

static unsigned int channel_poll_us;
module_param(channel_poll_us, uint, 0444);
MODULE_PARM_DESC(channel_poll_us, "microseconds that a reader of a completion channel polls before it sleeps; 0: not at all");

/* How often a reader has polled, and how often it then had its event. */
static atomic_t polls = ATOMIC_INIT(0);
static atomic_t hits = ATOMIC_INIT(0);

static int show(char *buffer, const struct kernel_param *parameter)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(parameter->arg));
}

static const struct kernel_param_ops count_ops = { .get = show };

module_param_cb(channel_polls, &count_ops, &polls, 0444);
module_param_cb(channel_hits, &count_ops, &hits, 0444);

/* The channel's own answer to poll(2); it sleeps nowhere, and without a table it waits for nothing. */
static bool has_event(struct file *channel)
{
	return channel->f_op->poll(channel, NULL) & EPOLLIN;
}

static int before_read(struct kprobe *probe, struct pt_regs *regs)
{
	struct file *channel = (struct file *)regs_get_kernel_argument(regs, 0);
	u64 end;

	if ((channel->f_flags & O_NONBLOCK) || has_event(channel))
		return 0;
	atomic_inc(&polls);
	end = ktime_get_mono_fast_ns() + channel_poll_us * (u64)NSEC_PER_USEC;
	while (!need_resched() && single_task_running() && !signal_pending(current)) {
		if (has_event(channel)) {
			atomic_inc(&hits);
			break;
		}
		if (ktime_get_mono_fast_ns() >= end)
			break;
		cpu_relax();
	}
	return 0;
}

static struct kprobe read_probe = { .symbol_name = READ_OF_CHANNELS, .pre_handler = before_read };

int channels_begin(void)
{
	if (channel_poll_us > POLL_US_MAX)
		return -EINVAL;
	return channel_poll_us ? register_kprobe(&read_probe) : 0;
}

void channels_end(void)
{
	if (channel_poll_us)
		unregister_kprobe(&read_probe);
}
