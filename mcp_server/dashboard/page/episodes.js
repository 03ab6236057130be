// Episodes: which steps kept some, those of a step, one of them by turns and tokens.

async function episodesView(run, asked) {
  const { steps } = await asking.ask(`runs/${run}/episodes`);
  const up = { to: `#/runs/${run}`, name: run };
  if (!steps.length) return { title: "Episodes", node: el("div", {}, head(up, "Episodes"), none("No episodes were kept.")) };
  const places = steps.map((one) => one.step);
  const step = asked !== undefined && places.includes(Number(asked)) ? Number(asked) : places[places.length - 1];
  const found = await asking.ask(`runs/${run}/episodes/${step}`);
  const at = places.indexOf(step);
  const chooser = el("input", { id: "step", class: "code", type: "number", min: places[0], max: places[places.length - 1], value: step, onchange: (event) => {
    const wanted = Number(event.target.value);
    const nearest = places.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best), places[0]);
    go(`#/runs/${run}/episodes/${nearest}`);
  } });
  const row = (one) => el(
    "li", {},
    el(
      "a", { class: "row", href: `#/runs/${run}/episodes/${step}/${one.place}` },
      el("span", { class: "name" }, one.prompt || `task ${one.task}`, one.valid ? null : badge("not valid", "warn"), one.guided ? badge("with experience", "live") : null),
      el("span", { class: "about" }, `group ${one.group}, attempt ${one.generation}: ${words(one.stop_reason || "ended")}, ${one.turns} turns, ${one.tool_calls} tool calls${one.parse_errors ? `, ${one.parse_errors} unreadable` : ""}`),
      el("span", { class: "side" }, el("span", { class: "figure" }, el("span", {}, badge(`reward ${brief(one.reward)}`, one.reward > 0.5 ? "good" : "")), el("span", { class: "small" }, known(one.tokens) ? `${one.tokens} tokens` : ""))),
    ),
  );
  return {
    title: `Episodes of step ${step}`,
    node: el(
      "div", { class: "stack" },
      head(up, `Episodes of step ${step}`, [el("span", { class: "soft" }, `${found.total} episodes, mean reward ${number(steps[at].reward)}`)]),
      el(
        "nav", { class: "tabs", "aria-label": "Steps" },
        at > 0 ? el("a", { href: `#/runs/${run}/episodes/${places[at - 1]}`, rel: "prev" }, `← step ${places[at - 1]}`) : null,
        at < places.length - 1 ? el("a", { href: `#/runs/${run}/episodes/${places[at + 1]}`, rel: "next" }, `step ${places[at + 1]} →`) : null,
        el("label", { for: "step", class: "soft small" }, "Go to step "), chooser,
      ),
      el("ul", { class: "rows", "data-list": true }, found.episodes.map(row)),
    ),
  };
}

async function episodeView(run, step, place) {
  const one = await asking.ask(`runs/${run}/episodes/${step}/${place}`);
  const other = (at, name) => el("a", { href: `#/runs/${run}/episodes/${step}/${at}` }, name);
  return {
    title: `Episode ${one.place} of step ${step}`,
    node: el(
      "div", { class: "stack" },
      head({ to: `#/runs/${run}/episodes/${step}`, name: `Episodes of step ${step}` }, `Episode ${one.place + 1} of ${one.count}`, [badge(`reward ${brief(one.reward)}`, one.reward > 0.5 ? "good" : ""), one.valid ? null : badge("not valid", "warn")].filter(Boolean)),
      el("nav", { class: "tabs", "aria-label": "Episodes" }, one.place > 0 ? other(one.place - 1, "← before") : null, one.place < one.count - 1 ? other(one.place + 1, "next →") : null),
      facts(fact("ended by", words(one.stop_reason || "–")), fact("turns", plain(one.turns)), fact("tool calls", plain(one.tool_calls)), fact("tool errors", plain(one.tool_errors)), fact("unreadable calls", plain(one.parse_errors)), one.answer === null ? null : fact("right answer", one.answer)),
      one.error ? el("p", { class: "alert" }, one.error) : null,
      el("section", {}, el("h2", { class: "small soft" }, "Turns"), el("div", { class: "turns" }, one.messages.map(turn))),
      one.tokens ? tokens(one.tokens) : null,
    ),
  };
}

function turn(message) {
  return el(
    "div", { class: `turn ${message.role === "assistant" ? "assistant" : ""}` },
    el("span", { class: "who" }, message.role),
    el(
      "div", {},
      message.text ? el("pre", {}, message.text) : null,
      message.calls.map((call) => el("p", { class: "call" }, el("strong", {}, call.name), ` ${call.arguments}`)),
    ),
  );
}

// The completion token by token: the model's own, which were trained on, and those the environment put in.
function tokens(found) {
  const read = el("p", { class: "read small soft", "aria-live": "polite" });
  const chance = (place) => (found.logprobs ? Math.exp(found.logprobs[place]) : null);
  const parts = found.pieces.map((piece, place) => {
    const unsure = found.mask[place] && known(chance(place)) && chance(place) < 0.5;
    const name = found.mask[place] ? `own${unsure ? " unsure" : ""}` : "given";
    return el("span", { class: name }, piece.replaceAll("\n", "⏎\n"));
  });
  let here = null;

  function point(place) {
    if (here !== null) parts[here].classList.remove("here");
    here = place === null ? null : Math.max(0, Math.min(place, parts.length - 1));
    if (here === null) {
      const own = found.mask.filter(Boolean).length;
      read.textContent = `${own} of ${found.mask.length} tokens are the model's own and were trained on (tinted); underlined: less likely than not. Arrow keys read single tokens.`;
      return;
    }
    parts[here].classList.add("here");
    const how = found.mask[here] ? `the model's own, probability ${known(chance(here)) ? number(chance(here)) : "–"}` : "from the environment, not trained on";
    read.textContent = `token ${here + 1} of ${found.total} “${found.pieces[here]}”: ${how}`;
  }

  const box = el("div", { class: "tokens", tabindex: "0", role: "group", "aria-label": "Tokens of the completion; arrow keys read single tokens" }, parts);
  box.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    point((here ?? (move > 0 ? -1 : parts.length)) + move);
  });
  box.addEventListener("blur", () => point(null));
  box.addEventListener("pointerover", (event) => {
    const place = parts.indexOf(event.target);
    if (place >= 0) point(place);
  });
  box.addEventListener("pointerleave", () => point(null));
  point(null);
  const cut = found.total > found.pieces.length ? el("p", { class: "small soft" }, `The first ${found.pieces.length} of ${found.total} tokens.`) : null;
  return card("Tokens", box, read, cut);
}
