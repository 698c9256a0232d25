// An issuer of OpenID Connect, on oidc-provider. It takes a port, prints it, reads its configuration from the first line
// of its input, and serves. Further lines change it while it runs: {"people": …} or {"forge": …}.
import { createPrivateKey, createSign } from "node:crypto";
import http from "node:http";
import { pathToFileURL } from "node:url";
import readline from "node:readline";

const { Provider } = await import(pathToFileURL(process.argv[2] + "/node_modules/oidc-provider/lib/index.js"));

let people = {}, forge = null, key = null, handle = (request, response) => response.writeHead(503).end();
const server = http.createServer((request, response) => handle(request, response));

function base64(value) { return Buffer.from(JSON.stringify(value)).toString("base64url"); }

// Signs the ID token again with the issuer's own key, after its claims were changed: null removes one.
function forged(token) {
  const [header, claims] = token.split(".").slice(0, 2).map((part) => JSON.parse(Buffer.from(part, "base64url")));
  for (const [name, value] of Object.entries(forge)) value === null ? delete claims[name] : (claims[name] = value);
  const text = `${base64(header)}.${base64(claims)}`;
  return `${text}.${createSign("RSA-SHA256").update(text).sign(createPrivateKey({ key, format: "jwk" }), "base64url")}`;
}

async function logoutSource(context, form) {
  const button = '<button type="submit" form="op.logoutForm" name="logout" value="yes">Yes, sign me out</button>';
  context.body = `<!doctype html><html lang="en"><title>Issuer</title>${form}${button}`;
}

function begin(configuration) {
  people = configuration.people;
  key = configuration.key;
  const provider = new Provider(`http://localhost:${server.address().port}`, {
    clients: configuration.clients,
    jwks: { keys: [key] },
    cookies: { keys: ["only for tests"] },
    features: { devInteractions: { enabled: false }, rpInitiatedLogout: { enabled: true, logoutSource } },
    claims: { openid: ["sub", "roles", "tenants"], profile: ["preferred_username"] },
    conformIdTokenClaims: false,
    ttl: { IdToken: 3600, AccessToken: 3600, Grant: 3600, Session: 3600, Interaction: 600, AuthorizationCode: 60 },
    interactions: { url: (context, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (context, id) => id in people && { accountId: id, claims: () => ({ sub: id, ...people[id] }) },
    loadExistingGrant: async (context) => {
      const grant = new provider.Grant({ clientId: context.oidc.client.clientId, accountId: context.oidc.session.accountId });
      grant.addOIDCScope("openid profile");
      await grant.save();
      return grant;
    },
  });
  provider.use(async (context, next) => {
    if (!context.path.startsWith("/interaction/")) {
      await next();
      if (forge && context.path === "/token" && context.body?.id_token) context.body.id_token = forged(context.body.id_token);
      return;
    }
    const login = new URL(context.href).searchParams.get("login");
    if (login === null) {
      context.type = "html";
      const links = [...Object.keys(people), ""].map((id) => `<a href="?login=${id}">${id || "nobody"}</a>`);
      context.body = `<!doctype html><html lang="en"><title>Issuer</title><h1>Who are you?</h1>${links.join(" ")}`;
      return;
    }
    const result = login ? { login: { accountId: login } } : { error: "access_denied", error_description: "<b>no</b>" };
    await provider.interactionFinished(context.req, context.res, result, { mergeWithLastSubmission: false });
  });
  handle = provider.callback();
  console.log("ready");
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const told = JSON.parse(line);
  if (told.clients) return begin(told);
  if ("people" in told) people = told.people;
  if ("forge" in told) forge = told.forge;
  console.log("ready");
}).on("close", () => process.exit(0));

server.listen(0, "localhost", () => console.log(server.address().port));
