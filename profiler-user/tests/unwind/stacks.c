// Stacks of known shape for the unwinder's tests: the first argument says which.
// Built with -O2 -fomit-frame-pointer, so that only call frame information leads out.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FRAME __attribute__((noinline, noclone, noipa))

static volatile long sink;

// Tells the test that the stack has its shape, then keeps it.
FRAME void arrived(void) {
    static const char line[] = "ready\n";
    if (write(1, line, sizeof line - 1) < 0) abort();
}

FRAME void spin(void) {
    arrived();
    for (;;) sink++;
}

FRAME void wait_forever(void) {
    arrived();
    for (;;) {
        struct timespec t = {1000, 0};
        nanosleep(&t, NULL);
    }
}

// Calls through the PLT from frames that save registers; stepped instruction by instruction.
FRAME long calls(long n) {
    char text[64];
    snprintf(text, sizeof text, "%ld", n);
    long total = (long)strlen(text) + labs(n) + atol(text);
    return n > 0 ? total + calls(n - 1) : total;
}

FRAME long variable_array(long n) {
    volatile char room[n];
    memset((char *)room, (int)n, (size_t)n);
    char *more = alloca((size_t)room[0] + 1);
    more[0] = room[n - 1];
    return more[0] + calls(n % 3);
}

__attribute__((force_align_arg_pointer)) FRAME long realigned(long n, long *result) {
    volatile char aligned[64] __attribute__((aligned(64)));
    aligned[0] = (char)n;
    long value = variable_array(n + aligned[0]);
    *result = value;
    return value + aligned[0];
}

FRAME void step(void) {
    arrived();
    for (long n = 1;; n = n % 40 + 1) {
        long result;
        sink += realigned(n, &result) + result;
    }
}

FRAME void realigned_wait(long n, void (*leaf)(void)) {
    volatile char aligned[n] __attribute__((aligned(64)));
    volatile char more[64] __attribute__((aligned(64)));
    aligned[0] = more[0] = 1;
    if (n > 17) realigned_wait(n - 1, leaf);
    else leaf();
    sink += aligned[0] + more[0];
}

static void handler(int signal) {
    sink += signal;
    wait_forever();
    sink++;
}

FRAME void interrupted(void) {
    raise(SIGUSR1);
    sink++;
}

FRAME void fault(void) {
    volatile int *volatile nowhere = (volatile int *)8;
    *nowhere = 1;
}

FRAME void on_signal(int number, int flags, void (*cause)(void)) {
    static char other[65536];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(number, &action, NULL);
    cause();
    sink++;
}

FRAME void clock_loop(void) {
    arrived();
    struct timespec t;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        sink += t.tv_nsec;
    }
}

FRAME long deep(long n) {
    volatile char frame[200];
    frame[0] = (char)n;
    if (n == 0) {
        wait_forever();
        return 0;
    }
    return deep(n - 1) + frame[0];
}

// No call frame information, but a frame pointer: as JIT code and assembly have it.
__asm__(".text\n.type bare,@function\nbare:\n"
        "push %rbp\nmov %rsp,%rbp\nsub $48,%rsp\ncall *%rdi\nadd $48,%rsp\npop %rbp\nret\n"
        ".size bare, .-bare\n");
void bare(void (*leaf)(void));

FRAME void jit(void (*leaf)(void)) {
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x30,
                                         0xff, 0xd7, 0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    ((void (*)(void (*)(void)))page)(leaf);
    sink++;
}

static void *thread(void *unused) {
    realigned_wait(20, spin);
    return unused;
}

int main(int argc, char **argv) {
    const char *shape = argc > 1 ? argv[1] : "";
    if (!strcmp(shape, "spin")) spin();
    if (!strcmp(shape, "step")) step();
    if (!strcmp(shape, "realigned")) realigned_wait(22, wait_forever);
    if (!strcmp(shape, "signal")) on_signal(SIGUSR1, 0, interrupted);
    if (!strcmp(shape, "fault")) on_signal(SIGSEGV, SA_ONSTACK, fault);
    if (!strcmp(shape, "clock")) clock_loop();
    if (!strcmp(shape, "deep")) sink += deep(2000);
    if (!strcmp(shape, "bare")) bare(spin);
    if (!strcmp(shape, "jit")) jit(wait_forever);
    if (!strcmp(shape, "thread")) {
        pthread_t id;
        pthread_create(&id, NULL, thread, NULL);
        pthread_join(id, NULL);
    }
    return 1;
}
