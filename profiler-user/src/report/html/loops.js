// The views of loops with their histograms, of pools, and of what the numbers mean.
/** A histogram on a logarithmic axis, with the threshold and the percentiles. */
function histogram(loop) {
  const W = 380, H = 120, B = 18, buckets = loop.histogram;
  if (!buckets.length) return h("p", { class: "dim" }, "no turn has ended");
  const low = Math.log10(Math.max(1000, buckets[0][0] * 0.9)), high = Math.max(low + 0.5, Math.log10(buckets.at(-1)[0]) + 0.08), cells = 60;
  const x = (ns) => ((Math.log10(Math.max(ns, 10 ** low)) - low) / (high - low)) * W;
  const bars = new Array(cells).fill(0);
  for (const [upper, n] of buckets) bars[Math.max(0, Math.min(cells - 1, Math.floor(x(upper) / W * cells - 1e-9)))] += n;
  const most = Math.max(...bars), y = (n) => (n === 0 ? 0 : Math.max(2, (Math.log10(n + 1) / Math.log10(most + 1)) * (H - B - 14)));
  const drawing = svg("svg", { class: "hist", viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": `How long turns took: half are shorter than ${duration(loop.p50)}, the longest ${duration(loop.max)}` });
  bars.forEach((n, at) => {
    if (!n) return;
    const from = 10 ** (low + (high - low) * at / cells), to = 10 ** (low + (high - low) * (at + 1) / cells);
    const bar = svg("rect", { x: at * W / cells + 0.5, y: H - B - y(n), width: W / cells - 1, height: y(n), class: from >= raw.threshold * 0.97 ? "slow" : "" });
    bar.append(svg("title", {}, `${plural(n, "turn")} of ${duration(from)} to ${duration(to)}`));
    drawing.append(bar);
  });
  for (let power = Math.ceil(low); power <= high; power++) {
    drawing.append(svg("text", { x: Math.min(W - 24, Math.max(12, x(10 ** power))), y: H - 4, "text-anchor": "middle" }, duration(10 ** power).replace(".00", "").replace(/\.0 /, " ")));
  }
  const mark = (ns, label, top) => { if (ns > 0) drawing.append(svg("line", { x1: x(ns), x2: x(ns), y1: top, y2: H - B }), svg("text", { x: Math.min(W - 34, x(ns) + 3), y: top + 8 }, label)); };
  mark(loop.p50, "p50", 0); mark(loop.p99, "p99", 0); mark(raw.threshold, "threshold", 12);
  return drawing;
}

addView("loops", "Loops", () => {
  if (!loops.length) return h("p", { class: "empty" }, "No thread was seen to run an event loop (to park in epoll, poll or select).");
  return h("div", { class: "loops" }, loops.map((loop) => {
    const busy = loop.ledger.map((ns, at) => [CAUSES[at], ns]).filter(([, ns]) => ns > 0), total = busy.reduce((sum, [, ns]) => sum + ns, 0);
    return h("div", { class: "loop" }, h("h3", {}, loopName(loop), h("span", { class: "dim" }, `  ${loop.runtime}, pid ${loop.pid}`)),
      h("div", { class: "facts" }, [["turns", count(loop.turns)], ["busy", percent(loop.utilization)], ["p50", duration(loop.p50)], ["p90", duration(loop.p90)], ["p99", duration(loop.p99)], ["p99.9", duration(loop.p999)], ["longest", duration(loop.max)], ["stalls", count(loop.stalls)]].map(([name, value]) => h("span", {}, h("span", { class: "dim" }, `${name} `), value))),
      total ? h("div", { class: "bar", role: "img", "aria-label": busy.map(([cause, ns]) => `${cause} ${duration(ns)}`).join(", ") }, busy.map(([cause, ns]) => h("i", { title: `busy: ${cause} ${duration(ns)}`, style: { width: `${100 * ns / total}%`, background: `var(--${cause})` } }))) : null,
      histogram(loop),
      h("button", { class: "plain", type: "button", onclick: () => { state.loop = loop.id; applyFilter(); } }, "only its stalls"));
  }));
});

addView("pools", "Pools", () => {
  const pools = raw.extra?.pools;
  if (!Array.isArray(pools) || !pools.length) return null;
  const ns = (value) => (typeof value === "number" ? duration(value) : "?");
  return h("div", {}, pools.map((pool) => h("div", { class: "pool" },
    h("div", { class: "strong" }, pool.name || pool.kind, h("span", { class: "dim" }, `  ${pool.kind ?? ""}, pid ${pool.pid ?? "?"}`)),
    h("div", {}, `at most ${pool.busy_max ?? "?"} of ${pool.limit ?? pool.threads ?? "?"} threads busy; saturated ${ns(pool.saturated_ns)}${pool.saturations ? `, ${pool.saturations} times` : ""}`),
    typeof (pool.limit ?? pool.threads) === "number" ? h("div", { class: "cells", role: "img", "aria-label": "threads, the busy ones filled" }, Array.from({ length: Math.min(256, pool.limit ?? pool.threads) }, (_, at) => h("i", { class: at < (pool.busy_max ?? 0) ? "busy" : "" }))) : null,
    (Array.isArray(pool.stacks) ? pool.stacks : []).map((stack) => h("details", {}, h("summary", {}, `${plural(stack.threads ?? 0, "thread")} in ${stack.cause ?? "?"}`),
      h("div", { class: "frames" }, [...(stack.frames ?? [])].reverse().map((frame) => h("div", { class: `frame ${frame.user_code ? "user" : "other"}` }, h("span", {}, frame.function ?? "?"), h("span", { class: "place" }, frame.file ? `${shortFile(frame.file)}:${frame.line ?? ""}` : "")))))),
    pool.advice ? h("div", { class: "advice" }, h("b", {}, "Advice  "), pool.advice) : null)));
});

addView("about", "About", () => {
  const fact = (name, value) => (value ? [h("dt", {}, name), h("dd", {}, value)] : []);
  const causes = { cpu: "computing", syscall: "asleep in a system call", lock: "waiting for a lock", gil: "waiting for Python's global lock", fault: "waiting for a page from disk or swap", runqueue: "ready to run, without a CPU: the host's doing", throttled: "out of CPU quota: the cgroup's doing", stopped: "stopped by a signal, a debugger or the freezer", unexplained: "lost from sight" };
  return h("div", { class: "about" },
    raw.warnings.map((warning) => h("div", { class: "warn" }, warning)),
    h("dl", {}, fact("Watched", raw.subject), fact("Host", raw.host), fact("Kernel", raw.kernel), fact("Began", raw.began ? new Date(raw.began / 1e6).toString() : ""), fact("Ended", raw.ended), fact("Turn boundaries", raw.boundaries), fact("Losses", raw.losses.map(([name, n]) => `${count(n)} ${name}`).join(", ")), fact("Made by", `stallscope ${raw.version}`)),
    h("h3", {}, "What is measured"),
    h("p", {}, "A turn lasts from the wake-up that ends one wait for events to the entry into the next. A turn over the threshold is a stall: nothing else ran on that loop meanwhile. Durations and causes come from the kernel's own timestamps of every event and add up to the nanosecond; samples only tell which line was busy."),
    h("dl", {}, Object.entries(causes).flatMap(([cause, meaning]) => [h("dt", {}, dot(cause), cause), h("dd", {}, meaning)])),
    h("h3", {}, "Keys"),
    h("p", {}, h("kbd", {}, "/"), " search   ", h("kbd", {}, "j"), " ", h("kbd", {}, "k"), " next and previous stall   ", h("kbd", {}, "Tab"), " to the timeline, then ", h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " choose, ", h("kbd", {}, "+"), " ", h("kbd", {}, "−"), " ", h("kbd", {}, "0"), " zoom; in lists ", h("kbd", {}, "↑"), " ", h("kbd", {}, "↓"), "; in the flame graph ", h("kbd", {}, "Tab"), " and ", h("kbd", {}, "Enter")),
    h("h3", {}, "Libraries in this page"), h("pre", {}, raw.licences));
});

