// The console's keyboard, live parts and guard against double clicks. Works without, too.
"use strict";
(() => {
  const root = document.querySelector(".dlq");
  if (!root) return;

  // --- keyboard: / search, j k rows, o open, 1-6 tabs, g + letter pages, ? help -----------------
  const typing = (e) => e.target.closest("input, textarea, select, [contenteditable]");
  const rows = () => [...root.querySelectorAll("tr[data-row]")];
  let armed = 0;
  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.classList.contains("here"));
    const next = all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + step))];
    all.forEach((row) => row.classList.toggle("here", row === next));
    next.scrollIntoView({ block: "nearest" });
    (next.querySelector("a.main") || next).focus({ preventScroll: true });
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && typing(event)) return event.target.blur();
    if (typing(event)) return;
    const help = root.querySelector("#dlq-keys");
    if (Date.now() - armed < 1200) {
      armed = 0;
      const link = root.querySelector(`.dlq-nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") { armed = Date.now(); return; }
    if (event.key === "/") { event.preventDefault(); root.querySelector("#dlq-q").focus(); }
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "o") { const link = root.querySelector("tr.here a.main"); if (link) link.click(); }
    else if (event.key === "?" && help) { help.open ? help.close() : help.showModal(); }
    else if (/^[1-9]$/.test(event.key)) {
      const tab = root.querySelectorAll(".tabs a")[Number(event.key) - 1];
      if (tab) tab.click();
    }
  });
  root.querySelector("#dlq-keys button")?.addEventListener("click", () => root.querySelector("#dlq-keys").close());

  // --- a form is sent once ------------------------------------------------------------------------
  root.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || "again" in form.dataset) return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    form.setAttribute("aria-busy", "true");
    // Later, so that the pressed button's own value is sent.
    setTimeout(() => form.querySelectorAll("button").forEach((b) => { b.setAttribute("aria-disabled", "true"); }), 0);
  });
  window.addEventListener("pageshow", () => root.querySelectorAll("form[data-sent]").forEach((form) => {
    delete form.dataset.sent;
    form.removeAttribute("aria-busy");
    form.querySelectorAll("button").forEach((b) => b.removeAttribute("aria-disabled"));
  }));

  // --- all rows of a page chosen by one box ---------------------------------------------------------
  root.addEventListener("change", (event) => {
    const box = event.target;
    if (box.matches("[data-all]")) root.querySelectorAll(`input[name="${CSS.escape(box.dataset.all)}"]`).forEach((one) => { one.checked = box.checked; });
  });

  // --- live parts: the server's own markup, read again ---------------------------------------------
  const status = (part) => part.querySelector("[data-status]")?.dataset.status;
  // What one can do depends on the state: read it again, too, unless somebody is at it.
  const follow = async (part) => {
    const acts = root.querySelector("[data-follows]");
    if (!acts || acts.querySelector("details[open]")) return;
    const answer = await fetch(part.dataset.live, { credentials: "same-origin" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-follows]");
    if (answer.ok && fresh && !acts.querySelector("details[open]")) acts.replaceChildren(...fresh.childNodes);
  };
  const refresh = async (part) => {
    const wait = Number(part.dataset.every) || 3000;
    try {
      // Somebody types or a menu is open in it: not now.
      const busy = part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
      if (!document.hidden && !busy) {
        const answer = await fetch(part.dataset.live, { headers: { "X-Console-Part": "1" }, credentials: "same-origin" });
        if (answer.redirected || answer.status === 403) { part.dataset.state = "out"; return; }
        if (answer.ok) {
          const text = await answer.text();
          if (text !== part.dataset.seen) {
            const before = new Set([...part.querySelectorAll("tr[data-row]")].map((row) => row.dataset.row + row.dataset.state));
            const here = part.querySelector("tr.here")?.dataset.row;
            const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
            const was = status(part);
            part.dataset.seen = text;
            part.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
            part.querySelectorAll("tr[data-row]").forEach((row) => {
              if (before.size && !before.has(row.dataset.row + row.dataset.state)) row.classList.add("fresh");
              if (row.dataset.row === here) row.classList.add("here");
            });
            if (was !== status(part)) await follow(part);
            if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
          }
          part.dataset.state = "live";
        }
      }
    } catch { part.dataset.state = "away"; }
    if (part.isConnected) setTimeout(refresh, wait, part);
  };
  root.querySelectorAll("[data-live]").forEach((part) => setTimeout(refresh, Number(part.dataset.every) || 3000, part));
})();
