/* Eight cards as programs look for them: in the list, by their ports, and by the files from which NCCL, UCX and Mooncake learn where they are.
 * scenario: eight-nics
 */
#include "rig.h"
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

int main(void)
{
    static const char *names[] = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "bnxt_re0"};
    static const int numa[] = {0, 0, 0, 0, 1, 1, 1, 1};
    static const int gigabits[] = {400, 400, 100, 100, 100, 100, 100, 25};
    static const enum ibv_port_state states[] = {4, 4, 4, 4, 4, IBV_PORT_DOWN, IBV_PORT_INIT, 4};
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK_EQUAL(count, 8);
    char buses[8][16];
    union ibv_gid gids[8];
    uint64_t guids[8];
    for (int i = 0; i < count; i++) {
        CHECK(!strcmp(ibv_get_device_name(list[i]), names[i]));
        CHECK_EQUAL(ibv_get_device_index(list[i]), i);
        struct ibv_context *context = ibv_open_device(list[i]);
        CHECK(context);
        struct ibv_port_attr port;
        CHECK_EQUAL(ibv_query_port(context, 1, &port), 0);
        CHECK_EQUAL(port.state, states[i]);
        int lanes = port.active_width == 1 ? 1 : port.active_width == 2 ? 4 : 8;
        int lane = port.active_speed == 4 ? 10 : port.active_speed == 32 ? 25 : port.active_speed == 64 ? 50 : 100;
        CHECK_EQUAL(lanes * lane, gigabits[i]);
        CHECK(i != 1 || port.active_mtu == IBV_MTU_1024);
        CHECK(i == 1 || port.active_mtu == IBV_MTU_4096);
        CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gids[i]), 0);
        struct ibv_device_attr attr;
        CHECK_EQUAL(ibv_query_device(context, &attr), 0);
        guids[i] = attr.node_guid;
        CHECK_EQUAL(ibv_get_device_guid(list[i]), guids[i]);

        /* As NCCL: the real path of `device` ends in a PCI address, whose bus leads to the rest. */
        char path[PATH_MAX], real[PATH_MAX], text[100];
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", names[i]);
        CHECK(realpath(path, real));
        const char *bdf = strrchr(real, '/') + 1;
        unsigned domain, bus, device, function;
        CHECK_EQUAL(sscanf(bdf, "%4x:%2x:%2x.%1x", &domain, &bus, &device, &function), 4);
        snprintf(buses[i], sizeof buses[i], "%.7s", bdf);
        snprintf(path, sizeof path, "/sys/class/pci_bus/%.7s/../../%s/numa_node", bdf, bdf);
        snprintf(text, sizeof text, "%d", numa[i]);
        rig_check_file(path, text);
        snprintf(path, sizeof path, "/sys/class/pci_bus/%.7s/../../%s/class", bdf, bdf);
        rig_check_file(path, "0x020000");
        snprintf(path, sizeof path, "/sys/class/pci_bus/%.7s/../../%s/../max_link_width", bdf, bdf);
        rig_check_file(path, "16");
        /* As libpci, which ends a program that finds no such files. */
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/resource", bdf);
        rig_check_file(path, "0x0000000000000000 0x0000000000000000 0x0000000000000000");
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/irq", bdf);
        rig_check_file(path, "0");
        struct stat config;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/config", bdf);
        CHECK_EQUAL(stat(path, &config), 0);
        CHECK_EQUAL(config.st_size, 256);
        /* As UCX. */
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bdf);
        rig_check_file(path, text);
        CHECK(realpath(list[i]->ibdev_path, real));
        *strrchr(real, '/') = 0;
        *strrchr(real, '/') = 0;
        snprintf(path, sizeof path, "%.4000s/current_link_speed", real);
        rig_check_file(path, "32.0 GT/s PCIe");
        /* As Mooncake: from the device's folder upwards. */
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/../..", names[i]);
        CHECK(realpath(path, real));
        CHECK(!strcmp(strrchr(real, '/') + 1, bdf));
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/../../numa_node", names[i]);
        rig_check_file(path, text);
        /* As gloo. */
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/infiniband", bdf);
        DIR *folder = opendir(path);
        CHECK(folder);
        int found = 0;
        for (struct dirent *entry; (entry = readdir(folder));)
            found |= !strcmp(entry->d_name, names[i]);
        closedir(folder);
        CHECK(found);

        snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/state", names[i]);
        rig_check_file(path, states[i] == 4 ? "4: ACTIVE" : states[i] == 1 ? "1: DOWN" : "2: INIT");
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/rate", names[i]);
        rig_read_file(path, text, sizeof text);
        CHECK_EQUAL(atoi(text), gigabits[i]);
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/gids/0", names[i]);
        rig_read_file(path, text, sizeof text);
        char gid[64];
        const uint8_t *raw = gids[i].raw;
        snprintf(gid, sizeof gid, "%02x%02x:%02x%02x", raw[12], raw[13], raw[14], raw[15]);
        CHECK(!strcmp(text + strlen(text) - 9, gid));
        struct stat node;
        snprintf(path, sizeof path, "/dev/infiniband/%s", list[i]->dev_name);
        CHECK_EQUAL(stat(path, &node), 0);
        CHECK(S_ISCHR(node.st_mode));
        CHECK_EQUAL(ibv_close_device(context), 0);
    }
    /* Each has a bus, an address and a GUID of its own. */
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            CHECK(strcmp(buses[i], buses[j]) && memcmp(&gids[i], &gids[j], 16) && guids[i] != guids[j]);
    ibv_free_device_list(list);
    return 0;
}
