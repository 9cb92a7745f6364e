// The head, the verdict and the filters.
{
  const facts = [];
  if (raw.subject) facts.push(raw.subject);
  if (raw.host) facts.push(raw.host);
  facts.push(`${duration(raw.observed)} watched`, `threshold ${duration(raw.threshold)}`);
  if (raw.began) facts.push(new Date(raw.began / 1e6).toLocaleString());
  document.title = `Stalls${raw.subject ? ` of ${raw.subject}` : ""}`;
  const stored = (() => { try { return localStorage.getItem("stallscope-theme"); } catch { return null; } })();
  const wanted = stored ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const theme = h("button", { type: "button", id: "theme", onclick: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true) });
  const setTheme = (to, keep) => {
    document.documentElement.dataset.theme = to;
    theme.textContent = to === "dark" ? "☀ Light" : "☾ Dark";
    if (keep) try { localStorage.setItem("stallscope-theme", to); } catch { /* It lasts until the page is closed. */ }
    tell("theme");
  };
  setTheme(wanted, false);
  document.getElementById("head").append(
    h("h1", {}, h("b", {}, "stall"), "scope"),
    h("div", { class: "facts" }, facts.map((fact) => h("span", {}, fact))), h("span", { class: "grow" }), theme);
}

{
  const verdict = document.getElementById("verdict");
  const watched = loops.reduce((sum, loop) => sum + loop.observed, 0);
  const draw = () => {
    const shown = state.shown, total = shown.reduce((sum, s) => sum + s.duration, 0);
    const longest = shown.reduce((max, s) => (s.duration > (max?.duration ?? -1) ? s : max), null);
    const worst = loops.reduce((max, loop) => (loop.p99 > (max?.p99 ?? -1) ? loop : max), null);
    const byCause = CAUSES.map((cause, at) => [cause, shown.reduce((sum, s) => sum + s.ledger[at], 0)]).filter(([, ns]) => ns > 0);
    const tile = (big, small, more) => h("div", { class: "tile" }, h("div", { class: "big" }, big), h("div", { class: "dim" }, small), more ?? null);
    const all = CAUSES.filter((cause) => stalls.some((s) => s.cause === cause));
    verdict.replaceChildren(
      tile(count(shown.length), shown.length === stalls.length ? "stalls" : `of ${plural(stalls.length, "stall")}`),
      tile(duration(total), watched ? `stalled, ${percent(total / watched)} of the loops' time` : "stalled"),
      tile(longest ? duration(longest.duration) : "–", "longest stall", longest && h("button", { class: "plain", type: "button", onclick: () => pick(longest) }, "show it")),
      tile(worst ? duration(worst.p99) : "–", worst ? `99 % of the turns of ${loopName(worst)} are shorter` : "no loop was seen"),
      h("div", { class: "causes" },
        h("div", { class: "bar", role: "img", "aria-label": byCause.map(([cause, ns]) => `${cause} ${duration(ns)}`).join(", ") },
          byCause.map(([cause, ns]) => h("i", { title: `${cause} ${duration(ns)}`, style: { width: `${100 * ns / total}%`, background: `var(--${cause})` } }))),
        h("div", { class: "legend" }, all.map((cause) => {
          const ns = byCause.find(([name]) => name === cause)?.[1] ?? 0;
          return h("button", { class: "chip", type: "button", "aria-pressed": String(state.causes.has(cause)), title: `Only stalls by ${cause}`, onclick: () => {
            if (!state.causes.delete(cause)) state.causes.add(cause);
            applyFilter();
            verdict.querySelector(`[data-cause=${cause}]`)?.focus();
          }, "data-cause": cause }, dot(cause), cause, h("span", { class: "dim" }, duration(ns)));
        }))));
  };
  listeners.filter.push(draw);
}

{
  const search = h("input", { type: "search", id: "search", placeholder: "Search function, file, task, resource (press /)", "aria-label": "Search stalls" });
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => { state.search = search.value; applyFilter(); }, 120); });
  const steps = [0, 10, 20, 50, 100, 200, 500, 1000, 5000];
  const least = h("select", { id: "least", onchange: () => { state.min = Number(least.value) * 1e6; applyFilter(); } },
    steps.map((ms) => h("option", { value: ms }, ms === 0 ? "any" : `≥ ${duration(ms * 1e6)}`)));
  const which = h("select", { id: "which", onchange: () => { state.loop = Number(which.value); applyFilter(); } },
    h("option", { value: -1 }, "all"), loops.map((loop) => h("option", { value: loop.id }, loopName(loop))));
  const chosen = h("span", { class: "chips" }), shown = h("span", { class: "count dim", role: "status" });
  const reset = h("button", { type: "button", id: "reset", onclick: () => {
    Object.assign(state, { search: "", causes: new Set(), min: 0, loop: -1, range: null, key: null });
    search.value = ""; least.value = 0; which.value = -1;
    applyFilter();
  } }, "Reset");
  document.getElementById("filters").append(
    h("div", { class: "search" }, search), h("label", {}, "length", least), h("label", {}, "loop", which), chosen, shown, reset);
  listeners.filter.push(() => {
    which.value = state.loop;
    const chips = [];
    const chip = (label, clear) => chips.push(h("button", { class: "chip", type: "button", "aria-pressed": "true", title: "Remove this filter", onclick: () => { clear(); applyFilter(); } }, `${label} ×`));
    if (state.range) chip(`${duration(state.range[1] - state.range[0])} from ${duration(Math.max(0, state.range[0]))}`, () => { state.range = null; });
    if (state.key) chip("one blocker", () => { state.key = null; });
    chosen.replaceChildren(...chips);
    shown.textContent = state.shown.length === stalls.length ? plural(stalls.length, "stall") : `${count(state.shown.length)} of ${count(stalls.length)}`;
    reset.disabled = state.shown.length === stalls.length;
  });
  addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
    if (event.key === "Escape" && event.target === search) { search.value = ""; state.search = ""; applyFilter(); search.blur(); }
    if (!typing && (event.key === "j" || event.key === "k") && !event.ctrlKey && !event.metaKey) step(event.key === "j" ? 1 : -1);
  });
}

/** Picks the next or the previous of the stalls shown, in the order of time. */
function step(by) {
  const shown = state.shown;
  if (!shown.length) return;
  const at = shown.indexOf(state.picked);
  pick(shown[at < 0 ? 0 : Math.max(0, Math.min(shown.length - 1, at + by))]);
}
