/* An event loop that stalls as it is told, by one byte on standard input each:
 *   s  one long sleep, in a nested function
 *   c  computes
 *   m  many short sleeps in one turn
 *   d  sleeps at the bottom of a deep recursion: its stack is larger than a small copy
 * It ends with its input.
 *
 * Freestanding, so that the recorded addresses belong to this very file and to no library. How it is
 * built and recorded stands in tests/replay/record.sh. */
#define NOINLINE __attribute__((noipa))

enum { READ = 0, NANOSLEEP = 35, EXIT_GROUP = 231, EPOLL_WAIT = 232, EPOLL_CTL = 233, EPOLL_CREATE1 = 291 };

struct timespec {
    long sec, nsec;
};
struct epoll_event {
    unsigned events;
    unsigned long data;
} __attribute__((packed));

static inline long call(long nr, long a, long b, long c, long d) {
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

static NOINLINE long wait_for_disk(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    return call(NANOSLEEP, (long)&time, 0, 0, 0);
}

static NOINLINE long load_config(void) {
    return wait_for_disk(60000) + 1;
}

static NOINLINE unsigned long hash_password(unsigned long rounds) {
    volatile unsigned long hash = 5381;
    for (unsigned long i = 0; i < rounds; i++)
        hash = hash * 33 + i;
    return hash;
}

static NOINLINE long read_rows(int count) {
    long done = 0;
    for (int i = 0; i < count; i++)
        done += wait_for_disk(200) == 0;
    return done;
}

static NOINLINE long walk_tree(int depth) {
    volatile char path[700];
    path[0] = (char)depth;
    if (depth == 0)
        return wait_for_disk(30000);
    return walk_tree(depth - 1) + path[0];
}

static NOINLINE long handle(char what) {
    switch (what) {
    case 's':
        return load_config() + 1;
    case 'c':
        return (long)hash_password(40000000) + 1;
    case 'm':
        return read_rows(100) + 1;
    case 'd':
        return walk_tree(8) + 1;
    }
    return 0;
}

static NOINLINE int run(void) {
    struct epoll_event event = {1, 0};
    int epoll = (int)call(EPOLL_CREATE1, 0, 0, 0, 0);
    char what;
    call(EPOLL_CTL, epoll, 1, 0, (long)&event);
    for (;;) {
        if (call(EPOLL_WAIT, epoll, (long)&event, 1, -1) < 1)
            continue;
        if (call(READ, 0, (long)&what, 1, 0) < 1)
            return 0;
        handle(what);
    }
}

__attribute__((used)) static void begin(void) {
    int status = run();
    for (;;)
        call(EXIT_GROUP, status, 0, 0, 0);
}

/* The outermost frame says that it has no caller, as that of a C library does. */
__asm__(".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        ".cfi_startproc\n"
        ".cfi_undefined rip\n"
        "xor %ebp, %ebp\n"
        "and $-16, %rsp\n"
        "call begin\n"
        "ud2\n"
        ".cfi_endproc\n"
        ".size _start, . - _start\n");
