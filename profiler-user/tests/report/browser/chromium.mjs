// Drives a headless Chromium through its own debugging protocol, on a pipe: no library is needed.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Starts Chromium, hands a page to `use`, and ends it whatever happens. */
export async function withPage(options, use) {
  const profile = mkdtempSync(join(tmpdir(), "stallscope-chromium-"));
  const chromium = spawn("chromium", [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--no-first-run",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--allow-file-access-from-files",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    `--window-size=${options.width ?? 1400},${options.height ?? 1000}`,
    `--user-data-dir=${profile}`, "--remote-debugging-pipe", "about:blank",
  ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"], detached: true });
  const [, , , to, from] = chromium.stdio;
  let next = 1, rest = "";
  const waiting = new Map(), events = [], listeners = [];
  from.setEncoding("utf8");
  from.on("data", (data) => {
    const parts = (rest + data).split("\0");
    rest = parts.pop();
    for (const part of parts) {
      const message = JSON.parse(part);
      if (message.id) {
        const { resolve, reject } = waiting.get(message.id);
        waiting.delete(message.id);
        message.error ? reject(new Error(message.error.message)) : resolve(message.result);
      } else {
        events.push(message);
        listeners.forEach((listener) => listener(message));
      }
    }
  });
  let session;
  const send = (method, params = {}) => new Promise((resolve, reject) => {
    const id = next++;
    waiting.set(id, { resolve, reject });
    to.write(JSON.stringify({ id, method, params, sessionId: session }) + "\0");
  });
  try {
    const { targetInfos } = await send("Target.getTargets");
    const target = targetInfos.find((info) => info.type === "page");
    session = (await send("Target.attachToTarget", { targetId: target.targetId, flatten: true })).sessionId;
    await Promise.all(["Page.enable", "Runtime.enable", "Log.enable"].map((method) => send(method)));
    const page = {
      send,
      /** What the page complained about. */
      errors: () => events
        .filter(({ method, params }) => method === "Runtime.exceptionThrown"
          || (method === "Log.entryAdded" && params.entry.level === "error")
          || (method === "Runtime.consoleAPICalled" && params.type === "error"))
        .map(({ params }) => params.exceptionDetails?.exception?.description
          ?? params.entry?.text ?? params.args?.map((arg) => arg.value).join(" ")),
      /** Requests that left the page. */
      requests: () => events.filter(({ method }) => method === "Network.requestWillBeSent").map(({ params }) => params.request.url),
      async open(url) {
        const loaded = new Promise((resolve) => listeners.push(({ method }) => method === "Page.loadEventFired" && resolve()));
        await send("Page.navigate", { url });
        await loaded;
      },
      async evaluate(expression) {
        const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
        if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
        return result.value;
      },
      async until(expression, milliseconds = 20000) {
        const deadline = Date.now() + milliseconds;
        for (;;) {
          const value = await this.evaluate(expression);
          if (value) return value;
          if (Date.now() > deadline) throw new Error(`never true: ${expression}`);
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      },
      async click(x, y) {
        for (const type of ["mousePressed", "mouseReleased"]) {
          await send("Input.dispatchMouseEvent", { type, x, y, button: "left", clickCount: 1 });
        }
      },
      async key(key, code = key, text = undefined) {
        await send("Input.dispatchKeyEvent", { type: "keyDown", key, code, text, windowsVirtualKeyCode: { Enter: 13, Escape: 27, ArrowRight: 39, ArrowLeft: 37, ArrowDown: 40, ArrowUp: 38, Tab: 9 }[key] ?? 0 });
        await send("Input.dispatchKeyEvent", { type: "keyUp", key, code });
      },
      async screenshot() {
        const { data } = await send("Page.captureScreenshot", { format: "png" });
        return Buffer.from(data, "base64");
      },
    };
    return await use(page);
  } finally {
    try { process.kill(-chromium.pid, "SIGKILL"); } catch { /* It has ended. */ }
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}
