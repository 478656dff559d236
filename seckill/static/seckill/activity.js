// The page of one sale: countdown, buy, live status by server-sent events, pay and cancel.
// It uses the public API only, with the token in its data attribute. No framework, no build.
"use strict";

const sale = document.getElementById("sale");
const api = "/api/v1/activities/" + sale.dataset.activity;
const skew = Date.parse(sale.dataset.server) - Date.now();
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

function now() { return Date.now() + skew; }

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
    const answer = await fetch(api + "/skus/" + this.id + "/reservation", { headers });
    if (answer.ok) this.follow(await answer.json());
  }

  // One key per intention: whatever gets lost, the same key names the same reservation.
  async reserve(attempt = 1) {
    this.key = this.key || crypto.randomUUID?.() || String(Math.random()).slice(2) + Date.now();
    this.buy.dataset.busy = "1";
    tick();
    let answer, body;
    try {
      const token = await this.purchaseToken();
      answer = await fetch(api + "/skus/" + this.id + "/reservations", {
        method: "POST", headers: { ...headers, ...token, "Idempotency-Key": this.key }, body: JSON.stringify({ quantity: 1 }),
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
      const status = await fetch(body.status_url, { headers });
      this.follow(status.ok ? await status.json() : body);
    } else {
      this.key = null;
      this.say(body.detail || "That did not work.");
    }
    tick();
  }

  // Without a token (none left, none needed, a reservation is held already) the gate's answer tells.
  async purchaseToken() {
    if (!sale.dataset.needsToken) return {};
    const answer = await fetch(api + "/skus/" + this.id + "/purchase-token", { method: "POST", headers, body: "{}" });
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

  async follow(state) {
    this.shown = -1;
    if (!this.show(state)) return;
    const url = api + "/reservations/" + state.reservation_id + "/events";
    for (let failures = 0; failures < 20;) {
      try {
        const answer = await fetch(url, { headers });
        if (!answer.ok) throw new Error(String(answer.status));
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          failures = 0;
          text += value;
          const events = text.split("\n\n");
          text = events.pop();
          for (const event of events) {
            const data = event.split("\n").find((line) => line.startsWith("data: "));
            if (data && !this.show(JSON.parse(data.slice(6)))) return void reader.cancel();
          }
        }
      } catch (error) {
        failures += 1;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000 + 1000 * Math.random()));
    }
  }

  async act(what, text) {
    this.find("actions").hidden = true;
    this.find("text").textContent = text;
    const answer = await fetch("/api/v1/orders/" + this.order + "/" + what, { method: "POST", headers, body: "{}" });
    const body = await answer.json();
    const refused = what === "payments" && answer.status === 200 && body.status !== "PAID";
    if (!answer.ok || refused) {
      this.find("text").textContent = refused ? "The payment was refused. You may try again." : body.detail;
      this.find("actions").hidden = false;
    }
  }
}

for (const element of document.querySelectorAll(".sku")) new Sku(element);
tick();
setInterval(tick, 500);
