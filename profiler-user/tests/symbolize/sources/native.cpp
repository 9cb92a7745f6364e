// As native.c, with the names of C++.
#include <cstdio>
#include <string>
#include <unistd.h>

#define MARK(chain) do { mark(chain, __LINE__); __asm__ volatile("" ::: "memory"); } while (0)

__attribute__((noinline)) static void mark(const char *chain, int line)
{
    std::printf("%p %d %s\n", static_cast<char *>(__builtin_return_address(0)) - 1, line, chain);
}

namespace app {
template <class T> struct Worker {
    inline __attribute__((always_inline)) void step(T) { MARK("app::Worker<int>::step < app::Worker<int>::run"); }
    __attribute__((noinline)) void run(T value, const std::string &)
    {
        step(value);
        MARK("app::Worker<int>::run");
    }
};
}

namespace {
__attribute__((noinline)) void unnamed_space() { MARK("(anonymous namespace)::unnamed_space"); }
}

int main()
{
    app::Worker<int>().run(1, "x");
    unnamed_space();
    std::printf("ready\n");
    std::fflush(stdout);
    pause();
}
