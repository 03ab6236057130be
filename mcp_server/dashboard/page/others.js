// Rounds, experience and skills.

async function roundsView() {
  const list = el("div", {});
  let limit = PAGE;

  async function fillList() {
    const page = await asking.ask(`rounds?limit=${limit}`);
    refresh(list, JSON.stringify(page), () => [
      page.rounds.length ? el("ul", { class: "rows", "data-list": true }, page.rounds.map(roundRow)) : none('There are no rounds yet. Start with: mcp-evo evolve "…"'),
      more(page, page.rounds.length, "rounds", () => { limit = Math.min(MOST, limit + PAGE); return fillList(); }),
    ]);
  }

  await fillList();
  return { title: "Rounds", node: el("div", {}, head(null, "Rounds", [], "Train, find out what held the run back, try one small change in pairs, and train again with what was learnt."), list), poll: fillList, every: 5000 };
}

function roundRow(one) {
  const { before, after } = one.eval || {};
  return el(
    "li", {},
    el(
      "a", { class: "row", href: `#/rounds/${one.round}`, "data-key": String(one.round) },
      el("span", { class: "name" }, `Round ${one.round}`, badge(one.state), one.verdict ? badge(one.verdict) : null),
      el("span", { class: "about" }, one.lever || one.note || one.request),
      el(
        "span", { class: "side" },
        el("span", { class: "figure" }, el("span", {}, `${number(before && before.mean, 2)} → ${number(after && after.mean, 2)}`), el("span", { class: "small" }, "test success")),
        el("span", { class: "figure" }, el("span", {}, one.patch_id ? "promoted" : one.chosen ? "tried" : "no patch"), el("span", { class: "small" }, one.version_after || one.skill_version || "")),
      ),
    ),
  );
}

async function roundView(id) {
  const one = await asking.ask(`rounds/${id}`);
  const { before, after } = one.eval || {};
  const patches = one.patches.map((patch) => [el("a", { href: `#/patches/${patch.patch_id}` }, patch.patch_id), badge(patch.stage), patch.verdict ? badge(patch.verdict) : "–", known(patch.effect) ? `${signed(patch.effect)} ${interval(patch.ci95, 3, signed)}` : "–", patch.pairs === null ? "–" : String(patch.pairs)]);
  return {
    title: `Round ${one.round}`,
    node: el(
      "div", { class: "stack" },
      head({ to: "#/rounds", name: "Rounds" }, `Round ${one.round}`, [badge(one.state), one.verdict ? badge(one.verdict) : null].filter(Boolean), one.request),
      facts(
        one.run_id ? fact("run", el("a", { href: `#/runs/${one.run_id}` }, one.run_id)) : null, fact("test success", `${success(before)} → ${success(after)}`), fact("layer", one.layer),
        fact("evolution", `${one.evolution}, round ${one.position}`), fact("begun", moment(one.created_at)), one.version_after ? fact("skill afterwards", one.version_after) : null,
      ),
      card("What it did", one.findings.length ? el("p", {}, `Found: ${one.findings.map(words).join(", ")}.`) : null, one.lever ? el("p", {}, `Acted on ${one.lever}.`) : null, one.note ? el("p", {}, one.note) : null, patches.length ? table([{ name: "patch" }, { name: "stage" }, { name: "verdict" }, { name: "effect" }, { name: "pairs", number: true }], patches, "Patches of the round") : none("No patch was proposed.")),
      one.checks.length ? card("Promoted patches, measured again on fresh pairs", el("ul", {}, one.checks.map((check) => el("li", {}, typeof check.say === "string" ? check.say : plain(check))))) : null,
      card("Its way so far", table([{ name: "when" }, { name: "state" }], one.history.map((entry) => [moment(entry.time), words(entry.state || entry.what || plain(entry))]), "States of the round")),
    ),
  };
}

async function poolsView() {
  const { pools } = await asking.ask("experience");
  const row = (pool) => el(
    "li", {},
    el(
      "a", { class: "row", href: `#/experience/${pool.pool}` },
      el("span", { class: "name" }, pool.pool, pool.problem ? badge("cannot be read", "bad") : null),
      el("span", { class: "about" }, pool.problem || ["active", "quarantined", "retired"].map((name) => `${pool.by_status[name] || 0} ${name}`).join(", ")),
      el("span", { class: "side" }, el("span", { class: "figure" }, el("span", {}, Object.values(pool.by_status).reduce((sum, one) => sum + one, 0)), el("span", { class: "small" }, "lessons"))),
    ),
  );
  return { title: "Experience", node: el("div", {}, head(null, "Experience", [], "Lessons from earlier episodes that rollouts may be given, each with what it did to the success of those that got it."), pools.length ? el("ul", { class: "rows", "data-list": true }, pools.map(row)) : none("There is no experience pool yet.")) };
}

async function poolView(name, status = "all") {
  const tab = (word) => el("a", { href: `#/experience/${name}/${word}`, "aria-current": word === status ? "page" : null }, word);
  const count = el("span", { class: "soft" });
  const list = el("div", {});
  let limit = PAGE;

  async function fillList() {
    const page = await asking.ask(`experience/${name}?status=${status}&limit=${limit}`);
    count.textContent = `${page.total} lessons`;
    replace(
      list,
      page.records.length ? el("ul", { class: "rows" }, page.records.map(lesson)) : none("No lessons with this status."),
      more(page, page.records.length, "lessons, the most used first", () => { limit = Math.min(MOST, limit + PAGE); return fillList(); }),
    );
  }

  await fillList();
  return {
    title: `Experience ${name}`,
    node: el(
      "div", { class: "stack" },
      head({ to: "#/experience", name: "Experience" }, name, [count]),
      el("nav", { class: "tabs", "aria-label": "Status" }, ["all", "active", "quarantined", "retired"].map(tab)),
      list,
    ),
  };
}

function lesson(one) {
  const { counters, uplift } = one;
  const tried = counters.won + counters.lost;
  return el(
    "li", {},
    el(
      "div", { class: "row" },
      el("p", { class: "name" }, one.when_to_use || "Always", badge(one.status), badge(one.polarity, "")),
      el("div", { class: "about" }, el("p", { class: "prose" }, one.content), el("p", { class: "small" }, `${one.family ? `${one.family}, ` : ""}used ${counters.used} times, won ${counters.won} of ${tried}; withheld: won ${counters.control_won} of ${counters.control_won + counters.control_lost}.${one.status_reason ? ` ${one.status_reason}` : ""}`)),
      el("div", { class: "side" }, uplift ? el("div", {}, effectPlot(uplift.value, uplift.ci95, `uplift ${signed(uplift.value, 2)} ${interval(uplift.ci95, 2, signed)}`, [-1, 1]), el("p", { class: "small" }, `uplift ${signed(uplift.value, 2)} ${interval(uplift.ci95, 2, signed)}`)) : el("p", { class: "small soft" }, "uplift not measured")),
    ),
  );
}

async function skillsView() {
  const { skills } = await asking.ask("skills");
  const groups = [...new Set(skills.map((one) => one.group))];
  const row = (one) => el(
    "li", {},
    el(
      "a", { class: "row", href: `#/skills/${one.skill}` },
      el("span", { class: "name" }, one.skill, one.active.length ? badge(`${one.active.length} in force`, "good") : null, one.pinned ? badge(`pinned to ${one.pinned}`, "warn") : null, one.stale ? badge("not compiled", "warn") : null, one.problems.length ? badge("problems", "bad") : null),
      el("span", { class: "about" }, one.problems.length ? one.problems.join(" ") : one.description),
      el("span", { class: "side" }, el("span", { class: "figure" }, el("span", {}, one.version === null ? "–" : one.version), el("span", { class: "small" }, "version"))),
    ),
  );
  return {
    title: "Skills",
    node: el(
      "div", { class: "stack" },
      head(null, "Skills", [], "What agents work by, compiled from a base and the patches in force."),
      groups.length ? groups.map((group) => el("section", {}, el("h2", { class: "soft" }, group), el("ul", { class: "rows", "data-list": true }, skills.filter((one) => one.group === group).map(row)))) : none("There is no skill bank yet; the first training makes one."),
    ),
  };
}

async function skillView(name, range) {
  const page = await asking.ask(`skills/${name}`);
  const newest = page.versions.length ? page.versions[0].version : null;
  const [from, to] = range ? range.split("-").map(Number) : [Math.max(1, (newest || 1) - 1), newest];
  const change = newest === null ? null : await asking.ask(`skills/${name}/changes?from=${from}&to=${to}`);
  const row = (one) => el(
    "li", {},
    el(
      "a", { class: "row", href: `#/skills/${name}/${Math.max(1, one.version - 1)}-${one.version}`, "aria-current": one.version === to ? "true" : null },
      el("span", { class: "name" }, `Version ${one.version}`, one.version === newest ? badge("newest", "good") : null, one.restored ? badge(`as version ${one.restored}`, "warn") : null),
      el("span", { class: "about" }, `${one.reason}${one.patches.length ? `; in force: ${one.patches.join(", ")}` : ""}`),
      el("span", { class: "side" }, el("span", { class: "figure" }, el("span", {}, moment(one.created_at)), el("code", { class: "small" }, one.digest.slice(0, 12)))),
    ),
  );
  return {
    title: name,
    node: el(
      "div", { class: "stack" },
      head({ to: "#/skills", name: "Skills" }, name, [badge(page.group, ""), page.pinned ? badge(`pinned to ${page.pinned}`, "warn") : null].filter(Boolean)),
      page.versions.length ? el("ul", { class: "rows", "data-list": true }, page.versions.map(row)) : none("It was not compiled yet."),
      change && change.from !== change.to ? card(`From version ${change.from} to ${change.to}`, change.policy.length ? table([{ name: "value" }, { name: "where" }, { name: "before" }, { name: "after" }, { name: "by" }], change.policy.map((one) => [el("code", {}, one.key), condition(one.when), plain(one.before), el("strong", {}, plain(one.after)), one.patch]), "Policy values that differ") : null, change.diff || !change.policy.length ? diff(change.diff, "Text that differs") : null, change.profiles.length ? el("p", { class: "small soft" }, `It differs under ${change.profiles.length === 1 ? "profile" : "profiles"} ${change.profiles.join(", ")}.`) : null) : null,
    ),
  };
}
