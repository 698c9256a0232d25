// The grid of a batch: fetched whole, then by its changes, and painted on a canvas, of which only what is visible.
"use strict";

(() => {
  const grid = document.getElementById("grid");
  if (!grid) return;
  const view = document.getElementById("grid-window");
  const space = document.getElementById("grid-space");
  const canvas = document.getElementById("grid-canvas");
  const under = document.getElementById("grid-under");
  const heads = document.getElementById("grid-heads");
  const order = document.getElementById("grid-order");
  const size = document.getElementById("grid-size");
  const find = document.getElementById("grid-find");
  const STATES = {a: "active", f: "failed", h: "held", r: "removed"};
  const ENDED = "sftrc";
  const NAMES_PIXELS = 200;
  const RETRY_MILLISECONDS = 3000;

  let number = 0;
  let columns = [];
  let ids = [];
  let keys = [];
  let states = [];
  let rowOf = new Map();
  let cells = new Uint8Array(0);
  let shown = [];
  let rowPixels = 18;
  let isFetching = false;
  let isStale = false;
  let isPlanned = false;
  let meanings = {};
  let colours = {};

  // --- What is there ---------------------------------------------------------------------------------------------

  function takeWhole(answer) {
    columns = answer.columns;
    ids = answer.member_ids;
    keys = answer.member_keys;
    states = [...answer.member_states];
    rowOf = new Map(ids.map((id, row) => [id, row]));
    cells = new TextEncoder().encode(answer.cells);
    showHeads();
  }

  function takeChanges(answer) {
    const width = columns.length;
    answer.member_ids.forEach((id, place) => {
      let row = rowOf.get(id);
      if (row === undefined) {
        row = ids.length;
        rowOf.set(id, row);
        ids.push(id);
        const longer = new Uint8Array((row + 1) * width).fill(46);
        longer.set(cells);
        cells = longer;
      }
      keys[row] = answer.member_keys[place];
      states[row] = answer.member_states[place];
    });
    answer.cell_members.forEach((id, place) => {
      const row = rowOf.get(id);
      if (row !== undefined) cells[row * width + answer.cell_columns[place]] = answer.cells.charCodeAt(place);
    });
  }

  async function read() {
    if (isFetching) {
      isStale = true;
      return;
    }
    isFetching = true;
    try {
      const answer = await fetch(`${grid.dataset.address}?since=${number}`, {headers: {Accept: "application/json"}});
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const found = await answer.json();
      const before = ids.length;
      if (found.whole) takeWhole(found);
      else takeChanges(found);
      number = found.number;
      if (found.whole || ids.length !== before || order.value === "behind") arrange();
      paint();
      if (!under.dataset.cell) summarize();
      grid.dataset.number = number;
    } catch (error) {
      under.textContent = `The grid could not be read: ${error.message}. Trying again …`;
      delete under.dataset.cell;
      setTimeout(read, RETRY_MILLISECONDS);
    } finally {
      isFetching = false;
      if (isStale) {
        isStale = false;
        read();
      }
    }
  }

  // --- How it is shown -------------------------------------------------------------------------------------------

  function progress(row) {
    const first = row * columns.length;
    let ended = 0;
    for (let place = first; place < first + columns.length; place++) if (ENDED.includes(String.fromCharCode(cells[place]))) ended++;
    return ended;
  }

  function arrange() {
    const wanted = find.value.trim().toLowerCase();
    shown = [];
    for (let row = 0; row < ids.length; row++) if (!wanted || keys[row].toLowerCase().includes(wanted)) shown.push(row);
    if (order.value === "behind") {
      const done = new Map(shown.map((row) => [row, states[row] === "r" ? Infinity : progress(row)]));
      shown.sort((one, other) => done.get(one) - done.get(other) || one - other);
    }
    rowPixels = size.value !== "auto" ? Number(size.value) : shown.length <= 200 ? 18 : 4;
    space.style.height = `${shown.length * rowPixels}px`;
    view.classList.toggle("few", shown.length * rowPixels < 480);
  }

  function names() {
    return rowPixels >= 12 ? Math.min(NAMES_PIXELS, view.clientWidth * 0.4) : 0;
  }

  function columnPixels() {
    return Math.max(3, Math.min(90, (view.clientWidth - names()) / Math.max(1, columns.length)));
  }

  function showHeads() {
    const spans = [];
    for (const column of columns) {
      const last = spans[spans.length - 1];
      if (last && last.phase === column.phase && last.version === column.version) last.count++;
      else spans.push({phase: column.phase, version: column.version, count: 1});
    }
    const made = (words, count) => {
      const head = document.createElement("span");
      head.textContent = head.title = words;
      head.dataset.count = count;
      return head;
    };
    heads.children[0].replaceChildren(...spans.map((one) => made(one.phase, one.count)));
    heads.children[1].replaceChildren(...columns.map((one) => made(one.step, 1)));
  }

  function readColours() {
    document.querySelectorAll("#grid .swatch").forEach((swatch) => {
      const style = getComputedStyle(swatch);
      colours[swatch.dataset.cell] = style.backgroundColor;
      meanings[swatch.dataset.cell] = swatch.parentElement.textContent.trim();
    });
    const style = getComputedStyle(view);
    colours.text = style.color;
    colours.back = getComputedStyle(document.body).backgroundColor;
  }

  function paint() {
    if (isPlanned) return;
    isPlanned = true;
    requestAnimationFrame(() => {
      isPlanned = false;
      paintNow();
    });
  }

  function paintNow() {
    const scale = window.devicePixelRatio || 1;
    const width = view.clientWidth;
    const height = Math.min(view.clientHeight, Math.max(rowPixels, shown.length * rowPixels));
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const left = names(), wide = columnPixels(), gap = rowPixels >= 12 ? 2 : rowPixels > 4 ? 1 : 0;
    heads.style.paddingLeft = `${left}px`;
    heads.children[1].hidden = wide < 36;
    heads.querySelectorAll("span").forEach((head) => { head.style.width = `${Number(head.dataset.count) * wide}px`; });
    const paper = canvas.getContext("2d");
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    paper.fillStyle = colours.back;
    paper.fillRect(0, 0, width, height);
    const first = Math.floor(view.scrollTop / rowPixels), offset = first * rowPixels - view.scrollTop;
    const count = Math.ceil(height / rowPixels) + 1;
    paper.font = "12px system-ui, sans-serif";
    paper.textBaseline = "middle";
    const byColour = new Map();
    for (let place = 0; place < count && first + place < shown.length; place++) {
      const row = shown[first + place], top = offset + place * rowPixels;
      for (let column = 0; column < columns.length; column++) {
        const cell = String.fromCharCode(cells[row * columns.length + column]);
        if (!byColour.has(cell)) byColour.set(cell, []);
        byColour.get(cell).push(left + column * wide, top);
      }
      if (left) {
        paper.fillStyle = colours.text;
        paper.globalAlpha = states[row] === "r" ? 0.55 : 1;
        const sign = {f: "✕ ", h: "‖ ", r: "− "}[states[row]] || "";
        const fitting = Math.floor((left - 8) / 6.6), name = sign + keys[row];
        paper.fillText(name.length > fitting ? `${name.slice(0, fitting - 1)}…` : name, 2, top + rowPixels / 2, left - 6);
        paper.globalAlpha = 1;
      }
    }
    for (const [cell, places] of byColour) {
      paper.fillStyle = colours[cell] || colours.text;
      for (let place = 0; place < places.length; place += 2) {
        paper.fillRect(places[place], places[place + 1], wide - Math.min(1, gap || (wide > 6 ? 1 : 0)), rowPixels - gap);
      }
    }
    grid.dataset.rows = shown.length;
    if (ids.length && !grid.dataset.paintedAt) grid.dataset.paintedAt = performance.now();
  }

  function summarize() {
    const counts = new Map();
    for (const cell of cells) counts.set(cell, (counts.get(cell) || 0) + 1);
    const said = [...counts].sort((one, other) => other[1] - one[1])
      .map(([cell, count]) => `${count.toLocaleString()} ${meanings[String.fromCharCode(cell)]}`);
    const members = `${ids.length.toLocaleString()} members × ${columns.length} steps`;
    under.textContent = ids.length ? `${members}: ${said.join(", ")}.` : "The batch has no members.";
  }

  // --- Pointing and choosing -------------------------------------------------------------------------------------

  function pointed(event) {
    const place = canvas.getBoundingClientRect();
    const row = shown[Math.floor((event.clientY - place.top + view.scrollTop) / rowPixels)];
    const column = Math.floor((event.clientX - place.left - names()) / columnPixels());
    return {row, column};
  }

  canvas.addEventListener("mousemove", (event) => {
    const {row, column} = pointed(event);
    if (row === undefined) return;
    const at = columns[column];
    const cell = at ? `: ${at.phase}, ${at.step}: ${meanings[String.fromCharCode(cells[row * columns.length + column])]}` : "";
    under.textContent = `${keys[row]} (${STATES[states[row]]})${cell}`;
    under.dataset.cell = "1";
  });
  canvas.addEventListener("mouseleave", () => {
    delete under.dataset.cell;
    summarize();
  });
  canvas.addEventListener("click", (event) => {
    const {row} = pointed(event);
    if (row !== undefined) location.assign(grid.dataset.member + ids[row]);
  });
  view.addEventListener("scroll", paint, {passive: true});
  for (const [control, name] of [[order, "change"], [size, "change"], [find, "input"]]) {
    control.addEventListener(name, () => {
      arrange();
      view.scrollTop = 0;
      paint();
    });
  }
  new ResizeObserver(() => {
    if (ids.length) arrange();
    paint();
  }).observe(view);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    paint();
  });

  // The page's stream says that something is new; it also does after it was lost and found again.
  grid.addEventListener("refresh", (event) => {
    if (event.target === grid) read();
  });
  readColours();
  read();
})();
