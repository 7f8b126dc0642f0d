// The pages work without this script. With it, a page updates its parts when the server reports a change, and commands
// can be copied.
"use strict";
(() => {
  const main = document.querySelector("main");
  let busy = false, again = false;

  // replace takes over the changed parts of a newer page, except parts with ticked boxes, and keeps the focus.
  function replace(page) {
    for (const old of document.querySelectorAll("[data-live]")) {
      const part = page.getElementById(old.getAttribute("id")); // old.id may be a field of a form instead of the id
      if (!part || part.innerHTML === old.dataset.was) continue;
      if (old.querySelector("input:checked")) continue;
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      const key = focused && (focused.getAttribute("href") || focused.name + focused.value);
      const was = part.innerHTML;
      old.replaceChildren(...part.childNodes);
      old.dataset.was = was;
      if (key) {
        for (const x of old.querySelectorAll("a, button, input")) {
          if ((x.getAttribute("href") || x.name + x.value) === key) { x.focus({preventScroll: true}); break; }
        }
      }
    }
    prepare();
  }

  async function load() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.ok) replace(page);
      else if (answer.status !== 502) location.reload();
    } catch { offline(true); }
    busy = false;
    if (again) { again = false; setTimeout(load, 500); }
  }

  function offline(is) { document.body.classList.toggle("offline", is); }

  function prepare() {
    for (const b of document.querySelectorAll(".copy[hidden]")) b.hidden = !navigator.clipboard;
  }

  document.addEventListener("click", e => {
    const b = e.target.closest(".copy");
    if (!b) return;
    navigator.clipboard.writeText(b.previousElementSibling.textContent).then(() => {
      b.textContent = "Copied";
      setTimeout(() => { b.textContent = "Copy"; }, 1500);
    });
  });

  document.addEventListener("input", e => {
    const out = e.target.closest("label")?.querySelector("output");
    if (out && e.target.type === "range") out.textContent = e.target.value;
  });

  document.addEventListener("keydown", e => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    const q = document.querySelector("#q");
    if (q) { q.focus(); e.preventDefault(); }
  });

  // a part that did not change in the newer page stays, with the text that was typed into it
  for (const part of document.querySelectorAll("[data-live]")) part.dataset.was = part.innerHTML;
  prepare();
  if (main.dataset.events) {
    let version = main.dataset.version;
    const events = new EventSource(main.dataset.events);
    events.onmessage = e => { offline(false); if (e.data !== version) { version = e.data; load(); } };
    events.onerror = () => offline(true);
    addEventListener("pagehide", () => events.close());
  }
})();
