// The flame graph of what is shown: the width is stalled time. The drawing is d3-flame-graph's.
addView("flame", "Flame graph", (panel) => {
  const host = h("div", { id: "flame" }), detail = h("div", { class: "flame-detail" }), found = h("span", { class: "found", role: "status" });
  const search = h("input", { type: "search", id: "flame-search", placeholder: "Mark frames", "aria-label": "Mark frames in the flame graph" });
  const first = h("select", { "aria-label": "First level", onchange: () => draw(true) }, h("option", { value: "loop" }, "loop, then cause"), h("option", { value: "cause" }, "cause, then loop"), h("option", { value: "none" }, "causes only"));
  let chart = null, dirty = true, total = 0;
  function tree() {
    const root = { name: "all", value: 0, kind: "root", children: new Map() };
    const down = (node, key, make) => {
      let child = node.children.get(key);
      if (!child) node.children.set(key, child = { ...make(), value: 0, children: new Map() });
      return child;
    };
    for (const s of state.shown) {
      s.ledger.forEach((ns, at) => {
        if (!ns) return;
        const cause = CAUSES[at], own = s.stacks.filter((stack) => stack.cause === cause), claimed = own.reduce((sum, stack) => sum + stack.ns, 0);
        const loop = [`l${s.loop.id}`, () => ({ name: loopName(s.loop), kind: "loop" })], what = [`c${cause}`, () => ({ name: cause, kind: "cause", cause })];
        const levels = first.value === "loop" ? [loop, what] : first.value === "cause" ? [what, loop] : [what];
        // As in every format: stacks that claim too much are scaled, what they leave is without a stack.
        const scale = claimed > ns ? ns / claimed : 1;
        const parts = own.map((stack) => [stack.frames, stack.ns * scale]);
        if (claimed < ns) parts.push([own.length ? [{ id: -1, name: "[no stack]", kind: "none" }] : [], ns - claimed]);
        for (const [list, part] of parts) {
          let node = root;
          node.value += part;
          for (const [key, make] of levels) { node = down(node, key, make); node.value += part; }
          for (const frame of list) { node = down(node, frame.id, () => ({ name: frame.name, kind: "frame", frame, cause })); node.value += part; }
        }
      });
    }
    const close = (node) => { node.children = [...node.children.values()].map(close); return node; };
    return close(root);
  }
  const label = (d) => `${d.data.name}${d.data.frame?.file && (d.data.frame.user || d.data.frame.kind !== "native") ? ` (${place(d.data.frame)})` : ""}`;
  const words = (d) => `${label(d)}: ${duration(d.value)}, ${percent(total ? d.value / total : 0)} of what is shown`;
  const mix = (color, share) => d3.interpolateRgb(dark() ? "#ccd2dd" : "#f1f3f5", color)(share);
  const dark = () => document.documentElement.dataset.theme === "dark";
  function color(d) {
    if (d.highlight) return "#ffd43b";
    const { kind, cause, frame } = d.data;
    if (kind === "root") return dark() ? "#98a1b0" : "#ced4da";
    if (kind === "loop") return "#bac8ff";
    const base = causeColor(cause ?? "runqueue");
    if (kind === "cause") return mix(base, 0.85);
    if (!frame || frame.kind === "kernel") return mix(base, 0.2);
    return mix(base, frame.user ? 0.75 : 0.35);
  }
  function draw(force) {
    if (panel.hidden && !force) { dirty = true; return; }
    dirty = false;
    const data = tree();
    total = data.value;
    host.replaceChildren();
    chart = null;
    if (!total) { host.append(h("p", { class: "empty" }, "No stall to draw.")); detail.textContent = ""; return; }
    chart = flamegraph.default ? flamegraph.default() : flamegraph.flamegraph();
    chart.width(Math.max(320, host.clientWidth - 28)).cellHeight(19).minFrameSize(1).transitionDuration(matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 220)
      .selfValue(false).inverted(true).sort((a, b) => d3.descending(a.value, b.value)).title("").tooltip(false)
      .setLabelHandler(words).setColorMapper(color)
      .setSearchHandler((results, sum) => { found.textContent = search.value ? `${duration(Math.min(sum, total))}, ${percent(Math.min(1, sum / total))}` : ""; })
      .setDetailsHandler((words) => { detail.textContent = words ?? ""; })
      .onHover((d) => { detail.textContent = words(d); })
      .onClick((d) => { detail.textContent = words(d); });
    d3.select(host).datum(data).call(chart);
    // Each cell can be reached and opened by keyboard.
    host.querySelectorAll("g.frame").forEach((cell) => cell.setAttribute("tabindex", "0"));
    detail.textContent = `${duration(total)} of stall. A click zooms into a frame, one on its caller zooms out.`;
    if (search.value) chart.search(search.value);
  }
  host.addEventListener("keydown", (event) => {
    const cell = event.target.closest?.("g.frame");
    if (cell && event.key === "Enter") { chart?.zoomTo(d3.select(cell).datum()); }
    if (event.key === "Escape") chart?.resetZoom();
  });
  host.addEventListener("focusin", (event) => {
    const cell = event.target.closest?.("g.frame");
    if (cell) detail.textContent = words(d3.select(cell).datum());
  });
  search.addEventListener("input", () => {
    if (!chart) return;
    try { new RegExp(search.value); } catch { found.textContent = "not an expression"; return; }
    if (search.value) chart.search(search.value); else { chart.clear(); found.textContent = ""; }
  });
  listeners.filter.push(() => draw(false));
  listeners.theme.push(() => draw(false));
  panel.addEventListener("shown", () => { if (dirty) draw(true); });
  let last = 0;
  new ResizeObserver(() => { if (!panel.hidden && Math.abs(host.clientWidth - last) > 4) { last = host.clientWidth; draw(true); } }).observe(host);
  return [h("div", { class: "flame-bar" }, h("div", { style: { flex: 1, "min-width": "160px" } }, search), found, first,
    h("button", { type: "button", id: "flame-reset", onclick: () => { chart?.resetZoom(); } }, "Reset zoom")), host, detail];
});
