#!/bin/busybox sh
# First program of the guest: makes the host's / the root, read-only with a layer of memory over it,
# runs the command that lies in the shared folder, leaves its output and exit code there, powers off.
/bin/busybox --install -s /bin
export PATH=/bin
give_up() { echo "GUEST-FAILED: $1"; poweroff -f; }

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do
  insmod "/modules/$module" || echo "insmod $module failed"
done

share=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "$share,cache=loose,ro" root /lower || give_up "no 9p root"
mount -t tmpfs -o mode=755 tmpfs /layer
mkdir -p /layer/upper /layer/work
mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work overlay /new ||
  give_up "no overlay"

for tree in proc sys dev; do mount --move "/$tree" "/new/$tree"; done
mount -t tmpfs tmpfs /new/run
mkdir -p /new/dev/pts /new/dev/shm /new/run/out
mount -t devpts devpts /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
mount -t cgroup2 none /new/sys/fs/cgroup
mount -t bpf bpf /new/sys/fs/bpf
mount -t debugfs none /new/sys/kernel/debug
mount -t tracefs none /new/sys/kernel/tracing
mount -t 9p -o "$share,access=any" out /new/run/out || give_up "no folder for results"
ln -sf /proc/self/fd /new/dev/fd
ip link set lo up
hostname guest
cut -d' ' -f1 /new/proc/uptime >/new/run/out/ready

setsid chroot /new /bin/bash /run/out/run
dmesg >/new/run/out/dmesg
sync
poweroff -f
