// The views: tabs, and the lists of blockers and of stalls.
const views = [];
const addView = (name, title, build) => views.push({ name, title, build });

/** A list of rows of one height, of which only those in sight exist: 10,000 of them scroll as ten do. */
function rowList(kind, height, head, makeRow, onPick) {
  const inner = h("div", { style: { position: "relative" } });
  const box = h("div", { class: `rows ${kind}`, tabindex: 0, role: "listbox", "aria-label": kind }, head, inner);
  let rows = [], chosen = null;
  function draw() {
    const from = Math.max(0, Math.floor(box.scrollTop / height) - 8), to = Math.min(rows.length, from + Math.ceil((box.clientHeight || 640) / height) + 20);
    inner.style.height = `${rows.length * height}px`;
    inner.replaceChildren(...rows.slice(from, to).map((item, at) => {
      const row = makeRow(item);
      row.classList.add("row");
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", String(item === chosen));
      Object.assign(row.style, { position: "absolute", top: `${(from + at) * height}px`, left: 0, right: 0, height: `${height}px` });
      row.addEventListener("click", () => onPick(item));
      return row;
    }));
  }
  function reveal(item) {
    const at = rows.indexOf(item), headHeight = head.offsetHeight || 30;
    if (at < 0) return;
    const top = at * height;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + height + headHeight > box.scrollTop + box.clientHeight) box.scrollTop = top + height + headHeight - box.clientHeight;
  }
  box.addEventListener("scroll", draw, { passive: true });
  box.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[event.key];
    if (!by || !rows.length || event.target !== box) return;
    event.preventDefault();
    const at = rows.indexOf(chosen);
    onPick(rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))]);
  });
  return { box, show(next) { rows = next; draw(); }, choose(item) { chosen = item; reveal(item); draw(); } };
}

addView("blockers", "Blockers", () => {
  const watched = loops.reduce((sum, loop) => sum + loop.observed, 0) || 1;
  const head = h("div", { class: "row head" }, ["stalls", "total", "longest", "of time", "cause", "blocker"].map((name, at) => h("span", { class: at < 4 ? "num" : "" }, name)));
  const list = rowList("blockers", 40, head, (row) => {
    const b = row.first.blocker;
    return h("div", {}, h("span", { class: "num" }, count(row.count)), h("span", { class: "num strong" }, duration(row.total)), h("span", { class: "num" }, duration(row.max)),
      h("span", { class: "num share", style: { "--w": `${100 * row.total / row.most}%` } }, percent(row.total / watched)),
      h("span", {}, dot(row.first.cause), row.first.cause, row.first.word ? h("span", { class: "dim" }, ` · ${row.first.word}`) : null),
      b ? h("span", { class: "two", title: `${b.name}\n${place(b, false)}` }, h("div", { class: "mono" }, b.name), h("div", { class: "place" }, place(b))) : h("span", { class: "dim" }, row.first.outside ? `not the code: ${row.first.outside.who}` : "not the code"));
  }, (row) => { pick(row.longest); list.choose(row); });
  const only = h("div", { class: "flame-bar" }, h("span", { class: "dim" }, "A click shows the longest stall of a row."), h("button", { type: "button", onclick: () => { if (state.picked) { state.key = state.picked.key; applyFilter(); } } }, "Only this blocker"));
  let rows = [];
  listeners.filter.push(() => {
    const byKey = new Map();
    for (const s of state.shown) {
      let row = byKey.get(s.key);
      if (!row) byKey.set(s.key, row = { key: s.key, first: s, longest: s, count: 0, total: 0, max: 0 });
      row.count++; row.total += s.duration;
      if (s.duration > row.max) { row.max = s.duration; row.longest = s; }
    }
    rows = [...byKey.values()].sort((a, b) => b.total - a.total);
    rows.forEach((row) => { row.most = rows[0].total; });
    list.show(rows);
  });
  listeners.pick.push(() => list.choose(rows.find((row) => row.key === state.picked?.key) ?? null));
  return [list.box, only];
});

addView("stalls", "Stalls", () => {
  const order = { by: "start", down: false };
  const columns = [["time", "start"], ["length", "duration"], ["cause", "cause"], ["blocker", "name"], ["loop", "loop"]];
  const value = { start: (s) => s.start, duration: (s) => s.duration, cause: (s) => s.cause, name: (s) => s.blocker?.name ?? "", loop: (s) => s.loop.id };
  const head = h("div", { class: "row head" }, columns.map(([name, by]) => h("button", { type: "button", class: by === "duration" ? "num" : "", "data-by": by, onclick: () => {
    order.down = order.by === by ? !order.down : by === "duration";
    order.by = by;
    draw();
  } }, name)));
  const list = rowList("stalls", 34, head, (s) => h("div", {},
    h("span", { class: "mono" }, timeOfDay(s.start)), h("span", { class: "num strong" }, `${s.upperBound ? "≤ " : ""}${duration(s.duration)}${s.ongoing ? "…" : ""}`),
    h("span", {}, dot(s.cause), s.cause, s.word ? h("span", { class: "dim" }, ` · ${s.word}`) : null),
    h("span", { class: "mono" }, s.blocker ? s.blocker.name : h("span", { class: "dim" }, "not the code"), "  ", h("span", { class: "place" }, place(s.blocker))),
    h("span", { class: "dim" }, loopName(s.loop))), pick);
  function draw() {
    const of = value[order.by];
    const sorted = [...state.shown].sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : a.start - b.start));
    if (order.down) sorted.reverse();
    head.querySelectorAll("button").forEach((button) => button.setAttribute("aria-label", `sort by ${button.textContent}${button.dataset.by === order.by ? (order.down ? ", descending now" : ", ascending now") : ""}`));
    list.show(sorted);
  }
  listeners.filter.push(draw);
  listeners.pick.push(() => list.choose(state.picked));
  return list.box;
});

function buildViews() {
  const bar = h("div", { role: "tablist", "aria-label": "Views" }), panels = [];
  const tabs = [];
  const choose = (at, focus) => {
    tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === at));
      tab.tabIndex = index === at ? 0 : -1;
      panels[index].hidden = index !== at;
    });
    if (focus) tabs[at].focus();
    panels[at].dispatchEvent(new Event("shown"));
  };
  for (const view of views) {
    const panel = h("div", { role: "tabpanel", id: `panel-${view.name}`, "aria-labelledby": `tab-${view.name}`, hidden: true });
    const content = view.build(panel);
    if (!content) continue;
    panel.append(...[content].flat());
    const at = panels.push(panel) - 1;
    tabs.push(h("button", { role: "tab", type: "button", id: `tab-${view.name}`, "aria-controls": `panel-${view.name}`, onclick: () => choose(at), onkeydown: (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to !== undefined) { event.preventDefault(); choose((to + tabs.length) % tabs.length, true); }
    } }, view.title));
  }
  bar.append(...tabs);
  document.getElementById("views").append(bar, ...panels);
  choose(0);
}
