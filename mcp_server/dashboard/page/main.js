// Which view an address shows, and what keys do everywhere.

const PARTS = [["runs", "Runs"], ["rounds", "Rounds"], ["patches", "Patches"], ["experience", "Experience"], ["skills", "Skills"]];

const VIEWS = {
  runs: (id, episodes, step, place) =>
    id === undefined ? runsView() : episodes === undefined ? runView(id) : place === undefined ? episodesView(id, step) : episodeView(id, step, place),
  rounds: (id) => (id === undefined ? roundsView() : roundView(id)),
  patches: (id) => (id === undefined ? patchesView() : patchView(id)),
  experience: (name, status) => (name === undefined ? poolsView() : poolView(name, status)),
  skills: (name, range) => (name === undefined ? skillsView() : skillView(name, range)),
};

const content = document.getElementById("content");
let deciding = { allowed: false, why_not: null };
let place = "#/runs";
let visit = 0;
let timer = null;

// A frame of a client has no address of its own.
const IN_APP = document.documentElement.dataset.place === "app";

function go(address) {
  if (!IN_APP) {
    location.hash = address;
    return;
  }
  place = address;
  show();
}

// Redraws a list only when what it shows has changed, and leaves the keyboard where it was.
function refresh(node, text, make) {
  if (node.shownText === text) return;
  node.shownText = text;
  const focused = node.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  replace(node, ...make());
  if (focused !== null) {
    const again = [...node.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === focused);
    if (again) again.focus();
  }
}

const NOTICE_MS = 8000;

function notice(text) {
  const node = document.getElementById("notice");
  node.textContent = text;
  clearTimeout(node.until);
  node.until = setTimeout(() => { node.textContent = ""; }, NOTICE_MS);
}

function heading() {
  const found = content.querySelector("h1");
  if (found) found.focus({ preventScroll: true });
}

function partsOf(address) {
  return address.replace(/^#\/?/, "").split("/").filter(Boolean).map((one) => {
    try {
      return decodeURIComponent(one);
    } catch {
      return "";
    }
  });
}

async function navigation(current) {
  const list = document.getElementById("parts");
  const link = ([name, word]) => el("li", {}, el("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null, id: `part-${name}` }, word));
  replace(list, PARTS.map(link));
  try {
    const now = await asking.ask("overview");
    document.getElementById("workspace").textContent = now.workspace;
    const patches = document.getElementById("part-patches");
    if (now.waiting.length && patches) patches.append(el("span", { class: "count", "aria-label": `${now.waiting.length} wait for a decision` }, now.waiting.length));
  } catch {
    return;  // the view itself says what is wrong
  }
}

async function show() {
  visit += 1;
  const mine = visit;
  clearTimeout(timer);
  const [part, ...rest] = partsOf(place);
  const name = Object.hasOwn(VIEWS, part) ? part : "runs";
  navigation(name);
  try {
    const view = await VIEWS[name](...rest);
    if (mine !== visit) return;
    document.title = `${view.title} · mcp-evo`;
    replace(content, view.node);
    window.scrollTo(0, 0);
    heading();
    keepFresh(view, mine);
  } catch (error) {
    if (mine === visit) failed(error);
  }
}

// Asks again while somebody looks.
function keepFresh(view, mine) {
  if (!view.poll) return;
  timer = setTimeout(async () => {
    if (mine !== visit) return;
    try {
      if (document.visibilityState === "visible" && view.poll) await view.poll();
    } catch (error) {
      if (error.status === 401) {
        failed(error);
        return;
      }
      notice(error.message);
    }
    if (mine === visit) keepFresh(view, mine);
  }, view.every);
}

function failed(error) {
  if (!(error instanceof Problem)) console.error(error);
  const needsLink = error.status === 401;
  document.title = "mcp-evo";
  replace(
    content,
    head(needsLink || error.status === 0 ? null : { to: `#/${partsOf(place)[0] || "runs"}`, name: "Back" }, needsLink ? "This page needs its link" : "Nothing to show"),
    el("p", {}, error instanceof Problem ? error.message : "The page made a mistake; the browser's console has the details."),
    needsLink ? el("p", { class: "soft" }, "Press Enter in the terminal in which mcp-evo dashboard runs: it prints a new link.") : null,
  );
  heading();
}

// ---- keys

function links(list) {
  return [...list.querySelectorAll("a.row")];
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
  const field = ["INPUT", "TEXTAREA"].includes(event.target.tagName);
  if (event.key === "Escape") {
    if (field) event.target.blur();
    else {
      const up = content.querySelector("[data-up]");
      if (up) go(up.getAttribute("href"));
    }
    return;
  }
  const move = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
  if (field || move === undefined) return;
  const list = event.target.closest ? event.target.closest("[data-list]") : null;
  const all = links(list || content.querySelector("[data-list]") || content);
  const at = all.indexOf(document.activeElement);
  if (!all.length || (at < 0 && !["H1", "BODY", "MAIN"].includes(event.target.tagName))) return;
  event.preventDefault();
  all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + move))].focus();
});

document.addEventListener("click", (event) => {
  const link = event.target.closest ? event.target.closest('a[href^="#/"]') : null;
  if (link && IN_APP) {
    event.preventDefault();
    go(link.getAttribute("href"));
  }
});

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  content.focus();
});

window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#login=")) location.reload();
  else {
    place = location.hash || "#/runs";
    show();
  }
});

async function begin() {
  try {
    deciding = await asking.begin();
  } catch (error) {
    failed(error);
    return;
  }
  if (location.hash.startsWith("#/")) place = location.hash;
  const mode = deciding.allowed ? "You can approve and reject patches here." : `${deciding.why_not}.`;
  document.getElementById("mode").textContent = mode;
  show();
}

begin();
