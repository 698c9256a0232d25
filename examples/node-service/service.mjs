// A platform service in Node alone (20 or newer): counts the words and lines of a text file. See README.md.
import { copyFile, mkdir, readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const { LUCIUS_ORCHESTRATOR_URL: url = "http://127.0.0.1:8000", LUCIUS_SERVICE: service = "count" } = process.env;
const { LUCIUS_API_KEY: key = "", LUCIUS_PLATFORM_STATE: state = ".count-service" } = process.env;
const SLOTS = 4, SEEN_MAX = 10_000, CALL_SECONDS_MAX = 30, PULL_SECONDS = 20;
const seen = new Set(), running = new Set(), stop = new AbortController();

const refUri = (ref) => (typeof ref === "string" ? ref : ref.uri);
const backoff = (failures, retryAfter = 0) => sleep(Math.max(retryAfter * 1000, Math.min(5000, 200 * 2 ** failures) * (0.5 + Math.random() / 2)));

async function post(path, body, headers, signal = AbortSignal.timeout(CALL_SECONDS_MAX * 1000)) {
  try {
    const options = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers }, signal };
    const response = await fetch(url + path, options);
    return { ...(await response.json()), status: response.status, retryAfter: Number(response.headers.get("Retry-After") ?? 0) };
  } catch {
    return { status: 0 }; // No answer: refused, cut, or too late.
  }
}

async function callBack(kind, directive, fields, triesMax = Infinity) {
  const { jobId, stepId, tenant_id, attempt_no, lease_id, callback_token } = directive;
  const body = { jobId, stepId, tenant_id, attempt_no, lease_id, ...fields };
  for (let tries = 1; ; tries++) {
    const answer = await post(`/v1/callbacks/${kind}`, body, { "Lucius-Callback-Token": callback_token });
    const decided = answer.status !== 0 && answer.status !== 429 && answer.status < 500;
    if (decided || tries >= triesMax) return answer;
    await backoff(tries - 1, answer.retryAfter);
  }
}

async function writeWhole(path, content) {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(`${path}.partial`, content);
  await rename(`${path}.partial`, path); // Readers see all of it or nothing, after a crash too.
}

async function work(directive, attempt) {
  const text = await readFile(fileURLToPath(refUri(directive.input_ref)), "utf8"); // Percent-decodes the path.
  const until = Date.now() + (directive.contract_test?.work_seconds ?? 0) * 1000; // The contract kit asks for slow work.
  while (!attempt.stopped && Date.now() < until) await sleep(50);
  if (attempt.stopped) throw new Error(attempt.stopped);
  const output = new URL("count/output.json", directive.workspace_ref);
  const counts = { words: text.split(/\s+/).filter(Boolean).length, lines: text.split("\n").length - 1 };
  await writeWhole(fileURLToPath(output), JSON.stringify(counts));
  if (attempt.stopped) throw new Error(attempt.stopped); // The last look before the world outside the workspace changes.
  if (directive.last_step) await copyFile(fileURLToPath(output), fileURLToPath(refUri(directive.output_ref)));
  return { status: "SUCCEEDED", artifacts: { ...counts, count_ref: output.href } };
}

const failed = (code, message) => ({ status: "FAILED", failure_class: "NON_RETRYABLE", error: { code, message } });

async function handle(directive) {
  const done = fileURLToPath(new URL("count/result.json", directive.workspace_ref));
  const answer = await callBack("ack", directive, {});
  if (answer.status !== 200) return; // 409: the attempt is somebody else's.
  const attempt = { stopped: answer.cancel_requested ? "CANCELLED" : "" }, ended = new AbortController();
  const beating = beat(directive, attempt, ended.signal);
  // A result in the attempt's own folder: it was worked in an earlier life of this process.
  const fields = await readFile(done, "utf8").then(JSON.parse, () => work(directive, attempt)).catch((error) => failed(error.code ?? error.message, error.message));
  ended.abort();
  await beating;
  if (attempt.stopped === "STALE") return;
  if (fields.status === "SUCCEEDED") await writeWhole(done, JSON.stringify(fields));
  await writeWhole(join(state, `${directive.jobId}-${directive.attempt_no}.json`), JSON.stringify({ directive, fields }));
  await report(directive, fields);
}

async function beat(directive, attempt, ended) {
  while (!attempt.stopped && (await sleep(directive.lease_seconds * 333, true, { signal: ended }).catch(() => false))) {
    const answer = await callBack("heartbeat", directive, {}, 1);
    attempt.stopped = answer.status === 409 ? "STALE" : answer.cancel_requested ? "CANCELLED" : "";
  }
}

async function report(directive, fields) {
  const answer = await callBack("result", directive, fields);
  if (answer.status === 413 || answer.status === 422) await callBack("result", directive, failed("RESULT_REFUSED", answer.detail));
  await rm(join(state, `${directive.jobId}-${directive.attempt_no}.json`), { force: true });
}

function run(promise) {
  const task = promise.catch((error) => console.error(error)).finally(() => running.delete(task));
  running.add(task);
}

process.on("SIGTERM", () => stop.abort());
await mkdir(state, { recursive: true });
for (const name of (await readdir(state)).filter((one) => one.endsWith(".json"))) {
  const { directive, fields } = JSON.parse(await readFile(join(state, name), "utf8"));
  run(report(directive, fields)); // A RESULT that an earlier life of this process could not deliver.
}
for (let failures = 0; !stop.signal.aborted; ) {
  if (running.size >= SLOTS) { await Promise.race(running); continue; }
  const wanted = { service, max: SLOTS - running.size, wait_seconds: PULL_SECONDS };
  const signal = AbortSignal.any([stop.signal, AbortSignal.timeout((PULL_SECONDS + CALL_SECONDS_MAX) * 1000)]);
  const answer = await post("/v1/directives:pull", wanted, { Authorization: `Bearer ${key}` }, signal);
  if (answer.status !== 200) { if (!stop.signal.aborted) await backoff(failures++, answer.retryAfter); continue; }
  failures = 0;
  for (const directive of answer.directives) {
    const attempt = [directive.jobId, directive.stepId, directive.attempt_no, directive.lease_id].join(" ");
    if (seen.has(attempt)) continue; // Delivered again: it is in work, or has ended.
    if (seen.add(attempt).size > SEEN_MAX) seen.delete(seen.values().next().value);
    run(handle(directive));
  }
}
await Promise.all(running); // What is in work is finished before the process ends.
process.exit(0);
