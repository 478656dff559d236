// Numbers and words as people read them.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const compact = (value) => (Math.abs(value) < 10000 ? whole.format(Math.round(value)) : short.format(value));
export const share = (part, all) => (all > 0 ? `${((100 * part) / all).toFixed(part * 10 < all ? 1 : 0)} %` : "–");

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? whole.format(Math.round(value)) : value.toFixed(1);
}

// 0.4 → 0.4 s; 960 → 16 min
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10) return `${value.toFixed(1)} s`;
  return value < 600 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`;
}

export function span(ms) {
  const all = Math.max(0, Math.round(ms / 1000));
  const [days, hours, minutes] = [Math.floor(all / 86400), Math.floor((all % 86400) / 3600), Math.floor((all % 3600) / 60)];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  return `${minutes}:${String(all % 60).padStart(2, "0")}`;
}

export const time = (ms) => new Date(ms).toISOString().slice(11, 19);

// SOLD_OUT → sold out
export const words = (code) => code.replaceAll("_", " ").toLowerCase();

// CG_SECKILL_ORDER_CREATE_PG_V1 → order create pg
export const groupName = (group) => words(group.replace(/^CG_SECKILL_/, "").replace(/_V\d+$/, ""));
