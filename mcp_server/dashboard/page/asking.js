// Where documents come from: this dashboard's own address, or the client that shows the page as an MCP App.

class Problem extends Error {
  constructor(say, status) {
    super(say);
    this.status = status;
  }
}

// ---- a browser at our own address

function browserAsking() {
  let csrf = "";

  async function send(path, settings = {}) {
    let response;
    try {
      response = await fetch(path, { credentials: "same-origin", cache: "no-store", redirect: "error", ...settings });
    } catch {
      throw new Problem("The dashboard does not answer. Is mcp-evo dashboard still running in its terminal?", 0);
    }
    const text = await response.text();
    let found = null;
    try {
      found = JSON.parse(text);
    } catch {
      found = { problem: text.slice(0, 300) };
    }
    if (!response.ok) throw new Problem(found.problem || `status ${response.status}`, response.status);
    return found;
  }

  const post = (path, body, headers = {}) =>
    send(path, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });

  return {
    // The code of the link is taken out of the address before anything else happens.
    async begin() {
      const found = /^#login=([A-Za-z0-9_-]{20,100})$/.exec(location.hash);
      if (found) {
        history.replaceState(null, "", location.pathname);
        await post("/login", { code: found[1] });
      }
      const session = await send("/session");
      csrf = session.csrf;
      return session.deciding;
    },
    ask: (path) => send(`/api/${path}`),
    decide: (patch, decision) => post(`/decide/${encodeURIComponent(patch)}`, decision, { "x-evo-csrf": csrf }),
  };
}

// ---- an MCP App in a frame of a client (JSON-RPC by messages with the host)

const APP_PROTOCOL = "2026-01-26";
const HOST_WAIT_MS = 20000;

function hostAsking() {
  const waiting = new Map();
  let count = 0;
  let mayRead = false;

  function tell(method, params) {
    window.parent.postMessage({ jsonrpc: "2.0", method, params }, "*");
  }

  function request(method, params) {
    count += 1;
    const id = count;
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        waiting.delete(id);
        reject(new Problem("The client does not answer.", 0));
      }, HOST_WAIT_MS);
      waiting.set(id, { resolve, reject, late });
      window.parent.postMessage({ jsonrpc: "2.0", id, method, params }, "*");
    });
  }

  function themed(context) {
    if (context && (context.theme === "light" || context.theme === "dark")) {
      document.documentElement.dataset.theme = context.theme;
    }
  }

  window.addEventListener("message", (event) => {
    if (event.source !== window.parent || !event.data || event.data.jsonrpc !== "2.0") return;
    const { id, method, params, result, error } = event.data;
    if (method === undefined) {
      const call = waiting.get(id);
      if (!call) return;
      waiting.delete(id);
      clearTimeout(call.late);
      if (error) call.reject(new Problem(String(error.message || "the client refused"), 404));
      else call.resolve(result);
    } else if (method === "ui/notifications/host-context-changed") themed(params);
    else if (id !== undefined) {
      const known = method === "ping" || method === "ui/resource-teardown";
      const body = known ? { result: {} } : { error: { code: -32601, message: "Method not found" } };
      window.parent.postMessage({ jsonrpc: "2.0", id, ...body }, "*");
    }
  });

  return {
    async begin() {
      const made = await request("ui/initialize", {
        protocolVersion: APP_PROTOCOL,
        appInfo: { name: "mcp-evo dashboard", version: "1" },
        appCapabilities: {},
      });
      themed(made.hostContext);
      mayRead = Boolean(made.hostCapabilities && made.hostCapabilities.serverResources);
      tell("ui/notifications/initialized", {});
      const told = () => tell("ui/notifications/size-changed", { height: Math.ceil(document.body.getBoundingClientRect().height) });
      new ResizeObserver(told).observe(document.body);
      return { allowed: false, why_not: "Inside a client this page is for reading only" };
    },
    async ask(path) {
      if (!mayRead) throw new Problem("This client does not let pages read from the server. Open the page with: mcp-evo dashboard", 0);
      const found = await request("resources/read", { uri: `evo://dashboard/${path.replace("?", "/~")}` });
      return JSON.parse(found.contents[0].text);
    },
    decide() {
      throw new Problem("Inside a client this page is for reading only", 403);
    },
  };
}

const asking = document.documentElement.dataset.place === "app" ? hostAsking() : browserAsking();
