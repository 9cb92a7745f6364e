#!/bin/sh
# Builds the program again and records it: record.sh STALLSCOPE. Needs root, a C compiler, and
# /opt/replay to itself: the recording holds the paths of what it was made from.
set -eu
stallscope=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p /opt/replay
cp "$here/root/opt/replay/event_loop.c" /opt/replay/
cd /opt/replay
cc -O2 -g -gdwarf-4 -fasynchronous-unwind-tables -fno-stack-protector -static -nostdlib \
    -Wl,--build-id=none -o event_loop event_loop.c
mkfifo input
exec 3<>input
nice -n -20 env -i /opt/replay/event_loop <input 3>&- &
target=$!
STALLSCOPE_RECORD_EVENTS=$here/events "$stallscope" profile --pid "$target" --duration 30s \
    --threshold 10ms --stack-bytes 4KiB --boundaries exact 3>&- &
profiler=$!
# Until it has attached.
sleep 6
for stall in s c m d; do
    printf %s "$stall" >&3
    sleep 1
done
exec 3>&-
wait "$target" "$profiler"
cp event_loop "$here/root/opt/replay/"
rm -r /opt/replay
