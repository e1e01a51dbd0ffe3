// The settlement ladder: what to pay and receive on each date, by currency and, on request, by client.
import { add, api, byId, colour, complain, counted, currencyPlaces, draw, element, empty, fill, follow, minus, money, negative, options, readable, refreshing, table } from "/static/tapeline.js";
import { closeOnEscape, explain } from "/static/why.js";

const ALL = "all currencies";
const page = byId("content");

const refresh = refreshing(async () => {
  const currencies = await api("values/settlement_due/currency");
  const usual = currencies.values.includes(page.dataset.mainCurrency) ? page.dataset.mainCurrency : ALL;
  options(byId("currency"), [ALL, ...currencies.values], byId("currency").value || usual);
  const currency = byId("currency").value;
  const found = await api("read/due", { where: currency === ALL ? [] : `currency=${currency}`, limit: 2000 });
  if (!found.rows.length) return fill(byId("ladder"), empty("Nothing is due. Amounts appear here after the first batch with trades."));
  const places = await currencyPlaces("currencies");
  const rows = found.rows.map((row) => ({ ...row, places: places(row.currency) }));
  show(rows);
  await chart(rows);
});

function show(rows) {
  const columns = [
    { title: "settles on", cell: (row) => row.settles_on },
    { title: "settlement", cell: (row) => element("button", { type: "button", class: "plain", onclick: () => why(row) }, row.settlement_id) },
    { title: "currency", cell: (row) => row.currency },
    { title: "bought", number: true, cell: (row) => money(row.bought, row.places) },
    { title: "sold", number: true, cell: (row) => money(row.sold, row.places) },
    { title: "net to settle", number: true, cell: (row) => money(row.net_to_settle, row.places) },
    { title: "fees", number: true, cell: (row) => money(row.fees, row.places) },
    { title: "payable", number: true, cell: (row) => (row.due.startsWith("-") ? "" : money(row.due, row.places)) },
    { title: "receivable", number: true, cell: (row) => (row.due.startsWith("-") ? money(negative(row.due), row.places) : "") },
    { title: "clients", cell: (row) => element("button", { type: "button", class: "plain", onclick: () => clients(row).catch(complain) }, "by client") },
  ];
  fill(byId("ladder"), table(counted(rows.length, "settlement"), columns, rows));
}

function why(row) {
  explain(byId("why"), "settlement_due", [row.settlement_id, row.settles_on, row.currency], `${row.settlement_id}, ${row.currency}`, row.places).catch(complain);
}

async function chart(rows) {
  const named = [...new Set(rows.map((row) => row.currency))];
  const shapes = ["", "/", "x", ".", "\\", "-", "+", "|"];
  await draw(
    byId("chart"),
    named.map((currency, place) => {
      const some = rows.filter((row) => row.currency === currency);
      return {
        type: "bar", name: currency, x: some.map((row) => row.settles_on), y: some.map((row) => Number(row.due)),
        customdata: some.map((row) => readable(row.due, row.places)), hovertemplate: "%{customdata}",
        marker: { color: some.map((row) => colour(row.due.startsWith("-") ? "sell" : "buy")), pattern: { shape: shapes[place % shapes.length], fgcolor: colour("paper") } },
      };
    }),
    { barmode: "group", xaxis: { type: "category" }, yaxis: { title: { text: "due (above zero: pay, below: receive)" }, tickformat: "~s" } },
  );
}

// What each client pays or receives: from the summary client_due if the books have it, else from the trades.
async function balances(where) {
  if (page.dataset.clientDue === "yes") {
    const found = await api("read/client_due", { where, limit: 10000 });
    const listed = found.rows.map((row) => ({ client: row.client, amount: add(minus(row.bought, row.sold), row.fees) }));
    return { listed, more: found.next_offset };
  }
  const found = await api("read/enriched_trades", { where, group: ["client", "side"], sum: ["amount", "fees"], limit: 10000 });
  const due = new Map();
  for (const part of found.rows) {
    const amount = part.side === "BUY" ? add(part.amount, part.fees) : minus(part.fees, part.amount);
    due.set(part.client, add(due.get(part.client) ?? "0", amount));
  }
  return { listed: [...due].map(([client, amount]) => ({ client, amount })), more: found.next_offset };
}

// One client's receivable does not pay another's payable, so the two have separate totals.
async function clients(row) {
  const place = byId("clients");
  place.hidden = false;
  fill(place, element("p", {}, "Loading the clients of this settlement …"));
  const { listed, more } = await balances([`settlement_id=${row.settlement_id}`, `settles_on=${row.settles_on}`, `currency=${row.currency}`]);
  const payable = listed.filter((one) => !one.amount.startsWith("-")).reduce((sum, one) => add(sum, one.amount), "0");
  const receivable = listed.filter((one) => one.amount.startsWith("-")).reduce((sum, one) => minus(sum, one.amount), "0");
  const columns = [
    { title: "client", cell: (one) => named(row, one.client) },
    { title: "payable", number: true, cell: (one) => (one.amount.startsWith("-") ? "" : money(one.amount, row.places)) },
    { title: "receivable", number: true, cell: (one) => (one.amount.startsWith("-") ? money(negative(one.amount), row.places) : "") },
  ];
  fill(
    place,
    element("h2", { tabindex: "-1" }, `${row.settlement_id}, ${row.currency}, by client`),
    element("p", {}, "Payable ", money(payable, row.places), ", receivable ", money(receivable, row.places), `, ${more ? "first " : ""}${counted(listed.length, "client")}.`),
    element("div", { class: "scroll" }, table("Balance of each client", columns, listed)),
    element("button", { type: "button", onclick: () => { place.hidden = true; } }, "Close"),
  );
  place.querySelector("h2").focus();
}

// A click on a client shows the history of its balance, if the books have client_due.
function named(row, client) {
  if (page.dataset.clientDue !== "yes") return client;
  const key = [row.settlement_id, row.settles_on, client, row.currency];
  const explained = () => explain(byId("why"), "client_due", key, `${row.settlement_id}, ${client}, ${row.currency}`, row.places).catch(complain);
  return element("button", { type: "button", class: "plain", onclick: explained }, client);
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", refresh);
document.addEventListener("theme", refresh);
closeOnEscape(byId("why"));
closeOnEscape(byId("clients"));
refresh();
follow(refresh);
