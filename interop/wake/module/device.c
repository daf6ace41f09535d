// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * FastWake's first design in the kernel: a dispatcher that has found a thread's event gives its core to that thread itself.
 *
 * From user space this takes four system calls and the scheduler's good will: the dispatcher wakes and then
 * sleeps or makes way, the thread wakes the dispatcher and then sleeps. Here each side is one call. The
 * calling thread is off the core before the other is chosen, and yield_to() tells the scheduler which thread
 * is next, in case others want the core as well.
 *
 * No wake-up is lost: posts, the sleeper of a slot and the dispatcher that has given its core away are read
 * and written under the group's lock, and a thread that is about to sleep has said so in its state before it
 * releases the lock.
 */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/limits.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "channels.h"
#include "highwire_wake.h"

struct slot {
	u64 posts;
	/* The thread that waits here: it may run already, with its post yet to be taken. */
	struct task_struct *waiter;
	/* The thread has been woken since it went to sleep. */
	bool is_called;
};

struct group {
	spinlock_t lock;
	struct slot *slots;
	u32 slot_count;
	bool is_closed;
	/* The dispatcher that has given its core away, until it is called back. */
	struct task_struct *parked;
	struct hww_counts counts;
};

/* Leaves the core, to `next` if the scheduler allows it. The caller has set its state. */
static void leave_core_to(struct task_struct *next)
{
	/* A positive result has called schedule() already. */
	if (!next || yield_to(next, true) <= 0)
		schedule();
}

/* Calls the parked dispatcher back. The lock is held. Returns it with a reference, or NULL. */
static struct task_struct *call_back(struct group *group)
{
	struct task_struct *parked = group->parked;

	group->parked = NULL;
	if (parked) {
		get_task_struct(parked);
		wake_up_process(parked);
	}
	return parked;
}

static long do_wait(struct group *group, struct slot *slot)
{
	struct task_struct *parked;
	long result = 0;

	spin_lock(&group->lock);
	if (slot->waiter) {
		spin_unlock(&group->lock);
		return -EBUSY;
	}
	slot->waiter = current;
	while (!slot->posts) {
		if (group->is_closed)
			result = -ESHUTDOWN;
		else if (signal_pending(current))
			result = -EINTR;
		if (result)
			break;
		group->counts.sleeps++;
		slot->is_called = false;
		set_current_state(TASK_INTERRUPTIBLE);
		parked = call_back(group);
		spin_unlock(&group->lock);
		leave_core_to(parked);
		__set_current_state(TASK_RUNNING);
		if (parked)
			put_task_struct(parked);
		spin_lock(&group->lock);
	}
	if (slot->posts) {
		result = min_t(u64, slot->posts, INT_MAX);
		slot->posts -= result;
		group->counts.taken += result;
	}
	slot->waiter = NULL;
	spin_unlock(&group->lock);
	return result;
}

/*
 * Counts a post and wakes the thread that sleeps there. The lock is held. Returns it with a reference, or
 * NULL.
 */
static struct task_struct *post(struct group *group, struct slot *slot)
{
	struct task_struct *waiter = slot->waiter;

	slot->posts++;
	group->counts.posts++;
	if (!waiter || slot->is_called)
		return NULL;
	slot->is_called = true;
	get_task_struct(waiter);
	wake_up_process(waiter);
	return waiter;
}

static long do_post(struct group *group, struct slot *slot)
{
	struct task_struct *waiter;

	spin_lock(&group->lock);
	waiter = post(group, slot);
	spin_unlock(&group->lock);
	if (!waiter)
		return 0;
	put_task_struct(waiter);
	return 1;
}

static long do_switch(struct group *group, struct slot *slot, u32 patience_us)
{
	struct hrtimer_sleeper timer;
	struct task_struct *waiter;
	long result = HWW_RETURNED;

	/* Started under the lock, so that only the switch lies between the wake-up and the switch. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup_sleeper_on_stack(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
#else
	hrtimer_init_sleeper_on_stack(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
#endif
	hrtimer_set_expires(&timer.timer, ns_to_ktime((u64)patience_us * NSEC_PER_USEC));

	spin_lock(&group->lock);
	/*
	 * Before the wake-up: a woken thread must find which dispatcher to call back. A second dispatcher keeps
	 * its core.
	 */
	if (!slot->waiter || slot->is_called || group->parked) {
		waiter = post(group, slot);
		spin_unlock(&group->lock);
		if (waiter)
			put_task_struct(waiter);
		destroy_hrtimer_on_stack(&timer.timer);
		return waiter ? HWW_RETURNED : HWW_NOBODY;
	}
	group->parked = current;
	group->counts.switches++;
	set_current_state(TASK_INTERRUPTIBLE);
	hrtimer_sleeper_start_expires(&timer, HRTIMER_MODE_REL);
	waiter = post(group, slot);
	spin_unlock(&group->lock);

	leave_core_to(waiter);
	__set_current_state(TASK_RUNNING);

	hrtimer_cancel(&timer.timer);
	destroy_hrtimer_on_stack(&timer.timer);
	put_task_struct(waiter);
	spin_lock(&group->lock);
	/* No thread has called: the patience was over, or a signal came. */
	if (group->parked == current) {
		group->parked = NULL;
		group->counts.late++;
		result = HWW_LATE;
	}
	spin_unlock(&group->lock);
	return result;
}

static long make_slots(struct group *group, unsigned long count)
{
	struct slot *slots;

	if (!count || count > HWW_SLOTS_MAX)
		return -EINVAL;
	slots = kvcalloc(count, sizeof(*slots), GFP_KERNEL_ACCOUNT);
	if (!slots)
		return -ENOMEM;
	spin_lock(&group->lock);
	if (group->slots) {
		spin_unlock(&group->lock);
		kvfree(slots);
		return -EBUSY;
	}
	/* The count is read without the lock: it comes last. */
	group->slots = slots;
	smp_store_release(&group->slot_count, (u32)count);
	spin_unlock(&group->lock);
	return 0;
}

static long close_group(struct group *group)
{
	u32 number;

	spin_lock(&group->lock);
	group->is_closed = true;
	for (number = 0; number < group->slot_count; number++)
		if (group->slots[number].waiter)
			wake_up_process(group->slots[number].waiter);
	if (group->parked) {
		wake_up_process(group->parked);
		group->parked = NULL;
	}
	spin_unlock(&group->lock);
	return 0;
}

static long copy_counts(struct group *group, void __user *to)
{
	struct hww_counts counts;

	spin_lock(&group->lock);
	counts = group->counts;
	spin_unlock(&group->lock);
	return copy_to_user(to, &counts, sizeof(counts)) ? -EFAULT : 0;
}

static long on_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	struct group *group = file->private_data;
	u32 number = (u32)arg;
	u32 patience_us = (u64)arg >> 32;
	u32 slot_count = smp_load_acquire(&group->slot_count);

	switch (request) {
	case HWW_SLOTS:
		return make_slots(group, arg);
	case HWW_CLOSE:
		return arg ? -EINVAL : close_group(group);
	case HWW_COUNTS:
		return copy_counts(group, (void __user *)arg);
	case HWW_WAIT:
	case HWW_SWITCH:
	case HWW_POST:
		break;
	default:
		return -ENOTTY;
	}
	if (!slot_count)
		return -ENXIO;
	if (number >= slot_count)
		return -EINVAL;
	if (request == HWW_SWITCH) {
		if (patience_us > HWW_PATIENCE_US_MAX)
			return -EINVAL;
		return do_switch(group, &group->slots[number], patience_us);
	}
	if (patience_us)
		return -EINVAL;
	return request == HWW_WAIT ? do_wait(group, &group->slots[number]) : do_post(group, &group->slots[number]);
}

static int on_open(struct inode *inode, struct file *file)
{
	struct group *group = kzalloc(sizeof(*group), GFP_KERNEL_ACCOUNT);

	if (!group)
		return -ENOMEM;
	spin_lock_init(&group->lock);
	file->private_data = group;
	return nonseekable_open(inode, file);
}

/* Comes after the last call: a thread that sleeps in one holds the file, and the file holds the module. */
static int on_release(struct inode *inode, struct file *file)
{
	struct group *group = file->private_data;

	kvfree(group->slots);
	kfree(group);
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = on_open,
	.release = on_release,
	.unlocked_ioctl = on_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "highwire-wake",
	.fops = &operations,
	.mode = 0600,
};

static int __init begin(void)
{
	int error = channels_begin();

	if (error)
		return error;
	error = misc_register(&device);
	if (error)
		channels_end();
	return error;
}

static void __exit end(void)
{
	misc_deregister(&device);
	channels_end();
}

module_init(begin);
module_exit(end);

MODULE_DESCRIPTION("A dispatcher gives its core to the thread that it wakes");
MODULE_LICENSE("Dual MIT/GPL");
