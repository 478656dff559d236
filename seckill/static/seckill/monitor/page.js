// The live sale monitor: draws what feed.js brings. Text goes in as text, never as markup.

import { band, lines, spark, stack } from "./chart.js";
import { follow } from "./feed.js";
import { compact, count, groupName, rate, seconds, share, span, time, words } from "./words.js";

const WINDOW_MS = 5 * 60000;
const LATE_MS = 4000;
// Places in a sale's point, as seckill/monitor/snapshot.py writes it.
const POINT = { requests: 0, accepted: 1, ordered: 2, paid: 3, pendingAge: 4, openAge: 5, atGate: 6, reserved: 7, unpaid: 8, paidUnits: 9, withheld: 10 };
const LEVEL_TONE = { NORMAL: "good", RAMP: "info", THROTTLE: "warn", HOLD: "warn", FAIL_CLOSED: "bad" };
const GATE_TONE = { OPEN: "good", PAUSED: "warn", REBUILDING: "warn", CLOSED: "quiet", MISSING: "bad" };
const SIGN = { good: "✓", warn: "!", bad: "✕", quiet: "·", info: "↗", wait: "…" };
const GOVERNOR_STATE = {
  on: "on", off: "off: the settings' own limits",
  watching: "decides, and nobody obeys (SECKILL_GOVERNOR is off)", stale: "on, but nobody hears it",
};
const TROUBLE = {
  connecting: "Connecting …",
  NOBODY_SAMPLES: "Nobody looks at the sale: no process with the sampler runs (manage.py run_monitor).",
  UNREACHABLE: "The server does not answer; trying again every few seconds.",
  LOGGED_OUT: "You are logged out, or may not see sales: log in again.",
  GateUnavailable: "Redis does not answer.",
};

const $ = (id) => document.getElementById(id);
const root = $("monitor");
let chosen = new URLSearchParams(location.search).get("sale");

function make(tag, className, text, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

// Keeps the elements and changes their text, so that nothing flickers and screen readers stay calm.
function keyed(parent, key, build) {
  let found = parent.querySelector(`:scope > [data-key="${CSS.escape(key)}"]`);
  if (!found) {
    found = build();
    found.dataset.key = key;
    parent.append(found);
  }
  return found;
}

function only(parent, keys) {
  const wanted = new Set(keys);
  for (const child of [...parent.children]) if (!wanted.has(child.dataset.key)) child.remove();
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tone(value, limits) {
  if (value === null || value === undefined || !limits) return "quiet";
  return value >= limits[1] ? "bad" : value >= limits[0] ? "warn" : "good";
}

const sum = (rows, name) => rows.reduce((all, row) => all + row[name], 0);

// --- Top ---------------------------------------------------------------------------------------
function showTop(state, sale) {
  const { snapshot, trouble } = state;
  const lateMs = snapshot ? state.lateMs + Date.now() - state.heardAt : Infinity;
  const live = $("live");
  const [word, mood] = trouble && trouble !== "connecting" ? ["no data", "bad"]
    : !snapshot ? ["connecting …", "wait"]
    : lateMs < LATE_MS ? ["live", "good"] : [`${span(lateMs)} old`, "bad"];
  put(live, `${SIGN[mood]} ${word}`);
  live.dataset.tone = mood;
  root.classList.toggle("stale", mood === "bad");

  const notes = [];
  if (trouble && trouble !== "connecting") notes.push([`t-${trouble}`, "bad", TROUBLE[trouble] || `No data: ${words(trouble)}.`]);
  for (const one of snapshot?.problems ?? []) {
    notes.push([`p-${one.part}`, "bad", `${one.part}: ${one.error} since ${time(one.since_ms)} UTC. Its numbers are those of before.`]);
  }
  if (snapshot && !snapshot.sales.length) notes.push(["none", "quiet", "No sale is warm, open or waiting for its settlement."]);
  only($("notes"), notes.map(([key]) => key));
  for (const [key, kind, text] of notes) put(keyed($("notes"), key, () => make("p", `mon-note ${kind}`)), text);

  for (const part of document.querySelectorAll(".mon-vitals, .mon-funnel, .mon-plots, .mon-lower")) part.hidden = !snapshot;
  if (!sale) return;
  put($("sale-name"), sale.name + (sale.is_test ? " (rehearsal)" : ""));
  document.title = `${sale.name} · live`;
  const badge = $("sale-gate");
  badge.hidden = false;
  badge.dataset.tone = sale.status === "WARM" ? "info" : GATE_TONE[sale.gate] || "quiet";
  put(badge, sale.status === "WARM" ? "warm" : sale.gate === "MISSING" ? "gate missing" : words(sale.gate));
  const now = Date.now();
  put($("sale-clock"), now < sale.starts_ms ? `starts in ${span(sale.starts_ms - now)}`
    : now < sale.ends_ms ? `ends in ${span(sale.ends_ms - now)}` : `over for ${span(now - sale.ends_ms)}`);
  const pick = $("sale-pick");
  pick.parentElement.hidden = snapshot.sales.length < 2;
  const ids = snapshot.sales.map((one) => String(one.activity_id));
  if ([...pick.options].map((option) => option.value).join() !== ids.join()) {
    pick.replaceChildren(...snapshot.sales.map((one) => {
      const option = make("option", "", one.name);
      option.value = one.activity_id;
      return option;
    }));
  }
  pick.value = String(sale.activity_id);
}

// --- Vitals ------------------------------------------------------------------------------------
function vitals(state, sale) {
  const { snapshot, limits } = state;
  const { system, governor } = snapshot;
  const tiles = [];
  const oversold = sum(sale.units.map((row) => ({ n: Math.max(0, -row.difference) })), "n");
  const missing = sum(sale.units.map((row) => ({ n: Math.max(0, row.difference) })), "n");
  tiles.push(["oversold", "Oversold", count(oversold), missing ? `${count(missing)} units unexplained` : "every unit explained", oversold || missing ? "bad" : "good"]);
  tiles.push(["lag", "Order lag", system ? seconds(system.order_lag_s) : "–", system ? `draining ${rate(system.order_drain_per_s)} /s` : "", tone(system?.order_lag_s, limits.lag_s)]);
  tiles.push(["pending", "Unsent, oldest", seconds(sale.pending_age_s), `${count(sale.pending)} of ${count(sale.max_pending)} pending`, tone(sale.pending_age_s, limits.pending_age_s)]);
  tiles.push(["open", "Without order, oldest", seconds(sale.open_age_s), `${count(sale.open)} of ${count(sale.max_open)} open`, tone(sale.open_age_s, limits.order_age_s)]);
  tiles.push(["tx", "Transaction p99", snapshot.tx_p99_ms === null ? "–" : `${count(Math.round(snapshot.tx_p99_ms))} ms`,
    snapshot.tx_p99_ms === null ? "no orders just now" : snapshot.pool_wait_p95_ms === null ? "no wait for a connection" : `pool wait p95 ${count(Math.round(snapshot.pool_wait_p95_ms))} ms`, tone(snapshot.tx_p99_ms, limits.tx_p99_ms)]);
  if (governor) {
    const text = governor.state === "off" ? "OFF" : governor.level.replace("_", " ");
    const under = governor.state === "stale" ? "nobody governs: careful limits" : governor.state === "watching" ? "watches only: nobody obeys"
      : governor.entry_rate > 0 ? `entry ${compact(governor.entry_rate)} /s` : "entry not limited";
    tiles.push(["governor", "Governor", text, under, governor.state === "off" ? "quiet" : governor.state === "stale" ? "bad" : LEVEL_TONE[governor.level]]);
  }
  if (system) {
    const alive = sum(system.roles, "alive");
    const silent = sum(system.roles, "silent");
    const stuck = system.groups.filter((group) => group.state !== "RUNNING").length;
    tiles.push(["workers", "Workers", count(alive), silent ? `${count(silent)} fell silent` : stuck ? `${stuck} groups do not receive` : alive ? "all beat" : "nobody beats", silent || stuck ? "warn" : alive ? "good" : "bad"]);
    tiles.push(["dead", "Quarantine", count(system.quarantine_open), system.quarantine_open ? `oldest ${seconds(system.quarantine_oldest_s)}` : "nothing waits for a person", system.quarantine_open ? "bad" : "good"]);
  }
  const home = $("vitals");
  only(home, tiles.map(([key]) => key));
  for (const [key, name, value, under, mood] of tiles) {
    const tile = keyed(home, key, () => make("div", "mon-tile", null, make("h2", "", name), make("p", "value"), make("p", "under")));
    tile.dataset.tone = mood;
    put(tile.querySelector(".value"), `${SIGN[mood] ?? ""} ${value}`);
    put(tile.querySelector(".under"), under);
  }
}

// --- Funnel ------------------------------------------------------------------------------------
function funnel(state, sale, series) {
  const refused = Object.entries(sale.answers).filter(([code]) => !["QUEUED", "PENDING"].includes(code)).sort((a, b) => b[1] - a[1]);
  const waiting = Math.max(0, sale.accepted - sale.ordered - sum(Object.values(sale.rejected).map((n) => ({ n })), "n"));
  const supply = sum(sale.units, "supply");
  const stages = [
    ["requests", "Requests", sale.requests, sale.rates.requests, refused.length ? `${compact(refused[0][1])} ${words(refused[0][0])}` : "nobody refused", "requests"],
    ["accepted", "Accepted", sale.accepted, sale.rates.accepted, `${share(sale.accepted, sale.requests)} of requests`, "accepted"],
    ["confirmed", "Confirmed", sale.confirmed, null, sale.pending ? `${count(sale.pending)} not yet in the broker` : "all in the broker", null],
    ["ordered", "Ordered", sale.ordered, sale.rates.ordered, waiting ? `${count(waiting)} wait for their order` : "nobody waits", "ordered"],
    ["paid", "Paid", sale.paid, sale.rates.paid, `${share(sale.paid_units, supply)} of ${count(supply)} units`, "paid"],
  ];
  const home = $("funnel");
  for (const [key, name, value, perSecond, under, column] of stages) {
    const stage = keyed(home, key, () => {
      const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      drawing.setAttribute("aria-hidden", "true");
      return make("div", `mon-stage ${key}`, null, make("h2", "", name), make("p", "value"), make("p", "rate"), make("p", "under"), drawing);
    });
    put(stage.querySelector(".value"), compact(value));
    stage.querySelector(".value").title = count(value);
    put(stage.querySelector(".rate"), perSecond === null && !column ? share(value, sale.accepted) + " of accepted" : `${rate(perSecond)} /s`);
    put(stage.querySelector(".under"), under);
    if (column) spark(stage.querySelector("svg"), { times: series.times, values: series.sale(POINT[column]), tone: key, until: series.until, windowMs: WINDOW_MS });
  }
  const ends = keyed(home, "ends", () => make("dl", "mon-stage ends"));
  for (const [name, value, kind] of [["Waiting for payment", sale.unpaid, "unpaid"], ["Cancelled", sale.canceled, "canceled"], ["Refunded", sale.refunded, "refunded"], ["Rejected", sum(Object.values(sale.rejected).map((n) => ({ n })), "n"), "rejected"]]) {
    const row = keyed(ends, kind, () => make("div", "", null, make("dt", "", name), make("dd")));
    put(row.querySelector("dd"), compact(value));
  }
}

// --- Plots -------------------------------------------------------------------------------------
function legend(home, entries) {
  only(home, entries.map(([name]) => name));
  for (const [name, value, kind] of entries) {
    const entry = keyed(home, name, () => make("span", "", null, make("i", kind), make("b"), make("em", "", name)));
    put(entry.querySelector("b"), value);
  }
}

function plots(state, sale, series) {
  const { until, times } = series;
  const { limits, snapshot } = state;
  const shared = { times, until, windowMs: WINDOW_MS };
  const late = [["order lag", series.all("lag"), "ordered"], ["unsent, oldest", series.sale(POINT.pendingAge), "requests"], ["without order, oldest", series.sale(POINT.openAge), "unpaid"]];
  const last = (values) => values.at(-1);
  lines($("late"), { ...shared, atLeast: 1, series: late.map(([, values, kind]) => ({ values, tone: kind })), format: seconds,
    limits: limits.lag_s ? [{ value: limits.lag_s[0], tone: "warn" }, { value: limits.lag_s[1], tone: "bad" }] : [] });
  legend($("late-legend"), late.map(([name, values, kind]) => [name, seconds(last(values)), kind]));
  band($("levels"), { ...shared, labels: series.all("lvl"), toneOf: (level) => LEVEL_TONE[level] || "quiet" });

  const kinds = [["paid", POINT.paidUnits, "paid"], ["unpaid", POINT.unpaid, "unpaid"], ["reserved", POINT.reserved, "accepted"], ["at the gate", POINT.atGate, "gate"], ["withheld", POINT.withheld, "withheld"]];
  const values = kinds.map(([, column]) => series.sale(column));
  stack($("units"), { ...shared, series: kinds.map(([, , kind], index) => ({ values: values[index], tone: kind })), max: sum(sale.units, "supply"), format: compact });
  legend($("units-legend"), kinds.map(([name, , kind], index) => [name, compact(last(values[index]) ?? 0), kind]).filter(([name, value]) => name !== "withheld" || value !== "0"));

  lines($("tx"), { ...shared, atLeast: 50, series: [{ values: series.all("tx"), tone: "ordered" }], format: (value) => `${compact(value)} ms`,
    limits: limits.tx_p99_ms ? [{ value: limits.tx_p99_ms[0], tone: "warn" }, { value: limits.tx_p99_ms[1], tone: "bad" }] : [] });
  legend($("tx-legend"), [["p99", snapshot.tx_p99_ms === null ? "–" : `${count(Math.round(snapshot.tx_p99_ms))} ms`, "ordered"]]);
}

// --- Tables ------------------------------------------------------------------------------------
function cells(row, values) {
  values.forEach((value, index) => {
    let cell = row.children[index];
    if (!cell) {
      cell = make(index ? "td" : "th");
      if (!index) cell.scope = "row";
      row.append(cell);
    }
    put(cell, value);
  });
}

function conservation(sale) {
  const body = $("conservation").tBodies[0];
  only(body, sale.units.map((row) => String(row.sku_id)));
  for (const row of sale.units) {
    const line = keyed(body, String(row.sku_id), () => make("tr"));
    cells(line, [row.name, ...["initial", "topped_up", "cut", "supply", "available", "live", "withheld", "difference", "at_gate"].map((name) => count(row[name]))]);
    line.classList.toggle("bad", row.difference !== 0);
  }
  const wrong = sale.units.filter((row) => row.difference !== 0).length;
  const verdict = $("conservation-verdict");
  put(verdict, wrong ? `✕ ${wrong} SKU does not add up` : "✓ every unit is explained");
  verdict.dataset.tone = wrong ? "bad" : "good";
}

function governorPart(governor) {
  put($("governor-state"), governor ? GOVERNOR_STATE[governor.state] : "unknown");
  const reasons = governor?.reasons ?? [];
  only($("reasons"), reasons);
  for (const reason of reasons) keyed($("reasons"), reason, () => make("li", "", reason));
  const history = (governor?.history ?? []).slice(0, 8);
  only($("history"), history.map((one) => String(one.at_ms)));
  for (const one of history) {
    const line = keyed($("history"), String(one.at_ms), () => make("li", "", null, make("time", "", time(one.at_ms)), make("b", "", one.level.replace("_", " ")), make("span", "", one.reasons.join("; "))));
    line.querySelector("b").dataset.tone = LEVEL_TONE[one.level];
    $("history").append(line); // newest first, as they come
  }
}

function workers(system) {
  if (!system) return;
  const home = $("roles");
  only(home, system.roles.map((role) => role.role));
  for (const role of system.roles) {
    const chip = keyed(home, role.role, () => make("span", "mon-chip"));
    const odd = Object.entries(role.states).filter(([state]) => state !== "RUNNING").map(([state, n]) => `${n} ${words(state)}`);
    if (role.silent) odd.push(`${role.silent} silent`);
    put(chip, `${role.role} ${role.alive}${odd.length ? ` (${odd.join(", ")})` : ""}`);
    chip.dataset.tone = role.silent || !role.alive ? "bad" : odd.length ? "warn" : "good";
  }
  put($("workers-verdict"), `${count(sum(system.roles, "alive"))} loops beat`);
  const body = $("groups").tBodies[0];
  const late = (group) => (group.state === "RUNNING" ? group.lag_s : Infinity);
  const groups = system.groups.slice().sort((a, b) => (late(b) > late(a) ? 1 : late(b) < late(a) ? -1 : 0));
  only(body, groups.map((group) => group.group));
  for (const group of groups) {
    const line = keyed(body, group.group, () => make("tr"));
    body.append(line); // the latest first
    cells(line, [groupName(group.group), count(group.members), seconds(group.lag_s), rate(group.drain_per_s), words(group.state)]);
    line.classList.toggle("bad", group.state !== "RUNNING");
  }
}

function bars(home, counts) {
  const entries = Object.entries(counts).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]).slice(0, 8);
  const most = entries.length ? entries[0][1] : 1;
  only(home, entries.map(([code]) => code));
  for (const [code, n] of entries) {
    const line = keyed(home, code, () => make("div", "", null, make("span", "", words(code)), make("meter"), make("b")));
    const meter = line.querySelector("meter");
    meter.max = most;
    meter.value = n;
    meter.setAttribute("aria-label", words(code));
    put(line.querySelector("b"), compact(n));
    home.append(line);
  }
}

// --- All of it ---------------------------------------------------------------------------------
function show(state) {
  const { snapshot, points } = state;
  const sale = snapshot?.sales.find((one) => String(one.activity_id) === chosen) ?? snapshot?.sales[0];
  showTop(state, sale);
  if (!sale) {
    for (const part of document.querySelectorAll(".mon-vitals, .mon-funnel, .mon-plots, .mon-lower")) part.hidden = true;
    return;
  }
  const until = Math.max(points.at(-1)?.t ?? 0, snapshot.at_ms + state.lateMs + Date.now() - state.heardAt);
  const recent = points.filter((point) => point.t >= until - WINDOW_MS);
  const series = {
    until,
    times: recent.map((point) => point.t),
    all: (name) => recent.map((point) => point[name]),
    sale: (column) => recent.map((point) => point.sales[sale.activity_id]?.[column] ?? null),
  };
  vitals(state, sale);
  funnel(state, sale, series);
  plots(state, sale, series);
  conservation(sale);
  governorPart(snapshot.governor);
  workers(snapshot.system);
  bars($("answers"), sale.answers);
  bars($("rejected"), sale.rejected);
  put($("rejected-verdict"), Object.keys(sale.rejected).length ? "" : "none");
  put($("foot"), `Looked at ${time(snapshot.at_ms)} UTC by ${snapshot.sampler}; ${count(snapshot.system?.outbox_unsent ?? 0)} messages wait in the outbox.`);
}

$("sale-pick").addEventListener("change", (event) => {
  chosen = event.target.value;
  const url = new URL(location.href);
  url.searchParams.set("sale", chosen);
  history.replaceState(null, "", url);
});

follow({ dataUrl: root.dataset.data, streamUrl: root.dataset.stream, show });
