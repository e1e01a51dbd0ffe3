// What all pages share: API requests, the live feed, exact numbers and safe elements.
// Text from records stays text: pages build elements here and never parse HTML.

export async function api(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) {
      if (one !== undefined && one !== null && one !== "") query.append(name, one);
    }
  }
  const answer = await fetch(`/api/${path}?${query}`, { headers: { accept: "application/json" } });
  if (answer.status === 401) location.assign("/login");
  const found = await answer.json();
  if (!answer.ok) throw new Error(reason(found, answer));
  return found;
}

// What the server says about a refused request; each wrong parameter is named.
export function reason(found, answer) {
  if (Array.isArray(found.detail)) return found.detail.map((one) => `${one.loc.at(-1)}: ${one.msg}`).join("; ");
  return found.error ?? found.detail ?? answer.statusText;
}

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return made;
}

export const byId = (id) => document.getElementById(id);

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat());
}

// Exact decimals: money arrives as text and is added as integers of its smallest unit.
const places = (text) => (text.split(".")[1] ?? "").length;

function whole(text, scale) {
  const [front, back = ""] = text.replace("-", "").split(".");
  const number = BigInt(front + back.padEnd(scale, "0"));
  return text.startsWith("-") ? -number : number;
}

function asText(number, scale) {
  const digits = (number < 0n ? -number : number).toString().padStart(scale + 1, "0");
  const sign = number < 0n ? "-" : "";
  return scale ? `${sign}${digits.slice(0, -scale)}.${digits.slice(-scale)}` : sign + digits;
}

export function add(one, other) {
  const [a, b] = [String(one ?? 0), String(other ?? 0)];
  const scale = Math.max(places(a), places(b));
  return asText(whole(a, scale) + whole(b, scale), scale);
}

export const minus = (one, other) => add(one, negative(String(other ?? 0)));
export const negative = (text) => (text.startsWith("-") ? text.slice(1) : isZero(text) ? text : `-${text}`);
export const isZero = (text) => /^-?0*(\.0*)?$/.test(text);
export const same = (one, other) => isZero(minus(one, other));

// All digits, in the reader's number format. A decimal given as text is not rounded.
export function readable(value, least = 2) {
  if (value === null || value === undefined) return "";
  const text = String(value);
  const [, back = ""] = text.split(".");
  const needed = Math.max(least, back.replace(/0+$/, "").length);
  return new Intl.NumberFormat(undefined, { minimumFractionDigits: needed, maximumFractionDigits: Math.min(needed, 100) }).format(text);
}

// Money in the decimals of its currency. A rounded amount shows all its digits as a tooltip.
export function money(value, places) {
  if (value === null || value === undefined) return "";
  const exact = readable(value, places);
  const shown = new Intl.NumberFormat(undefined, { minimumFractionDigits: places, maximumFractionDigits: places }).format(String(value));
  return exact === shown ? shown : element("span", { title: exact }, shown);
}

// How many decimals each currency has, from a reference with the columns currency and minor_units.
let knownPlaces = null;
export async function currencyPlaces(reference) {
  knownPlaces ??= new Map((await api(`read/${reference}`, { limit: 1000 })).rows.map((row) => [row.currency, row.minor_units]));
  return (currency) => knownPlaces.get(currency) ?? 2;
}

// Whole numbers need no decimals. Those too long for a JavaScript number arrive as text.
export const decimals = (value, places = 2) => (/^-?\d+$/.test(String(value)) ? 0 : places);

// A number of a row in the decimals of its currency, if a key column names one that browsers know.
const CURRENCIES = new Set(Intl.supportedValuesOf("currency"));
export function amount(value, currency) {
  if (decimals(value) === 0 || !CURRENCIES.has(currency)) return readable(value, decimals(value));
  return money(value, new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits);
}

// Key columns that say in which unit a number is.
export const UNIT = /(^|_)(currency|unit)$/;

export const count = (value) => new Intl.NumberFormat().format(value ?? 0);

// "1 record", "2,000 records".
export const counted = (number, word) => `${count(number)} ${number === 1 ? word : /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}${word.endsWith("ch") ? "es" : "s"}`}`;

// "1–100 of 102", or "102 records" when all of them are shown.
export const range = (offset, shown, total) => (shown === total ? counted(total, "record") : `${count(offset + 1)}–${count(offset + shown)} of ${count(total)}`);

// A time as the command line writes and reads it, such as 2026-11-13 10:31. The locale that writes
// it so is Swedish.
export function clock(iso, withDay = false) {
  if (!iso) return "";
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: zone() };
  const day = { year: "numeric", month: "2-digit", day: "2-digit", second: "2-digit" };
  const said = new Intl.DateTimeFormat("sv-SE", withDay ? { ...options, ...day } : options).format(new Date(iso));
  return said.replace(/(:\d\d):00$/, "$1");
}

// A full time with its zone, for sentences; a table names the zone in its column titles.
export const zoned = (iso) => (iso ? `${clock(iso, true)} ${zone()}` : "");
// Any value of a row as text; times are shown in the page's zone.
export const plainText = (value, time = zoned) => (/^\d{4}-\d\d-\d\dT/.test(value ?? "") ? time(value) : String(value ?? ""));
export const inZone = (title) => `${title} (${zone()})`;

// How long ago a time is, in its largest unit: "3 days".
const UNITS = [["day", 86_400_000], ["hour", 3_600_000], ["minute", 60_000]];
export function age(iso) {
  if (!iso) return "";
  const past = Math.max(0, Date.now() - Date.parse(iso));
  const [word, size] = UNITS.find(([, size]) => past >= size) ?? ["second", 1000];
  return counted(Math.floor(past / size), word);
}

// Where a record came from: file and line, or topic, partition and offset.
export function origin(row) {
  if (row.topic) return `${row.topic}, partition ${row.partition}, offset ${row.offset}`;
  if (row.delivery) return row.line == null ? row.delivery : `${row.delivery}, line ${row.line}`;
  return "unknown";
}

// The time zone of all times on a page: the page's own, or UTC.
export const zone = () => document.querySelector("[data-zone]")?.dataset.zone ?? "UTC";

// Dates and times stay on one line.
const isDate = (cell) => /^\d{4}-\d\d-\d\d/.test(cell) && String(cell).length <= 50;

export function table(caption, columns, rows) {
  const head = element("tr", {}, columns.map((c) => element("th", { scope: "col", class: c.number ? "number" : "" }, c.title)));
  const body = rows.map((row) =>
    element("tr", row.properties ?? {}, columns.map((c) => {
      const cell = c.cell(row);
      return element("td", { class: [c.number ? "number" : "", isDate(cell) ? "line" : "", c.class ?? ""].join(" ").trim() }, cell);
    })),
  );
  return element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, body));
}

export const empty = (...words) => element("p", { class: "empty" }, ...words);

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// The chart library interprets tags and links in labels. Names, categories, values and titles may contain
// text from records, so all of them are escaped here. Only templates, which pages write, may use tags.
const TAGS = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

function label(value) {
  if (typeof value === "string") return value.replace(/[&<>]/g, (character) => TAGS[character]);
  if (Array.isArray(value)) return value.map(label);
  return value;
}

const LABELS = ["name", "x", "y", "text", "hovertext", "customdata", "labels", "parents", "ids", "ticktext", "categoryarray", "legendgroup"];

function labelled(part) {
  const made = { ...part };
  for (const name of LABELS) if (name in made) made[name] = label(made[name]);
  if (typeof made.title === "string") made.title = label(made.title);
  else if (made.title) made.title = { ...made.title, text: label(made.title.text) };
  if (made.annotations) made.annotations = made.annotations.map(labelled);
  return made;
}

export function draw(place, traces, layout = {}, onClick = null) {
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("due"), automargin: true };
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), family: "system-ui, sans-serif" },
    margin: { l: 60, r: 12, t: 8, b: 36 }, legend: { orientation: "h", y: 1.12 }, hovermode: "x unified",
    hoverlabel: { bgcolor: colour("panel"), font: { color: colour("ink") } }, ...labelled(layout),
    xaxis: labelled({ ...axis, ...layout.xaxis }), yaxis: labelled({ ...axis, ...layout.yaxis }),
  };
  const reacted = Plotly.react(place, traces.map(labelled), whole, { responsive: true, displaylogo: false, displayModeBar: false });
  place.removeAllListeners?.("plotly_click");
  if (onClick) place.on("plotly_click", (event) => onClick(event.points[0]));
  place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
  return reacted;
}

// The live feed. After a dropped connection the browser reconnects and sends the last event id. When the
// server refuses the connection the browser stops, so we reconnect ourselves.
export function follow(onBatch) {
  const shown = byId("live");
  let last = null;
  let timer = null;
  function say(state, words) {
    shown.dataset.state = state;
    shown.textContent = words;
  }
  function connect() {
    const stream = new EventSource(last === null ? "/api/events" : `/api/events?after=${last}`);
    const seen = (event) => {
      const facts = JSON.parse(event.data);
      last = facts.batch;
      say("live", facts.batch ? `connected · batch ${count(facts.batch)}${facts.at ? ` · last update ${zoned(facts.at)}` : ""}` : "connected · no batch yet");
      return facts;
    };
    stream.addEventListener("hello", (event) => {
      const before = last;
      const facts = seen(event);
      if (before !== null && facts.batch !== before) onBatch(facts);
    });
    stream.addEventListener("batch", (event) => onBatch(seen(event)));
    stream.addEventListener("anew", (event) => onBatch(seen(event)));
    stream.addEventListener("error", () => {
      say("lost", "connection lost, reconnecting …");
      if (stream.readyState === EventSource.CLOSED) {
        clearTimeout(timer);
        timer = setTimeout(connect, 1000);
      }
    });
  }
  connect();
}

// Batches may arrive faster than a page refreshes: run one refresh at a time, and one more if needed.
export function refreshing(work) {
  let busy = false;
  let again = false;
  return async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    do {
      again = false;
      try {
        await work();
        byId("problem")?.remove();
      } catch (error) {
        complain(error);
      }
    } while (again);
    busy = false;
  };
}

export function complain(error) {
  byId("problem")?.remove();
  byId("content").prepend(element("p", { id: "problem", class: "banner", "data-state": "bad", role: "alert" }, `Error: ${error.message}`));
}

export function options(select, values, chosen, words = (value) => value) {
  const before = [...select.options].map((option) => option.value).join("\n");
  if (before !== values.join("\n")) {
    fill(select, values.map((value) => element("option", { value }, words(value))));
  }
  if (values.includes(chosen)) select.value = chosen;
}

// Who is logged in, and the log-out button.
if (byId("me")) {
  api("me").then((me) => {
    const out = element("form", { method: "post", action: "/logout" }, element("button", { type: "submit" }, "Log out"));
    fill(byId("me"), me.name, ...(me.session ? [out] : []));
  }).catch(() => {});
}

byId("theme")?.addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  document.dispatchEvent(new Event("theme"));
});
