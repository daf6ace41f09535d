// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A sched_ext scheduler that knows waiters and dispatchers.
 *
 * A dispatcher is a thread that runs only when nothing else does (SCHED_IDLE), as highwire-wake's are. A thread that is woken has an event, and
 * takes the core where it slept, for a short turn, from the thread that computes there; where a dispatcher of that very core has found the event, it is the next
 * to run there. A thread that has used up its turn queues with all others, so that one that computes keeps no other from the core.
 * Dispatchers run when that queue is empty.
 *
 * Declared here is what of the kernel's types is used; libbpf finds the rest in the running kernel.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

#define POLICY_IDLE 5
/* The kernel's numbers, part of what it promises to schedulers. */
#define DSQ_GLOBAL (1ULL << 63 | 1)
#define DSQ_LOCAL (1ULL << 63 | 2)
#define ENQ_WAKEUP 1ULL
#define ENQ_HEAD (1ULL << 16)
#define ENQ_PREEMPT (1ULL << 32)

/* A waiter takes its event and answers in microseconds. */
#define WAITER_TURN_NS (1000 * 1000)
/* A thread that is woken takes the core at once; a dispatcher's turn ends for those that queue. */
#define DISPATCHER_TURN_NS (1000 * 1000)
#define OTHERS_TURN_NS (4 * 1000 * 1000)
/* Dispatchers wait for a core here, behind everything else. */
#define DISPATCHERS 1

struct task_struct {
	unsigned int policy;
} __attribute__((preserve_access_index));

struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags);
	void (*enqueue)(struct task_struct *p, __u64 enq_flags);
	void (*dispatch)(__s32 cpu, struct task_struct *prev);
	__s32 (*init)(void);
	__u32 timeout_ms;
	char name[128];
};

extern void scx_bpf_dsq_insert(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 enq_flags) __ksym;
extern bool scx_bpf_dsq_move_to_local(__u64 dsq_id) __ksym;
extern __s32 scx_bpf_select_cpu_dfl(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags, bool *is_idle) __ksym;
extern __s32 scx_bpf_create_dsq(__u64 dsq_id, __s32 node) __ksym;

static bool is_dispatcher(const struct task_struct *p)
{
	return p->policy == POLICY_IDLE;
}

/* Whom the dispatcher of its core wakes runs there; all others where the kernel finds that best, an idle core or the one where they slept. */
SEC("struct_ops/select_cpu")
__s32 BPF_PROG(select_cpu, struct task_struct *p, __s32 prev_cpu, __u64 wake_flags)
{
	__s32 here = bpf_get_smp_processor_id();
	bool is_idle = false;

	if (here == prev_cpu && is_dispatcher(bpf_get_current_task_btf()))
		return here;
	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
}

SEC("struct_ops/enqueue")
void BPF_PROG(enqueue, struct task_struct *p, __u64 enq_flags)
{
	if (is_dispatcher(p))
		scx_bpf_dsq_insert(p, DISPATCHERS, DISPATCHER_TURN_NS, enq_flags);
	else if (enq_flags & ENQ_WAKEUP)
		scx_bpf_dsq_insert(p, DSQ_LOCAL, WAITER_TURN_NS, enq_flags | ENQ_HEAD | ENQ_PREEMPT);
	else
		scx_bpf_dsq_insert(p, DSQ_GLOBAL, OTHERS_TURN_NS, enq_flags);
}

/* Reached only where neither the core's own queue nor the global one has a thread. */
SEC("struct_ops/dispatch")
void BPF_PROG(dispatch, __s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(DISPATCHERS);
}

/* Sleeps: the loader says so, since libbpf knows the section's usual name for that only in releases newer than some that are about. */
SEC("struct_ops/init")
__s32 BPF_PROG(init)
{
	return scx_bpf_create_dsq(DISPATCHERS, -1);
}

SEC(".struct_ops")
struct sched_ext_ops highwire_ops = {
	.select_cpu = (void *)select_cpu,
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.init = (void *)init,
	.timeout_ms = 20000,
	.name = "highwire",
};
