"""The layers by name, as every record has them."""

USER = "user namespace"
PID = "pid namespace"
MOUNT = "mount namespace"
NETWORK = "network namespace"
IPC = "ipc namespace"
UTS = "uts namespace"
CAPABILITIES = "capabilities"
NO_NEW_PRIVILEGES = "no new privileges"
LANDLOCK = "landlock"
SECCOMP = "seccomp filter"
LIMITS = "limits"
# Only where Ratchet runs as root, and so not one of those that every machine could grant.
OWN_USER = "own user"
# Only where the machine delegates one. The second stands for one that systemd delegates when it is asked.
CGROUP, SCOPE = "cgroup", "cgroup by systemd"
# Not a layer of the sandbox, but tried with them: workspaces can use it.
OVERLAY = "overlayfs"
