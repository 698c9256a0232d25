// A platform service in Node alone (20 or newer): counts the words and lines of a text file. See README.md.
import { copyFile, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const { LUCIUS_ORCHESTRATOR_URL: url = "http://127.0.0.1:8000", LUCIUS_SERVICE: service = "count" } = process.env;
const SLOTS = 4, SEEN_MAX = 10_000, seen = new Set(), running = new Set(), stop = new AbortController();
const path = (ref) => fileURLToPath(ref.uri ?? ref); // Percent-decodes.
const wait = (failures, retryAfter = 0) => sleep(Math.max(retryAfter * 1000, Math.min(5000, 200 * 2 ** failures) * (0.5 + Math.random() / 2)));
const failure = (code, message) => ({ status: "FAILED", failure_class: "NON_RETRYABLE", error: { code, message } });

async function post(address, body, headers, seconds = 30, signal = stop.signal) {
  try {
    const options = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } };
    const response = await fetch(url + address, { ...options, signal: AbortSignal.any([signal, AbortSignal.timeout(seconds * 1000)]) });
    return { ...(await response.json()), status: response.status, retryAfter: Number(response.headers.get("Retry-After") ?? 0) };
  } catch { return { status: 0 }; } // No answer: refused, cut, or too late.
}
async function callBack(kind, directive, fields, triesMax = Infinity) {
  const { jobId, stepId, tenant_id, attempt_no, lease_id, callback_token } = directive;
  for (let tries = 1; ; tries++) {
    const body = { jobId, stepId, tenant_id, attempt_no, lease_id, ...fields };
    const answer = await post(`/v1/callbacks/${kind}`, body, { "Lucius-Callback-Token": callback_token }, 30, new AbortController().signal);
    if ((answer.status && answer.status !== 429 && answer.status < 500) || tries >= triesMax) return answer;
    await wait(tries - 1, answer.retryAfter);
  }
}
async function work(directive, attempt) {
  const text = await readFile(path(directive.input_ref), "utf8"), until = Date.now() + (directive.contract_test?.work_seconds ?? 0) * 1000;
  while (!attempt.stopped && Date.now() < until) await sleep(50); // The contract kit asks for slow work.
  const counts = { words: text.split(/\s+/).filter(Boolean).length, lines: text.split("\n").length - 1 };
  const output = new URL("count/output.json", directive.workspace_ref);
  if (attempt.stopped) return failure(attempt.stopped, "the work was stopped"); // Before the world outside changes.
  await mkdir(path(new URL(".", output)), { recursive: true });
  await writeFile(path(output) + ".partial", JSON.stringify(counts)).then(() => rename(path(output) + ".partial", path(output)));
  if (directive.last_step) await copyFile(path(output), path(directive.output_ref));
  return { status: "SUCCEEDED", artifacts: { ...counts, count_ref: output.href } };
}
async function handle(directive) {
  const answer = await callBack("ack", directive, {}), attempt = { stopped: answer.cancel_requested ? "CANCELLED" : "" };
  if (answer.status !== 200) return; // 409: the attempt is somebody else's.
  const beating = setInterval(async () => {
    const said = await callBack("heartbeat", directive, {}, 1);
    attempt.stopped = said.status === 409 ? "STALE" : said.cancel_requested ? "CANCELLED" : attempt.stopped;
  }, directive.lease_seconds * 333);
  const result = await work(directive, attempt).catch((error) => failure(error.code ?? "FAILED", error.message)).finally(() => clearInterval(beating));
  if (attempt.stopped === "STALE") return; // Nobody wants a RESULT.
  const { status, detail } = await callBack("result", directive, result);
  if (status === 413 || status === 422) await callBack("result", directive, failure("RESULT_REFUSED", detail));
}
process.on("SIGTERM", () => stop.abort());
for (let failures = 0; !stop.signal.aborted; ) {
  if (running.size >= SLOTS) { await Promise.race(running); continue; }
  const headers = { Authorization: `Bearer ${process.env.LUCIUS_API_KEY ?? ""}` };
  const answer = await post("/v1/directives:pull", { service, max: SLOTS - running.size, wait_seconds: 20 }, headers, 50);
  if (answer.status !== 200) { if (!stop.signal.aborted) await wait(failures++, answer.retryAfter); continue; }
  failures = 0;
  for (const directive of answer.directives) {
    const attempt = [directive.jobId, directive.stepId, directive.attempt_no, directive.lease_id].join(" ");
    if (seen.has(attempt)) continue; // Delivered again: it is in work, or has ended.
    if (seen.add(attempt).size > SEEN_MAX) seen.delete(seen.values().next().value);
    const task = handle(directive).catch(console.error).finally(() => running.delete(task));
    running.add(task);
  }
}
await Promise.all(running); // What is in work is finished before the process ends.
