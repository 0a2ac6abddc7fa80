// The page of a DAG run: its Spark jobs in one table, each leading to its own page.
"use strict";

function show(answer) {
  const { dag_id: dag, run_id: run } = answer.run;
  document.title = `${run}: Spark recovery`;
  $("crumbs").textContent = `${dag}  ›  ${run}`;
  $("empty").hidden = answer.jobs.length > 0;
  $("jobs").hidden = answer.jobs.length === 0;
  $("subtitle").textContent = answer.jobs.length ? summary(answer) : "";
  const focused = document.activeElement && document.activeElement.getAttribute("href");
  const body = $("jobs").querySelector("tbody");
  body.replaceChildren(...answer.jobs.map(row));
  const again = focused && [...body.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
  if (again) again.focus();
  const told = [
    answer.omitted ? `${many(answer.omitted, "more task")} not shown.` : "",
    answer.jobs.some((job) => !job.looked_at) ? "Jobs without numbers were not looked up, for there are many: open them to see more." : "",
  ].filter(Boolean);
  $("jobs-note").hidden = told.length === 0;
  $("jobs-note").textContent = told.join(" ");
}

function summary(answer) {
  const seen = answer.jobs.filter((job) => job.view);
  const sum = (name) => seen.reduce((all, job) => all + job.view[name], 0);
  const saved = sum("task_seconds_saved");
  return `${many(answer.jobs.length + answer.omitted, "job")} · ${many(sum("reused"), "partition")} reused, ${count(sum("computed"))} computed`
    + (saved ? ` · ${duration(saved)} of task time saved` : "");
}

function row(job) {
  const { task, view } = job;
  const ids = { dag_id: task.dag_id, run_id: task.run_id, task_id: task.task_id, map_index: task.map_index };
  const query = Object.entries(ids).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  const name = task.task_id + (task.map_index >= 0 ? ` [${task.map_index}]` : "");
  const tries = task.try_number ? `, try ${task.try_number} of ${task.max_tries + 1}` : "";
  const state = JOB_STATES[jobState(job)] || JOB_STATES.NONE;
  const progress = make("div", { class: "bar", role: "img" });
  if (view) bar(progress, { r: view.stored_reused, c: view.stored_computed, l: view.lost, m: view.missing });
  const [kept, about] = view ? savings(job) : ["", ""];
  const number = (value) => make("td", { class: "number" }, view ? value : "");
  return make("tr", {},
    make("th", { scope: "row", class: "name" }, make("a", { href: `./?${query}` }, name)),
    make("td", {}, `${(task.state || "no status").replaceAll("_", " ")}${tries}`),
    make("td", {}, job.problem ? make("span", { class: "error" }, job.problem) : job.looked_at ? pill(state) : "",
      job.discard && view ? make("div", { class: "small" }, job.discard.reason) : null),
    make("td", { class: "line" }, view ? progress : "", view ? make("div", { class: "small" }, `${count(view.stored)} of ${many(view.partitions, "partition")}`) : null),
    number(view && count(view.reused)),
    number(view && count(view.computed)),
    number(view && duration(view.task_seconds_saved)),
    make("td", { class: "number", title: about }, kept),
  );
}

follow("run", show, (answer) => answer.jobs.some((job) => alive(job) || TRYING.includes(job.task.state)));
