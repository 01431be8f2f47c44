// Makes a process see CORES cores, so that its plans have as many partitions.
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set) {
    const char *cores = getenv("CORES");
    int count = cores ? atoi(cores) : 1;
    (void)process;
    memset(set, 0, size);
    for (int core = 0; core < count; core++) CPU_SET_S(core, size, set);
    return 0;
}
