// A site that signs in with openid-client.

import { createServer } from "node:http";
import * as client from "openid-client";

// SETTINGS
const options = { execute: [client.allowInsecureRequests] }; // the tests have no https
const config = await client.discovery(issuer, clientId, clientSecret, undefined, options);
let checks; // of the sign-in that was started last
let tokens;

const pages = {
  async "/sign-in"(address) {
    const pkceCodeVerifier = client.randomPKCECodeVerifier();
    const [expectedState, expectedNonce] = [client.randomState(), client.randomNonce()];
    checks = { pkceCodeVerifier, expectedState, expectedNonce, idTokenExpected: true };
    return client.buildAuthorizationUrl(config, {
      redirect_uri: redirectUri, scope, state: expectedState, nonce: expectedNonce,
      code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
      code_challenge_method: "S256", ...Object.fromEntries(address.searchParams),
    });
  },
  async "/callback"(address) {
    tokens = await client.authorizationCodeGrant(config, address, checks);
    const claims = tokens.claims();
    return { claims, user: await client.fetchUserInfo(config, tokens.access_token, claims.sub) };
  },
  async "/sign-out"() {
    const post_logout_redirect_uri = new URL("/", redirectUri).href;
    const id_token_hint = tokens.id_token;
    return client.buildEndSessionUrl(config, { id_token_hint, post_logout_redirect_uri });
  },
};

createServer(async (request, response) => {
  const address = new URL(request.url, redirectUri);
  const shown = await pages[address.pathname]?.(address).catch(({ error }) => ({ error }));
  if (shown instanceof URL) return response.writeHead(302, { Location: shown.href }).end();
  response.setHeader("Content-Type", "application/json").end(JSON.stringify(shown ?? null));
}).listen(process.env.PORT, "127.0.0.1");
