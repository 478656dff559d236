// The page of one sale: countdown, buy, live status by server-sent events, pay and cancel.
// It uses the public API only, with the token in its data attribute. No framework, no build.
"use strict";

const sale = document.getElementById("sale");
const api = "/api/v1/activities/" + sale.dataset.activity;
let skew = Date.parse(sale.dataset.server) - Date.now();
const headers = { "Content-Type": "application/json" };
if (sale.dataset.token) headers.Authorization = "Bearer " + sale.dataset.token;

const TEXTS = {
  QUEUED: "Reserved. Your order is being made.",
  PENDING: "Reserved. Your order is being passed on.",
  DELAYED: "Your order is delayed; your unit stays kept for you.",
  ORDERED: "Ordered. Your unit is kept{until}: pay to keep it.",
  REJECTED: "Sorry, the order could not be made.",
  EXPIRED: "Sorry, the reservation ran out before the order was made.",
  CANCELED: "The order was cancelled.",
};
const REASONS = {
  NO_FINAL_STOCK: "The stock ran out.",
  DUPLICATE_ORDER: "You have an order of this already.",
  PAYMENT_TIMEOUT: "It was not paid in time.",
  USER: "You cancelled it.",
};
const STOCK = { plenty: "in stock", few: "few left", none: "sold out" };
const LOGGED_OUT = "Your log-in has ended. Load this page again.";

const ANSWER_MS = 30_000;
// The server sends something every 5 s: a stream silent for longer is dead, whatever TCP believes.
const SILENT_MS = 15_000;
const RENEW_MS = 5 * 60_000;
// A look costs the server 12 ms of CPU and four statements, nothing of it cached. With 10 000 open
// pages every 15 s would take eight cores; every two minutes takes one.
const LOOK_MS = 120_000;
// The last look before the start, spread as widely, so that all pages together ask no more often.
const EARLY_MS = 15_000 + LOOK_MS * Math.random();

function now() { return Date.now() + skew; }

// A page opened long before the start holds an old token, a new page brings a new one. Not again
// for a while: a server that takes no token at all would have the page reload for ever.
function renew() {
  const key = "renewed-" + sale.dataset.activity;
  try {
    if (Math.abs(Date.now() - Number(sessionStorage.getItem(key))) < RENEW_MS) return false;
    sessionStorage.setItem(key, String(Date.now()));
  } catch {
    return false; // no storage, so nothing would stop the next one
  }
  location.reload();
  return true;
}

function tokenEndsAt() {
  try {
    const claims = sale.dataset.token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    return JSON.parse(atob(claims)).exp * 1000;
  } catch {
    return Infinity; // none, or not one of ours: only a 401 can tell
  }
}

async function ask(url, options = {}) {
  const answer = await fetch(url, {
    signal: AbortSignal.timeout(ANSWER_MS), ...options, headers: { ...headers, ...options.headers },
  });
  // Nobody needs to wait for this answer: the page goes away.
  if (answer.status === 401 && sale.dataset.token && renew()) return new Promise(() => {});
  return answer;
}

function backOff(failures) {
  return Math.min(10_000, 1000 * 2 ** failures) * (0.5 + Math.random());
}

// Waits, but no longer than until the network or the reader is back.
function pause(ms) {
  return new Promise((resolve) => {
    const over = new AbortController();
    const end = () => {
      clearTimeout(timer);
      over.abort();
      resolve();
    };
    const seen = () => { if (!document.hidden) end(); };
    const timer = setTimeout(end, ms);
    addEventListener("online", end, { signal: over.signal });
    document.addEventListener("visibilitychange", seen, { signal: over.signal });
  });
}

function span(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  const days = Math.floor(s / 86400);
  return (days ? days + " d " : "") + two(Math.floor(s / 3600) % 24) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
}

function tick() {
  const starts = Date.parse(sale.dataset.starts), ends = Date.parse(sale.dataset.ends), t = now();
  const clock = document.getElementById("clock");
  const stopped = !["OPEN", "WARM"].includes(sale.dataset.status);
  clock.textContent = stopped ? "The sale is " + sale.dataset.status.toLowerCase() + "."
    : t < starts ? "Starts in " + span(starts - t)
    : t < ends ? "Ends in " + span(ends - t) : "The sale is over.";
  const live = !stopped && t >= starts && t < ends;
  for (const button of document.querySelectorAll("[data-buy]")) {
    button.disabled = !live || button.dataset.busy === "1" || button.dataset.held === "1";
  }
}

class Sku {
  constructor(element) {
    this.id = element.dataset.sku;
    this.find = (name) => element.querySelector("[data-" + name + "]");
    this.buy = this.find("buy");
    this.box = this.find("status-box");
    this.key = null;
    this.shown = -1;
    const price = element.querySelector(".price");
    price.textContent = new Intl.NumberFormat(undefined, { style: "currency", currency: price.dataset.currency })
      .format(price.dataset.cents / 100);
    if (!this.buy) return;
    this.buy.addEventListener("click", () => this.reserve());
    this.find("pay").addEventListener("click", () => this.act("payments", "Paying…"));
    this.find("cancel").addEventListener("click", () => this.act("cancel", "Cancelling…"));
    this.resume();
  }

  say(text, ids) {
    this.box.hidden = false;
    this.find("text").textContent = text;
    if (ids !== undefined) this.find("ids").textContent = ids;
  }

  async resume() {
    for (let failures = 1; !this.key; failures += 1) {
      const answer = await ask(api + "/skus/" + this.id + "/reservation").catch(() => null);
      const state = answer?.ok ? await answer.json().catch(() => null) : null;
      if (this.key) return; // bought meanwhile, and followed there
      if (state) return void this.follow(state);
      if (answer && !answer.ok && answer.status < 500 && answer.status !== 429) return;
      await pause(backOff(failures));
    }
  }

  // One key per intention: whatever gets lost, the same key names the same reservation.
  async reserve(attempt = 1) {
    this.key = this.key || crypto.randomUUID?.() || String(Math.random()).slice(2) + Date.now();
    this.buy.dataset.busy = "1";
    tick();
    let answer, body;
    try {
      const token = await this.purchaseToken();
      answer = await ask(api + "/skus/" + this.id + "/reservations", {
        method: "POST", headers: { ...token, "Idempotency-Key": this.key },
        body: JSON.stringify({ quantity: 1 }),
      });
      body = await answer.json();
    } catch (error) {
      answer = { status: 503, headers: new Headers() };
      body = { detail: "No answer." };
    }
    if ((answer.status === 503 || answer.status === 429) && attempt < 6) {
      this.say("Busy, trying again…");
      const wait = Number(answer.headers.get("Retry-After") || 1) * 1000 * (0.5 + Math.random());
      setTimeout(() => this.reserve(attempt + 1), wait);
      return;
    }
    delete this.buy.dataset.busy;
    if (body.status_url) {
      const status = await ask(body.status_url)
        .then((found) => (found.ok ? found.json() : body)).catch(() => body);
      this.follow(status);
    } else {
      this.key = null;
      this.say(answer.status === 401 ? LOGGED_OUT : body.detail || "That did not work.");
    }
    tick();
  }

  // Without a token (none left, none needed, a reservation is held already) the gate's answer tells.
  async purchaseToken() {
    if (!sale.dataset.needsToken) return {};
    const url = api + "/skus/" + this.id + "/purchase-token";
    const answer = await ask(url, { method: "POST", body: "{}" });
    return answer.ok ? { "Purchase-Token": (await answer.json()).token } : {};
  }

  show(state) {
    if (state.version !== undefined && state.version < this.shown) return false;
    this.shown = state.version ?? this.shown;
    const paid = state.order_status === "PAID";
    const over = ["REJECTED", "EXPIRED", "CANCELED"].includes(state.status);
    const ordered = state.status === "ORDERED";
    const reached = { reserved: true, queued: state.status !== "PENDING" && !over, ordered, paid };
    for (const step of this.box.querySelectorAll("[data-step]")) {
      step.className = reached[step.dataset.step] ? "done" : over && step.dataset.step === "ordered" ? "failed" : "";
    }
    this.find("actions").hidden = !(ordered && ["CREATED", "PAYING"].includes(state.order_status));
    const until = ordered && state.expires_at ? " until " + new Date(Date.parse(state.expires_at) - skew).toLocaleTimeString() : "";
    const reason = state.reason ? " " + (REASONS[state.reason] || "") : "";
    this.say(paid ? "Paid. Thank you!" : (TEXTS[state.status] || state.status).replace("{until}", until) + reason,
      "Reservation " + state.reservation_id + (ordered ? " · order " + state.order_id : ""));
    this.order = state.order_id;
    this.buy.dataset.held = over ? "" : "1";
    if (over) this.key = null;
    this.box.dataset.state = paid ? "PAID" : state.status;
    tick();
    return !over && !paid;
  }

  // Until the final state, however long the network is away.
  async follow(state) {
    this.shown = -1;
    if (!this.show(state)) return;
    const url = api + "/reservations/" + state.reservation_id + "/events";
    const lost = this.find("lost");
    for (let failures = 0; ;) {
      const heard = () => {
        failures = 0;
        lost.hidden = true;
      };
      try {
        if (await this.listen(url, heard)) return;
      } catch {
        failures += 1;
        lost.hidden = false;
      }
      await pause(backOff(failures));
    }
  }

  // Shows a stream's events; true at the final state, false when the server ended it before.
  async listen(url, heard) {
    const stream = new AbortController();
    let heardAt = Date.now();
    const cut = () => stream.abort();
    const watch = setInterval(() => { if (Date.now() - heardAt > SILENT_MS) cut(); }, 1000);
    addEventListener("offline", cut, { signal: stream.signal }); // TCP would notice much later
    try {
      const answer = await ask(url, { signal: stream.signal });
      if (!answer.ok) throw new Error(String(answer.status));
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        heardAt = Date.now();
        heard();
        text += value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const data = event.split("\n").find((line) => line.startsWith("data: "));
          if (data && !this.show(JSON.parse(data.slice(6)))) return true;
        }
      }
    } finally {
      clearInterval(watch);
      stream.abort();
    }
  }

  // Both may be sent again: an open or a captured attempt is not sent twice, a cancel neither.
  async act(what, text) {
    this.find("actions").hidden = true;
    this.find("text").textContent = text;
    this.buy.dataset.busy = "1";
    let trouble = "";
    try {
      const url = "/api/v1/orders/" + this.order + "/" + what;
      const answer = await ask(url, { method: "POST", body: "{}" });
      const body = await answer.json();
      if (answer.status === 401) trouble = LOGGED_OUT;
      else if (!answer.ok) trouble = body.detail || "That did not work.";
      else if (what === "payments" && answer.status === 200 && body.status !== "PAID") {
        trouble = "The payment was refused. You may try again.";
      }
    } catch {
      trouble = "No answer. Try again.";
    }
    delete this.buy.dataset.busy;
    tick();
    // The stream may have told the end before the answer came, or instead of it.
    if (!trouble || this.box.dataset.state !== "ORDERED") return;
    this.find("text").textContent = trouble;
    this.find("actions").hidden = false;
  }
}

let lookedAt = Date.now();
let missed = 0;
let nextLook;

function planLook() {
  const wait = LOOK_MS * (0.75 + Math.random() / 2) * Math.min(4, 2 ** missed);
  const early = Date.parse(sale.dataset.starts) - EARLY_MS - now();
  clearTimeout(nextLook);
  nextLook = setTimeout(look, early > 0 && early < wait ? early : wait);
}

// Reads the sale again. Nobody sees a hidden page: it looks when it is shown.
async function look() {
  if (document.hidden) return;
  lookedAt = Date.now();
  try {
    const answer = await fetch(api, { signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) throw new Error(String(answer.status));
    update(await answer.json(), Date.now() - lookedAt);
    missed = 0;
  } catch {
    missed += 1; // looks come less often then: a server in need is left alone
  }
  const busy = document.querySelector('[data-busy="1"]');
  if (tokenEndsAt() < now() + 2 * LOOK_MS && !busy && renew()) return;
  planLook();
}

function update(found, tookMs) {
  // A slow answer tells the time less well than what is known.
  if (tookMs < 1000) skew = Date.parse(found.server_time) - (Date.now() - tookMs / 2);
  sale.dataset.status = found.status;
  sale.dataset.starts = found.starts_at;
  sale.dataset.ends = found.ends_at;
  sale.dataset.needsToken = found.token_required ? "1" : "";
  for (const sku of found.skus) {
    const badge = sale.querySelector('[data-sku="' + sku.sku_id + '"] [data-stock]');
    if (!badge) continue;
    badge.className = "badge stock " + sku.stock;
    badge.textContent = STOCK[sku.stock];
  }
  tick();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  if (Date.now() - lookedAt > LOOK_MS / 4) look();
  else planLook();
});
for (const element of document.querySelectorAll(".sku")) new Sku(element);
tick();
setInterval(tick, 500);
planLook();
