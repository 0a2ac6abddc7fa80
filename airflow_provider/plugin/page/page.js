// The page of a job: asks for its state as long as somebody looks, and shows it.
"use strict";

const STATES = { r: "reused", c: "computed", m: "missing", l: "lost" };
const framed = window.self !== window.top;
let job = null;
let announced = "";

const VERTEX_STATES = {
  FINISHED: ["good", "✓", "complete"],
  RUNNING: ["busy", "▶", "being computed"],
  WAITING: ["muted", "○", "not reached yet"],
  INCOMPLETE: ["warn", "◐", "incomplete"],
  SUPERSEDED: ["muted", "↷", "superseded"],
  RELEASED: ["muted", "✓", "released, because all that reads it is stored"],
};
const isGone = (vertex) => ["SUPERSEDED", "RELEASED"].includes(vertex.state);

function attemptState(answer) {
  const state = jobState(answer);
  return state !== "STARTING" ? state : answer.view.state === "FAILED" ? "FAILED" : "LOST";
}

// -- showing --------------------------------------------------------------------------------------------------------

function show(answer) {
  const { task, view } = answer;
  const mapped = task.map_index >= 0 ? ` [${task.map_index}]` : "";
  document.title = `${task.task_id}${mapped}: Spark recovery`;
  $("crumbs").textContent = `${task.dag_id}  ›  ${task.run_id}`;
  $("heading").textContent = task.task_id + mapped;
  const state = jobState(answer);
  $("state").hidden = !view;
  $("state").replaceWith(Object.assign(pill(JOB_STATES[state] || JOB_STATES.NONE), { id: "state", hidden: !view }));
  $("subtitle").textContent = task.state
    ? `Airflow: ${task.state.replaceAll("_", " ")}, try ${task.try_number} of ${task.max_tries + 1}`
    : "";
  notice("problem", "error", answer.problem);
  notice("discard", "info", answer.discard && view
    ? `${sentence(answer.discard.reason)} The next attempt starts afresh. Clear the task in Airflow to start it.`
    : "");
  const nothing = !view;
  if (view && ["LOST", "UNSURE", "STARTING"].includes(state)) {
    for (const vertex of view.vertices) if (["RUNNING", "WAITING"].includes(vertex.state)) vertex.state = "INCOMPLETE";
  }
  $("empty").hidden = !nothing;
  $("job").hidden = nothing;
  $("job").classList.toggle("given-up", Boolean(answer.discard));
  if (nothing) {
    $("empty-title").textContent = answer.missing || (answer.problem ? "The job's state cannot be read." : "Nothing is recorded yet.");
    $("empty-text").textContent = answer.remedy || (answer.problem ? "" : "The page fills as soon as the driver records something.");
  } else {
    figures(answer);
    graph(view);
    vertices(view);
    attempts(answer);
    events(view);
    facts(answer);
  }
  actions(answer, state);
  announce(answer, state);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

function announce(answer, state) {
  if (!answer.view) return;
  const said = `Job ${(JOB_STATES[state] || JOB_STATES.NONE)[2]}, attempt ${answer.view.attempt}.`;
  if (said !== announced) $("announce").textContent = said;
  announced = said;
}

function figures(answer) {
  const { view } = answer;
  const total = view.partitions;
  const sum = (name) => view.vertices.filter((vertex) => !isGone(vertex)).reduce((all, vertex) => all + vertex[name], 0);
  const parts = { r: sum("reused"), c: sum("computed"), l: sum("lost"), m: sum("missing") };
  $("progress-figure").replaceChildren(count(view.stored), make("span", { class: "of" }, ` of ${many(total, "partition")}`));
  const told = bar($("progress-bar"), parts);
  const fate = answer.discard ? " · none of it will be reused" : view.state === "FINISHED" && answer.task.state === "success" ? " · released since" : "";
  const complete = view.vertices.filter((vertex) => vertex.state === "FINISHED").length;
  $("progress-text").textContent = `${told || "No partitions yet"} · ${complete} of ${many(view.vertices.filter((vertex) => !isGone(vertex)).length, "recovery point")} complete · ${size(view.bytes_held)} held, ${size(view.most_bytes_held)} at the most${fate}`;
  $("reused-figure").textContent = count(view.reused);
  $("reused-text").textContent = view.reused ? `${size(view.bytes_reused)} kept from earlier attempts` : "nothing kept from earlier attempts";
  $("saved-figure").textContent = duration(view.task_seconds_saved);
  $("saved-text").textContent = `${duration(view.task_seconds)} computed by attempt ${view.attempt}`;
  const [retry, what] = savings(answer);
  $("retry-title").textContent = view.retry.work ? "A retry would keep" : "A retry would save";
  $("retry-figure").textContent = retry;
  $("retry-text").textContent = what;
  const newest = view.attempts[view.attempts.length - 1];
  const ended = newest && (newest.state === "FINISHED" || newest.state === "FAILED");
  const pulses = {
    alive: ["Alive", "its heartbeat moves"],
    watching: ["Not sure", `watching its heartbeat for up to ${duration(answer.location ? answer.location.timeout : 30)}`],
    silent: ["Lost", `no heartbeat for ${duration(answer.location ? answer.location.timeout : 30)}`],
    none: ["None", "no driver has claimed the job"],
  };
  const [figure, text] = ended && answer.claimed === view.attempt
    ? ["Ended", newest.state === "FINISHED" ? "the script ran to its end" : "it failed and said so"]
    : pulses[answer.pulse] || ["Ended", `its last word: ${answer.pulse.toLowerCase()}`];
  $("driver-figure").textContent = figure;
  $("driver-text").textContent = `Attempt ${answer.claimed || view.attempt}${answer.host ? ` on ${answer.host}` : ""}: ${text}`;
  const spent = Object.entries(view.overhead);
  const cpu = spent.reduce((all, [, one]) => all + one.cpu, 0);
  $("overhead-text").textContent = spent.length ? `Recovery took ${duration(cpu)} of CPU: ${spent.map(([what, one]) => `${what} ${duration(one.cpu)}`).join(", ")}` : "";
}

function levels(list) {
  const known = new Map(list.map((vertex) => [vertex.id, vertex]));
  const level = new Map();
  const of = (vertex, path) => {
    if (level.has(vertex.id)) return level.get(vertex.id);
    if (path.has(vertex.id)) return 0;
    path.add(vertex.id);
    const above = vertex.upstream.filter((id) => known.has(id)).map((id) => of(known.get(id), path) + 1);
    const own = above.length ? Math.max(...above) : 0;
    level.set(vertex.id, own);
    return own;
  };
  list.forEach((vertex) => of(vertex, new Set()));
  // As near to its readers as can be, so that lines stay short; readers come first here, and so have their place.
  const readers = (vertex) => list.filter((other) => other.upstream.includes(vertex.id)).map((other) => level.get(other.id) - 1);
  for (const vertex of [...list].sort((a, b) => level.get(b.id) - level.get(a.id))) {
    const limit = Math.min(...readers(vertex)); // infinite where nothing reads it
    if (Number.isFinite(limit)) level.set(vertex.id, Math.max(level.get(vertex.id), limit));
  }
  return level;
}

let drawn = "";
function graph(view) {
  const list = view.vertices.slice(-60);
  const key = $("graph").clientWidth + JSON.stringify(list.map((v) => [v.id, v.state, v.reused, v.computed, v.lost, v.partitions]));
  $("graph-note").hidden = view.vertices.length <= 60 && !view.vertices_omitted;
  $("graph-note").textContent = `Only the newest ${list.length} recovery points are drawn.`;
  if (key === drawn) return;
  drawn = key;
  const focused = document.activeElement && document.activeElement.getAttribute("data-node");
  const level = levels(list);
  const columns = [];
  list.forEach((vertex) => (columns[level.get(vertex.id)] ??= []).push(vertex));
  const [height, gapY, pad] = [66, 18, 4];
  // As wide as there is room for; a long chain is scrolled.
  const room = ($("graph").clientWidth || 900) - 2 * pad;
  const gapX = columns.length * (190 + 56) - 56 <= room ? 56 : 30;
  const width = Math.max(146, Math.min(190, Math.floor((room + gapX) / Math.max(columns.length, 1)) - gapX));
  const tallest = Math.max(1, ...columns.map((column) => column.length));
  const place = new Map();
  columns.forEach((column, x) => column.forEach((vertex, y) => {
    const offset = ((tallest - column.length) * (height + gapY)) / 2;
    place.set(vertex.id, [pad + x * (width + gapX), pad + offset + y * (height + gapY)]);
  }));
  const totalWidth = 2 * pad + columns.length * (width + gapX) - gapX;
  const totalHeight = 2 * pad + tallest * (height + gapY) - gapY;
  const image = svg("svg", { width: Math.max(totalWidth, 10), height: Math.max(totalHeight, 10) });
  for (const vertex of list) {
    for (const upstream of vertex.upstream) {
      if (!place.has(upstream)) continue;
      const [fromX, fromY] = place.get(upstream);
      const [toX, toY] = place.get(vertex.id);
      const [x1, y1, x2, y2] = [fromX + width, fromY + height / 2, toX - 6, toY + height / 2];
      const bend = Math.max(24, (x2 - x1) / 2);
      image.append(
        svg("path", { class: "edge", d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }),
        svg("path", { class: "arrow", d: `M${x2 + 5} ${y2} l-8 -4.5 v9 z` }),
      );
    }
  }
  for (const vertex of list) image.append(node(vertex, place.get(vertex.id), width, height));
  $("graph").replaceChildren(image);
  if (focused) {
    const again = [...image.querySelectorAll("[data-node]")].find((element) => element.getAttribute("data-node") === focused);
    if (again) again.focus();
  }
}

function node(vertex, [x, y], width, height) {
  const [kind, mark, word] = VERTEX_STATES[vertex.state] || VERTEX_STATES.WAITING;
  const reads = vertex.upstream.length ? `, reads ${many(vertex.upstream.length, "recovery point")}` : "";
  const label = `${vertex.name}: ${word}, ${tally(vertex)}${reads}`;
  const group = svg("g", {
    class: `node${isGone(vertex) ? " faded" : ""}`, tabindex: "0", role: "link", "aria-label": label, "data-node": vertex.id,
    transform: `translate(${x} ${y})`,
  });
  const letters = Math.floor((width - 44) / 7.4);
  const name = vertex.name.length > letters ? `${vertex.name.slice(0, letters - 1)}…` : vertex.name;
  const stored = Math.min(vertex.reused + vertex.computed, vertex.partitions);
  const inner = width - 28;
  group.append(
    svg("title", {}, label),
    svg("rect", { class: "box", width, height, rx: 11 }),
    svg("text", { x: 14, y: 25 }, name),
    svg("text", { x: width - 14, y: 25, class: `mark ${kind}`, "text-anchor": "end" }, mark),
    svg("rect", { class: "track", x: 14, y: 35, width: inner, height: 6, rx: 3 }),
  );
  let from = 14;
  for (const [letter, style] of [["r", "fr"], ["c", "fc"], ["l", "fl"]]) {
    const share = vertex.partitions ? (vertex[STATES[letter]] / vertex.partitions) * inner : 0;
    if (share > 0) group.append(svg("rect", { class: style, x: from, y: 35, width: Math.max(share - 1, 1), height: 6, rx: 2 }));
    from += share;
  }
  group.append(svg("text", { class: "count", x: 14, y: 56 }, `${count(stored)} of ${count(vertex.partitions)}${vertex.reused ? `, ${count(vertex.reused)} ${stateWord(vertex, "r")}` : ""}`));
  const go = () => {
    const target = [...document.querySelectorAll(".vertex")].find((element) => element.dataset.id === vertex.id);
    if (!target) return;
    target.classList.remove("found");
    target.scrollIntoView({ block: "nearest", behavior: "smooth" });
    target.focus({ preventScroll: true });
    target.classList.add("found");
  };
  group.addEventListener("click", go);
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      go();
    }
  });
  return group;
}

const unit = (vertex) => (vertex.shuffle ? "map output" : "partition");
const stateWord = (vertex, letter) => (vertex.shuffle && letter === "r" ? "put back" : WORDS[letter]);

function tally(vertex) {
  const parts = Object.entries(STATES).filter(([, name]) => vertex[name]).map(([letter, name]) => `${count(vertex[name])} ${stateWord(vertex, letter)}`);
  return `${many(vertex.partitions, unit(vertex))}${parts.length ? `: ${parts.join(", ")}` : ""}`;
}

const rows = new Map();
function vertices(view) {
  const box = $("vertices");
  const shown = new Set(view.vertices.map((vertex) => vertex.id));
  for (const [id, row] of rows) {
    if (!shown.has(id)) {
      row.element.remove();
      rows.delete(id);
    }
  }
  view.vertices.forEach((vertex, place) => {
    const finished = view.state === "FINISHED";
    const text = JSON.stringify([vertex, finished]);
    let row = rows.get(vertex.id);
    if (!row) {
      row = { element: make("article", { class: "vertex", tabindex: "-1", "data-id": vertex.id }), text: "" };
      rows.set(vertex.id, row);
    }
    if (row.text !== text) {
      row.text = text;
      fill(row.element, vertex, finished);
    }
    if (box.children[place] !== row.element) box.insertBefore(row.element, box.children[place] || null);
  });
}

function fill(element, vertex, finished) {
  const faded = isGone(vertex) ? " faded" : "";
  element.className = `vertex${faded}`;
  const counts = make("p", { class: "counts" });
  const words = { reused: vertex.shuffle ? "put back" : "reused", computed: "computed", lost: "lost", missing: "not stored" };
  for (const [name, said] of Object.entries(words)) {
    if (vertex[name]) counts.append(make("span", {}, make("b", {}, count(vertex[name])), ` ${said}`));
  }
  if (vertex.rows !== null) counts.append(make("span", {}, make("b", {}, count(vertex.rows)), " rows"));
  counts.append(make("span", {}, make("b", {}, size(vertex.bytes))));
  if (vertex.task_seconds_saved) counts.append(make("span", {}, make("b", {}, duration(vertex.task_seconds_saved)), " saved"));
  if (vertex.work.spent && !finished) counts.append(make("span", {}, "a retry would keep ", make("b", {}, `${percent(vertex.work)} %`), `, ${keeps(vertex.work)}`));
  else if (vertex.would_reuse && !finished) counts.append(make("span", {}, "a retry would save ", make("b", {}, duration(vertex.would_save))));
  const canvas = make("canvas", { role: "img", "aria-label": tally(vertex) });
  const why = [
    ...vertex.because,
    ...vertex.resets.map((reset) => `${many(reset.partitions, unit(vertex))} given up in attempt ${reset.attempt}: ${reset.reason}`),
  ];
  element.replaceChildren(...[
    make("div", { class: "row" }, make("h3", {}, vertex.name), pill(VERTEX_STATES[vertex.state] || VERTEX_STATES.WAITING), counts),
    why.length ? make("div", { class: "why" }, "Computed again, because:", make("ul", {}, ...why.map((reason) => make("li", {}, reason)))) : null,
    canvas,
    vertex.cell_size > 1 ? make("p", { class: "small" }, `Each cell stands for ${many(vertex.cell_size, unit(vertex))} and shows the worst of them.`) : null,
  ].filter(Boolean));
  const states = decode(vertex.cells);
  paint(canvas, states);
  canvas.addEventListener("pointermove", (event) => {
    const { cell, columns } = canvas.grid;
    const bounds = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - bounds.left) / cell);
    const index = Math.floor((event.clientY - bounds.top) / cell) * columns + column;
    const known = column < columns && index >= 0 && index < states.length;
    const first = index * vertex.cell_size;
    const last = Math.min(first + vertex.cell_size, vertex.partitions) - 1;
    const tip = $("tip");
    tip.hidden = !known;
    if (known) tip.textContent = `${vertex.shuffle ? "Map output" : "Partition"} ${count(first)}${last > first ? ` to ${count(last)}` : ""}: ${stateWord(vertex, states[index])}`;
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 230)}px`;
    tip.style.top = `${event.clientY + 16}px`;
  });
  canvas.addEventListener("pointerleave", () => ($("tip").hidden = true));
}

function decode(cells) {
  let states = "";
  for (const [, letter, length] of cells.matchAll(/([a-z])(\d*)/g)) states += letter.repeat(length ? Number(length) : 1);
  return states;
}

function cellSize(number, width) {
  for (const cell of [22, 18, 14, 11, 8, 6, 5, 4, 3]) {
    if (Math.ceil(number / Math.floor(width / cell)) * cell <= 150) return cell;
  }
  return number > 40000 ? 2 : 3;
}

function paint(canvas, states) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const width = Math.max(200, ($("vertices").clientWidth || 900) - 2);
  const cell = cellSize(states.length, width);
  const columns = Math.max(1, Math.min(states.length, Math.floor(width / cell)));
  const lines = Math.ceil(states.length / columns);
  const scale = Math.min(window.devicePixelRatio || 1, lines * cell > 4000 ? 1 : 2);
  canvas.grid = { cell, columns };
  canvas.states = states;
  canvas.width = columns * cell * scale;
  canvas.height = Math.max(1, lines * cell) * scale;
  canvas.style.width = `${columns * cell}px`;
  canvas.style.height = `${lines * cell}px`;
  canvas.dataset.paper = colour("--card");
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const gap = cell > 7 ? 2 : cell > 3 ? 1 : 0;
  const side = cell - gap;
  const colours = { r: colour("--reused"), c: colour("--computed"), l: colour("--lost"), m: colour("--missing") };
  for (let index = 0; index < states.length; index += 1) {
    const letter = states[index];
    const [x, y] = [(index % columns) * cell, Math.floor(index / columns) * cell];
    if (letter === "m") {
      if (side < 5) {
        pen.globalAlpha = 0.35;
        pen.fillStyle = colours.m;
        pen.fillRect(x, y, side, side);
        pen.globalAlpha = 1;
      } else {
        pen.strokeStyle = colours.m;
        pen.lineWidth = 1.2;
        pen.beginPath();
        pen.roundRect(x + 0.8, y + 0.8, side - 1.6, side - 1.6, side / 5);
        pen.stroke();
      }
      continue;
    }
    pen.fillStyle = colours[letter];
    if (side < 8) pen.fillRect(x, y, side, side);
    else {
      pen.beginPath();
      pen.roundRect(x, y, side, side, side / 5);
      pen.fill();
      ornament(pen, letter, x, y, side, colour("--card"));
    }
  }
}

// What tells the states apart without colour: a dot is computed now, stripes are lost, plain is reused, hollow missing.
function ornament(pen, letter, x, y, side, paper) {
  if (letter === "c") {
    pen.fillStyle = paper;
    pen.beginPath();
    pen.arc(x + side / 2, y + side / 2, side / 7, 0, 2 * Math.PI);
    pen.fill();
  } else if (letter === "l") {
    pen.save();
    pen.beginPath();
    pen.roundRect(x, y, side, side, side / 5);
    pen.clip();
    pen.strokeStyle = paper;
    pen.lineWidth = Math.max(1.2, side / 9);
    for (let shift = -side; shift < side; shift += side / 2.5) {
      pen.beginPath();
      pen.moveTo(x + shift, y + side);
      pen.lineTo(x + shift + side, y);
      pen.stroke();
    }
    pen.restore();
  }
}

function attempts(answer) {
  const { view } = answer;
  const list = view.attempts;
  const now = Date.now() / 1000;
  const end = (attempt) => attempt.ended_at ?? (attempt.attempt === view.attempt && answer.pulse === "alive" ? now : attempt.last_event_at || attempt.started_at);
  const first = Math.min(...list.map((attempt) => attempt.started_at));
  const last = Math.max(...list.map(end), first + 1);
  const body = $("attempts").querySelector("tbody");
  body.replaceChildren(...[...list].reverse().map((attempt) => {
    const newest = attempt.attempt === view.attempt;
    const state = newest && answer.claimed === attempt.attempt ? attemptState(answer) : attempt.state;
    const [kind, mark, word] = JOB_STATES[state] || JOB_STATES.NONE;
    const bar = make("i", { class: state === "LOST" ? "lost" : kind });
    bar.style.left = `${(100 * (attempt.started_at - first)) / (last - first)}%`;
    bar.style.width = `${Math.min(100, (100 * (end(attempt) - attempt.started_at)) / (last - first))}%`;
    const open = attempt.ended_at === null && (state === "LOST" || state === "UNSURE");
    const said = [
      attempt.reason ? make("div", {}, `${attempt.fresh ? "Started afresh: " : ""}${attempt.reason}`) : null,
      attempt.abandoned ? make("div", { class: "error" }, "Recovery had to be abandoned.") : null,
      attempt.error ? make("div", { class: "error" }, attempt.error) : null,
      attempt.unrecoverable ? make("div", { class: "error" }, "No retry can help until this is fixed.") : null,
      state === "LOST" ? make("div", {}, "It did not say how it ended: the driver was killed or lost.") : null,
      attempt.restarts ? make("div", {}, `Restarted inside the application: ${attempt.restarts}`) : null,
      attempt.host ? make("div", { class: "small" }, `${attempt.host}${attempt.application_id ? `, ${attempt.application_id}` : ""}`) : null,
    ].filter(Boolean);
    return make("tr", {},
      make("td", {}, String(attempt.attempt)),
      make("td", {}, pill([kind, mark, word])),
      make("td", { class: "when" }, clock(attempt.started_at)),
      make("td", { class: "number" }, `${open ? "≥ " : ""}${duration(end(attempt) - attempt.started_at)}`),
      make("td", { class: "line" }, make("div", { class: "span", role: "img", "aria-label": `from ${clock(attempt.started_at)} to ${open ? "at least " : ""}${clock(end(attempt))}` }, bar)),
      make("td", { class: "text" }, ...said),
    );
  }));
  $("attempts-note").hidden = !view.attempts_omitted;
  $("attempts-note").textContent = `${many(view.attempts_omitted, "earlier attempt")} not shown.`;
}

function events(view) {
  const list = view.events.map((event) => make("li", { class: event.level },
    make("time", { datetime: new Date(event.until * 1000).toISOString() }, clock(event.until)),
    make("span", {}, (event.level === "ERROR" ? "✕ " : event.level === "WARNING" ? "! " : "") + event.text)));
  $("events").replaceChildren(...(list.length ? list : [make("li", {}, make("span", { class: "small" }, "A snapshot stands for all of them."))]));
  if (list.length > 6) $("events").setAttribute("tabindex", "0");
}

function facts(answer) {
  const { location, view } = answer;
  const newest = view.attempts[view.attempts.length - 1];
  const rowsOf = [];
  const ended = newest && (newest.state === "FINISHED" || newest.state === "FAILED" || jobState(answer) === "LOST");
  const leads = !ended || (location && location.has_history);
  const fact = (name, value, ...more) => rowsOf.push(make("dt", {}, name), make("dd", {}, make("code", {}, value), ...more));
  if (location) {
    const whole = `${location.event_store.replace(/\/$/, "")}/${location.prefix}`;
    fact("Event store", whole, " ", copier(whole));
    fact("Connection", location.recovery_conn_id);
  }
  if (newest && newest.application_id) fact("Application", newest.application_id, " ", framed || !leads ? "" : outside(`spark-ui${window.location.search}`, "Spark UI"));
  if (location && location.console && !framed) rowsOf.push(make("dt", {}, "AWS console"), make("dd", {}, outside(location.console, "Objects of this job")));
  if (view.kept.length) fact("Steps kept", view.kept.join(", "));
  $("facts").replaceChildren(...rowsOf);
  const lists = [];
  const told = (title, items) => items.length && lists.push(make("h3", {}, title), make("ul", {}, ...items.map((item) => make("li", {}, item))));
  told("Work for no recovery point", view.state === "FINISHED" ? [] : view.retry.others.map((other) => `${other.title}: a retry would keep ${keeps(other)} of task time`));
  told("Skipped", view.skipped.map((skip) => `${skip.name}${skip.times > 1 ? ` (${count(skip.times)} times)` : ""}, because ${skip.reason}`));
  told("Writes that go on", view.going_on);
  told("Rows that may be there twice, or be missing", view.doubts);
  told("Problems of the event store", view.problems);
  $("notes").replaceChildren(...lists);
}

function outside(address, text) {
  return make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, text);
}

function copier(text) {
  if (!navigator.clipboard) return "";
  const button = make("button", { type: "button", class: "button link" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select the text to copy it";
    }
  });
  return button;
}

// -- buttons --------------------------------------------------------------------------------------------------------

function actions(answer, state) {
  $("actions").hidden = !answer.view;
  const running = ["running", "restarting"].includes(answer.task.state);
  const reason = !answer.may_change
    ? "You may see this DAG's tasks, but not change them."
    : running || answer.pulse === "alive"
      ? "Not while the task runs: mark it failed first."
      : state === "FINISHED" && answer.task.state === "success"
        ? "The job has succeeded: clearing its task starts afresh anyway."
        : "";
  for (const name of ["discard", "release"]) $(name).disabled = Boolean(reason);
  $("actions-note").textContent = reason || "Decide what the next try finds.";
}

const QUESTIONS = {
  discard: {
    title: "Discard what is stored?",
    text: (number) => `Nothing that attempt ${number} and earlier ones stored will be reused: the next attempt computes the whole job.\n\nThe partitions stay in the store until it has succeeded. This cannot be undone.`,
    yes: "Discard",
    done: () => "Discarded. The next attempt starts afresh.",
  },
  release: {
    title: "Release what is stored?",
    text: (number) => `All partitions and files that attempt ${number} and earlier ones stored are deleted now, and the next attempt computes the whole job.\n\nThis cannot be undone.`,
    yes: "Delete them",
    done: (said) => `${many(said.partitions_deleted, "partition")} deleted. The next attempt starts afresh.`,
  },
};
let asked = null;

function ask(name) {
  asked = { name, attempt: job.claimed };
  const question = QUESTIONS[name];
  $("confirm-title").textContent = question.title;
  $("confirm-text").textContent = question.text(job.claimed);
  $("confirm-yes").textContent = question.yes;
  $("confirm-yes").disabled = false;
  $("confirm-error").hidden = true;
  $("confirm-wait").textContent = "";
  $("confirm").showModal();
  $("confirm-no").focus();
}

async function confirmed() {
  const { name, attempt } = asked;
  $("confirm-yes").disabled = true;
  $("confirm-error").hidden = true;
  $("confirm-wait").textContent = "Making sure that no driver is at work.";
  try {
    const answer = await fetch(`api/${name}${window.location.search}`, {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-Spark-Recovery": "1" },
      body: JSON.stringify({ attempt }),
    });
    if (!answer.ok) throw new Error(await detail(answer));
    const said = QUESTIONS[name].done(await answer.json());
    $("confirm").close();
    $("announce").textContent = said;
    notice("done", "info", said);
    look();
  } catch (error) {
    $("confirm-error").textContent = error.message || "Airflow does not answer.";
    $("confirm-error").hidden = false;
    $("confirm-yes").disabled = false;
  } finally {
    $("confirm-wait").textContent = "";
  }
}

$("discard").addEventListener("click", () => ask("discard"));
$("release").addEventListener("click", () => ask("release"));
$("confirm-no").addEventListener("click", () => $("confirm").close());
$("confirm-yes").addEventListener("click", confirmed);

let resizing = 0;
function repaint() {
  window.clearTimeout(resizing);
  resizing = window.setTimeout(() => {
    if (job && job.view) graph(job.view);
    document.querySelectorAll(".vertex canvas").forEach((canvas) => canvas.states && paint(canvas, canvas.states));
  }, 150);
}
window.addEventListener("resize", repaint);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

const look = follow(
  "job",
  (answer) => {
    job = answer;
    show(answer);
  },
  (answer) => alive(answer) || TRYING.includes(answer.task.state),
);
