// Reads the page again every few seconds and puts the new list in the old one's place.

const EVERY_MS = 3000;

async function refresh() {
  const live = document.getElementById("live");
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error(`HTTP ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.getElementById("workers").replaceWith(page.getElementById("workers"));
    live.replaceWith(page.getElementById("live"));
  } catch {
    live.textContent = "✕ the server does not answer";
    live.dataset.tone = "bad";
  }
}

setInterval(() => {
  if (!document.hidden) refresh();
}, EVERY_MS);
