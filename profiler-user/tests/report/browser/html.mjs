// Uses a report as a reader would, and prints what happened. Arguments: the page, where screenshots go.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { withPage } from "./chromium.mjs";

const [file, shots] = process.argv.slice(2);
const found = {};
const shot = async (page, name) => { if (shots) writeFileSync(join(shots, `${name}.png`), await page.screenshot()); };
const $ = (selector) => `document.querySelector(${JSON.stringify(selector)})`;
const type = (selector, text) => `(() => { const box = ${$(selector)}; box.value = ${JSON.stringify(text)}; box.dispatchEvent(new Event("input")); })()`;

await withPage({ width: 1440, height: 1200 }, async (page) => {
  await page.send("Network.enable");
  await page.open(pathToFileURL(file));
  await page.until(`document.documentElement.dataset.ready === "yes"`);
  // From the beginning of the navigation to the end of the script, by the page's own clock.
  found.loadMs = await page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd");
  found.title = await page.evaluate("document.title");
  found.stalls = await page.evaluate(`${$("#verdict .big")}.textContent`);
  found.longest = await page.evaluate(`${$("#detail h2")}.textContent`);
  found.split = await page.evaluate(`${$("#detail .parts")}?.textContent ?? null`);
  found.advice = await page.evaluate(`${$("#detail .advice")}?.textContent ?? null`);
  found.rowsInSight = await page.evaluate(`document.querySelectorAll("#panel-blockers .row").length`);
  await shot(page, "light");

  // Click a stall in the timeline: the canvas is searched for a pixel with a cause's colour.
  const at = await page.evaluate(`(() => {
    const canvas = ${$("#timeline canvas")}, box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    for (let x = Math.ceil(200 * ratio); x < canvas.width; x++) for (let y = Math.ceil(28 * ratio); y < canvas.height; y++) {
      const i = (y * canvas.width + x) * 4, [r, g, b, a] = pixels.slice(i, i + 4);
      if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 90) return { x: box.left + x / ratio + 0.5, y: box.top + y / ratio + 0.5 };
    }
    return null;
  })()`);
  if (at) {
    await page.evaluate(`${$("#detail")}.replaceChildren()`);
    await page.click(at.x, at.y);
    found.clicked = await page.until(`${$("#detail h2")}?.textContent`);
    found.ledger = await page.evaluate(`${$("#detail .ledger")}?.textContent`);
    found.frames = await page.evaluate(`document.querySelectorAll("#detail .frame").length`);
  }
  // The keyboard: next stall, previous stall.
  await page.key("j", "KeyJ", "j");
  const next = await page.evaluate(`${$("#detail .faint:last-child")}.textContent`);
  await page.key("k", "KeyK", "k");
  found.keysMove = next !== await page.evaluate(`${$("#detail .faint:last-child")}.textContent`);
  await page.key("/", "Slash", "/");
  found.slashSearches = await page.evaluate(`document.activeElement === ${$("#search")}`);

  // Search narrows the stalls.
  await page.evaluate(type("#search", "clock_nanosleep"));
  await page.until(`${$("#filters .count")}.textContent.includes(" of ")`);
  found.searched = await page.evaluate(`${$("#filters .count")}.textContent`);
  await page.evaluate(`${$("#reset")}.click()`);
  await page.until(`!${$("#filters .count")}.textContent.includes(" of ")`);

  // The flame graph: search marks, a click zooms.
  await page.evaluate(`${$("#tab-flame")}.click()`);
  await page.until(`${$("#flame g.frame")} !== null`);
  // It grows into place.
  await page.until(`Math.max(...[...document.querySelectorAll("#flame g.frame rect")].map((cell) => cell.getBoundingClientRect().width)) > 600`);
  await new Promise((resolve) => setTimeout(resolve, 400));
  found.cells = await page.evaluate(`document.querySelectorAll("#flame g.frame").length`);
  await page.evaluate(type("#flame-search", "nanosleep|recv|digest"));
  found.marked = await page.until(`${$("#panel-flame .found")}.textContent`);
  const cell = await page.evaluate(`(() => { const found = [...document.querySelectorAll("#flame g.frame rect")].map((c) => [c, c.getBoundingClientRect()]).filter(([, r]) => r.width > 2 && r.width < 600).sort(([, a], [, b]) => b.width - a.width)[0]; if (!found) return null; const [clicked, box] = found; clicked.dataset.clicked = "yes"; return { x: box.left + box.width / 2, y: box.top + box.height / 2 }; })()`);
  if (cell) {
    await page.click(cell.x, cell.y);
    await page.until(`${$("#flame rect[data-clicked]")}.getBoundingClientRect().width > 600`);
    found.zoomed = true;
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
  await shot(page, "flame");
  await page.evaluate(`${$("#flame-reset")}.click()`);

  await page.evaluate(`${$("#theme")}.click()`);
  found.theme = await page.evaluate("document.documentElement.dataset.theme");
  await page.evaluate(`${$("#tab-loops")}.click()`);
  found.histograms = await page.evaluate(`document.querySelectorAll("#panel-loops .hist, #panel-loops .loop p").length`);
  await shot(page, "dark");
  await page.evaluate(`${$("#tab-stalls")}.click()`);
  found.stallRows = await page.evaluate(`document.querySelectorAll("#panel-stalls .row").length`);
  found.licences = await page.evaluate(`${$("#panel-about pre")}.textContent.includes("d3-flame-graph")`);

  found.owned = await page.evaluate("window.owned ?? null");
  found.markup = await page.evaluate(`document.querySelectorAll("body img, body script[src], iframe, object").length`);
  found.requests = page.requests().filter((url) => !url.startsWith("file://") && !url.startsWith("data:"));
  found.errors = page.errors();
});
console.log(JSON.stringify(found));
