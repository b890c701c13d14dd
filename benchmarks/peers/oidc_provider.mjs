// oidc-provider with opaque access tokens, in memory. Its own MemoryAdapter keeps 1,000 entries only.

import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";
import {
  answerSignIn, answerWithCodes, client, CODE_LIFETIME, host, players, port, TOKEN_LIFETIME,
} from "./installation.mjs";

// https://github.com/panva/node-oidc-provider/blob/main/example/my_adapter.js lists the methods.
class Adapter {
  records = new Map();

  async upsert(id, payload) {
    this.records.set(id, payload);
  }

  async find(id) {
    return this.records.get(id);
  }

  async consume(id) {
    this.records.get(id).consumed = Math.floor(Date.now() / 1000);
  }

  async destroy(id) {
    this.records.delete(id);
  }

  async revokeByGrantId(grantId) {
    for (const [id, payload] of this.records) {
      if (payload.grantId === grantId) this.records.delete(id);
    }
  }
}

const provider = new Provider(`http://${host}:${port}`, {
  adapter: Adapter,
  clients: [{
    client_id: client.id,
    client_secret: client.secret,
    redirect_uris: [client.redirectUri],
    token_endpoint_auth_method: "client_secret_post",
    id_token_signed_response_alg: "ES256", // a hundredth of the cost of RS256
  }],
  claims: { openid: ["sub"], profile: ["name", "updated_at"], email: ["email"] },
  cookies: { keys: ["not used: no browser takes part"] },
  features: { devInteractions: { enabled: false } },
  findAccount: (_, id) => {
    const player = players.get(id);
    return player && { accountId: id, claims: () => player };
  },
  jwks: {
    keys: [generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" })],
  },
  ttl: {
    AccessToken: TOKEN_LIFETIME, AuthorizationCode: CODE_LIFETIME, Grant: 86400, IdToken: 600,
  },
});

const grantIds = new Map(); // by player id
for (const accountId of players.keys()) {
  const grant = new provider.Grant({ accountId, clientId: client.id });
  grant.addOIDCScope("openid profile email");
  grantIds.set(accountId, await grant.save());
}

// Issue a code as the consent page does. Without the scope "openid" the exchange makes no ID token.
async function issueCode(accountId, scope) {
  const code = new provider.AuthorizationCode({
    accountId,
    client: await provider.Client.find(client.id),
    grantId: grantIds.get(accountId),
    redirectUri: client.redirectUri,
    scope,
  });
  return code.save();
}

const handle = provider.callback();
createServer((request, response) => {
  if (request.url.startsWith("/codes?")) {
    answerWithCodes(request.url, response, issueCode);
  } else if (request.url === "/sign-in") {
    answerSignIn(request, response);
  } else {
    handle(request, response);
  }
}).listen(port, host);
