// The stall that was chosen: where its time went, the stack, who held what, and what to do.
{
  const aside = document.getElementById("detail");
  /** Frames, innermost first; what nobody reads is folded. */
  function drawFrames(list, blamed, cause) {
    const box = h("div", { class: "frames", style: { "--c": `var(--${cause})` } }), inner = [...list].reverse();
    if (!inner.length) return h("p", { class: "dim" }, "no stack was captured");
    const line = (frame) => {
      const isBlamed = blamed && frame.name === blamed.name && frame.file === blamed.file && frame.line === blamed.line;
      if (isBlamed) blamed = null;
      const where = frame.file ? place(frame) : frame.module ? frame.module.split("/").pop() : "";
      return [h("div", { class: `frame ${frame.user ? "user" : "other"}${isBlamed ? " blamed" : ""}`, title: `${frame.name}\n${frame.file ? place(frame, false) : ""}\n${frame.module ?? ""}` },
        h("span", {}, frame.name, frame.inlined ? h("span", { class: "faint" }, " (inlined)") : null), h("span", { class: "place" }, where)),
        (isBlamed || frame.user) && frame.source ? h("div", { class: "source" }, frame.source) : null];
    };
    const kind = (frame, at) => {
      if (frame.user || at === 0) return "";
      return frame.kind === "kernel" ? "kernel" : "library";
    };
    for (let at = 0; at < inner.length;) {
      // The leaf is always shown, and what is next to the user's own code.
      const isBlamed = blamed && inner[at].name === blamed.name && inner[at].line === blamed.line;
      const what = isBlamed ? "" : kind(inner[at], at);
      let end = at + 1;
      while (what && end < inner.length && kind(inner[end], end) === what && !(blamed && inner[end].name === blamed.name && inner[end].line === blamed.line)) end++;
      if (what && end - at > 2) {
        const more = inner.slice(at, end);
        const fold = h("details", {}, h("summary", {}, `${more.length} ${what} frames`));
        fold.addEventListener("toggle", () => { if (fold.open && fold.childElementCount === 1) fold.append(...more.flatMap(line).filter(Boolean)); });
        box.append(fold);
      } else {
        for (const frame of inner.slice(at, end)) box.append(...line(frame).filter(Boolean));
      }
      at = end;
    }
    return box;
  }
  const hasBlocker = (cause) => !["runqueue", "throttled", "stopped", "unexplained"].includes(cause);
  const extraRows = ({ parts, ...value }) => Object.entries(value).flatMap(([name, item]) => [h("dt", {}, name.replaceAll("_", " ").replace(/ ns$/, "")), h("dd", {},
    typeof item === "number" && name.endsWith("_ns") ? duration(item) : typeof item === "object" ? h("span", { class: "mono" }, JSON.stringify(item)) : String(item))]);
  /** A turn of many callbacks: whose they were, what they did, and where. */
  const drawParts = (parts) => [h("h3", {}, "Split"), h("div", { class: "parts" }, parts.map((part) => [
    h("span", { class: "num" }, duration(part.total_ns)), h("span", { class: "num dim" }, percent(part.share)), h("span", {}, dot(part.cause), part.cause),
    h("span", { title: `${part.function}\n${place(part, false)}` }, part.coroutine ? [h("b", {}, part.coroutine), part.tasks > 1 ? ` ×${part.tasks}` : "", " · "] : "", part.function, h("span", { class: "place" }, `  ${place(part)}`))]))];
  function draw() {
    const s = state.picked;
    if (!s) {
      aside.replaceChildren(h("div", { class: "empty" }, stalls.length ? "Choose a stall in the timeline or in a list to see where its time went, its stack, and what to do." : "There was no stall: every turn was shorter than the threshold."));
      return;
    }
    const seen = s.cause === "cpu" ? "sample" : "sleep";
    const ofCause = [...s.stacks].sort((a, b) => (a.cause !== s.cause) - (b.cause !== s.cause) || b.ns - a.ns);
    const [main, ...others] = ofCause;
    aside.replaceChildren(h("div", { class: "detail" },
      h("h2", {}, `${s.ongoing ? "still stalled, " : ""}${s.atAttach ? "at least " : ""}${s.upperBound ? "≤ " : ""}${duration(s.duration)}`, h("small", {}, dot(s.cause), s.cause, s.word ? ` · ${s.word}` : "")),
      h("div", { class: "blame" }, s.blocker ? [h("b", {}, s.blocker.name), h("div", { class: "dim" }, place(s.blocker, false))] : h("span", { class: "dim" }, "no code of the target is to blame")),
      s.advice ? h("div", { class: "advice" }, h("b", {}, "Advice  "), s.advice) : null,
      h("dl", {}, h("dt", {}, "at"), h("dd", {}, `${timeOfDay(s.start)}${s.start > 1e6 ? `, ${duration(s.start)} after the beginning` : ""}`),
        h("dt", {}, "loop"), h("dd", {}, `${s.loop.thread} · pid ${s.loop.pid} tid ${s.loop.tid} · ${s.loop.runtime}`),
        s.task ? [h("dt", {}, "task"), h("dd", {}, s.task.name, s.task.chain.length ? `: ${s.task.chain.join(" → ")}` : "")] : null,
        s.outside ? [h("dt", {}, "outside"), h("dd", {}, `${s.outside.what}: ${s.outside.who}`)] : null,
        s.upperBound ? [h("dt", {}, "note"), h("dd", {}, "may be several turns: not every poll was seen")] : null,
        s.extra ? extraRows(s.extra) : null),
      h("h3", {}, "Where the time went"),
      h("div", { class: "bar" }, s.ledger.map((ns, index) => (ns ? h("i", { style: { width: `${100 * ns / s.duration}%`, background: `var(--${CAUSES[index]})` } }) : null))),
      h("div", { class: "ledger" }, s.ledger.map((ns, index) => [CAUSES[index], ns]).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]).map(([cause, ns]) => [
        h("span", {}, dot(cause), cause), h("span", { class: "num" }, duration(ns)), h("span", { class: "num dim" }, percent(ns / s.duration)), h("span", { class: "meter", style: { width: `${Math.max(0.5, 100 * ns / s.duration)}%`, background: `var(--${cause})` } })])),
      s.extra?.parts ? drawParts(s.extra.parts) : null,
      s.syscalls.length ? [h("h3", {}, "Slept in"), h("dl", {}, s.syscalls.map((call) => [h("dt", { class: "mono" }, `${call.name} ×${call.count}`), h("dd", {}, duration(call.total), call.count > 1 ? `, longest ${duration(call.max)}` : "", call.resource ? h("span", { class: "mono dim" }, `  ${call.resource}`) : null)]))] : null,
      main && !hasBlocker(s.cause) && main.cause === s.cause ? [h("h3", {}, "Stack"), h("details", {}, h("summary", { class: "dim" }, "where it happened to be; no line is to blame"), drawFrames(main.frames, null, main.cause))] : main ? [h("h3", {}, `Stack: ${percent(s.ledger[CAUSES.indexOf(main.cause)] ? Math.min(1, main.ns / s.ledger[CAUSES.indexOf(main.cause)]) : 0)} of ${main.cause}, ${plural(main.samples, main.cause === "cpu" ? "sample" : "sleep")}, innermost first`), drawFrames(main.frames, main.cause === s.cause ? s.blocker : null, main.cause),
        main.truncated ? h("div", { class: "dim" }, `incomplete: ${main.truncated}`) : null,
        main.holder ? [h("h3", {}, `Held by ${main.holder.thread} (${main.holder.tid})`), drawFrames(main.holder.frames, null, main.cause)] : null] : h("p", { class: "dim" }, `no ${seen} with a stack`),
      others.length ? [h("h3", {}, `${plural(others.length, "other stack")}`), others.slice(0, 12).map((stack) => {
        const innermost = [...stack.frames].reverse().find((frame) => frame.user) ?? stack.frames.at(-1);
        const fold = h("details", {}, h("summary", {}, dot(stack.cause), `${duration(stack.ns)}  ${innermost?.name ?? "?"} `, h("span", { class: "place" }, place(innermost))));
        fold.addEventListener("toggle", () => { if (fold.open && fold.childElementCount === 1) fold.append(drawFrames(stack.frames, null, stack.cause), ...(stack.holder ? [h("div", { class: "dim" }, `held by ${stack.holder.thread} (${stack.holder.tid})`), drawFrames(stack.holder.frames, null, stack.cause)] : [])); });
        return fold;
      })] : null,
      h("p", { class: "faint" }, `stall ${s.id + 1} of ${stalls.length}${s.kernelShare === null ? "" : ` · ${percent(s.kernelShare)} of the CPU time in the kernel`} `,
        h("button", { class: "plain", type: "button", onclick: () => step(-1) }, "‹ previous"), h("button", { class: "plain", type: "button", onclick: () => step(1) }, "next ›"),
        h("button", { class: "plain", type: "button", onclick: () => { state.key = s.key; applyFilter(); } }, "all of this blocker"))));
    aside.scrollTop = 0;
  }
  listeners.pick.push(draw);
}
