// What the pages share: making elements, words for numbers and states, messages. Text enters a page as text only.
"use strict";

const LIVE_PAUSE = 2000; // milliseconds between two looks at something that runs
const REST_PAUSE = 10000; // at something that does not
const TRYING = ["running", "queued", "scheduled", "restarting"];
const WORDS = { r: "reused", c: "computed now", m: "not stored yet", l: "lost" };
const $ = (id) => document.getElementById(id);

// -- making elements ---------------------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// -- words ----------------------------------------------------------------------------------------------------------

const count = (number) => number.toLocaleString("en-US");
const many = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;

function duration(seconds) {
  if (seconds < 0.95) return seconds <= 0 ? "0 s" : "< 1 s";
  if (seconds < 59.5) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

function clock(seconds, withDay = false) {
  const moment = new Date(seconds * 1000);
  const time = moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const today = moment.toDateString() === new Date().toDateString();
  return withDay || !today ? `${moment.toLocaleDateString([], { month: "short", day: "numeric" })}, ${time}` : time;
}

const JOB_STATES = {
  CREATED: ["busy", "◔", "created"],
  RECONCILING: ["busy", "◑", "reconciling"],
  RUNNING: ["busy", "▶", "running"],
  FINISHED: ["good", "✓", "finished"],
  FAILED: ["bad", "✕", "failed"],
  LOST: ["bad", "✕", "lost"],
  UNSURE: ["warn", "?", "not sure yet"],
  STARTING: ["busy", "◔", "next try begins"],
  NONE: ["", "○", "nothing recorded"],
};

function pill([kind, mark, word]) {
  return make("span", { class: `pill ${kind}` }, make("span", { "aria-hidden": "true" }, mark), word);
}

function bar(element, parts) {
  const some = Object.entries(parts).filter(([, number]) => number);
  element.replaceChildren(...some.map(([letter, number]) => {
    const part = make("span", { class: letter });
    part.style.flexGrow = number;
    part.style.flexBasis = "0";
    return part;
  }));
  const told = some.map(([letter, number]) => `${count(number)} ${WORDS[letter]}`).join(", ");
  element.setAttribute("aria-label", told || "no partitions");
  return told;
}

function alive(answer) {
  return answer.pulse === "alive" || answer.pulse === "watching";
}

function jobState(answer) {
  const state = answer.view ? answer.view.state : "NONE";
  const trying = TRYING.includes(answer.task.state);
  if (trying && (state === "FAILED" || answer.pulse === "silent")) return "STARTING";
  if (state === "FINISHED" || state === "FAILED" || !answer.view) return state;
  // A driver that has said nothing of its end, and whose heartbeat stands still, is lost whatever it last recorded.
  if (answer.pulse === "silent") return "LOST";
  return answer.pulse === "watching" && answer.task.state !== "running" ? "UNSURE" : state;
}

// -- asking ---------------------------------------------------------------------------------------------------------

// Ask for what is new as long as somebody looks; returns a function that asks at once.
function follow(api, show, busy) {
  let etag = "";
  let newest = null;
  let timer = 0;
  let asking = false;

  async function look() {
    if (asking) return;
    asking = true;
    window.clearTimeout(timer);
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      const answer = await fetch(`api/${api}${window.location.search}`, { headers, credentials: "same-origin", cache: "no-store" });
      if (answer.status === 200) {
        etag = answer.headers.get("ETag") || "";
        newest = await answer.json();
        show(newest);
      } else if (answer.status !== 304) {
        await refuse(answer);
      }
      if (answer.status === 200 || answer.status === 304) {
        $("updated").textContent = `Looked at ${clock(Date.now() / 1000)}`;
        notice("connection", "", "");
      }
    } catch {
      notice("connection", "warning", "Airflow does not answer; trying again.");
    } finally {
      asking = false;
      if (!document.hidden) timer = window.setTimeout(look, newest && busy(newest) ? LIVE_PAUSE : REST_PAUSE);
    }
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? window.clearTimeout(timer) : look()));
  look();
  return look;
}

// -- messages -------------------------------------------------------------------------------------------------------

async function refuse(answer) {
  const said = await detail(answer);
  if (answer.status === 401) notice("connection", "error", "You are not logged in any more. Log in to Airflow, then reload this page.");
  else notice("connection", "error", said);
}

async function detail(answer) {
  try {
    const said = (await answer.json()).detail;
    return typeof said === "string" ? said : `Airflow answers ${answer.status}. The address of this page is not complete.`;
  } catch {
    return `Airflow answers ${answer.status}.`;
  }
}

function notice(name, kind, text) {
  let element = document.querySelector(`[data-notice="${name}"]`);
  if (!text) {
    if (element) element.remove();
    return;
  }
  if (!element) {
    element = make("p", { "data-notice": name, role: "status" });
    $("notices").append(element);
  }
  element.className = `notice ${kind}`;
  if (element.textContent !== text) element.textContent = text;
}

// What a retry would keep of the work so far, or save where that is not known, in one figure and one phrase.
function savings(answer) {
  const { retry, state } = answer.view;
  const unit = retry.map_outputs === 0 ? "partition" : retry.map_outputs === retry.partitions ? "map output" : "map output and partition";
  if (state === "FINISHED") return ["–", "the job has finished, so there is nothing to retry"];
  if (answer.discard) return ["nothing", "what is stored was discarded"];
  if (retry.nothing_because) return ["nothing", `because ${retry.nothing_because}`];
  if (retry.work) return [`${percent(retry.work)} %`, `of the work so far: ${keeps(retry.work)} of task time`];
  if (!retry.reusable) return ["nothing", "nothing that it could reuse is stored"];
  return [duration(retry.task_seconds), `of task time: ${count(retry.reusable)} of ${many(retry.partitions, unit).replace("output and", "outputs and")} (${size(retry.bytes)}) would be reused`];
}

const percent = (work) => Math.floor((100 * work.kept) / work.spent);
const keeps = (work) => `${duration(work.kept)} of ${duration(work.spent)}`;
