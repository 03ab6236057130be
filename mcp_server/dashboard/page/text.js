// Elements and words. Whatever comes from the workspace becomes a text node here: nothing on this page makes markup of text.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, settings, children) {
  for (const [name, value] of Object.entries(settings || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) node.append(child);
    else {
      const text = document.createTextNode("");
      text.textContent = String(child);
      node.append(text);
    }
  }
  return node;
}

function el(name, settings, ...children) {
  return fill(document.createElement(name), settings, children);
}

function svg(name, settings, ...children) {
  return fill(document.createElementNS(SVG, name), settings, children);
}

function replace(node, ...children) {
  node.replaceChildren(...children.flat().filter((one) => one !== null && one !== undefined && one !== false));
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

// A measured number, or a dash: what was not measured is never zero.
function number(value, digits = 3) {
  if (!known(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits) return value.toExponential(1).replace("e-", "e−");
  return value.toFixed(digits).replace("-", "−");
}

function brief(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(1).replace(".0e", "e").replace("e-", "e−").replace("e+", "e");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

function signed(value, digits = 3) {
  return known(value) ? `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(digits)}` : "–";
}

function interval(pair, digits = 2, form = number) {
  return Array.isArray(pair) ? `[${form(pair[0], digits)}, ${form(pair[1], digits)}]` : "";
}

function whole(value) {
  return known(value) ? value.toLocaleString("en") : "–";
}

function duration(seconds) {
  if (!known(seconds)) return "–";
  const all = Math.round(seconds);
  if (all < 60) return `${all} s`;
  if (all < 3600) return `${Math.floor(all / 60)} min ${String(all % 60).padStart(2, "0")} s`;
  return `${Math.floor(all / 3600)} h ${String(Math.floor((all % 3600) / 60)).padStart(2, "0")} min`;
}

function moment(seconds) {
  if (!known(seconds)) return el("span", {}, "–");
  const when = new Date(seconds * 1000);
  const text = when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  return el("time", { datetime: when.toISOString() }, text);
}

function words(name) {
  return String(name).replaceAll("_", " ");
}

// As a sentence of its own: a capital at the beginning (but of a name in code), a stop at the end.
function sentence(text) {
  const trimmed = String(text || "").trim();
  if (!trimmed) return "";
  const start = /^\w*_/.test(trimmed) ? trimmed[0] : trimmed[0].toUpperCase();
  return `${start}${trimmed.slice(1)}${/[.!?]$/.test(trimmed) ? "" : "."}`;
}

function plain(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return brief(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

function condition(when) {
  return when ? Object.entries(when).map(([key, value]) => `${key} ${plain(value)}`).join(", ") : "always";
}

const TONES = {
  running: "live", starting: "live", queued: "", finished: "good", failed: "bad", lost: "bad", stopped: "warn",
  goal_reached: "good", goal_missed: "warn", no_goal: "", better: "good", worse: "bad", inconclusive: "warn",
  staged: "", tried: "", approved: "live", active: "good", rejected: "bad", archived: "",
  quarantined: "warn", retired: "", awaiting_approval: "warn", closed: "",
};

function badge(word, tone) {
  const found = tone === undefined ? TONES[word] || "" : tone;
  return el("span", { class: `badge ${found}` }, words(word));
}

function fact(name, ...value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, ...value));
}

function facts(...pairs) {
  return el("dl", { class: "facts" }, pairs.filter(Boolean));
}

function card(title, ...children) {
  return el("section", { class: "card" }, title ? el("h2", {}, title) : null, ...children);
}

function head(crumb, title, badges, lead) {
  return el(
    "div", { class: "head" },
    crumb ? el("p", { class: "crumb" }, el("a", { href: crumb.to, "data-up": true }, `← ${crumb.name}`)) : null,
    el("div", { class: "title" }, el("h1", { tabindex: "-1" }, title), ...(badges || [])),
    lead ? el("p", { class: "lead" }, lead) : null,
  );
}

// Under a list that is longer than what is shown.
function more(page, shown, word, ask) {
  const onclick = () => ask().catch((error) => notice(error.message));
  if (page.total <= shown) return null;
  return el("p", { class: "more tabs" }, el("span", { class: "soft small" }, `${shown} of ${page.total} ${word}.`), page.cursor ? el("button", { type: "button", onclick }, "Show more") : null);
}

function none(text) {
  return el("p", { class: "none" }, text);
}

function table(columns, rows, label) {
  const cell = (name, column, value) => el(name, { class: column.number ? "number" : null, scope: name === "th" ? "col" : null }, value);
  return el(
    "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el(
      "table", {},
      el("thead", {}, el("tr", {}, columns.map((one) => cell("th", one, one.name)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, place) => cell("td", columns[place], value))))),
    ),
  );
}

// A unified diff, its lines told apart by their sign as well as by colour.
function diff(text, label) {
  const kind = (line) =>
    line.startsWith("+++") || line.startsWith("---") ? "file" : line.startsWith("@@") ? "hunk"
      : line.startsWith("+") ? "add" : line.startsWith("-") ? "cut" : "same";
  if (!text) return none("Nothing in the text changes.");
  const lines = text.replace(/\n$/, "").split("\n");
  return el(
    "div", { class: "diff", tabindex: "0", role: "region", "aria-label": label },
    el("code", {}, lines.map((line) => el("span", { class: kind(line) }, line || " "))),
  );
}
