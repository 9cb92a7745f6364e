/* Prints "address line chain" for places whose function and line it knows, then waits.
 * The chain names the functions from the innermost outwards. The address is that of an instruction
 * on that line. Line 0: the place has none. */
#include <stdio.h>
#include <unistd.h>

#define MARK(chain) do { mark(chain, __LINE__); __asm__ volatile("" ::: "memory"); } while (0)

__attribute__((noinline)) static void mark(const char *chain, int line)
{
    printf("%p %d %s\n", (char *)__builtin_return_address(0) - 1, line, chain);
}

static inline __attribute__((always_inline)) void innermost(void)
{
    MARK("innermost < middle < outer");
}

static inline __attribute__((always_inline)) void middle(void)
{
    innermost();
    MARK("middle < outer");
}

__attribute__((noinline)) void outer(void)
{
    middle();
    MARK("outer");
}

__attribute__((noinline)) static void hidden(void)
{
    MARK("hidden");
}

/* Of two names for one function the reader wants the one without underscores. */
__attribute__((noinline)) void __internal_name(void)
{
    MARK("public_name");
}
void public_name(void) __attribute__((alias("__internal_name")));

/* No size, no debug information, and a label in the middle. */
void assembled(void);
extern char assembled_middle[];
__asm__(".text\n.globl assembled\n.type assembled,@function\nassembled:\n nop\n nop\n"
        ".globl assembled_middle\nassembled_middle:\n nop\n ret\n"
        ".globl after_assembled\n.type after_assembled,@function\n.size after_assembled,1\nafter_assembled: ret\n");

static void chosen_implementation(void) { MARK("chosen_implementation"); }
static void (*choose(void))(void) { return chosen_implementation; }
void chosen(void) __attribute__((ifunc("choose")));

int main(void)
{
    outer();
    hidden();
    public_name();
    chosen();
    printf("%p 0 assembled\n", (char *)assembled + 1);
    MARK("main");
    printf("ready\n");
    fflush(stdout);
    pause();
    return 0;
}
