// Where the numbers come from: once the points of the last minutes, then one snapshot a second.

const KEPT = 300;
const AGAIN_MS = 3000;

// Starts the feed. `show(state)` is called after every change; state = {snapshot, points, limits,
// heardAt, lateMs, trouble}. lateMs is how old the snapshot was, by the server's clock, when it came.
export function follow({ dataUrl, streamUrl, show }) {
  const state = { snapshot: null, points: [], limits: {}, heardAt: 0, lateMs: 0, trouble: "connecting" };
  let source = null;
  let loaded = false;
  let catching = false;

  function take(snapshot, nowMs) {
    if (!snapshot) {
      state.trouble = "NOBODY_SAMPLES";
      return;
    }
    const newest = state.points.at(-1);
    if (!newest || snapshot.at_ms > newest.t) {
      state.points.push(pointOf(snapshot));
      state.points.splice(0, state.points.length - KEPT);
    }
    state.snapshot = snapshot;
    state.heardAt = Date.now();
    state.lateMs = Math.max(0, nowMs - snapshot.at_ms);
    state.trouble = "";
  }

  // Returns what is wrong, "" when limits and points are here.
  async function load() {
    const answer = await fetch(dataUrl, { headers: { Accept: "application/json" } });
    if (answer.redirected || answer.status === 403) return "LOGGED_OUT";
    const body = await answer.json();
    if (!answer.ok) return body.problem || `HTTP ${answer.status}`;
    state.limits = body.limits;
    state.points = body.points;
    take(body.snapshot, body.now_ms);
    return "";
  }

  // The stream outlives an outage that the load before it met: then this brings what is missing.
  async function catchUp() {
    if (loaded || catching) return;
    catching = true;
    loaded = (await load().catch(() => "UNREACHABLE")) === "";
    show(state);
    setTimeout(() => { catching = false; }, AGAIN_MS);
  }

  async function connect() {
    const trouble = await load().catch(() => "UNREACHABLE");
    loaded = trouble === "";
    if (trouble) state.trouble = trouble;
    show(state);
    if (trouble === "LOGGED_OUT") return;
    source = new EventSource(streamUrl);
    source.addEventListener("snapshot", (event) => {
      const body = JSON.parse(event.data);
      take(body.snapshot, body.now_ms);
      show(state);
      catchUp();
    });
    source.addEventListener("silent", (event) => {
      state.trouble = JSON.parse(event.data).why;
      show(state);
    });
    source.onerror = () => {
      // The browser would ask for the stream again, but not for the points that it missed.
      source.close();
      state.trouble = "UNREACHABLE";
      show(state);
      setTimeout(connect, AGAIN_MS);
    };
  }

  connect();
  setInterval(() => show(state), 1000);
}

// As Snapshot.point() of seckill/monitor/snapshot.py.
function pointOf(snapshot) {
  const sales = {};
  const sum = (rows, name) => rows.reduce((all, row) => all + row[name], 0);
  for (const sale of snapshot.sales) {
    const { rates, units } = sale;
    sales[sale.activity_id] = [
      rates.requests, rates.accepted, rates.ordered, rates.paid, sale.pending_age_s, sale.open_age_s,
      sum(units, "at_gate"), sum(units, "reserved"), sale.unpaid_units, sale.paid_units, sum(units, "withheld"),
    ];
  }
  return {
    t: snapshot.at_ms,
    lag: snapshot.system ? snapshot.system.order_lag_s : null,
    tx: snapshot.tx_p99_ms,
    lvl: snapshot.governor ? snapshot.governor.level : null,
    sales,
  };
}
