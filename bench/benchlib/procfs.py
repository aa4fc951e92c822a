"""What the kernel knows of a process tree: CPU, memory, threads; and of the machine."""
import os
import re

TICKS = os.sysconf("SC_CLK_TCK")


def read(path):
    """The file's text; empty if the process has gone."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def threads(pid):
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def tree(pid):
    """The process and all its descendants."""
    pids = [pid]
    for parent in pids:
        for thread in threads(parent):
            pids += [int(child) for child in read(f"/proc/{parent}/task/{thread}/children").split()]
    return pids


def cpu_seconds(pid):
    """(user, system) of the whole tree, threads that ended included."""
    user = system = 0
    for member in tree(pid):
        fields = read(f"/proc/{member}/stat").rpartition(")")[2].split()
        if fields:
            user += int(fields[11])
            system += int(fields[12])
    return user / TICKS, system / TICKS


def cpu_by_thread(pid):
    """Seconds on a CPU of each live thread of the tree."""
    spent = {}
    for member in tree(pid):
        for thread in threads(member):
            fields = read(f"/proc/{member}/task/{thread}/schedstat").split()
            if fields:
                spent[thread] = int(fields[0]) / 1e9
    return spent


def memory_kib(pid, key="VmRSS"):
    """Sum over the tree of a line of /proc/PID/status."""
    found = (re.search(rf"^{key}:\s+(\d+) kB", read(f"/proc/{member}/status"), re.M) for member in tree(pid))
    return sum(int(match[1]) for match in found if match)


def reset_peak(pid):
    """Makes VmHWM start again at what is resident now."""
    for member in tree(pid):
        try:
            with open(f"/proc/{member}/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            pass


def machine_busy_seconds():
    """CPU time that anything on this machine has used, idle and stolen time apart."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, read("/proc/stat").split("\n")[0].split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def machine():
    """What a reader of the figures must know."""
    model = re.search(r"^model name\s*:\s*(.+)$", read("/proc/cpuinfo"), re.M)
    return {
        "cpu": model[1] if model else "unknown",
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
        "load_before": os.getloadavg()[0],
    }
