// Opens a profile in speedscope's own page, from disk, and prints what the page made of it.
import { readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { withPage } from "./chromium.mjs";

const [index, profile] = process.argv.slice(2);
// The way in which speedscope's command line hands a file to its page.
const base64 = readFileSync(profile).toString("base64");
const script = join(dirname(profile), "profile.js");
writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(basename(profile))}, ${JSON.stringify(base64)})`);
await withPage({}, async (page) => {
  await page.open(`${pathToFileURL(index)}#localProfilePath=${script}`);
  await page.until(`document.title !== "speedscope" && !/^speedscope/.test(document.title)`);
  const title = await page.evaluate("document.title");
  console.log(JSON.stringify({ title, errors: page.errors() }));
});
