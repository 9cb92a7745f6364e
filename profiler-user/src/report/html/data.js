// What the report is about: the data element, with its indexes made to objects that share.
const CAUSES = ["cpu", "syscall", "lock", "gil", "fault", "runqueue", "throttled", "stopped", "unexplained"];
const raw = JSON.parse(document.getElementById("data").textContent);
const text = (index) => (index === null || index === undefined ? null : raw.strings[index]);
const frames = raw.frames.map(([name, file, line, module, kind, flags, source], id) => ({
  id, name: text(name) || "?", file: text(file), line, module: text(module), kind,
  inlined: (flags & 1) !== 0, user: (flags & 2) !== 0, source: text(source),
}));
const stacks = raw.stacks.map((ids) => ids.map((id) => frames[id]));
const loops = raw.loops.map((loop, id) => ({ ...loop, id }));
const loopName = (loop) => `${loop.thread || loop.runtime} (${loop.tid})`;
const stalls = raw.stalls.map((s, id) => ({
  id, start: s.t, duration: s.d, end: s.t + s.d, loop: loops[s.l], ledger: s.g, cause: CAUSES[s.c], word: text(s.w),
  blocker: s.b ? { name: text(s.b[0]) || "?", file: text(s.b[1]), line: s.b[2], share: s.b[3], kind: s.b[4] } : null,
  stacks: (s.k || []).map(([cause, ns, samples, stack, truncated, holder]) => ({
    cause: CAUSES[cause], ns, samples, frames: stacks[stack], truncated: text(truncated),
    holder: holder ? { tid: holder[0], thread: text(holder[1]), frames: stacks[holder[2]] } : null,
  })),
  syscalls: (s.y || []).map(([name, count, total, max, resource]) => ({ name: text(name), count, total, max, resource: text(resource) })),
  task: s.j ? { name: text(s.j[0]), chain: s.j[1].map(text) } : null,
  outside: s.o ? { what: text(s.o[0]), who: text(s.o[1]) } : null,
  advice: text(s.a), ongoing: (s.f & 1) !== 0, atAttach: (s.f & 2) !== 0, upperBound: (s.f & 4) !== 0,
  kernelShare: s.ks ?? null, extra: s.x || null,
}));
/** What makes two stalls the same in the table of blockers, as in the text report. */
for (const stall of stalls) {
  const b = stall.blocker;
  stall.key = [stall.cause, stall.word ?? "", b ? `${b.name}\u0000${b.file ?? ""}\u0000${b.line ?? ""}` : ""].join("\u0001");
}

/** Three digits and a unit, as everywhere in stallscope. */
function duration(ns) {
  if (ns < 1000) return `${Math.round(ns)} ns`;
  for (const [unit, per] of [["µs", 1e3], ["ms", 1e6], ["s", 1e9]]) {
    const value = ns / per;
    for (const places of [2, 1, 0]) {
      const shown = value.toFixed(places);
      if (shown.replace(".", "").length <= 3 || (places === 0 && value < 999.5)) return `${shown} ${unit}`;
    }
  }
  const seconds = Math.round(ns / 1e9);
  return seconds < 6000 ? `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`
    : `${Math.floor(seconds / 3600)} h ${String(Math.floor(seconds % 3600 / 60)).padStart(2, "0")} min`;
}
const percent = (share) => (share > 0 && share < 0.001 ? "< 0.1 %" : `${(share * 100).toFixed(share >= 0.9995 ? 0 : 1)} %`);
const count = (n) => n.toLocaleString("en-US");
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
/** The time of day, to the millisecond, in the reader's zone. */
function timeOfDay(relative) {
  const time = new Date((raw.began + relative) / 1e6);
  const two = (n) => String(n).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}
/** The last two parts of a path. */
const shortFile = (file) => file.split("/").slice(-2).join("/");
const place = (at, short = true) => (at && at.file ? `${short ? shortFile(at.file) : at.file}${at.line ? `:${at.line}` : ""}` : "");
const causeColor = (cause) => getComputedStyle(document.documentElement).getPropertyValue(`--${cause}`).trim();

/** An element. Text is only ever set as text, so that no name can become markup. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, to] of Object.entries(value)) element.style.setProperty(property, to);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
const svg = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const dot = (cause) => h("span", { class: "dot", style: { background: `var(--${cause})` } });

// A tooltip for what has no room for words.
const tip = document.getElementById("tip");
function showTip(event, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(6, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}
const hideTip = () => { tip.hidden = true; };

// What is chosen, and who wants to know of changes.
const state = { search: "", causes: new Set(), min: 0, loop: -1, range: null, key: null, picked: null, shown: stalls };
const listeners = { filter: [], pick: [], theme: [] };
const tell = (what) => listeners[what].forEach((listener) => listener());
function matcher(search) {
  if (!search) return () => true;
  let regex = null;
  try { regex = new RegExp(search, "i"); } catch { /* Not an expression: taken literally. */ }
  const low = search.toLowerCase();
  return (value) => value !== null && value !== undefined && (regex ? regex.test(value) : value.toLowerCase().includes(low));
}
function applyFilter() {
  const matches = matcher(state.search), seen = new Map();
  const frameMatches = (list) => {
    if (!seen.has(list)) seen.set(list, list.some((frame) => matches(frame.name) || matches(frame.file)));
    return seen.get(list);
  };
  state.shown = stalls.filter((s) =>
    (state.causes.size === 0 || state.causes.has(s.cause)) && s.duration >= state.min && (state.loop < 0 || s.loop.id === state.loop)
    && (!state.range || (s.end >= state.range[0] && s.start <= state.range[1])) && (!state.key || s.key === state.key)
    && (!state.search || matches(s.blocker?.name) || matches(s.word) || matches(s.task?.name) || (s.task?.chain ?? []).some(matches)
      || s.syscalls.some((call) => matches(call.name) || matches(call.resource)) || matches(s.loop.thread)
      || s.stacks.some((stack) => frameMatches(stack.frames) || (stack.holder && frameMatches(stack.holder.frames)))));
  tell("filter");
}
function pick(stall) {
  state.picked = stall;
  tell("pick");
}
