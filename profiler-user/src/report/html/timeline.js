// A lane for each loop: how busy it was, and its stalls. Drawn on a canvas, since there may be many thousands.
{
  const LABEL = 190, AXIS = 24, LANE = Math.max(34, Math.min(64, 260 / Math.max(1, loops.length)));
  const last = stalls.reduce((max, s) => Math.max(max, s.end), raw.observed);
  const first = stalls.reduce((min, s) => Math.min(min, s.start), 0);
  let view = [first, Math.max(last, first + 1)], drag = null, hover = null;
  const canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": "Timeline. Left and right choose stalls, plus and minus zoom, drag selects a span of time." });
  const reset = h("button", { class: "plain", type: "button", onclick: () => { view = [first, last]; draw(); } }, "whole time");
  document.getElementById("timeline").append(
    h("div", { class: "bar-row" }, h("h2", {}, "Timeline"), h("span", { class: "faint" }, "drag selects, wheel zooms, ← → choose; grey is how busy the loop was"), h("span", { style: { flex: 1 } }), reset),
    h("div", { class: "lanes" }, canvas));
  const byLoop = loops.map(() => []);
  let width = 0, x = null;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const heightOf = (s) => {
    // From the threshold up, by powers of ten: a long stall is seen at once, a short one not lost.
    const least = Math.max(1, raw.threshold || 1e6);
    return Math.min(1, 0.28 + 0.24 * Math.log10(Math.max(1, s.duration / least)));
  };
  const ticks = () => d3.scaleLinear().domain(view.map((t) => t / 1e9)).ticks(Math.max(2, width / 130));
  function draw() {
    const ratio = devicePixelRatio || 1, height = AXIS + Math.max(1, loops.length) * LANE;
    width = canvas.parentElement.clientWidth;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    x = d3.scaleLinear().domain(view).range([LABEL, width - 12]);
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.clearRect(0, 0, width, height);
    const [line, dim, faint, body, accent] = ["--line", "--dim", "--faint", "--text", "--accent"].map(css);
    const colors = Object.fromEntries(CAUSES.map((cause) => [cause, causeColor(cause)]));
    g.font = "11px system-ui,sans-serif";
    for (const t of ticks()) {
      const at = Math.round(x(t * 1e9)) + 0.5;
      g.strokeStyle = line; g.beginPath(); g.moveTo(at, AXIS - 4); g.lineTo(at, height); g.stroke();
      g.fillStyle = dim; g.textAlign = "center";
      g.fillText(t === 0 ? "0" : duration(Math.abs(t) * 1e9).replace(/\.?0+ /, " "), at, 13);
    }
    loops.forEach((loop, at) => {
      const top = AXIS + at * LANE, bottom = top + LANE - 5;
      g.strokeStyle = line; g.beginPath(); g.moveTo(0, bottom + 4.5); g.lineTo(width, bottom + 4.5); g.stroke();
      busy(g, loop, top + 5, bottom, faint);
      g.save(); g.beginPath(); g.rect(LABEL, top, width - LABEL, LANE); g.clip();
      const visible = byLoop[at];
      for (const s of visible) {
        if (s.end < view[0] || s.start > view[1]) continue;
        const left = x(s.start), w = Math.max(2, x(s.end) - left), tall = heightOf(s) * (LANE - 9);
        g.fillStyle = colors[s.cause];
        g.globalAlpha = s === state.picked || s === hover ? 1 : 0.85;
        g.fillRect(left, bottom - tall, w, tall);
        if (s === state.picked) { g.globalAlpha = 1; g.strokeStyle = body; g.lineWidth = 2; g.strokeRect(left - 1, bottom - tall - 1, w + 2, tall + 2); g.lineWidth = 1; }
      }
      g.restore(); g.globalAlpha = 1;
      g.textAlign = "left"; g.fillStyle = body; g.font = "600 12px system-ui,sans-serif";
      g.fillText(cut(g, loopName(loop), LABEL - 24), 14, top + 17);
      g.font = "11px system-ui,sans-serif"; g.fillStyle = dim;
      if (LANE > 30) g.fillText(cut(g, `${loop.runtime} · ${percent(loop.utilization)} busy · ${plural(byLoop[at].length, "stall")}`, LABEL - 24), 14, top + 31);
    });
    if (!loops.length) { g.fillStyle = dim; g.textAlign = "center"; g.fillText("no event loop was seen", width / 2, AXIS + 20); }
    const span = drag ?? (state.range ? state.range.map(x) : null);
    if (span) {
      g.fillStyle = accent; g.globalAlpha = 0.13; g.fillRect(span[0], AXIS, span[1] - span[0], height);
      g.globalAlpha = 1;
    }
  }
  /** How busy a loop was between checkpoints. */
  function busy(g, loop, top, bottom, color) {
    const points = loop.series;
    g.fillStyle = color; g.globalAlpha = 0.28;
    for (let at = 1; at < points.length; at++) {
      const [from, , before] = points[at - 1], [to, , after] = points[at];
      if (to < view[0] || from > view[1] || to <= from) continue;
      const share = Math.max(0, Math.min(1, (after - before) / (to - from))), left = Math.max(LABEL, x(from));
      g.fillRect(left, bottom - share * (bottom - top), Math.max(1, x(to) - left), share * (bottom - top));
    }
    g.globalAlpha = 1;
  }
  const cut = (g, value, room) => {
    if (g.measureText(value).width <= room) return value;
    while (value.length > 1 && g.measureText(`${value}…`).width > room) value = value.slice(0, -1);
    return `${value}…`;
  };
  function find(event) {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, at = Math.floor((event.clientY - box.top - AXIS) / LANE);
    if (px < LABEL || !byLoop[at]) return null;
    let best = null, distance = 5;
    for (const s of byLoop[at]) {
      const left = x(s.start), right = Math.max(left + 2, x(s.end)), off = px < left ? left - px : px > right ? px - right : 0;
      if (off < distance || (off === distance && best && s.duration > best.duration)) { best = s; distance = off; }
    }
    return best;
  }
  canvas.addEventListener("mousemove", (event) => {
    const px = event.clientX - canvas.getBoundingClientRect().left;
    if (drag) { drag[1] = Math.max(LABEL, px); hideTip(); draw(); return; }
    const found = find(event);
    if (found !== hover) { hover = found; draw(); }
    if (found) {
      showTip(event, h("div", { class: "strong" }, `${found.upperBound ? "≤ " : ""}${duration(found.duration)}  ${found.cause}${found.word ? ` · ${found.word}` : ""}`),
        h("div", { class: "mono" }, found.blocker ? `${found.blocker.name}  ${place(found.blocker)}` : "not the code"), h("div", {}, timeOfDay(found.start)));
    } else if (px >= LABEL) showTip(event, timeOfDay(x.invert(px)));
    else hideTip();
  });
  canvas.addEventListener("mouseleave", () => { hover = null; hideTip(); draw(); });
  canvas.addEventListener("mousedown", (event) => {
    const px = event.clientX - canvas.getBoundingClientRect().left;
    if (px >= LABEL && event.button === 0) drag = [px, px];
  });
  addEventListener("mouseup", (event) => {
    if (!drag) return;
    const [from, to] = drag[0] < drag[1] ? drag : [drag[1], drag[0]];
    drag = null;
    if (to - from > 5) { state.range = [x.invert(from), x.invert(to)]; applyFilter(); } else {
      const found = find(event);
      if (found) pick(found); else if (state.range) { state.range = null; applyFilter(); }
      draw();
    }
  });
  canvas.addEventListener("dblclick", () => { view = [first, last]; draw(); });
  function zoom(by, around) {
    const [from, to] = view, span = Math.min(last - first, Math.max(1e6, (to - from) * by));
    const part = (around - from) / (to - from);
    const start = Math.max(first, Math.min(last - span, around - part * span));
    view = [start, start + span];
    draw();
  }
  canvas.addEventListener("wheel", (event) => {
    const px = event.clientX - canvas.getBoundingClientRect().left;
    if (px < LABEL || !x) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.deltaX / (width - LABEL)) * (view[1] - view[0]), span = view[1] - view[0];
      const start = Math.max(first, Math.min(last - span, view[0] + by));
      view = [start, start + span];
      draw();
    } else zoom(event.deltaY > 0 ? 1.25 : 0.8, x.invert(px));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const middle = state.picked ? state.picked.start : (view[0] + view[1]) / 2;
    const act = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), "+": () => zoom(0.6, middle), "=": () => zoom(0.6, middle), "-": () => zoom(1.6, middle), "0": () => { view = [first, last]; draw(); }, Home: () => pick(state.shown[0] ?? null), End: () => pick(state.shown.at(-1) ?? null) }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  listeners.filter.push(() => {
    byLoop.forEach((list) => { list.length = 0; });
    for (const s of state.shown) byLoop[s.loop.id].push(s);
    draw();
  });
  listeners.pick.push(() => {
    const s = state.picked;
    if (s && (s.end < view[0] || s.start > view[1])) {
      const span = view[1] - view[0], start = Math.max(first, Math.min(last - span, s.start - span / 2));
      view = [start, start + span];
    }
    draw();
  });
  listeners.theme.push(draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
}
