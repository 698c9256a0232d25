// What pages do in the browser besides htmx: times in the reader's zone, live pieces that hold still, copying.
"use strict";

(() => {
  // --- Times -----------------------------------------------------------------------------------------------------

  const two = (number) => String(number).padStart(2, "0");

  function local(at) {
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }

  function distance(milliseconds) {
    const seconds = Math.round(Math.abs(milliseconds) / 1000);
    if (seconds < 120) return `${seconds} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }

  function showTime(element) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) return;
    const left = at.getTime() - Date.now();
    const away = left >= 0 ? `in ${distance(left)}` : `${distance(left)} ago`;
    const kind = element.dataset.countdown;
    const text = kind === undefined ? local(at) : kind === "short" ? away : `${local(at)} (${away})`;
    if (element.textContent !== text) element.textContent = text;
    const utc = `${element.dateTime.slice(0, 19).replace("T", " ")} UTC`;
    if (element.title !== utc) element.title = utc;
  }

  function showTimes() {
    document.querySelectorAll("time[datetime]").forEach(showTime);
  }

  setInterval(() => document.querySelectorAll("time[data-countdown]").forEach(showTime), 1000);
  new MutationObserver(showTimes).observe(document.body, {childList: true, subtree: true, characterData: true});
  showTimes();
  const zone = document.getElementById("zone");
  const named = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && named !== "UTC") zone.textContent = `Times are in ${named}; hover for UTC.`;

  // --- Times that are typed: in the reader's zone, sent in UTC ------------------------------------------------------

  function askInZone() {
    document.querySelectorAll("[data-zone]").forEach((words) => {
      if (words.textContent !== `(${named})`) words.textContent = `(${named})`;
    });
    document.querySelectorAll("input[data-moment]").forEach((field) => {
      const told = field.defaultValue;
      const at = new Date(told);
      if (told.endsWith("Z") && !Number.isNaN(at.getTime())) {
        const isUntouched = field.value === told; // After an exchange, the value no longer follows its default.
        field.dataset.told = told;
        field.defaultValue = local(at);
        if (isUntouched) field.value = field.defaultValue;
      }
      field.placeholder = field.placeholder.replace(/T(.*)Z$/, " $1");
    });
  }

  document.addEventListener("submit", (event) => {
    event.target.querySelectorAll("input[data-moment]").forEach((field) => {
      if (field.dataset.told && field.value === field.defaultValue) { // An hour that comes twice has no way back.
        field.value = field.dataset.told;
        return;
      }
      const typed = field.value.trim();
      const at = new Date(typed.replace(" ", "T"));
      if (/^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?$/.test(typed) && !Number.isNaN(at.getTime())) field.value = at.toISOString();
    });
  });
  new MutationObserver(askInZone).observe(document.body, {childList: true, subtree: true});
  addEventListener("pageshow", (event) => { // Back from what was sent.
    if (event.persisted) document.querySelectorAll("input[data-moment]").forEach((field) => { field.value = field.defaultValue; });
  });
  askInZone();

  // --- Live pieces -----------------------------------------------------------------------------------------------

  const live = document.getElementById("live");
  const lost = document.getElementById("lost");
  const pause = document.getElementById("pause");
  const stale = new Set();
  const due = new Set();
  let isPaused = false;
  let wasConnected = false;

  function say(state, words) {
    if (!live) return;
    live.dataset.state = state;
    if (live.textContent !== words) live.textContent = words;
    lost.hidden = state !== "lost";
  }

  function isFilledIn(piece) {
    const fields = [...piece.querySelectorAll("form input:not([type=hidden]), form textarea")];
    return fields.some((field) => field.value !== field.defaultValue);
  }

  function holdsStill(piece) {
    if (piece.querySelector("details.act[open]") || isFilledIn(piece)) return true; // Somebody is about to act.
    if (!("holdsStill" in piece.dataset)) return false;
    const focused = piece.contains(document.activeElement) && document.activeElement !== piece;
    return focused || piece.matches(":hover");
  }

  function refresh(piece) {
    if (isPaused || document.hidden || holdsStill(piece)) {
      stale.add(piece);
      piece.classList.add("stale");
      return;
    }
    stale.delete(piece);
    piece.classList.remove("stale");
    if (!piece.hasAttribute("hx-get")) { // The grid reads its changes by itself.
      htmx.trigger(piece, "refresh");
      return;
    }
    if (!due.size) queueMicrotask(readDue);
    due.add(piece);
  }

  // Pieces that are due at the same moment are read with one request.
  function readDue() {
    const [first, ...others] = due;
    due.clear();
    if (!others.length) {
      htmx.trigger(first, "refresh");
      return;
    }
    const more = others.map((piece) => `&piece=${piece.dataset.name}`).join("");
    htmx.ajax("GET", first.getAttribute("hx-get") + more, {source: "#main", target: "#main", swap: "none"});
  }

  // What is under the pointer stays there, although a piece above it has become longer or shorter.
  let pointer = null;
  let seen = null;
  document.addEventListener("mousemove", (event) => { pointer = [event.clientX, event.clientY]; }, {passive: true});
  document.documentElement.addEventListener("mouseleave", () => { pointer = null; });
  document.addEventListener("htmx:before:swap", () => {
    const element = pointer && document.elementFromPoint(...pointer);
    seen = element && element.closest("main *") ? {element, top: element.getBoundingClientRect().top} : null;
  });
  document.addEventListener("htmx:after:swap", () => {
    if (seen && seen.element.isConnected) scrollBy(0, seen.element.getBoundingClientRect().top - seen.top);
    seen = null;
  });

  function catchUp() {
    for (const piece of [...stale]) refresh(piece);
  }

  function refreshFollowing() {
    document.querySelectorAll(".piece:not([data-follows=''])").forEach(refresh);
  }

  function connectAgain(element) {
    const fresh = element.cloneNode(false);
    setTimeout(() => {
      element.replaceWith(fresh);
      listen(fresh);
      htmx.process(fresh);
    }, 3000);
  }

  function listen(stream) {
    stream.addEventListener("changed", (event) => {
      const names = new Set(event.detail.data.split(" "));
      document.querySelectorAll(".piece").forEach((piece) => {
        if (piece.dataset.follows.split(" ").some((name) => names.has(name))) refresh(piece);
      });
    });
    stream.addEventListener("ended", () => location.reload());
    stream.addEventListener("htmx:sse:after:connection", () => {
      say("live", "live");
      refreshFollowing(); // Nobody was told of what changed since the page was made.
      wasConnected = true;
    });
    stream.addEventListener("htmx:sse:before:connection", () => {
      if (wasConnected && !document.hidden) say("lost", "not live");
    });
    for (const name of ["htmx:sse:error", "htmx:error", "htmx:response:error"]) {
      stream.addEventListener(name, () => say("lost", "not live"));
    }
    stream.addEventListener("htmx:sse:close", () => say("lost", "not live"));
    stream.addEventListener("htmx:finally:request", () => {
      if (live.dataset.state !== "live") {
        say("lost", "not live");
        connectAgain(stream);
      }
    });
  }

  const stream = document.getElementById("stream");
  if (stream) listen(stream);
  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      isPaused = !isPaused;
      pause.setAttribute("aria-pressed", String(isPaused));
      pause.textContent = isPaused ? "Continue" : "Pause";
      document.body.classList.toggle("paused", isPaused);
      if (!isPaused) catchUp();
    });
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) catchUp(); });
  document.addEventListener("mouseover", catchUp);
  document.addEventListener("focusin", catchUp);
  document.addEventListener("toggle", catchUp, true);
  document.querySelectorAll(".piece[data-every]").forEach((piece) => {
    setInterval(() => refresh(piece), Number(piece.dataset.every) * 1000);
  });

  // --- Files into texts ------------------------------------------------------------------------------------------

  document.querySelectorAll("input[type=file][data-into]").forEach((chooser) => {
    chooser.hidden = false;
    chooser.addEventListener("change", async () => {
      const [file] = chooser.files;
      if (file) document.getElementById(chooser.dataset.into).value = await file.text();
    });
  });

  // --- Copying ---------------------------------------------------------------------------------------------------

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = before; }, 2000);
  });
})();
