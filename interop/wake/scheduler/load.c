/*
 * Loads the scheduler that lies beside this program as PROGRAM.bpf.o, and unloads it when standard input ends. It has to be unloaded: the kernel
 * keeps a scheduler that was attached without a link of its own, which libbpf knows only in releases newer than some that are about.
 */
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(void)
{
	char path[PATH_MAX + sizeof ".bpf.o"];
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
	if (length < 0)
		return fail("/proc/self/exe");
	strcpy(path + length, ".bpf.o");

	struct bpf_object *object = bpf_object__open_file(path, NULL);
	if (!object)
		return fail(path);
	struct bpf_program *init = bpf_object__find_program_by_name(object, "init");
	if (!init || bpf_program__set_flags(init, bpf_program__flags(init) | BPF_F_SLEEPABLE))
		return fail("init");
	if (bpf_object__load(object))
		return fail("the kernel refuses the scheduler");
	struct bpf_map *operations = bpf_object__find_map_by_name(object, "highwire_ops");
	struct bpf_link *link = operations ? bpf_map__attach_struct_ops(operations) : NULL;
	if (!link)
		return fail("the kernel does not take the scheduler");
	char byte;
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	if (bpf_link__destroy(link))
		return fail("the kernel keeps the scheduler");
	return 0;
}
